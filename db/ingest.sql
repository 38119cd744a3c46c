-- How an ingest begins: in the connection, nowhere else, it notes what it found and which runs it touched.
CREATE TEMP TABLE IF NOT EXISTS found(path TEXT PRIMARY KEY);
CREATE TEMP TABLE IF NOT EXISTS touched(
  run TEXT PRIMARY KEY,
  first_id INTEGER, -- of its new events
  last_id INTEGER,
  whole INTEGER -- 1: it is to be folded from its first event
);
BEGIN IMMEDIATE;
DELETE FROM found;
DELETE FROM touched;
INSERT INTO touched SELECT run, 0, 0, 1 FROM refold;
DELETE FROM refold;
