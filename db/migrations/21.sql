-- v_trial: which ranks are neighbours. Layouts of before had the one order that there was.
ALTER TABLE layout ADD COLUMN rank_order TEXT;
UPDATE layout SET rank_order = 'tp-cp-dp-pp' WHERE tp IS NOT NULL;
