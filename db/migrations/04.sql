ALTER TABLE step ADD COLUMN other_s REAL;
ALTER TABLE step ADD COLUMN weight_norm REAL;
ALTER TABLE step ADD COLUMN update_norm REAL;
UPDATE step SET other_s = (SELECT json_extract(e.json, '$.other_s') FROM event e WHERE e.id = step.event);
