-- A host that hides its boot id has no clock of its own, and an attempt's first step cannot begin before
-- the attempt.
INSERT OR IGNORE INTO refold SELECT DISTINCT run FROM event;
