-- This file holds the longer statements of ingesting, which db/queries.h declares.

-- name: sql_file_save
-- Saves how far a log was read. Whose log it is stays as it was once that is known.
-- ?1: its path; ?2: its size, bytes; ?3: its time of modification, Unix ns; ?4: bytes read; ?5: the
-- last number of an event; ?6: the hash of the bytes before that; ?7 to ?9: run, attempt and writer,
-- or NULL.
INSERT INTO file(path, bytes, mtime_ns, read_to, last_seq, tail_hash, run, attempt, writer)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT(path) DO UPDATE SET
  bytes = ?2, mtime_ns = ?3, read_to = ?4, last_seq = ?5, tail_hash = ?6,
  run = coalesce(run, ?7), attempt = coalesce(attempt, ?8), writer = coalesce(writer, ?9);

-- name: sql_layout_save
-- Saves the keys of a layout beside its text.
-- ?1: the text; ?2 to ?14: the keys in the order below.
UPDATE layout SET
  tp = ?2, sp = ?3, cp = ?4, pp = ?5, vpp = ?6, dp = ?7, zero = ?8, fsdp = ?9, mbs = ?10,
  recompute_layers = ?11, cp_kind = ?12, recompute = ?13, rank_order = ?14
WHERE text = ?1;
