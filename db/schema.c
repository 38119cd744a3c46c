/* What is in the database
 *
 * Logs are the truth, the database a cache of them that can be asked. Three kinds of things are in it.
 *
 * 1. Where it came from: `source` (folders to look in), `file` (how far each log was read), `damage` (regions of logs
 *    that could not be read), `conflict` (events that lost against another under the same key).
 * 2. `event`, one row an event, whole text included; and projections of single events into typed columns where many
 *    rows are to be asked quickly: `step`, `train_start`, `trial_event`. A projection's key is its event's; it goes with it.
 *    `layout` holds the keys of each layout that a trial names by its text.
 * 3. What is computed from one run's events together, brought up to date whenever the run has new ones (db/fold.c): `run_clock`,
 *    the difference between a host's monotonic clock and UTC, and `span`, the run's time by cause; tables fold* are the fold's memory.
 *
 * Everything else is a view. v_run, v_trial, v_step, v_attempt, v_time, v_notice, v_validation and v_change are public: names, columns, units and meaning stay, new
 * columns may come behind the old. The other views and all tables may change with any release.
 *
 * Units: seconds, bytes, FLOPs; `*_at`, `from` and `to` are UTC Unix seconds; mfu is a fraction of the dense peak.
 *
 * MFU. model_flops is the step's model FLOPs (forward and backward, no recomputation) over all ranks, peak_flops the dense
 * peak of all ranks together: mfu = model_flops / (step_s * peak_flops). `step` keeps model_flops / tokens, so that the view
 * check_mfu recomputes every number from tokens, step_s and peak; `reel db check` reports the largest difference.
 */
#include "db/schema.h"

#include <stdbool.h>
#include <stdio.h>

#include "base/json.h"
#include "db/store_priv.h"

/* Migrations: step i brings user_version i to i + 1. Published steps never change; a new one is added behind. Views are
 * not part of a step: after the last one they are dropped and made from the list below, so a changed view is a new
 * version with an empty step. */
