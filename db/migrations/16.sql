-- Clocks: a host that hides its boot id has none of its own, and nothing of an attempt comes before its
-- agent started it.
ALTER TABLE fold_part ADD COLUMN start_mono REAL NOT NULL DEFAULT 9e999;
ALTER TABLE fold_attempt ADD COLUMN started_at REAL NOT NULL DEFAULT 9e999;
INSERT OR IGNORE INTO refold SELECT DISTINCT run FROM event;
