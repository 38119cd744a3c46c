-- Where the rows came from.
CREATE TABLE source(
  path TEXT PRIMARY KEY -- a folder that is searched for event logs
) STRICT;
CREATE TABLE file(
  path TEXT PRIMARY KEY,
  bytes INTEGER NOT NULL,
  mtime_ns INTEGER NOT NULL,
  read_to INTEGER NOT NULL, -- byte behind the last record that was read
  last_seq INTEGER NOT NULL,
  tail_hash TEXT NOT NULL, -- of the bytes before read_to; another one when the file was cut and grew again
  run TEXT,
  attempt INTEGER,
  writer TEXT
) STRICT;
CREATE TABLE damage(
  file TEXT NOT NULL REFERENCES file(path) ON DELETE CASCADE,
  at_byte INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  reason TEXT NOT NULL,
  PRIMARY KEY(file, at_byte, reason)
) STRICT;

-- The events, whole. The common fields are columns: docs/events.md.
CREATE TABLE event(
  id INTEGER PRIMARY KEY,
  run TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  writer TEXT NOT NULL,
  seq INTEGER NOT NULL,
  kind TEXT NOT NULL,
  wall REAL NOT NULL, -- UTC s
  mono REAL NOT NULL, -- s since the host's boot
  boot TEXT NOT NULL,
  host TEXT NOT NULL,
  json TEXT NOT NULL,
  UNIQUE(run, attempt, writer, seq)
) STRICT;
CREATE INDEX event_kind ON event(kind, run, attempt);
CREATE TABLE conflict( -- events that lost against another one under the same key
  run TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  writer TEXT NOT NULL,
  seq INTEGER NOT NULL,
  json TEXT NOT NULL,
  PRIMARY KEY(run, attempt, writer, seq, json)
) STRICT;

-- Projections of single events into typed columns.
CREATE TABLE step(
  event INTEGER PRIMARY KEY REFERENCES event(id) ON DELETE CASCADE,
  run TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  writer TEXT NOT NULL,
  seq INTEGER NOT NULL,
  step INTEGER NOT NULL,
  started_at REAL,
  step_s REAL,
  tokens INTEGER,
  loss REAL,
  grad_norm REAL,
  lr REAL,
  model_flops REAL,
  flops_per_token REAL, -- model_flops / tokens
  mfu REAL,
  data_s REAL,
  forward_s REAL,
  backward_s REAL,
  comm_s REAL,
  optim_s REAL,
  peak_bytes INTEGER,
  skipped INTEGER
) STRICT;
CREATE INDEX step_run ON step(run, step, attempt, writer, seq);
CREATE TABLE train_start(
  event INTEGER PRIMARY KEY REFERENCES event(id) ON DELETE CASCADE,
  run TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  writer TEXT NOT NULL,
  seq INTEGER NOT NULL,
  next_step INTEGER,
  total_steps INTEGER,
  model TEXT,
  layout TEXT,
  extent TEXT,
  gbs INTEGER,
  world INTEGER,
  device TEXT,
  dtype TEXT,
  peak_flops REAL,
  peak_source TEXT,
  flops_formula TEXT,
  config_hash TEXT,
  trial INTEGER NOT NULL -- 1: a trial of the tuner
) STRICT;
CREATE INDEX train_start_run ON train_start(run, attempt, writer, seq);
CREATE TABLE trial_event(
  event INTEGER PRIMARY KEY REFERENCES event(id) ON DELETE CASCADE,
  tune TEXT NOT NULL,
  trial TEXT NOT NULL,
  kind TEXT NOT NULL,
  seq INTEGER NOT NULL
) STRICT;
CREATE INDEX trial_event_trial ON trial_event(tune, trial, kind, seq);

-- What is computed from all events of a run.
CREATE TABLE run_clock(
  run TEXT NOT NULL,
  host TEXT NOT NULL,
  boot TEXT NOT NULL,
  offset_s REAL NOT NULL, -- UTC less the host's monotonic clock
  PRIMARY KEY(run, host, boot)
) STRICT;
CREATE TABLE span(
  run TEXT NOT NULL,
  n INTEGER NOT NULL,
  cause TEXT NOT NULL,
  from_at REAL NOT NULL,
  to_at REAL NOT NULL,
  seconds REAL NOT NULL CHECK(seconds >= 0),
  PRIMARY KEY(run, n)
) STRICT;
