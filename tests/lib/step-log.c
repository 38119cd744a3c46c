/* step-log: writes the events of an attempt of a run with COUNT steps. The duration of each step is
 * the time that it took to write the event of the step before, or STEP_S seconds; then SAVE_S is the
 * duration of a save after the last one.
 *
 *     step-log EVENTS_DIR RUN ATTEMPT FIRST COUNT [STEP_S SAVE_S]
 *
 * The programs that read logs are measured on its output (tests/bench/ingest), and tests check that
 * they read no more than they need.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/evlog.h"
#include "base/file.h"

static const double FLOPS = 2.5e11, PEAK = 2.4e14;
enum { TOKENS = 4096 };

static int event(struct evlog *log, const char *kind, int64_t step, int64_t total, struct err *err)
{
    struct evlog_event e;
    evlog_begin(log, &e, kind);
    json_put_int(&e.out, "next_step", step);
    json_put_int(&e.out, "total_steps", total);
    json_put_text(&e.out, "sched", "local");
    json_put_num(&e.out, "peak_flops", PEAK);
    return evlog_commit(log, &e, false, err);
}

static int step_write(struct evlog *log, int64_t step, double started_at, double seconds,
                      struct err *err)
{
    struct evlog_event e;
    evlog_begin(log, &e, "step");
    json_put_int(&e.out, "step", step);
    json_put_num(&e.out, "started_at", started_at);
    json_put_num(&e.out, "step_s", seconds);
    json_put_int(&e.out, "tokens", TOKENS);
    json_put_num(&e.out, "loss", 0.3 + 0.9 * exp(-(double)step / 5000));
    json_put_num(&e.out, "grad_norm", 1.0 + 0.1 * sin((double)step));
    json_put_num(&e.out, "lr", 1e-3);
    json_put_num(&e.out, "model_flops", FLOPS);
    json_put_num(&e.out, "mfu", FLOPS / (seconds * PEAK));
    static const char *const parts[] = {"data_s", "forward_s", "backward_s",
                                        "comm_s", "optim_s",   "other_s"};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        json_put_num(&e.out, parts[i], seconds / (double)ARRAY_LEN(parts));
    json_put_int(&e.out, "peak_bytes", 1 << 30);
    return evlog_commit(log, &e, false, err);
}

static int save_write(struct evlog *log, int64_t steps, double seconds, struct err *err)
{
    struct evlog_event e;
    evlog_begin(log, &e, "ckpt_saved");
    json_put_int(&e.out, "step", steps);
    json_put_num(&e.out, "seconds", seconds);
    return evlog_commit(log, &e, false, err);
}

int main(int argc, char **argv)
{
    struct err err = {0};
    struct evlog *log = NULL;
    if (argc != 6 && argc != 8) {
        fprintf(stderr, "usage: step-log EVENTS_DIR RUN ATTEMPT FIRST COUNT [STEP_S SAVE_S]\n");
        return 2;
    }
    int64_t attempt = atoll(argv[3]), first = atoll(argv[4]), count = atoll(argv[5]);
    struct evlog_ids ids = {argv[2], attempt, "rank0", NULL};
    int rc = file_mkdirs(argv[1], &err);
    if (rc == 0)
        rc = evlog_open(argv[1], &ids, &log, &err);
    if (rc == 0 && first == 0)
        rc = event(log, "attempt_started", 0, count, &err);
    if (rc == 0 && first == 0)
        rc = event(log, "train_started", 0, count, &err);
    double wall = clock_wall_s(), mono = clock_mono_s();
    for (int64_t i = first; rc == 0 && i < first + count; i++) {
        double now_wall = clock_wall_s(), now_mono = clock_mono_s();
        rc = step_write(log, i, wall, argc == 8 ? atof(argv[6]) : now_mono - mono, &err);
        wall = now_wall;
        mono = now_mono;
    }
    if (rc == 0 && argc == 8)
        rc = save_write(log, first + count, atof(argv[7]), &err);
    evlog_close(log);
    if (rc < 0)
        fprintf(stderr, "step-log: %s\n", err.text);
    return rc < 0 ? 5 : 0;
}
