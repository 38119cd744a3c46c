-- Wrapped trainers: steps that a row covers, whether an earlier attempt printed them, and how long before
-- its event (s) the row had ended.
ALTER TABLE step ADD COLUMN steps INTEGER;
ALTER TABLE step ADD COLUMN again INTEGER;
ALTER TABLE step ADD COLUMN ended_ago_s REAL;