static const char *const steps[] = {
    "CREATE TABLE source(path TEXT PRIMARY KEY) STRICT;"
    "CREATE TABLE file(path TEXT PRIMARY KEY, bytes INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, read_to INTEGER NOT NULL,"
    " last_seq INTEGER NOT NULL, tail_hash TEXT NOT NULL, run TEXT, attempt INTEGER, writer TEXT) STRICT;"
    "CREATE TABLE damage(file TEXT NOT NULL REFERENCES file(path) ON DELETE CASCADE, at_byte INTEGER NOT NULL,"
    " bytes INTEGER NOT NULL, reason TEXT NOT NULL, PRIMARY KEY(file, at_byte, reason)) STRICT;"
    "CREATE TABLE event(id INTEGER PRIMARY KEY, run TEXT NOT NULL, attempt INTEGER NOT NULL, writer TEXT NOT NULL,"
    " seq INTEGER NOT NULL, kind TEXT NOT NULL, wall REAL NOT NULL, mono REAL NOT NULL, boot TEXT NOT NULL,"
    " host TEXT NOT NULL, json TEXT NOT NULL, UNIQUE(run, attempt, writer, seq)) STRICT;"
    "CREATE INDEX event_kind ON event(kind, run, attempt);"
    "CREATE TABLE conflict(run TEXT NOT NULL, attempt INTEGER NOT NULL, writer TEXT NOT NULL, seq INTEGER NOT NULL,"
    " json TEXT NOT NULL, PRIMARY KEY(run, attempt, writer, seq, json)) STRICT;"
    "CREATE TABLE step(event INTEGER PRIMARY KEY REFERENCES event(id) ON DELETE CASCADE, run TEXT NOT NULL,"
    " attempt INTEGER NOT NULL, writer TEXT NOT NULL, seq INTEGER NOT NULL, step INTEGER NOT NULL, started_at REAL,"
    " step_s REAL, tokens INTEGER, loss REAL, grad_norm REAL, lr REAL, model_flops REAL, flops_per_token REAL, mfu REAL,"
    " data_s REAL, forward_s REAL, backward_s REAL, comm_s REAL, optim_s REAL, peak_bytes INTEGER, skipped INTEGER) STRICT;"
    "CREATE INDEX step_run ON step(run, step, attempt, writer, seq);"
    "CREATE TABLE train_start(event INTEGER PRIMARY KEY REFERENCES event(id) ON DELETE CASCADE, run TEXT NOT NULL,"
    " attempt INTEGER NOT NULL, writer TEXT NOT NULL, seq INTEGER NOT NULL, next_step INTEGER, total_steps INTEGER,"
    " model TEXT, layout TEXT, extent TEXT, gbs INTEGER, world INTEGER, device TEXT, dtype TEXT, peak_flops REAL,"
    " peak_source TEXT, flops_formula TEXT, config_hash TEXT, trial INTEGER NOT NULL) STRICT;"
    "CREATE INDEX train_start_run ON train_start(run, attempt, writer, seq);"
    "CREATE TABLE trial_event(event INTEGER PRIMARY KEY REFERENCES event(id) ON DELETE CASCADE, tune TEXT NOT NULL,"
    " trial TEXT NOT NULL, kind TEXT NOT NULL, seq INTEGER NOT NULL) STRICT;"
    "CREATE INDEX trial_event_trial ON trial_event(tune, trial, kind, seq);"
    "CREATE TABLE run_clock(run TEXT NOT NULL, host TEXT NOT NULL, boot TEXT NOT NULL, offset_s REAL NOT NULL,"
    " PRIMARY KEY(run, host, boot)) STRICT;"
    "CREATE TABLE span(run TEXT NOT NULL, n INTEGER NOT NULL, cause TEXT NOT NULL, from_at REAL NOT NULL,"
    " to_at REAL NOT NULL, seconds REAL NOT NULL CHECK(seconds >= 0), PRIMARY KEY(run, n)) STRICT;",
    "", /* v_notice */
    "", /* v_validation */
    "ALTER TABLE step ADD COLUMN other_s REAL; ALTER TABLE step ADD COLUMN weight_norm REAL; ALTER TABLE step ADD COLUMN update_norm REAL;"
    "UPDATE step SET other_s = (SELECT json_extract(e.json, '$.other_s') FROM event e WHERE e.id = step.event);",
    "", /* v_step.spike */
    /* What the fold of a run keeps between two ingests (db/fold_priv.h). `refold`: runs to be folded from their first event. */
    "DROP TABLE span;"
    "CREATE TABLE span(run TEXT NOT NULL, from_at REAL NOT NULL, to_at REAL NOT NULL, cause TEXT NOT NULL,"
    " seconds REAL NOT NULL CHECK(seconds >= 0), PRIMARY KEY(run, from_at)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE fold(run TEXT PRIMARY KEY, from_at REAL NOT NULL, until_at REAL NOT NULL) STRICT;"
    "CREATE TABLE fold_diff(run TEXT NOT NULL, host TEXT NOT NULL, boot TEXT NOT NULL, ms INTEGER NOT NULL, n INTEGER NOT NULL,"
    " PRIMARY KEY(run, host, boot, ms)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE fold_part(run TEXT NOT NULL, attempt INTEGER NOT NULL, host TEXT NOT NULL, boot TEXT NOT NULL, first_mono REAL NOT NULL,"
    " last_mono REAL NOT NULL, submit_mono REAL NOT NULL, PRIMARY KEY(run, attempt, host, boot)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE fold_attempt(run TEXT NOT NULL, attempt INTEGER NOT NULL, begin_at REAL NOT NULL, first_step_at REAL NOT NULL,"
    " last_at REAL NOT NULL, ended_at REAL NOT NULL, ended_writer TEXT, ended_seq INTEGER, cause TEXT, PRIMARY KEY(run, attempt)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE fold_writer(run TEXT NOT NULL, attempt INTEGER NOT NULL, writer TEXT NOT NULL, last_seq INTEGER NOT NULL,"
    " step_at REAL NOT NULL, PRIMARY KEY(run, attempt, writer)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE refold(run TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;"
    "INSERT INTO refold SELECT DISTINCT run FROM event;",
    "", /* v_change */
    /* Of wrapped trainers: steps a row covers, whether an earlier attempt printed them, how long before its event the row had ended. */
    "ALTER TABLE step ADD COLUMN steps INTEGER; ALTER TABLE step ADD COLUMN again INTEGER; ALTER TABLE step ADD COLUMN ended_ago_s REAL;",
    "", /* v_run */
    "", /* v_change.extended, value by value */
    /* Of an attempt's ends the first counts now, not the last. */
    "INSERT OR IGNORE INTO refold SELECT DISTINCT run FROM event;",
    /* The layouts of trials, one row a text; the keys of a new row are NULL until the ingest has read it. */
    "CREATE TABLE layout(text TEXT PRIMARY KEY, tp INTEGER, sp INTEGER, cp INTEGER, cp_kind TEXT, pp INTEGER,"
    " vpp INTEGER, dp INTEGER, zero INTEGER, fsdp INTEGER, mbs INTEGER, recompute TEXT, recompute_layers INTEGER)"
    " STRICT, WITHOUT ROWID;"
    "INSERT OR IGNORE INTO layout(text) SELECT json_extract(e.json, '$.layout') FROM trial_event t JOIN event e ON e.id = t.event"
    " WHERE json_type(e.json, '$.layout') = 'text';",
};

