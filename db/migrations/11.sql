-- Of an attempt's ends the first counts now, not the last.
INSERT OR IGNORE INTO refold SELECT DISTINCT run FROM event;
