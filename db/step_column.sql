-- A new column of `step`: what a migration does for each field that base/events.def has since its version.
ALTER TABLE step ADD COLUMN $name $type;
UPDATE step SET $name = (SELECT json_extract(e.json, '$.$name') FROM event e WHERE e.id = step.event);
