-- This file holds the longer statements of commands, which launcher/cmd/queries.h declares.

-- name: sql_save_s
-- Finds how long a save takes, s: of all saves on record the longest, but for the hundredth of them
-- that took longer.
-- ?1: the model; NULL: saves of all models. Columns: s.
WITH save AS (
  SELECT json_extract(e.json, '$.seconds') AS s FROM event e
  WHERE e.kind = 'ckpt_saved'
    AND (?1 IS NULL
         OR e.run IN (SELECT c.run FROM event c WHERE c.kind = 'run_created'
                        AND json_extract(c.json, '$.model') = ?1)))
SELECT s FROM save WHERE s IS NOT NULL
ORDER BY s DESC LIMIT 1 OFFSET (SELECT count(s) / 100 FROM save);

-- name: sql_step_s
-- Finds the longest of the last steps of all runs of a model, s.
-- ?1: the model. Columns: s; NULL if none is known.
SELECT max((SELECT s.step_s FROM v_step s WHERE s.run = c.run ORDER BY s.step DESC LIMIT 1))
FROM event c
WHERE c.kind = 'run_created' AND json_extract(c.json, '$.model') = ?1;

-- name: sql_known_trials
-- Lists the trials from which the tuner's constants can be learnt: those that were measured
-- undisturbed, or whose layout did not fit the GPU's memory.
-- Columns: layout; state; measured time of a step, s; peak, bytes; ranks; the text of its tuning's
-- tune_started event; samples of a batch.
SELECT
  t.layout, t.state, t.measured_step_s, t.peak_bytes, t.gpus,
  (SELECT e.json FROM event e WHERE e.kind = 'tune_started' AND e.run = t.tune
   ORDER BY e.seq DESC LIMIT 1),
  (SELECT json_extract(e.json, '$.gbs') FROM trial_event p JOIN event e ON e.id = p.event
   WHERE p.tune = t.tune AND p.trial = t.trial AND p.kind = 'trial_predicted'
   ORDER BY p.seq DESC LIMIT 1)
FROM v_trial t
WHERE t.state IN ('ok', 'oom_device') AND coalesce(t.disturbed, 0) = 0
ORDER BY t.predicted_at;
