#include "tests/lib/events_fixture.h"

struct fx fx = {1.8e9, 5000.0, "node1", "boot-1"};

double __wrap_clock_wall_s(void);
double __wrap_clock_mono_s(void);
const char *__wrap_clock_boot_id(void);
const char *__wrap_clock_host(void);

double __wrap_clock_wall_s(void) { return fx.wall; }
double __wrap_clock_mono_s(void) { return fx.mono; }
const char *__wrap_clock_boot_id(void) { return fx.boot; }
const char *__wrap_clock_host(void) { return fx.host; }

void fx_pass(double seconds)
{
    fx.wall += seconds;
    fx.mono += seconds;
}

void fx_reset(void)
{
    fx.wall = 1.8e9;
    fx.mono = 5000.0;
    fx.host = "node1";
    fx.boot = "boot-1";
}

char *fx_dir(void)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/reel-fx.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(path));
    return path;
}

struct evlog *fx_open(const char *dir, const char *run, int64_t attempt,
                      const char *writer)
{
    struct evlog_ids ids = {run, attempt, writer, NULL};
    struct evlog *log = NULL;
    struct err err = {0};
    if (file_mkdirs(dir, &err) < 0 || evlog_open(dir, &ids, &log, &err) < 0)
        fail_msg("%s", err.text);
    return log;
}

void fx_event(struct evlog *log, const char *kind, ...)
{
    struct evlog_event e;
    struct err err = {0};
    va_list ap;
    evlog_begin(log, &e, kind);
    va_start(ap, kind);
    for (const char *key; (key = va_arg(ap, const char *));) {
        switch (va_arg(ap, int)) {
        case 'i': json_put_int(&e.out, key, va_arg(ap, int)); break;
        case 'n': json_put_num(&e.out, key, va_arg(ap, double)); break;
        case 't': json_put_text(&e.out, key, va_arg(ap, const char *)); break;
        default: fail_msg("fx_event: %s has no type", key);
        }
    }
    va_end(ap);
    if (evlog_commit(log, &e, false, &err) < 0)
        fail_msg("%s", err.text);
}

void fx_step(struct evlog *log, int step, double seconds, double loss)
{
    double started = fx.wall;
    fx_pass(seconds);
    fx_event(log, "step", "step", 'i', step, "started_at", 'n', started, "step_s", 'n', seconds,
             "tokens", 'i', FX_TOKENS, "loss", 'n', loss, "grad_norm", 'n', 1.0, "lr", 'n', 1e-3,
             "model_flops", 'n', FX_STEP_FLOPS, "mfu", 'n', FX_STEP_FLOPS / (seconds * FX_PEAK),
             "data_s", 'n', 0.01 * seconds, "peak_bytes", 'i', 1 << 20, NULL);
}

void fx_train_started(struct evlog *log, int next_step, int total)
{
    fx_event(log, "train_started", "next_step", 'i', next_step, "total_steps", 'i', total, "model",
             't', "dit-tiny", "layout", 't',
             "tp=1,sp=0,cp=1,cp_kind=ring,pp=1,vpp=1,dp=2,zero=1,fsdp=0,mbs=2,recompute=none,"
             "recompute_layers=0",
             "extent", 't', "4x8x8", "gbs", 'i', 16, "world", 'i', 2, "device", 't', "this CPU",
             "dtype", 't', "f32", "peak_flops", 'n', FX_PEAK, "peak_source", 't',
             "measured FMA rate x 2 cores", "flops_formula", 't', "flops_reel/3", NULL);
}

void fx_save(struct evlog *log, int steps_done, double seconds)
{
    double started = fx.wall;
    fx_pass(seconds);
    fx_event(log, "ckpt_saved", "step", 'i', steps_done, "dir", 't', "ckpt/x", "bytes", 'i',
             1 << 22, "seconds", 'n', seconds, "started_at", 'n', started, NULL);
}

void fx_load(struct evlog *log, int step, double seconds)
{
    double started = fx.wall;
    fx_pass(seconds);
    fx_event(log, "ckpt_loaded", "step", 'i', step, "dir", 't', "ckpt/x", "seconds", 'n', seconds,
             "started_at", 'n', started, NULL);
}

