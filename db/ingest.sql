-- Begins an ingest. Temporary tables of its connection hold the logs that it finds and the runs that
-- have new events.
CREATE TEMP TABLE IF NOT EXISTS found(path TEXT PRIMARY KEY);
CREATE TEMP TABLE IF NOT EXISTS found_end(path TEXT PRIMARY KEY); -- its name may tell an end
CREATE TEMP TABLE IF NOT EXISTS touched(
  run TEXT PRIMARY KEY,
  first_id INTEGER, -- of the run's new events
  last_id INTEGER,
  whole INTEGER -- 1: the run must be folded from its first event
);
BEGIN IMMEDIATE;
DELETE FROM found;
DELETE FROM found_end;
DELETE FROM touched;
INSERT INTO touched SELECT run, 0, 0, 1 FROM refold;
DELETE FROM refold;
