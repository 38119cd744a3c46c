/* The events of a training run, one line of JSON each (framing and the common fields run, attempt, writer, seq, wall, mono, boot, host,
 * token: base/evlog.h). Names never change their meaning; new ones may be added.
 *
 *   train_started  next_step, total_steps; model; layout (profiles/layout.h) and extent TxHxW of the first stage from here on, gbs, world
 *                  (ranks), device, dtype; peak_flops of all ranks, peak_source; flops_formula (profiles/flops.h); config_hash
 *   step           step, from 0; started_at (UTC); step_s; tokens, those of all ranks; loss; loss_x0, of clean estimates, x0 scaled
 *                  as the objective has it (objective.h); grad_norm, before clipping; weight_norm of what is
 *                  trained, before the update, and update_norm of its change (null when skipped); lr; model_flops; mfu = model_flops /
 *                  (step_s · peak_flops); peak_bytes resident of rank 0; skipped (nothing was changed); spike, of a skipped step alone: "loss"
 *                  or "grad_norm", which was past adamw.spike_z; else a gradient was not finite, also when the step was computed again. Of a step that was computed twice nonfinite_rank, whose own gradients were not first in
 *                  backward's order (-1: a sum over ranks made it so), and nonfinite_in, where that was ("layer 3 on rank 0"; the head:
 *                  already the loss was not); nonfinite_op when it is still not finite: which operation made the first such number of finite ones
 *                  ("made by gemm of layer 3 on rank 0, in forward"), or read it first (it came from data, weights, a message);
 *                  or "made by no operation".
 *                  Without nonfinite_op it was a fault of the machine: everything is of the second time. data_s, forward_s,
 *                  backward_s, comm_s (waiting that nothing covered), optim_s, other_s: of rank 0, disjoint, their sum is step_s.
 *                  kinds_s, with --profile: seconds by operation and wait (meter.h)
 *   validation     step (trained so far), samples, bins [loss of each part of the noise levels], average_bins, started_at, seconds
 *   ckpt_saved, ckpt_loaded    step, dir, bytes, started_at, seconds
 *   data_verified  data, fingerprint: its shards have the index's checksums
 *   ckpt_every     step; every_steps, chosen by cadence.h from step_s, save_s and mtbf_s; save_measured, mtbf_measured: or else guessed, a prior
 *   warm_started   from; of the model's tensors how many were taken, missing; unused: tensors of the source that the model has no place for
 *   space_low      step, needed_bytes of its checkpoint, free_bytes on the disk, removed (folders: damaged, and old ones beyond the newest
 *                  whole one), enough (else it is not saved, and tried again later)
 *   ckpt_damaged   dir, reason; an older one is tried
 *   ckpt_refused   reason: no checkpoint can be gone on from, and what was saved is not to be done again unasked
 *   stop_seen      signal and heard_at, when it was this rank that heard it; seen_at: the ranks have agreed
 *   train_ended    next_step; reason: done, stop, disk_full (there was no room for its last save), refused
 *                  (invalid input, and it made no step: it would refuse that again), error;
 *                  detail: what the error was
 */
#include "trainer/run/record.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/num.h"
#include "base/spawn.h"
#include "base/str.h"
#include "profiles/flops.h"
#include "trainer/watch/meter.h"

enum { KEEP_BYTES = 16 << 20 }; /* some 20,000 steps */

int record_log_open(const char *run_dir, int64_t attempt, const char *writer, struct evlog **out, struct err *err)
{
    char dir[LIMIT_PATH_BYTES], run[LIMIT_PATH_BYTES];
    size_t n = strlen(run_dir);
    while (n > 1 && run_dir[n - 1] == '/')
        n--;
    snprintf(run, sizeof run, "%.*s", (int)n, run_dir);
    const char *slash = strrchr(run, '/');
    struct evlog_ids ids = {slash && slash[1] ? slash + 1 : run, attempt, writer, getenv("REEL_RUN_TOKEN")};
    snprintf(dir, sizeof dir, "%s/events", run_dir);
    int rc = file_mkdirs(dir, err);
    return rc < 0 ? rc : evlog_open(dir, &ids, out, err);
}

int record_open(struct record *r, const char *run_dir, int64_t attempt, struct err *err)
{
    int rc = record_log_open(run_dir, attempt, "rank0", &r->log, err);
    if (rc == 0)
        evlog_keep(r->log, KEEP_BYTES);
    return rc;
}

void record_close(struct record *r)
{
    evlog_close(r->log);
    r->log = NULL;
}

