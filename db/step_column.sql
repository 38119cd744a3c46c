-- Adds a column to `step`. A migration does this for each field of a step in base/events.def whose
-- `since` is the migration's version.
ALTER TABLE step ADD COLUMN $name $type;
UPDATE step SET $name =
  (SELECT json_extract(e.json, '$.$name') FROM event e WHERE e.id = step.event);
