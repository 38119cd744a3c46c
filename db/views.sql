-- This file makes the views, each after those that it uses. A change of a view's columns or meaning
-- is a new migration, which may be empty otherwise. After any other change of this text the views
-- are made anew when the database is next opened for writing. A comment inside a view stays in the
-- database, where .schema of sqlite3 shows it, and `reel db schema` prints it.
--
-- v_* are public: names, columns, units and meaning stay, and new columns are added after the old
-- ones. Each of their columns ends a line, "expression AS name, -- sentence"; a line with only a
-- comment continues the sentence before it. Other comments inside a view are /* like this */, but
-- a line /* STEP field */ is replaced by the shown fields of a step (base/events.def): all that no
-- earlier such line has, up to this field, or to the last. So a new field comes after all others.

DROP VIEW IF EXISTS event_time;
CREATE VIEW event_time AS
-- Holds every event with `at`, its time on the run's clock, which is monotonic within a host's boot
-- even if the wall clock is set.
SELECT e.id, e.run, e.attempt, e.writer, e.seq, e.kind,
  coalesce(e.mono + c.offset_s, e.wall) AS at, -- UTC s
  e.wall, -- UTC s
  e.json
FROM event e LEFT JOIN run_clock c ON c.run = e.run AND c.host = e.host AND c.boot = e.boot;

DROP VIEW IF EXISTS fold_event;
CREATE VIEW fold_event AS
-- Holds of every event what the fold of a run's time (db/fold.c) reads.
SELECT
  e.id, e.run, e.attempt, e.writer, e.seq, e.kind, e.host, e.boot,
  e.mono, -- s, of this boot of the host
  e.wall, -- UTC s
  CASE WHEN e.kind = 'step' THEN s.started_at
       WHEN e.kind GLOB 'ckpt_*' OR e.kind = 'suspended'
         THEN json_extract(e.json, '$.started_at') END
    AS started_at, -- UTC s by the wall clock; NULL: it tells of nothing that took time
  CASE WHEN e.kind = 'step' THEN s.step_s
       WHEN e.kind GLOB 'ckpt_*' OR e.kind = 'suspended'
         THEN json_extract(e.json, '$.seconds') END
    AS seconds, -- s; it took
  CASE WHEN e.kind = 'attempt_ended' THEN json_extract(e.json, '$.cause') END AS cause,
  coalesce(s.again, 0)
    OR EXISTS (SELECT 1 FROM step o WHERE o.run = s.run AND o.step = s.step
                 AND (o.attempt, o.seq, o.writer) < (s.attempt, s.seq, s.writer))
    AS replayed, -- 1: the step was done before
  s.ended_ago_s, -- s from the step's end to the event; NULL: none, or not told
  CASE WHEN e.kind = 'attempt_ended' THEN json_extract(e.json, '$.ended_at') END
    AS ended_at -- UTC s; when the attempt ended; NULL: when this was written
FROM event e LEFT JOIN step s ON s.event = e.id;

DROP VIEW IF EXISTS run;
CREATE VIEW run AS
-- Lists training runs with their names.
SELECT
  r.run,
  max(CASE WHEN e.kind = 'run_created' THEN json_extract(e.json, '$.name') END) AS name,
  max(CASE WHEN e.kind = 'run_created' THEN json_extract(e.json, '$.model') END) AS model,
  max(CASE WHEN e.kind = 'run_created' THEN json_extract(e.json, '$.config_hash') END)
    AS config_hash,
  max(json_extract(e.json, '$.total_steps')) AS total_steps,
  (SELECT min(at) FROM event_time t WHERE t.run = r.run) AS first_at, -- UTC s
  (SELECT max(at) FROM event_time t WHERE t.run = r.run) AS last_at -- UTC s
FROM (SELECT run FROM event
      WHERE kind IN ('run_created', 'submit_intent', 'attempt_started', 'train_started')
      UNION SELECT run FROM step) r
LEFT JOIN event e ON e.run = r.run AND e.kind IN ('run_created', 'extended', 'train_started')
WHERE NOT EXISTS (SELECT 1 FROM train_start t WHERE t.run = r.run AND t.trial)
  OR EXISTS (SELECT 1 FROM train_start t WHERE t.run = r.run AND NOT t.trial)
