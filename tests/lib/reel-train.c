/* This program stands in for reel-train in launcher tests. It writes real events, handles signals
 * and returns real exit codes, but computes nothing: its checkpoint is a step counter in
 * <run-dir>/ckpt/step. The environment selects its behaviour:
 *   REEL_STUB_STEP_S     duration of a step, s (default 0.02)
 *   REEL_STUB_CRASH_AT   crash (exit 5) before this step in attempts up to REEL_STUB_CRASH_ATTEMPTS
 *                        (default: all)
 *   REEL_STUB_HANG_AT    hang at this step, in the first attempt
 *   REEL_STUB_HOLD_AT    wait at this step for the request to save, in the first attempt
 *   REEL_STUB_DEAF       ignore the request to save */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/evlog.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/owner.h"
#include "profiles/run.h"

static volatile sig_atomic_t stop;

static void on_signal(int signo)
{
    (void)signo;
    stop = 1;
}

static const char *arg(int argc, char **argv, const char *name)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    fprintf(stderr, "stub: %s is missing\n", name);
    exit(2);
}

static double number(const char *name, double fallback)
{
    const char *text = getenv(name);
    return text ? strtod(text, NULL) : fallback;
}

static void check(int rc, const struct err *err)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "stub: %s\n", err->text);
    exit(err_exit_code(rc));
}

static void step_event(struct evlog *log, int64_t step, double step_s)
{
    struct evlog_event e;
    struct err err = {0};
    evlog_begin(log, &e, "step");
    json_put_int(&e.out, "step", step);
    json_put_num(&e.out, "started_at", clock_wall_s());
    json_put_num(&e.out, "step_s", step_s);
    json_put_num(&e.out, "loss", 1.0 / (double)(step + 1));
    json_put_int(&e.out, "tokens", 64);
    check(evlog_commit(log, &e, true, &err), &err);
}

static void save(const char *path, struct evlog *log, int64_t steps)
{
    struct evlog_event e;
    struct err err = {0};
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)steps);
    check(file_publish(path, text, strlen(text), &err), &err);
    evlog_begin(log, &e, "ckpt_saved");
    json_put_int(&e.out, "step", steps);
    json_put_num(&e.out, "seconds", 0.001);
    check(evlog_commit(log, &e, true, &err), &err);
}

static void ended(struct evlog *log, const char *reason, int64_t next)
{
    struct evlog_event e;
    struct err err = {0};
    evlog_begin(log, &e, "train_ended");
    json_put_int(&e.out, "next_step", next);
    json_put_text(&e.out, "reason", reason);
    check(evlog_commit(log, &e, true, &err), &err);
    evlog_close(log);
}

/* Waits until rank 0 has ended, as the other ranks do. */
static int follow_rank0(const char *dir, int64_t attempt)
{
    char log[LIMIT_PATH_BYTES];
    struct lease_watch w = {.quiet_s = 0};
    snprintf(log, sizeof log, "%s/events/rank0.a%lld.evlog", dir, (long long)attempt);
    for (double begun = clock_mono_s(); !owner_lives(&w, dir, attempt, LEASE_SILENT_S) &&
                                        clock_mono_s() - begun < (file_exists(log) ? 10 : 120);)
        clock_sleep_s(0.05);
    while (owner_lives(&w, dir, attempt, LEASE_SILENT_S))
        clock_sleep_s(0.05);
    return 0;
}

int main(int argc, char **argv)
{
    struct err err = {0};
    struct run run = {0};
    struct evlog *log = NULL;
    struct lease *owner = NULL;
    struct str text = STR_INIT;
    const char *dir = arg(argc, argv, "--run-dir");
    int64_t attempt = strtoll(arg(argc, argv, "--attempt"), NULL, 10),
            crash_at = (int64_t)number("REEL_STUB_CRASH_AT", -1);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    if (number("SLURM_PROCID", 0) > 0)
        return follow_rank0(dir, attempt);
    check(run_load(arg(argc, argv, "--run"), &run, &err), &err);
    char *events = file_join(dir, "events"), *ckpt = file_join(dir, "ckpt"),
         *path = file_join(dir, "ckpt/step");
    check(file_mkdirs(ckpt, &err), &err);
    struct evlog_ids ids = {strrchr(dir, '/') + 1, attempt, "rank0", NULL};
    check(owner_take(dir, attempt, &owner, &err), &err);
    check(evlog_open(events, &ids, &log, &err), &err);
    int64_t step = file_exists(path) && file_read(path, 64, &text, &err) == 0
                       ? strtoll(text.p, NULL, 10)
                       : 0;
    double step_s = number("REEL_STUB_STEP_S", 0.02);
    for (; step < run_total_steps(&run); step++) {
        while (attempt == 1 && step == (int64_t)number("REEL_STUB_HANG_AT", -1))
            clock_sleep_s(1);
        while (attempt == 1 && step == (int64_t)number("REEL_STUB_HOLD_AT", -1) && !stop)
            clock_sleep_s(0.05);
        if (step == crash_at && attempt <= (int64_t)number("REEL_STUB_CRASH_ATTEMPTS", 1e9))
            _exit(5); /* a crash closes neither the log nor the lease */
        clock_sleep_s(step_s);
        step_event(log, step, step_s);
        if (stop && !getenv("REEL_STUB_DEAF")) {
            save(path, log, step + 1);
            ended(log, "stop", step + 1);
            lease_drop(owner);
            return 75;
        }
    }
    save(path, log, step);
    ended(log, "done", step);
    lease_drop(owner);
    return 0;
}