/* Training goes on when the disk is full, and so does its record, in memory. */
static void commit(struct record *r, struct evlog_event *e, bool durable)
{
    struct err err = {0};
    int rc = evlog_commit(r->log, e, durable, &err);
    bool owes = evlog_keeps(r->log);
    if (owes && !r->owes)
        log_msg(LOG_WARN, "the record of the run waits in memory for room on the disk: %s", err.text);
    else if (rc < 0 && !owes)
        log_msg(LOG_WARN, "event lost: %s", err.text);
    else if (r->owes && !owes)
        log_msg(LOG_INFO, "there is room again: the record of the run is written");
    r->owes = owes;
}

void record_started(struct record *r, const struct run *run, const struct plan *plan, int64_t next_step, double peak_flops)
{
    struct evlog_event e;
    char hash[HASH_TEXT_BYTES], seq[64];
    if (!r->log)
        return;
    snprintf(seq, sizeof seq, "%lldx%lldx%lld", (long long)plan->seq.t, (long long)plan->seq.h, (long long)plan->seq.w);
    evlog_begin(r->log, &e, "train_started");
    json_put_int(&e.out, "next_step", next_step);
    json_put_int(&e.out, "total_steps", run_total_steps(run));
    json_put_text(&e.out, "model", run->model.name);
    layout_write(&plan->layout, &e.out, "layout");
    json_put_text(&e.out, "extent", seq); /* "seq" is the record number every event carries */
    json_put_int(&e.out, "gbs", plan->gbs); /* of the leg's first stage */
    json_put_int(&e.out, "world", layout_world(&plan->layout));
    json_put_text(&e.out, "device", plan->device);
    json_put_text(&e.out, "dtype", dtype_names[run->dtype]);
    json_put_num(&e.out, "peak_flops", peak_flops);
    json_put_text(&e.out, "peak_source", plan->peak_source);
    json_put_text(&e.out, "flops_formula", FLOPS_REEL_VERSION);
    json_put_text(&e.out, "config_hash", hash_format(run_config_hash(run), hash));
    commit(r, &e, true);
}

/* "kinds_s": {"gemm": …}: what took time. */
static void kinds_put(struct json_out *o, const double *kinds_s)
{
    json_obj_begin(o, "kinds_s");
    for (int k = 0; k < METER_KINDS; k++)
        if (kinds_s[k] > 0)
            json_put_num(o, meter_kind_names[k], kinds_s[k]);
    json_obj_end(o);
}

static void place_text(int64_t layer, int64_t rank, char text[RECORD_PLACE_BYTES])
{
    const char *part = layer == PARAM_LAYER_EMBED  ? "the embedding"
                       : layer == PARAM_LAYER_COND ? "the conditioning"
                       : layer == PARAM_LAYER_HEAD ? "the head"
                                                   : NULL;
    if (part)
        snprintf(text, RECORD_PLACE_BYTES, "%s on rank %lld", part, (long long)rank);
    else
        snprintf(text, RECORD_PLACE_BYTES, "layer %lld on rank %lld", (long long)layer, (long long)rank);
}

const char *record_nonfinite(const struct record_step *s, char text[RECORD_PLACE_BYTES])
{
    if (s->bad_rank < 0)
        return "a sum over ranks";
    place_text(s->bad_layer, s->bad_rank, text);
    return text;
}

const char *record_found(const struct record_step *s, char text[RECORD_PLACE_BYTES])
{
    char place[RECORD_PLACE_BYTES];
    if (!s->found.any)
        return "made by no operation";
    place_text(s->found.layer, s->found_rank, place);
    snprintf(text, RECORD_PLACE_BYTES, "%s by %s of %.50s, in %s", s->found.made ? "made" : "read", meter_kind_names[s->found.op], place,
             s->found.backward ? "backward" : "forward");
    return text;
}