double fx_step_s(int step)
{
    return 1.9 + 0.12 * sin(step * 1.7) + (step % 17 == 3 ? 0.5 : 0.0);
}

double fx_loss(int step)
{
    return 0.35 + 0.9 * exp(-step / 18.0) + 0.02 * sin(step * 2.3);
}

void fx_attempt(const char *events, const char *run, int n, int first, int last,
                int total, const char *cause)
{
    struct evlog *agent = fx_open(events, run, n, "agent"), *rank0;
    char job[16];
    snprintf(job, sizeof job, "%d", 100 + n);
    fx_event(agent, "attempt_started", "sched", 't', "local", "job_id", 't', job, "restart", 'i',
             n - 1, NULL);
    fx_pass(0.8);
    fx_event(agent, "trainer_started", "pid", 'i', 4000 + n, "ranks", 'i', 2, NULL);
    rank0 = fx_open(events, run, n, "rank0");
    fx_pass(1.1);
    if (n > 1)
        fx_load(rank0, first, 0.6);
    fx_train_started(rank0, first, total);
    for (int s = first; s <= last; s++) {
        fx_step(rank0, s, fx_step_s(s + 31 * n), fx_loss(s));
        fx_pass(0.002);
        if ((s + 1) % 10 == 0)
            fx_save(rank0, s + 1, 0.7);
    }
    if (strcmp(cause, "preempt") == 0)
        fx_event(agent, "signal", "signal", 't', "SIGTERM", "from", 't', "scheduler", NULL);
    if (strcmp(cause, "crash") != 0)
        fx_save(rank0, last + 1, 0.7);
    evlog_close(rank0);
    fx_pass(0.2);
    fx_event(agent, "trainer_exited", "code", 'i', strcmp(cause, "done") ? 75 : 0, "signal", 'i', 0,
             NULL);
    fx_event(agent, "attempt_ended", "cause", 't', cause, "exit_code", 'i',
             strcmp(cause, "done") ? 75 : 0, "signal", 'i', 0, "detail", 't', "", NULL);
    evlog_close(agent);
}

void fx_run(const char *home)
{
    char events[512];
    snprintf(events, sizeof events, "%s/runs/" FX_RUN "/events", home);
    struct evlog *submit = fx_open(events, FX_RUN, 0, "submit-1");
    fx_event(submit, "run_created", "name", 't', "demo", "config_hash", 't', "abc", "model", 't',
             "dit-tiny", "total_steps", 'i', FX_TOTAL, "data_fingerprints", 't', FX_DATA, NULL);
    fx_pass(1);
    fx_event(submit, "submit_intent", "sched", 't', "local", NULL);
    fx_pass(0.1);
    fx_event(submit, "submitted", "sched", 't', "local", "job_id", 't', "101", NULL);
    evlog_close(submit);
    fx_pass(4.5);
    fx_attempt(events, FX_RUN, 1, 0, 23, FX_TOTAL, "preempt");
    fx_pass(11);
    /* the last checkpoint is of step 40, so steps 40, 41 and 42 are repeated */
    fx_attempt(events, FX_RUN, 2, 24, 42, FX_TOTAL, "crash");
    fx_pass(2.5);
    fx_attempt(events, FX_RUN, 3, 40, FX_TOTAL - 1, FX_TOTAL, "done");
}