GROUP BY r.run;

DROP VIEW IF EXISTS v_run;
CREATE VIEW v_run AS
-- Has one row for each run: the name behind the run id of the other views.
SELECT
  r.run, -- run id
  r.name, -- as given
  r.model, -- name of the model; of a wrapped run: --model, else the script's or program's name
  r.config_hash, -- hash of all settings that decide its numbers; NULL for a wrapped run
  r.total_steps, -- NULL or 0 when not known
  (SELECT min(t.at) FROM event_time t
   WHERE t.kind = 'run_created' AND t.run = r.run) AS created_at, -- UTC s
  (SELECT f.until_at FROM fold f WHERE f.run = r.run) AS last_at -- UTC s of its last event
FROM run r;

DROP VIEW IF EXISTS v_step;
CREATE VIEW v_step AS
-- Has one row for each optimizer step that was done, replays included, but no steps of trials. A
-- wrapped trainer has one row for each line that it printed, which may cover several steps: then
-- step_s, tokens and mfu are those of all of them, and step is the last. step_s and mfu leave out
-- the time for which the job was suspended.
SELECT
  s.run, -- run id
  s.attempt, -- from 1
  /* STEP loss */
  (coalesce(s.again, 0)
   OR row_number() OVER (PARTITION BY s.run, s.step ORDER BY s.attempt, s.seq, s.writer) > 1)
    AS replayed, -- 1: the run had executed this step before, in this attempt or an earlier one
  /* STEP spike */
  coalesce(s.steps, 1) AS steps -- number of steps that the row covers; 1 for our own trainer
  /* STEP */
FROM (SELECT *, coalesce(
        (SELECT sum(max(0, min(y.at - coalesce(w.ended_ago_s, 0), x.at) -
                           max(y.at - coalesce(w.ended_ago_s, 0) - w.step_s,
                               x.at - json_extract(x.json, '$.seconds'))))
         FROM event_time x JOIN event_time y ON y.id = w.event
         WHERE x.kind = 'suspended' AND x.run = w.run AND x.attempt = w.attempt), 0) AS rest_s
      FROM step w) s
WHERE NOT EXISTS (SELECT 1 FROM train_start t
                  WHERE t.run = s.run AND t.attempt = s.attempt AND t.trial);

DROP VIEW IF EXISTS v_validation;
CREATE VIEW v_validation AS
-- Has the loss on fixed draws, one row for each bin of the noise level, replays included.
SELECT
  e.run, -- run id
  e.attempt, -- from 1
  json_extract(e.json, '$.step') AS step, -- steps done
  w.weights, -- model, or average (EMA)
  b.key AS bin, -- from 0, rising noise; all bins are equally probable in training
  b.value AS loss, -- mean over samples of the output's weighted squared error; NULL: not finite
  json_extract(e.json, '$.samples') AS samples, -- number of samples measured in each bin
  json_extract(e.json, '$.started_at') AS started_at, -- UTC s
  json_extract(e.json, '$.seconds') AS seconds -- time of the whole validation
FROM event e
JOIN (SELECT 'model' AS weights, 'bins' AS field UNION ALL SELECT 'average', 'average_bins') w
JOIN json_each(e.json, '$.' || w.field) b
WHERE e.kind = 'validation';

DROP VIEW IF EXISTS v_attempt;
CREATE VIEW v_attempt AS
-- Has one row for each attempt, that is, each time that a run was started.
SELECT
  a.run, -- run id
  a.attempt, -- from 1
  (SELECT json_extract(e.json, '$.sched') FROM event e
   WHERE e.kind = 'attempt_started' AND e.run = a.run AND e.attempt = a.attempt
   ORDER BY e.seq, e.writer LIMIT 1)
    AS scheduler, -- slurm, local, ...; NULL when the trainer was started by hand
  CAST((SELECT json_extract(e.json, '$.job_id') FROM event e
        WHERE e.kind = 'attempt_started' AND e.run = a.run AND e.attempt = a.attempt
        ORDER BY e.seq, e.writer LIMIT 1) AS TEXT)
    AS job_id, -- id of the job at the scheduler
  coalesce((SELECT min(t.at) FROM event_time t
            WHERE t.kind = 'attempt_started' AND t.run = a.run AND t.attempt = a.attempt),
           (SELECT min(t.at) FROM event_time t
            WHERE t.kind = 'train_started' AND t.run = a.run AND t.attempt = a.attempt))
    AS started_at, -- UTC s
  CASE WHEN a.ended_writer IS NOT NULL THEN a.ended_at END
    AS ended_at, -- UTC s; NULL while it runs, and if no process survived to record it
  a.cause, -- done, preempt, time_limit, crash, node_fail, cancel, pause, hang, diverged, disk_full,
  -- early_exit (exit status 0 before its steps were done; counts as a crash); NULL like ended_at
  (SELECT min(s.step - coalesce(s.steps, 1) + 1) FROM step s
   WHERE s.run = a.run AND s.attempt = a.attempt)
    AS first_step, -- least step done in it; NULL if none
  (SELECT max(s.step) FROM step s
   WHERE s.run = a.run AND s.attempt = a.attempt)
    AS last_step -- greatest step done in it
