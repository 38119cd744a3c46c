-- What the fold keeps of an attempt: between which times all its activities lie. Of attempts that were
-- folded before it is not known.
ALTER TABLE fold_attempt ADD COLUMN acts_from REAL NOT NULL DEFAULT -9e999;
ALTER TABLE fold_attempt ADD COLUMN acts_to REAL NOT NULL DEFAULT 9e999;
