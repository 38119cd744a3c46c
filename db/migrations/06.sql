-- What the fold of a run keeps between two ingests (db/fold_priv.h).
DROP TABLE span;
CREATE TABLE span(
  run TEXT NOT NULL,
  from_at REAL NOT NULL,
  to_at REAL NOT NULL,
  cause TEXT NOT NULL,
  seconds REAL NOT NULL CHECK(seconds >= 0),
  PRIMARY KEY(run, from_at)
) STRICT, WITHOUT ROWID;
CREATE TABLE fold(
  run TEXT PRIMARY KEY,
  from_at REAL NOT NULL,
  until_at REAL NOT NULL
) STRICT;
CREATE TABLE fold_diff(
  run TEXT NOT NULL,
  host TEXT NOT NULL,
  boot TEXT NOT NULL,
  ms INTEGER NOT NULL,
  n INTEGER NOT NULL,
  PRIMARY KEY(run, host, boot, ms)
) STRICT, WITHOUT ROWID;
CREATE TABLE fold_part(
  run TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  host TEXT NOT NULL,
  boot TEXT NOT NULL,
  first_mono REAL NOT NULL,
  last_mono REAL NOT NULL,
  submit_mono REAL NOT NULL,
  PRIMARY KEY(run, attempt, host, boot)
) STRICT, WITHOUT ROWID;
CREATE TABLE fold_attempt(
  run TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  begin_at REAL NOT NULL,
  first_step_at REAL NOT NULL,
  last_at REAL NOT NULL,
  ended_at REAL NOT NULL,
  ended_writer TEXT,
  ended_seq INTEGER,
  cause TEXT,
  PRIMARY KEY(run, attempt)
) STRICT, WITHOUT ROWID;
CREATE TABLE fold_writer(
  run TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  writer TEXT NOT NULL,
  last_seq INTEGER NOT NULL,
  step_at REAL NOT NULL,
  PRIMARY KEY(run, attempt, writer)
) STRICT, WITHOUT ROWID;
CREATE TABLE refold(run TEXT PRIMARY KEY) STRICT, WITHOUT ROWID; -- runs to be folded from their first event
INSERT INTO refold SELECT DISTINCT run FROM event;
