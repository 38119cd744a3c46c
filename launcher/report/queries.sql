-- This file holds the longer statements of reports, which launcher/report/queries.h declares. Numbers
-- of trials are those of ranked_trial; mfu and hfu are fractions of the dense peak.

-- name: sql_run_tune
-- Finds the tuning for a run: the newest of its model, but one that measured the run's last layout
-- comes before all others.
-- ?1: the run. Columns: tune.
SELECT t.tune FROM v_trial t JOIN run r ON r.model = t.model
WHERE r.run = ?1
ORDER BY
  t.measured_step_s IS NOT NULL
    AND t.layout = (SELECT s.layout FROM train_start s
                    WHERE s.run = ?1 ORDER BY s.attempt DESC LIMIT 1) DESC,
  t.predicted_at DESC
LIMIT 1;

-- name: sql_run_curation
-- Finds the curation that made a run's dataset: that whose fingerprint stands first among the
-- run's, and of several the newest.
-- ?1: the run. Columns: the curation.
SELECT c.run FROM event r, event c
WHERE r.run = ?1 AND r.kind = 'run_created'
  AND c.kind = 'curate_ended' AND json_extract(c.json, '$.clips') > 0
  AND instr(json_extract(r.json, '$.data_fingerprints'), json_extract(c.json, '$.fingerprint'))
ORDER BY
  instr(json_extract(r.json, '$.data_fingerprints'), json_extract(c.json, '$.fingerprint')),
  c.wall DESC
LIMIT 1;

-- name: sql_step_sums
-- Adds up a run's steps.
-- ?1: the run. Columns: steps without replays; executions; replayed executions; time of the steps
-- without replays, s; their mfu, weighted by time; the time for which there is one, s; the first
-- and the last loss.
SELECT
  sum(CASE WHEN NOT replayed THEN steps END),
  sum(steps),
  sum(CASE WHEN replayed THEN steps ELSE 0 END),
  sum(CASE WHEN NOT replayed THEN step_s END),
  sum(CASE WHEN NOT replayed THEN mfu * step_s END)
    / sum(CASE WHEN NOT replayed AND mfu IS NOT NULL THEN step_s END),
  sum(CASE WHEN NOT replayed AND mfu IS NOT NULL THEN step_s END),
  (SELECT x.loss FROM v_step x WHERE x.run = ?1 AND NOT x.replayed AND x.loss IS NOT NULL
   ORDER BY x.step LIMIT 1),
  (SELECT x.loss FROM v_step x WHERE x.run = ?1 AND NOT x.replayed AND x.loss IS NOT NULL
   ORDER BY x.step DESC LIMIT 1)
FROM v_step WHERE run = ?1;

-- name: sql_restarts
-- Counts why a run's attempts ended, without the newest, the most frequent cause first.
-- ?1: the run. Columns: cause; n, attempts.
SELECT coalesce(cause, 'unknown') AS cause, count(*) AS n
FROM v_attempt a
WHERE run = ?1 AND attempt < (SELECT max(b.attempt) FROM v_attempt b WHERE b.run = ?1)
GROUP BY 1 ORDER BY 2 DESC, 1;

-- name: sql_attempt_ends
-- Lists where attempts ended, by the last step that they did and the cause. It leaves out an
-- attempt that completed the run, and the newest one while it has no cause.
-- ?1: the run. Columns: the first and the last of these attempts; their number; cause; that step.
SELECT min(attempt), max(attempt), count(*), cause, last_step
FROM v_attempt a
WHERE run = ?1 AND last_step IS NOT NULL
  AND (coalesce(cause, 'done') <> 'done'
       OR (cause IS NULL
           AND attempt < (SELECT max(b.attempt) FROM v_attempt b WHERE b.run = ?1)))
GROUP BY last_step, cause ORDER BY last_step, 1;