FROM fold_attempt a
WHERE a.attempt >= 1
  AND NOT EXISTS (SELECT 1 FROM train_start t
                  WHERE t.run = a.run AND t.attempt = a.attempt AND t.trial);

DROP VIEW IF EXISTS v_time;
CREATE VIEW v_time AS
-- Says where a run's time went: rows of a run do not overlap and add up to the time from its first
-- submission to its last event. Durations come from monotonic clocks. (from and to are SQL words:
-- write them in double quotes.)
SELECT
  run, -- run id
  cause, -- queue         submitted, first attempt not started
         -- start         attempt started, first step not begun (less load)
         -- load, save    reading and writing checkpoints, while no step runs
         -- train         steps, the first time each is done
         -- replay        steps done again after a restart
         -- suspended     the job was suspended by the scheduler, whatever that interrupted
         -- down:CAUSE    from an attempt's end by CAUSE to the start of the next; down:unknown if
         --               no cause was recorded
         -- other         within an attempt, none of these
  from_at AS "from", -- UTC s
  to_at AS "to", -- UTC s
  seconds -- to - from
FROM span;

DROP VIEW IF EXISTS notice;
CREATE VIEW notice AS
-- Holds the events of notices to stop; `at` is when the notice was heard or seen. The event is
-- written later, and others may have heard of the notice meanwhile. If the wall clock was stepped
-- in between, `at` is the event's own time (fold/clock.h, fold_ago_s).
SELECT
  t.run, t.attempt, t.kind,
  t.at - CASE WHEN t.ago_s > 0 AND t.ago_s <= coalesce(e.mono - p.first_mono, t.ago_s)
              THEN t.ago_s ELSE 0 END
    AS at, -- UTC s
  t.json
FROM (SELECT *, wall - json_extract(json, CASE kind WHEN 'stop_seen' THEN '$.seen_at'
                                          ELSE '$.heard_at' END) AS ago_s
      FROM event_time WHERE kind IN ('signal', 'stop_heard', 'stop_seen')) t
JOIN event e ON e.id = t.id
LEFT JOIN fold_part p ON p.run = e.run AND p.attempt = e.attempt AND p.host = e.host
  AND p.boot = e.boot AND e.boot <> 'unknown';

DROP VIEW IF EXISTS v_notice;
CREATE VIEW v_notice AS
-- Has one row for each attempt that received a notice to stop: who heard it first, and how long it
-- took to reach the trainer.
SELECT
  f.run, -- run id
  f.attempt, -- from 1
  f.signal, -- name of the signal (SIGTERM); other: it has no name
  f.level, -- where it was heard first: batch (the agent), node (a node agent), rank (the trainer
  -- itself)
  f.node, -- name of the node, at level node
  f.at AS noticed_at, -- UTC s
  h.at AS heard_at, -- UTC s; rank 0 of the trainer heard; NULL if never
  h.phase, -- what the trainer was doing then: start, load, step, save
  s.at AS seen_at, -- UTC s; its ranks agreed to save and stop
  e.at AS stopped_at, -- UTC s; the trainer ended
  h.at - f.at AS hear_s, -- heard_at - noticed_at, s
  s.at - f.at AS see_s -- seen_at - noticed_at, s