int schema_version(void) { return (int)ARRAY_LEN(steps); }

/* ---- views, each after those it stands on ---- */

struct view {
    const char *name, *sql, *text;
    bool is_public;
};
#define FIELD(key) "json_extract(e.json, '$." key "')"
#define FIRST_OF(key, event_kind)                                                                         \
    "(SELECT " FIELD(key) " FROM event e WHERE e.kind = '" event_kind "' AND e.run = a.run AND e.attempt = a.attempt" \
    " ORDER BY e.seq, e.writer LIMIT 1)"

static const struct view views[] = {
    {"event_time",
     "SELECT e.id, e.run, e.attempt, e.writer, e.seq, e.kind, coalesce(e.mono + c.offset_s, e.wall) AS at, e.wall, e.json"
     " FROM event e LEFT JOIN run_clock c ON c.run = e.run AND c.host = e.host AND c.boot = e.boot",
     "Every event with `at`, its time on the run's clock: monotonic within a host's boot, whatever the wall clock did.", false},
    {"run",
     "SELECT r.run, max(CASE WHEN e.kind = 'run_created' THEN " FIELD("name") " END) AS name,"
     " max(CASE WHEN e.kind = 'run_created' THEN " FIELD("model") " END) AS model,"
     " max(CASE WHEN e.kind = 'run_created' THEN " FIELD("config_hash") " END) AS config_hash,"
     " max(CASE WHEN e.kind IN ('run_created', 'extended', 'train_started') THEN " FIELD("total_steps") " END) AS total_steps,"
     " (SELECT min(at) FROM event_time t WHERE t.run = r.run) AS first_at,"
     " (SELECT max(at) FROM event_time t WHERE t.run = r.run) AS last_at"
     " FROM (SELECT run FROM event WHERE kind IN ('run_created', 'submit_intent', 'attempt_started', 'train_started')"
     "  UNION SELECT run FROM step) r"
     " LEFT JOIN event e ON e.run = r.run AND e.kind IN ('run_created', 'extended', 'train_started')"
     " WHERE NOT EXISTS (SELECT 1 FROM train_start t WHERE t.run = r.run AND t.trial)"
     " OR EXISTS (SELECT 1 FROM train_start t WHERE t.run = r.run AND NOT t.trial) GROUP BY r.run",
     "Training runs, with their name.", false},
    {"v_run",
     "SELECT r.run, r.name, r.model, r.config_hash, r.total_steps,"
     " (SELECT min(t.at) FROM event_time t WHERE t.kind = 'run_created' AND t.run = r.run) AS created_at,"
     " (SELECT f.until_at FROM fold f WHERE f.run = r.run) AS last_at FROM run r",
     "One row a run: what the run id of the other views is called.\n"
     "  run          run id\n"
     "  name         as given\n"
     "  model        its name; of a wrapped run --model, else the script's or program's name\n"
     "  config_hash  of what decides its numbers; NULL for a wrapped run\n"
     "  total_steps  NULL or 0 when not known\n"
     "  created_at   UTC s\n"
     "  last_at      UTC s of its last event", true},
    {"v_step",
     "SELECT s.run, s.attempt, s.step, s.started_at, s.step_s, s.tokens, s.mfu, s.loss,"
     " (coalesce(s.again, 0) OR row_number() OVER (PARTITION BY s.run, s.step ORDER BY s.attempt, s.seq, s.writer) > 1) AS replayed,"
     " s.grad_norm, s.weight_norm, s.update_norm, s.lr, s.data_s, s.forward_s, s.backward_s, s.comm_s, s.optim_s, s.other_s, s.peak_bytes, s.skipped,"
     " CASE WHEN s.skipped THEN (SELECT " FIELD("spike") " FROM event e WHERE e.id = s.event) END AS spike, coalesce(s.steps, 1) AS steps"
     " FROM step s WHERE NOT EXISTS (SELECT 1 FROM train_start t WHERE t.run = s.run AND t.attempt = s.attempt AND t.trial)",
     "One row an optimizer step done, replays included; never steps of trials. Of a wrapped trainer one row a line that it printed, which\n"
     "may cover several steps: step_s, tokens and mfu are then of all of them, step is the last.\n"
     "  run         run id\n"
     "  attempt     from 1\n"
     "  step        index of the step, from 0\n"
     "  started_at  UTC s\n"
     "  step_s      duration, s; NULL when it is not known\n"
     "  tokens      of the global batch\n"
     "  mfu         model FLOPs / (step_s x dense peak of all ranks)\n"
     "  loss        NULL when it was not finite\n"
     "  replayed    1 on every execution of a (run, step) after its first by attempt\n"
     "  grad_norm   of the global batch, before clipping\n"
     "  weight_norm of what is trained, before the update; update_norm: of their change by it\n"
     "  lr          learning rate\n"
     "  data_s forward_s backward_s comm_s optim_s other_s   of rank 0, s; they add up to step_s\n"
     "  peak_bytes  resident of rank 0\n"
     "  skipped     1: nothing was changed: the step was a spike, or a gradient was not finite, also when computed again\n"
     "  spike       of a skipped step: loss or grad_norm, which was past adamw.spike_z; else NULL\n"
     "  steps       that the row covers, up to step; 1 of our own trainer", true},
    {"v_validation",
     "SELECT e.run, e.attempt, " FIELD("step") " AS step, w.weights, b.key AS bin, b.value AS loss, " FIELD("samples") " AS samples,"
     " " FIELD("started_at") " AS started_at, " FIELD("seconds") " AS seconds"
     " FROM event e JOIN (SELECT 'model' AS weights, 'bins' AS field UNION ALL SELECT 'average', 'average_bins') w"
     " JOIN json_each(e.json, '$.' || w.field) b WHERE e.kind = 'validation'",
     "Loss on fixed draws, one row a bin of the noise level; replays included.\n"
     "  run         run id\n"
     "  attempt     from 1\n"
     "  step        steps done\n"
     "  weights     model, or average (EMA)\n"
     "  bin         from 0, rising noise; all bins are equally probable in training\n"
     "  loss        mean over samples of w (F - T)^2; NULL when it was not finite\n"
     "  samples     that were measured in each bin\n"
     "  started_at  UTC s\n"
     "  seconds     the whole validation took", true},
    {"v_attempt",
     "SELECT a.run, a.attempt, " FIRST_OF("sched", "attempt_started") " AS scheduler,"
     " CAST(" FIRST_OF("job_id", "attempt_started") " AS TEXT) AS job_id,"
     " coalesce((SELECT min(t.at) FROM event_time t WHERE t.kind = 'attempt_started' AND t.run = a.run AND t.attempt = a.attempt),"
     "  (SELECT min(t.at) FROM event_time t WHERE t.kind = 'train_started' AND t.run = a.run AND t.attempt = a.attempt)) AS started_at,"
     " CASE WHEN a.ended_writer IS NOT NULL THEN a.ended_at END AS ended_at, a.cause,"
     " (SELECT min(s.step - coalesce(s.steps, 1) + 1) FROM step s WHERE s.run = a.run AND s.attempt = a.attempt) AS first_step,"
     " (SELECT max(s.step) FROM step s WHERE s.run = a.run AND s.attempt = a.attempt) AS last_step"
     " FROM fold_attempt a WHERE a.attempt >= 1"
     " AND NOT EXISTS (SELECT 1 FROM train_start t"
     "  WHERE t.run = a.run AND t.attempt = a.attempt AND t.trial)",
     "One row a time a run was started.\n"
     "  run         run id\n"
     "  attempt     from 1\n"
     "  scheduler   slurm, local, ...; NULL when the trainer was started by hand\n"
     "  job_id      the scheduler's\n"
     "  started_at  UTC s\n"
     "  ended_at    UTC s; NULL while it runs, and when nobody lived to say so\n"
     "  cause       done, preempt, time_limit, crash, node_fail, cancel, pause, hang, diverged, disk_full, early_exit (0 before\n"
     "              its steps were done, a crash in all but its status); NULL as above\n"
     "  first_step  least step done in it; NULL if none\n"
     "  last_step   greatest step done in it", true},
    {"v_time",
     "SELECT run, cause, from_at AS \"from\", to_at AS \"to\", seconds FROM span",
     "Where a run's time went: rows of a run do not overlap and add up to the time from its first submission to its last\n"
     "event. Durations come from monotonic clocks. (from and to are SQL words: write them in double quotes.)\n"
     "  run      run id\n"
     "  cause    queue         submitted, first attempt not started\n"
     "           start         attempt started, first step not begun (less load)\n"
     "           load, save    reading and writing checkpoints, while no step runs\n"
     "           train         steps, the first time each is done\n"
     "           replay        steps done again after a restart\n"
     "           down:CAUSE    from an attempt's end by CAUSE to the start of the next; down:unknown when nobody said why\n"
     "           other         within an attempt, none of these\n"
     "  from     UTC s\n"
     "  to       UTC s\n"
     "  seconds  to - from", true},
    {"v_notice",
     "SELECT f.run, f.attempt, f.signal, f.level, f.node, f.at AS noticed_at, h.at AS heard_at, h.phase, s.at AS seen_at, e.at AS stopped_at,"
     " h.at - f.at AS hear_s, s.at - f.at AS see_s"
     " FROM (SELECT run, attempt, min(at) AS at, json_extract(json, '$.signal') AS signal, json_extract(json, '$.node') AS node,"
     "  CASE WHEN kind = 'stop_heard' THEN 'rank' WHEN json_extract(json, '$.node') IS NULL THEN 'batch' ELSE 'node' END AS level"
     "  FROM event_time WHERE kind IN ('signal', 'stop_heard') GROUP BY run, attempt) f"
     " LEFT JOIN (SELECT run, attempt, min(at) AS at, json_extract(json, '$.phase') AS phase FROM event_time WHERE kind = 'stop_heard'"
     "  GROUP BY run, attempt) h ON h.run = f.run AND h.attempt = f.attempt"
     " LEFT JOIN (SELECT run, attempt, min(at) AS at FROM event_time WHERE kind = 'stop_seen' GROUP BY run, attempt) s"
     "  ON s.run = f.run AND s.attempt = f.attempt"
     " LEFT JOIN (SELECT run, attempt, max(at) AS at FROM event_time WHERE kind = 'train_ended' GROUP BY run, attempt) e"
     "  ON e.run = f.run AND e.attempt = f.attempt",
     "One row an attempt that was told to stop: who heard first, and how long the word took to the trainer.\n"
     "  run         run id\n"
     "  attempt     from 1\n"
     "  signal      its name (SIGTERM); other, for one without a name\n"
     "  level       where it was heard first: batch (the agent), node (a node agent), rank (the trainer itself)\n"
     "  node        its name, at level node\n"
     "  noticed_at  UTC s\n"
     "  heard_at    rank 0 of the trainer heard; NULL if never\n"
     "  phase       what it did then: start, load, step, save\n"
     "  seen_at     its ranks agreed to save and stop\n"
     "  stopped_at  it had ended\n"
     "  hear_s      heard_at - noticed_at, s\n"
     "  see_s       seen_at - noticed_at, s", true},
    {"v_change",
     "SELECT c.run, c.at AS changed_at, json_extract(k.value, '$.key') AS key, json_extract(k.value, '$.from') AS old, json_extract(k.value, '$.to') AS new,"
     " (SELECT min(t.attempt) FROM event t WHERE t.kind = 'change_taken' AND t.run = c.run"
     "  AND json_extract(t.json, '$.revision') >= json_extract(c.json, '$.revision')) AS attempt,"
     " json_extract(k.value, '$.key') GLOB 'stages[[]*].steps' OR json_extract(k.value, '$.key') GLOB 'stages[[]*[0-9]]' AS extended"
     " FROM event_time c JOIN json_each(c.json, '$.changes') k WHERE c.kind = 'changed'",
     "What was changed of a run after it was made, one row a value.\n"
     "  run         run id\n"
     "  changed_at  asked for, UTC s\n"
     "  key         its place in the run file; plan\n"
     "  old         value before, as it is written\n"
     "  new         value since\n"
     "  attempt     from which it holds; NULL until that has begun\n"
     "  extended    1: this value made the run longer, by steps or by a stage", true},
    {"v_trial",
     "WITH t AS (SELECT DISTINCT tune, trial FROM trial_event),"
     " k AS (SELECT t.tune, t.trial,"
     "  (SELECT max(seq) FROM trial_event x WHERE x.tune = t.tune AND x.trial = t.trial AND x.kind = 'trial_started') AS started,"
     "  (SELECT event FROM trial_event x WHERE x.tune = t.tune AND x.trial = t.trial AND x.kind = 'trial_ended'"
     "   ORDER BY seq DESC LIMIT 1) AS ended FROM t),"
     " p AS (SELECT k.*, coalesce("
     "  (SELECT event FROM trial_event x WHERE x.tune = k.tune AND x.trial = k.trial AND x.kind = 'trial_predicted'"
     "   AND x.seq < k.started ORDER BY seq DESC LIMIT 1),"
     "  (SELECT event FROM trial_event x WHERE x.tune = k.tune AND x.trial = k.trial AND x.kind = 'trial_predicted'"
     "   ORDER BY seq DESC LIMIT 1)) AS predicted,"
     "  (SELECT id FROM event WHERE kind = 'tune_started' AND run = k.tune ORDER BY seq DESC LIMIT 1) AS tuned FROM k),"
     " j AS (SELECT p.tune, p.trial, p.started, x.json AS px, y.json AS ey, z.json AS tz,"
     "  json_extract(x.json, '$.layout') AS layout FROM p LEFT JOIN event x ON x.id = p.predicted"
     "  LEFT JOIN event y ON y.id = p.ended LEFT JOIN event z ON z.id = p.tuned)"
     " SELECT l.trial, l.tune, json_extract(l.tz, '$.model') AS model, json_extract(l.tz, '$.extent') AS seq,"
     " coalesce(json_extract(l.ey, '$.gpus'), json_extract(l.tz, '$.ranks')) AS gpus,"
     " json_extract(l.tz, '$.device') AS device, l.layout, k.tp, k.sp, k.cp, k.cp_kind, k.pp, k.vpp, k.dp, k.zero,"
     " k.fsdp, k.mbs, k.recompute, k.recompute_layers,"
     " json_extract(l.px, '$.predicted_step_s') AS predicted_step_s, json_extract(l.px, '$.predicted_at') AS predicted_at,"
     " json_extract(l.ey, '$.measured_step_s') AS measured_step_s, json_extract(l.ey, '$.tokens') AS tokens,"
     " json_extract(l.ey, '$.mfu') AS mfu, json_extract(l.ey, '$.peak_bytes') AS peak_bytes,"
     " coalesce(json_extract(l.ey, '$.state'), CASE WHEN l.started IS NOT NULL THEN 'running' ELSE 'predicted' END) AS state,"
     " json_extract(l.ey, '$.cause') AS cause FROM j l"
     " LEFT JOIN layout k ON k.text = l.layout",
     "One row a trial of a layout; the prediction is the last one made before the trial began.\n"
     "  trial             trial id\n"
     "  tune              id of the tuning it belongs to\n"
     "  model             name\n"
     "  seq               tokens of a sample, TxHxW\n"
     "  gpus              ranks\n"
     "  device            GPU or CPU name\n"
     "  layout            canonical text; then its keys, one column each:\n"
     "  tp sp cp cp_kind pp vpp dp zero fsdp mbs recompute recompute_layers\n"
     "  predicted_step_s  s\n"
     "  predicted_at      UTC s, before the measurement\n"
     "  measured_step_s   s; NULL if it was not measured\n"
     "  tokens            per step\n"
     "  mfu               as in v_step\n"
     "  peak_bytes        of the fullest rank\n"
     "  state             ok, oom, failed, timeout, skipped; running; predicted (never begun)\n"
     "  cause             one sentence, where the state is not ok", true},
    {"ckpt",
     "SELECT t.run, t.attempt, t.kind, t.at, json_extract(t.json, '$.step') AS step, json_extract(t.json, '$.dir') AS dir,"
     " json_extract(t.json, '$.bytes') AS bytes, json_extract(t.json, '$.seconds') AS seconds,"
     " json_extract(t.json, '$.reason') AS reason FROM event_time t WHERE t.kind IN ('ckpt_saved', 'ckpt_loaded', 'ckpt_damaged')",
     "Checkpoints saved, loaded and found damaged.", false},
    {"signal",
     "SELECT t.run, t.attempt, t.at, json_extract(t.json, '$.signal') AS signal, json_extract(t.json, '$.from') AS sender"
     " FROM event_time t WHERE t.kind = 'signal'",
     "Signals the agents heard.", false},
    {"check_mfu",
     "SELECT c.*, c.tokens * c.flops_per_token / (c.step_s * c.peak_flops) AS recomputed,"
     " abs(c.mfu / (c.tokens * c.flops_per_token / (c.step_s * c.peak_flops)) - 1) AS difference FROM ("
     "SELECT 'step' AS source, s.run AS run, s.attempt || ':' || s.step AS item, coalesce(s.tokens, 1) AS tokens, s.step_s,"
     " coalesce(s.flops_per_token, s.model_flops) AS flops_per_token,"
     " (SELECT t.peak_flops FROM train_start t WHERE t.run = s.run AND t.attempt = s.attempt AND t.writer = s.writer"
     "  AND t.seq < s.seq ORDER BY t.seq DESC LIMIT 1) AS peak_flops, s.mfu FROM step s WHERE s.mfu IS NOT NULL"
     " UNION ALL SELECT 'trial', e.run, " FIELD("trial") ", " FIELD("tokens") ", " FIELD("measured_step_s") ","
     " 1.0 * " FIELD("model_flops") " / " FIELD("tokens") ", " FIELD("peak_flops") ", " FIELD("mfu")
     " FROM event e WHERE e.kind = 'trial_ended' AND " FIELD("mfu") " IS NOT NULL) c",
     "Every MFU recorded beside the one recomputed from tokens, step_s and peak; difference is relative, NULL when something is missing.",
     false},
};