-- name: sql_trials
-- Lists the trials of a tuning, in the order of all lists and charts of trials.
-- ?1: the tuning. Columns: number; predicted and measured time of a step, s; mfu; peak, bytes;
-- state; cause; trial; layout; 1 for the winner; bounds of the predicted time, s.
SELECT
  k, predicted_step_s, measured_step_s, mfu, peak_bytes, state, cause, trial, layout,
  trial = (SELECT json_extract(e.json, '$.winner') FROM event e
           WHERE e.run = ?1 AND e.kind = 'tune_ended' ORDER BY e.seq DESC LIMIT 1),
  predicted_lo_s, predicted_hi_s
FROM ranked_trial WHERE tune = ?1 ORDER BY k;

-- name: sql_tune_end
-- Tells how a search ended last; no row: it has not.
-- ?1: the tuning. Columns: the reason; layouts whose interval meets the best's that have fewer
-- measurements than was asked, and all such layouts, with the best (NULL in older logs).
SELECT
  json_extract(json, '$.reason'), json_extract(json, '$.contenders_left'),
  json_extract(json, '$.contenders')
FROM event
WHERE run = ?1 AND kind = 'tune_ended' AND json_extract(json, '$.reason') <> ''
ORDER BY seq DESC LIMIT 1;

-- name: sql_trial_terms
-- Lists the terms of a step's time, for the first trials of a tuning: 12, as REPORT_BARS says.
-- ?1: the tuning. Columns: number; predicted and measured time of a step, s; term; its predicted
-- and its measured time, s; bounds of the step's predicted time, s; the term's CPU time by the
-- probe, s.
SELECT
  t.k, t.predicted_step_s, t.measured_step_s, x.term, x.predicted_s, x.measured_s,
  t.predicted_lo_s, t.predicted_hi_s, x.priced_s
FROM ranked_trial t JOIN v_term x ON x.tune = t.tune AND x.trial = t.trial
WHERE t.tune = ?1 AND t.k <= 12 ORDER BY t.k, x.term;

-- name: sql_trial_rooms
-- Lists free memory and speed of a tuning's measured trials: at most 200, as REPORT_ROOMS says.
-- ?1: the tuning. Columns: number; share of the GPU's memory that stayed free; tokens/s; trial.
SELECT
  t.k,
  1 - t.peak_bytes / e.limit_bytes,
  t.tokens / t.measured_step_s,
  t.trial
FROM ranked_trial t
JOIN (SELECT
        json_extract(json, '$.trial') AS trial,
        max(1.0 * json_extract(json, '$.limit_bytes')) AS limit_bytes
      FROM event WHERE run = ?1 AND kind = 'trial_predicted' GROUP BY 1) e ON e.trial = t.trial
WHERE t.tune = ?1
  AND e.limit_bytes > 0 AND t.peak_bytes > 0 AND t.tokens > 0 AND t.measured_step_s > 0
ORDER BY t.k LIMIT 200;

-- name: sql_trial_classes
-- Says what ran on the GPUs in the recorded steps of a tuning's trials, the longest class first.
-- ?1: the tuning. Columns: number; a recorded step, s; hfu; hidden communication, s; records lost;
-- class; its time, s.
SELECT t.k, t.recorded_step_s, t.hfu, t.hidden_comm_s, t.dropped, c.class, c.seconds
FROM ranked_trial t JOIN v_trial_class c ON c.tune = t.tune AND c.trial = t.trial
WHERE t.tune = ?1 AND t.recorded_step_s > 0
ORDER BY t.k, c.seconds DESC;

-- name: sql_sources
-- Lists the sources of a curation.
-- ?1: the curation. Columns: name; frames, shots and clips found; clips rejected; reason.
SELECT
  json_extract(json, '$.source') AS source,
  json_extract(json, '$.frames') AS frames,
  json_extract(json, '$.shots') AS shots,
  json_extract(json, '$.clips') AS clips,
  json_extract(json, '$.rejected') AS rejected,
  json_extract(json, '$.reason') AS reason
FROM event WHERE run = ?1 AND kind = 'curate_source' ORDER BY attempt, seq;