FROM (SELECT run, attempt, min(at) AS at, json_extract(json, '$.signal') AS signal,
        json_extract(json, '$.node') AS node,
        CASE WHEN kind = 'stop_heard' THEN 'rank'
             WHEN json_extract(json, '$.node') IS NULL THEN 'batch'
             ELSE 'node' END AS level
      FROM notice WHERE kind IN ('signal', 'stop_heard') GROUP BY run, attempt) f
LEFT JOIN (SELECT run, attempt, min(at) AS at, json_extract(json, '$.phase') AS phase
           FROM notice WHERE kind = 'stop_heard' GROUP BY run, attempt) h
  ON h.run = f.run AND h.attempt = f.attempt
LEFT JOIN (SELECT run, attempt, min(at) AS at
           FROM notice WHERE kind = 'stop_seen' GROUP BY run, attempt) s
  ON s.run = f.run AND s.attempt = f.attempt
LEFT JOIN (SELECT run, attempt, max(at) AS at
           FROM event_time WHERE kind = 'train_ended' GROUP BY run, attempt) e
  ON e.run = f.run AND e.attempt = f.attempt;

DROP VIEW IF EXISTS v_change;
CREATE VIEW v_change AS
-- Has one row for each value of a run that was changed after the run was made.
SELECT
  c.run, -- run id
  c.at AS changed_at, -- UTC s; when the change was requested
  json_extract(k.value, '$.key') AS key, -- place of the value in the run file, or plan
  json_extract(k.value, '$.from') AS old, -- value before the change, as it is written
  json_extract(k.value, '$.to') AS new, -- value after the change
  (SELECT min(t.attempt) FROM event t
   WHERE t.kind = 'change_taken' AND t.run = c.run
     AND json_extract(t.json, '$.revision') >= json_extract(c.json, '$.revision'))
    AS attempt, -- first attempt with the new value; NULL until that has begun
  json_extract(k.value, '$.key') GLOB 'stages[[]*].steps'
    OR json_extract(k.value, '$.key') GLOB 'stages[[]*[0-9]]'
    AS extended -- 1: the change made the run longer, by steps or by a stage
FROM event_time c JOIN json_each(c.json, '$.changes') k
WHERE c.kind = 'changed';

DROP VIEW IF EXISTS v_trial;
CREATE VIEW v_trial AS
-- Has one row for each trial of a layout; the prediction is the last one before the trial began.
WITH
t AS (SELECT DISTINCT tune, trial FROM trial_event),
k AS (SELECT t.tune, t.trial,
        (SELECT max(seq) FROM trial_event x
         WHERE x.tune = t.tune AND x.trial = t.trial AND x.kind = 'trial_started') AS started,
        (SELECT event FROM trial_event x
         WHERE x.tune = t.tune AND x.trial = t.trial AND x.kind = 'trial_ended'
         ORDER BY seq DESC LIMIT 1) AS ended
      FROM t),
p AS (SELECT k.*,
        coalesce((SELECT event FROM trial_event x
                  WHERE x.tune = k.tune AND x.trial = k.trial AND x.kind = 'trial_predicted'
                    AND x.seq < k.started ORDER BY seq DESC LIMIT 1),
                 (SELECT event FROM trial_event x
                  WHERE x.tune = k.tune AND x.trial = k.trial AND x.kind = 'trial_predicted'
                  ORDER BY seq DESC LIMIT 1)) AS predicted,
        (SELECT id FROM event
         WHERE kind = 'tune_started' AND run = k.tune ORDER BY seq DESC LIMIT 1) AS tuned
      FROM k),
j AS (SELECT p.tune, p.trial, p.started, x.json AS px, y.json AS ey, z.json AS tz,
        json_extract(x.json, '$.layout') AS layout
      FROM p
      LEFT JOIN event x ON x.id = p.predicted
      LEFT JOIN event y ON y.id = p.ended
      LEFT JOIN event z ON z.id = p.tuned)