/* ---- migrating ---- */

static int exec(sqlite3 *sql, const char *text, struct err *err)
{
    int rc = sqlite3_exec(sql, text, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : store_error(sql, rc, "change the schema", err);
}

static int views_make(sqlite3 *sql, struct err *err)
{
    struct str text = STR_INIT;
    for (size_t i = ARRAY_LEN(views); i-- > 0;)
        str_addf(&text, "DROP VIEW IF EXISTS %s;\n", views[i].name);
    for (size_t i = 0; i < ARRAY_LEN(views); i++)
        str_addf(&text, "CREATE VIEW %s AS %s;\n", views[i].name, views[i].sql);
    int rc = str_check(&text, err);
    if (rc == 0)
        rc = exec(sql, text.p, err);
    str_release(&text);
    return rc;
}

static int version_read(sqlite3 *sql, int *version, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(sql, "PRAGMA user_version", -1, &stmt, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW)
        *version = sqlite3_column_int(stmt, 0);
    sqlite3_finalize(stmt);
    return rc == SQLITE_ROW ? 0 : store_error(sql, rc, "read the schema version", err);
}

/* One step and the version it leads to, in one transaction; nothing if another process was first. */
static int step_apply(sqlite3 *sql, int from, int last, struct err *err)
{
    char pragma[96];
    int now = from, rc = exec(sql, "BEGIN IMMEDIATE", err);
    if (rc < 0)
        return rc;
    rc = version_read(sql, &now, err);
    if (rc == 0 && now == from) {
        rc = exec(sql, steps[from], err);
        if (rc == 0 && from + 1 == last && last == schema_version())
            rc = views_make(sql, err);
        snprintf(pragma, sizeof pragma, "PRAGMA application_id=%d; PRAGMA user_version=%d", SCHEMA_APPLICATION_ID, from + 1);
        if (rc == 0)
            rc = exec(sql, pragma, err);
    }
    if (rc == 0)
        rc = exec(sql, "COMMIT", err);
    if (rc < 0)
        sqlite3_exec(sql, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

int schema_migrate(sqlite3 *sql, int version, struct err *err)
{
    int now = 0, rc = version_read(sql, &now, err);
    BUG_ON(version > schema_version());
    for (; rc == 0 && now < version; now++)
        rc = step_apply(sql, now, version, err);
    return rc;
}

/* ---- describing ---- */

void schema_describe(struct str *out, bool all)
{
    str_addf(out, "Schema %d. Times are UTC Unix seconds, durations seconds, mfu a fraction of the dense peak.\n"
                  "The views v_* are public and stable; everything else may change.\n", schema_version());
    for (int public_first = 1; public_first >= (all ? 0 : 1); public_first--)
        for (size_t i = 0; i < ARRAY_LEN(views); i++)
            if (views[i].is_public == (bool)public_first)
                str_addf(out, "\n%s\n%s\n", views[i].name, views[i].text);
    for (size_t i = 0; all && i < ARRAY_LEN(steps); i++) {
        str_addf(out, "\n-- tables, migration %zu\n", i + 1);
        for (const char *p = steps[i]; *p; p++)
            str_add(out, (const char[]){*p, *p == ';' ? '\n' : 0, 0});
    }
}

void schema_views_list(struct str *out)
{
    for (size_t i = 0; i < ARRAY_LEN(views); i++)
        if (views[i].is_public)
            str_addf(out, "%s%s", out->len ? ", " : "", views[i].name);
}