void record_step(struct record *r, const struct record_step *s)
{
    struct evlog_event e;
    if (!r->log)
        return;
    evlog_begin(r->log, &e, "step");
    json_put_int(&e.out, "step", s->step);
    json_put_num(&e.out, "started_at", s->started_at);
    json_put_num(&e.out, "step_s", s->step_s);
    json_put_int(&e.out, "tokens", (int64_t)s->tokens);
    json_put_num(&e.out, "loss", s->loss);
    json_put_num(&e.out, "loss_x0", s->loss_x0);
    json_put_num(&e.out, "grad_norm", s->grad_norm);
    json_put_num(&e.out, "weight_norm", s->weight_norm);
    json_put_num(&e.out, "update_norm", s->update_norm);
    json_put_num(&e.out, "lr", s->lr);
    json_put_num(&e.out, "model_flops", s->model_flops);
    json_put_num(&e.out, "mfu", s->mfu);
    json_put_num(&e.out, "data_s", s->data_s);
    json_put_num(&e.out, "forward_s", s->forward_s);
    json_put_num(&e.out, "backward_s", s->backward_s);
    json_put_num(&e.out, "comm_s", s->comm_s);
    json_put_num(&e.out, "optim_s", s->optim_s);
    json_put_num(&e.out, "other_s", s->other_s);
    json_put_int(&e.out, "peak_bytes", s->peak_bytes);
    json_put_bool(&e.out, "skipped", s->skipped);
    if (s->skipped && !s->nonfinite)
        json_put_text(&e.out, "spike", s->loss_spike ? "loss" : "grad_norm");
    if (s->nonfinite || s->again) {
        char place[RECORD_PLACE_BYTES];
        json_put_int(&e.out, "nonfinite_rank", s->bad_rank);
        json_put_text(&e.out, "nonfinite_in", record_nonfinite(s, place));
        if (s->nonfinite && s->again)
            json_put_text(&e.out, "nonfinite_op", record_found(s, place));
    }
    if (s->kinds_s)
        kinds_put(&e.out, s->kinds_s);
    commit(r, &e, false);
}

void record_ckpt(struct record *r, const char *kind, int64_t step, const char *dir, int64_t bytes, double started_at, double seconds)
{
    struct evlog_event e;
    if (!r->log)
        return;
    evlog_begin(r->log, &e, kind);
    json_put_int(&e.out, "step", step);
    json_put_text(&e.out, "dir", dir);
    json_put_int(&e.out, "bytes", bytes);
    json_put_num(&e.out, "started_at", started_at);
    json_put_num(&e.out, "seconds", seconds);
    commit(r, &e, true);
}

static void losses_put(struct json_out *o, const char *key, const double *bins, int64_t n)
{
    json_arr_begin(o, key);
    for (int64_t i = 0; i < n; i++)
        json_put_num(o, NULL, bins[i]);
    json_arr_end(o);
}

void record_validation(struct record *r, int64_t step, const struct run_validation *v, const double *bins, const double *average,
                       double started_at, double seconds)
{
    struct evlog_event e;
    if (!r->log)
        return;
    evlog_begin(r->log, &e, "validation");
    json_put_int(&e.out, "step", step);
    json_put_int(&e.out, "samples", v->samples);
    losses_put(&e.out, "bins", bins, v->bins);
    if (average)
        losses_put(&e.out, "average_bins", average, v->bins);
    json_put_num(&e.out, "started_at", started_at);
    json_put_num(&e.out, "seconds", seconds);
    commit(r, &e, false);
}

void record_verified(struct record *r, const char *data, struct hash128 fingerprint)
{
    struct evlog_event e;
    char hex[HASH_TEXT_BYTES];
    if (!r->log)
        return;
    evlog_begin(r->log, &e, "data_verified");
    json_put_text(&e.out, "data", data);
    json_put_text(&e.out, "fingerprint", hash_format(fingerprint, hex));
    commit(r, &e, false);
}

void record_cadence(struct record *r, int64_t step, const struct cadence *c)
{
    struct evlog_event e;
    if (!r->log)
        return;
    evlog_begin(r->log, &e, "ckpt_every");
    json_put_int(&e.out, "step", step);
    json_put_int(&e.out, "every_steps", c->every_steps);
    json_put_num(&e.out, "step_s", c->step_s);
    json_put_num(&e.out, "save_s", c->save_s);
    json_put_num(&e.out, "mtbf_s", c->mtbf_s);
    json_put_bool(&e.out, "save_measured", c->save_measured);
    json_put_bool(&e.out, "mtbf_measured", c->mtbf_measured);
    commit(r, &e, false);
}

void record_warm(struct record *r, const char *from, const struct warm_count *c)
{
    struct evlog_event e;
    if (!r->log)
        return;
    evlog_begin(r->log, &e, "warm_started");
    json_put_text(&e.out, "from", from);
    json_put_int(&e.out, "tensors", c->tensors);
    json_put_int(&e.out, "taken", c->taken);
    json_put_int(&e.out, "missing", c->missing);
    json_put_int(&e.out, "unused", c->unused);
    commit(r, &e, true);
}

void record_space_low(struct record *r, int64_t step, const struct ckpt_room *room)
{
    struct evlog_event e;
    if (!r->log)
        return;
    evlog_begin(r->log, &e, "space_low");
    json_put_int(&e.out, "step", step);
    json_put_int(&e.out, "needed_bytes", room->needed_bytes);
    json_put_int(&e.out, "free_bytes", room->free_bytes);
    json_put_int(&e.out, "removed", room->removed);
    json_put_bool(&e.out, "enough", room->enough);
    commit(r, &e, true);
}