SELECT
  l.trial, -- trial id
  l.tune, -- id of the tuning it belongs to
  json_extract(l.tz, '$.model') AS model, -- name
  json_extract(l.tz, '$.extent') AS seq, -- tokens of a sample, TxHxW
  coalesce(json_extract(l.ey, '$.gpus'), json_extract(l.tz, '$.ranks')) AS gpus, -- ranks
  json_extract(l.tz, '$.device') AS device, -- GPU or CPU name
  l.layout, -- canonical text; then its keys, one column each
  k.tp, -- ranks of tensor parallelism
  k.sp, -- 1: with sequence parallelism
  k.cp, -- ranks of context parallelism
  k.cp_kind, -- how these share keys and values: ring, a2a, 2d
  k.pp, -- stages of the pipeline
  k.vpp, -- chunks of layers in a stage of the pipeline
  k.dp, -- ranks of data parallelism
  k.zero, -- what is sharded: 0 nothing, 1 optimizer, 2 gradients too, 3 weights too
  k.fsdp, -- ranks of a group that shards this way; 0: dp
  k.mbs, -- samples of a micro-batch
  k.recompute, -- activations that backward computes again: none, selective, full
  k.recompute_layers, -- layers of a chunk that are recomputed; 0: all
  k.rank_order, -- which ranks are neighbours: those of the axis named first, then of the next
  json_extract(l.px, '$.predicted_step_s') AS predicted_step_s, -- s
  json_extract(l.px, '$.predicted_at') AS predicted_at, -- UTC s, before the measurement
  json_extract(l.ey, '$.measured_step_s') AS measured_step_s, -- s; NULL if it was not measured
  json_extract(l.ey, '$.tokens') AS tokens, -- per step
  json_extract(l.ey, '$.mfu') AS mfu, -- share of the dense peak, like v_step.mfu
  json_extract(l.ey, '$.peak_bytes') AS peak_bytes, -- of the fullest rank
  coalesce(json_extract(l.ey, '$.state'),
           CASE WHEN l.started IS NOT NULL THEN 'running' ELSE 'predicted' END)
    AS state, -- ok; oom_device, oom_host (memory was short), illegal (the trainer refused it), hang
  -- (no sign of life), node (one was lost), preempted, nonfinite, failed; running; predicted (never
  -- begun)
  json_extract(l.ey, '$.cause') AS cause, -- one sentence, where the state is not ok
  json_extract(l.ey, '$.recorded_step_s')
    AS recorded_step_s, -- s; a step while its GPU activity was recorded; NULL, like the next
  -- columns: nothing was recorded
  json_extract(l.ey, '$.class_s.idle') AS idle_s, -- s of a step in which nothing ran
  json_extract(l.ey, '$.exposed_comm_s') AS exposed_comm_s, -- s of a step that waited for messages
  json_extract(l.ey, '$.hidden_comm_s') AS hidden_comm_s, -- s of messages during computation
  json_extract(l.ey, '$.hfu') AS hfu, -- like mfu, with recomputation counted too
  json_extract(l.ey, '$.dropped') AS dropped, -- records lost because buffers were full
  json_extract(l.px, '$.predicted_lo_s')
    AS predicted_lo_s, -- s; 90 % of measurements lie between this and predicted_hi_s
  json_extract(l.px, '$.predicted_hi_s') AS predicted_hi_s, -- s; upper end of that interval
  json_extract(l.px, '$.constants') AS constants, -- source of the prediction's constants
  json_extract(l.ey, '$.disturbed')
    AS disturbed -- 1: slower than noise explains, and repeated; NULL: not ended
FROM j l
LEFT JOIN layout k ON k.text = l.layout;

DROP VIEW IF EXISTS ranked_trial;
CREATE VIEW ranked_trial AS
-- Numbers the trials of each tuning in the order of all lists and charts of them: the fastest
-- first, then those without a measurement.
SELECT *,
  row_number() OVER (PARTITION BY tune ORDER BY measured_step_s IS NULL, measured_step_s,
                                                predicted_step_s, trial)
    AS k -- from 1
FROM v_trial;

DROP VIEW IF EXISTS v_trial_class;
CREATE VIEW v_trial_class AS
-- Says where the time of a trial's step went, one row for each class; on GPUs they add up to it.
SELECT
  e.run AS tune, -- id of the tuning
  json_extract(e.json, '$.trial') AS trial, -- trial id
  c.key AS class, -- gemm, attention, norm, elementwise, optimizer, other, communication, copy, idle
  c.value AS seconds -- s of a recorded step, mean over ranks; on CPUs CPU time, of the longest
