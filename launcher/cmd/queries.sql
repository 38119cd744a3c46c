-- This file holds the longer statements of commands, which launcher/cmd/queries.h declares.

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