void fx_tune(const char *home)
{
    static const struct {
        const char *layout, *state, *cause;
        double predicted, measured;
    } rows[FX_TRIALS] = {
        {"dp=1,zero=0,mbs=4,recompute=none", "ok", "", 3.4, 3.61},
        {"dp=2,zero=0,mbs=2,recompute=none", "ok", "", 1.85, 1.93},
        {"dp=2,zero=1,mbs=2,recompute=none", "ok", "", 1.88, 1.90},
        {"dp=2,zero=1,mbs=1,recompute=none", "ok", "", 2.05, 2.31},
        {"dp=2,zero=1,mbs=2,recompute=full", "ok", "", 2.44, 2.40},
        {"dp=2,zero=0,mbs=8,recompute=none", "oom_host", "rank 1 asked for 9.1 GiB of 8 GiB", 1.80, 0},
        {"dp=1,zero=0,mbs=8,recompute=none", "hang", "gave no sign of life for 30 s", 3.3, 0},
        {"dp=1,zero=0,mbs=1,recompute=full", NULL, NULL, 5.9, 0},
    };
    char events[512], id[16];
    snprintf(events, sizeof events, "%s/tunes/" FX_TUNE "/events", home);
    struct evlog *log = fx_open(events, FX_TUNE, 0, "tune");
    fx_event(log, "tune_started", "model", 't', "dit-tiny", "extent", 't', "4x8x8", "gbs", 'i', 16,
             "device", 't', "this CPU", "ranks", 'i', 2, "dtype", 't', "f32", "peak_flops", 'n',
             FX_PEAK, "peak_source", 't', "measured FMA rate x 2 cores", NULL);
    for (int i = 0; i < FX_TRIALS; i++) {
        snprintf(id, sizeof id, "t%02d", i + 1);
        fx_event(log, "trial_predicted", "trial", 't', id, "layout", 't', rows[i].layout,
                 "predicted_step_s", 'n', rows[i].predicted, "predicted_at", 'n', fx.wall,
                 "predicted_lo_s", 'n', 0.5 * rows[i].predicted, "predicted_hi_s", 'n',
                 i == 0 ? 5.2 : i == 3 ? 40.0 : 1.3 * rows[i].predicted,
                 "predicted_bytes", 'i', 1 << 28, NULL);
    }
    for (int i = 0; i < FX_TRIALS; i++) {
        if (!rows[i].state)
            continue;
        snprintf(id, sizeof id, "t%02d", i + 1);
        fx_event(log, "trial_started", "trial", 't', id, "started_at", 'n', fx.wall, NULL);
        fx_pass(8);
        if (rows[i].measured > 0)
            fx_event(log, "trial_ended", "trial", 't', id, "state", 't', "ok", "measured_step_s",
                     'n', rows[i].measured, "tokens", 'i', FX_TOKENS, "model_flops", 'n',
                     FX_STEP_FLOPS, "peak_flops", 'n', FX_PEAK, "mfu", 'n',
                     FX_STEP_FLOPS / (rows[i].measured * FX_PEAK), "peak_bytes", 'i', 300 << 20,
                     "steps", 'i', 4, "gpus", 'i', 2, NULL);
        else
            fx_event(log, "trial_ended", "trial", 't', id, "state", 't', rows[i].state, "cause",
                     't', rows[i].cause, NULL);
    }
    fx_event(log, "tune_ended", "winner", 't', "t03", "reason", 't',
             "no untried layout can be 3 % faster", "contenders", 'i', 3, "contenders_left", 'i', 2,
             NULL);
    evlog_close(log);
    fx_pass(3);
}

void fx_curation(const char *home)
{
    static const struct {
        const char *name;
        int frames, shots, clips, rejected;
        const char *reason;
    } rows[] = {{"harbour.mp4", 1440, 12, 31, 2, "too short"},
                {"forest <night> & fog.mp4", 960, 5, 20, 0, ""},
                {"broken.mp4", 0, 0, 0, 1, "truncated"}};
    char events[512];
    snprintf(events, sizeof events, "%s/curations/c1/.reel/events", home);
    struct evlog *log = fx_open(events, "c1", 0, "curate");
    fx_event(log, "curate_started", "sources", 'i', 3, NULL);
    for (size_t i = 0; i < 3; i++) {
        fx_pass(6);
        fx_event(log, "curate_source", "source", 't', rows[i].name, "frames", 'i', rows[i].frames,
                 "shots", 'i', rows[i].shots, "clips", 'i', rows[i].clips, "rejected", 'i',
                 rows[i].rejected, "reason", 't', rows[i].reason, "seconds", 'n', 6.0, NULL);
    }
    fx_event(log, "curate_ended", "clips", 'i', 51, "shards", 'i', 2, "bytes", 'i', 52428800,
             "seconds", 'n', 18.0, "fingerprint", 't', FX_DATA, NULL);
    evlog_close(log);
    fx_pass(2);
}

void fx_home(const char *home)
{
    fx_reset();
    fx_curation(home);
    fx_tune(home);
    fx_run(home);
}