FROM event e, json_each(e.json, '$.class_s') c
WHERE e.kind = 'trial_ended'
  AND e.seq = (SELECT max(x.seq) FROM trial_event x
               WHERE x.tune = e.run AND x.kind = 'trial_ended'
                 AND x.trial = json_extract(e.json, '$.trial'));

DROP VIEW IF EXISTS v_term;
CREATE VIEW v_term AS
-- Has the predicted parts of a trial's step, one row for each term. The predictions add up to
-- v_trial.predicted_step_s. On CPUs compare measured_s with priced_s: both are CPU time.
SELECT
  e.run AS tune, -- id of the tuning
  json_extract(e.json, '$.trial') AS trial, -- trial id
  c.key AS term, -- a term of the prediction: gemm, attention, elementwise, ...
  c.value AS predicted_s, -- s of a step, by what earlier trials taught
  json_extract(e.json, '$.priced_class_s.' || c.key)
    AS priced_s, -- s of a rank's CPU time by the probe, recomputation included; NULL: not priced
  (SELECT m.seconds FROM v_trial_class m
   WHERE m.tune = e.run AND m.trial = json_extract(e.json, '$.trial') AND m.class = c.key)
    AS measured_s -- s of a step, from v_trial_class, recomputation included; NULL: not recorded
FROM event e, json_each(e.json, '$.terms') c
WHERE e.kind = 'trial_predicted'
  AND e.seq = (SELECT max(x.seq) FROM trial_event x
               WHERE x.tune = e.run AND x.kind = 'trial_predicted'
                 AND x.trial = json_extract(e.json, '$.trial'));

DROP VIEW IF EXISTS ckpt;
CREATE VIEW ckpt AS
-- Lists checkpoints that were saved, loaded, or found damaged.
SELECT
  t.run, t.attempt, t.kind, t.at, -- UTC s
  json_extract(t.json, '$.step') AS step,
  json_extract(t.json, '$.dir') AS dir,
  json_extract(t.json, '$.bytes') AS bytes,
  json_extract(t.json, '$.seconds') AS seconds,
  json_extract(t.json, '$.reason') AS reason
FROM event_time t
WHERE t.kind IN ('ckpt_saved', 'ckpt_loaded', 'ckpt_damaged');

DROP VIEW IF EXISTS signal;
CREATE VIEW signal AS
-- Lists signals that agents received.
SELECT
  t.run, t.attempt, t.at, -- UTC s
  json_extract(t.json, '$.signal') AS signal,
  json_extract(t.json, '$.from') AS sender
FROM notice t
WHERE t.kind = 'signal';

DROP VIEW IF EXISTS check_mfu;
CREATE VIEW check_mfu AS
-- Compares every recorded MFU with the one recomputed from tokens, step_s and peak.
SELECT c.*,
  c.tokens * c.flops_per_token / (c.step_s * c.peak_flops) AS recomputed,
  abs(c.mfu / (c.tokens * c.flops_per_token / (c.step_s * c.peak_flops)) - 1)
    AS difference -- relative; NULL when something is missing
FROM (SELECT 'step' AS source, s.run AS run, s.attempt || ':' || s.step AS item,
        coalesce(s.tokens, 1) AS tokens, s.step_s,
        coalesce(s.flops_per_token, s.model_flops) AS flops_per_token,
        (SELECT t.peak_flops FROM train_start t
         WHERE t.run = s.run AND t.attempt = s.attempt AND t.writer = s.writer AND t.seq < s.seq
         ORDER BY t.seq DESC LIMIT 1) AS peak_flops,
        s.mfu
      FROM step s WHERE s.mfu IS NOT NULL
      UNION ALL
      SELECT 'trial', e.run, json_extract(e.json, '$.trial'), json_extract(e.json, '$.tokens'),
        json_extract(e.json, '$.measured_step_s'),
        1.0 * json_extract(e.json, '$.model_flops') / json_extract(e.json, '$.tokens'),
        json_extract(e.json, '$.peak_flops'), json_extract(e.json, '$.mfu')
      FROM event e
      WHERE e.kind = 'trial_ended' AND json_extract(e.json, '$.mfu') IS NOT NULL) c;

DROP VIEW IF EXISTS views_text;
CREATE VIEW views_text AS
-- Identifies the text from which the views were made.
SELECT
  '$hash' AS hash; -- hash of that text