void record_damaged(struct record *r, const char *dir, const char *reason)
{
    struct evlog_event e;
    if (!r->log)
        return;
    evlog_begin(r->log, &e, "ckpt_damaged");
    json_put_text(&e.out, "dir", dir);
    json_put_text(&e.out, "reason", reason);
    commit(r, &e, true);
}

void record_refused(struct record *r, const char *reason)
{
    struct evlog_event e;
    if (!r->log)
        return;
    evlog_begin(r->log, &e, "ckpt_refused");
    json_put_text(&e.out, "reason", reason);
    commit(r, &e, true);
}

/* What is looked for in the events of all attempts. */
struct search { const char *kind; int64_t step; bool found; }; /* step: the greatest of that kind, or the one that is wanted */
typedef void search_fn(struct search *s, int64_t step);

static int log_search(const char *path, search_fn *fn, struct search *s, struct err *err)
{
    struct evlog_reader *log = NULL;
    const cJSON *event;
    int rc = evlog_reader_open(path, &log, err);
    while (rc == 0 && (rc = evlog_reader_next(log, &event, err)) == 1) {
        if (strcmp(json_text(event, "ev", ""), s->kind) == 0)
            fn(s, json_int(event, "step", 0));
        rc = 0;
    }
    evlog_reader_close(log);
    return rc;
}

static int events_search(const char *run_dir, search_fn *fn, struct search *s, struct err *err)
{
    char events[LIMIT_PATH_BYTES], path[LIMIT_PATH_BYTES];
    int rc = 0;
    snprintf(events, sizeof events, "%s/events", run_dir);
    DIR *dir = opendir(events);
    if (!dir && errno != ENOENT)
        return err_set_errno(err, ERR_IO, "cannot list '%s'", events);
    for (struct dirent *d; dir && rc == 0 && (d = readdir(dir));)
        if (str_starts(d->d_name, "rank0.") && str_ends(d->d_name, ".evlog") && snprintf(path, sizeof path, "%s/%s", events, d->d_name) > 0)
            rc = log_search(path, fn, s, err);
    if (dir)
        closedir(dir);
    return rc;
}

static void greatest(struct search *s, int64_t step) { s->step = num_max_i64(s->step, step); }
static void wanted(struct search *s, int64_t step) { s->found |= step == s->step; }

int record_saved_step(const char *run_dir, int64_t *step, struct err *err)
{
    struct search s = {"ckpt_saved", 0, false};
    int rc = events_search(run_dir, greatest, &s, err);
    if (rc == 0)
        *step = s.step;
    return rc;
}

int record_has(const char *run_dir, const char *kind, int64_t step, bool *found, struct err *err)
{
    struct search s = {kind, step, false};
    int rc = events_search(run_dir, wanted, &s, err);
    if (rc == 0)
        *found = s.found;
    return rc;
}

void record_stop_seen(struct record *r, int signo, const volatile struct timespec *heard)
{
    struct evlog_event e;
    char name[SIGNAL_NAME_BYTES];
    if (!r->log)
        return;
    evlog_begin(r->log, &e, "stop_seen");
    if (signo) { /* else another rank heard it */
        json_put_text(&e.out, "signal", signal_name(signo, name));
        json_put_num(&e.out, "heard_at", heard ? (double)heard->tv_sec + 1e-9 * (double)heard->tv_nsec : NAN);
    }
    json_put_num(&e.out, "seen_at", clock_wall_s());
    commit(r, &e, true);
}

void record_ended(struct record *r, int64_t next_step, const char *reason, const char *detail)
{
    struct evlog_event e;
    if (!r->log)
        return;
    evlog_begin(r->log, &e, "train_ended");
    json_put_int(&e.out, "next_step", next_step);
    json_put_text(&e.out, "reason", reason);
    if (detail[0])
        json_put_text(&e.out, "detail", detail);
    commit(r, &e, true);
}

void record_rejected(const char *run_dir, int64_t attempt, const char *detail)
{
    char dir[LIMIT_PATH_BYTES + 16], log[LIMIT_PATH_BYTES + 64];
    struct record r = {0};
    struct err err = {0};
    snprintf(dir, sizeof dir, "%s/events", run_dir);
    snprintf(log, sizeof log, "%s/rank0.a%lld.evlog", dir, (long long)attempt);
    if (!file_exists(dir) || file_exists(log))
        return;
    if (record_open(&r, run_dir, attempt, &err) < 0)
        log_msg(LOG_WARN, "event lost: %s", err.text);
    record_ended(&r, 0, "refused", detail);
    record_close(&r);
}
