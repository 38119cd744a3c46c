-- The layouts of trials, one row a text. The keys of a new row are NULL until the ingest has read it.
CREATE TABLE layout(
  text TEXT PRIMARY KEY,
  tp INTEGER,
  sp INTEGER,
  cp INTEGER,
  cp_kind TEXT,
  pp INTEGER,
  vpp INTEGER,
  dp INTEGER,
  zero INTEGER,
  fsdp INTEGER,
  mbs INTEGER,
  recompute TEXT,
  recompute_layers INTEGER
) STRICT, WITHOUT ROWID;
INSERT OR IGNORE INTO layout(text)
SELECT json_extract(e.json, '$.layout') FROM trial_event t JOIN event e ON e.id = t.event
WHERE json_type(e.json, '$.layout') = 'text';
