#include "trainer/run/record.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/events.h"
#include "base/file.h"
#include "base/log.h"
#include "base/num.h"
#include "base/spawn.h"
#include "base/str.h"
#include "profiles/flops.h"
#include "trainer/ops/simd.h"
#include "trainer/watch/meter.h"

enum { KEEP_BYTES = 16 << 20 }; /* about 20,000 steps */

int record_log_open(const char *run_dir, int64_t attempt, const char *writer, struct evlog **out,
                    struct err *err)
{
    char dir[LIMIT_PATH_BYTES], run[LIMIT_PATH_BYTES];
    size_t n = strlen(run_dir);
    while (n > 1 && run_dir[n - 1] == '/')
        n--;
    snprintf(run, sizeof run, "%.*s", (int)n, run_dir);
    const char *slash = strrchr(run, '/');
    struct evlog_ids ids = {slash && slash[1] ? slash + 1 : run, attempt, writer,
                            getenv("REEL_RUN_TOKEN")};
    snprintf(dir, sizeof dir, "%s/events", run_dir);
    int rc;
    if ((rc = file_mkdirs(dir, err)) < 0)
        return rc;
    return evlog_open(dir, &ids, out, err);
}

int record_open(struct record *r, const char *run_dir, int64_t attempt, struct err *err)
{
    int rc;
    if ((rc = record_log_open(run_dir, attempt, "rank0", &r->log, err)) < 0)
        return rc;
    evlog_keep(r->log, KEEP_BYTES);
    return 0;
}

void record_close(struct record *r)
{
    evlog_close(r->log);
    r->log = NULL;
}

/* Writes an event. When the disk is full, training goes on, and the record is kept in memory. */
static void commit(struct record *r, struct evlog_event *e, bool durable)
{
    struct err err = {0};
    int rc = evlog_commit(r->log, e, durable, &err);
    bool owes = evlog_keeps(r->log);
    if (owes && !r->owes)
        log_msg(LOG_WARN, "the record of the run waits in memory for room on the disk: %s",
                err.text);
    else if (rc < 0 && !owes)
        log_msg(LOG_WARN, "event lost: %s", err.text);
    else if (r->owes && !owes)
        log_msg(LOG_INFO, "there is room again: the record of the run is written");
    r->owes = owes;
}

void record_started(struct record *r, const struct run *run, const struct plan *plan,
                    int64_t next_step, double peak_flops)
{
    struct evlog_event e;
    char hash[HASH_TEXT_BYTES], seq[64];
    enum simd simd = SIMD_GENERIC;
    if (!r->log)
        return;
    snprintf(seq, sizeof seq, "%lldx%lldx%lld", (long long)plan->seq.t, (long long)plan->seq.h,
             (long long)plan->seq.w);
    simd_choose(&simd, NULL); /* a wrong REEL_SIMD was refused when the world was opened */
    event_begin(r->log, &e, train_started);
    event_int(&e, train_started, next_step, next_step);
    event_int(&e, train_started, total_steps, run_total_steps(run));
    event_text(&e, train_started, model, run->model.name);
    layout_write(&plan->layout, &e.out, EVENT_FIELD(train_started, layout, TEXT));
    /* This field is called extent, because "seq" is already the record number of every event. */
    event_text(&e, train_started, extent, seq);
    event_int(&e, train_started, gbs, plan->gbs); /* of the leg's first stage */
    event_int(&e, train_started, world, layout_world(&plan->layout));
    event_text(&e, train_started, device, plan->device);
    event_text(&e, train_started, dtype, dtype_names[run->dtype]);
    event_text(&e, train_started, vectors, simd_names[simd]);
    event_num(&e, train_started, peak_flops, peak_flops);
    event_text(&e, train_started, peak_source, plan->peak_source);
    event_text(&e, train_started, flops_formula, FLOPS_REEL_VERSION);
    event_text(&e, train_started, config_hash, hash_format(run_config_hash(run), hash));
    commit(r, &e, true);
}

/* Writes the seconds by kind: "kinds_s": {"gemm": …}. */
static void kinds_put(struct json_out *o, const double *kinds_s)
{
    json_obj_begin(o, EVENT_FIELD(step, kinds_s, TREE));
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
        snprintf(text, RECORD_PLACE_BYTES, "layer %lld on rank %lld", (long long)layer,
                 (long long)rank);
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
    snprintf(text, RECORD_PLACE_BYTES, "%s by %s of %.50s, in %s", s->found.made ? "made" : "read",
             meter_kind_names[s->found.op], place, s->found.backward ? "backward" : "forward");
    return text;
}

void record_step(struct record *r, const struct record_step *s)
{
    struct evlog_event e;
    if (!r->log)
        return;
    event_begin(r->log, &e, step);
#define RECORD_PUT_TEXT event_text
#define RECORD_PUT_INT event_int
#define RECORD_PUT_NUM event_num
#define RECORD_PUT_BOOL event_bool
#define RECORD_PUT_COUNT event_count
#define RECORD_PUT_PLAIN(field, type) RECORD_PUT_##type(&e, step, field, s->field);
#define RECORD_PUT_CASE(field, type)
#define STEP(field, type, since, by, shown, text) RECORD_PUT_##by(field, type)
#include "base/events.def"
    if (s->skipped && !s->nonfinite)
        event_text(&e, step, spike, s->loss_spike ? "loss" : "grad_norm");
    if (s->nonfinite || s->again) {
        char place[RECORD_PLACE_BYTES];
        event_int(&e, step, nonfinite_rank, s->bad_rank);
        event_text(&e, step, nonfinite_in, record_nonfinite(s, place));
        if (s->nonfinite && s->again)
            event_text(&e, step, nonfinite_op, record_found(s, place));
    }
    if (s->kinds_s)
        kinds_put(&e.out, s->kinds_s);
    commit(r, &e, false);
}

void record_ckpt(struct record *r, const char *kind, int64_t step, const char *dir, int64_t bytes,
                 double started_at, double seconds)
{
    struct evlog_event e;
    if (!r->log)
        return;
    evlog_begin(r->log, &e, kind);
    event_int(&e, ckpt_saved, step, step); /* ckpt_loaded has the same fields */
    event_text(&e, ckpt_saved, dir, dir);
    event_int(&e, ckpt_saved, bytes, bytes);
    event_num(&e, ckpt_saved, started_at, started_at);
    event_num(&e, ckpt_saved, seconds, seconds);
    commit(r, &e, true);
}

static void losses_put(struct json_out *o, const char *key, const double *bins, int64_t n)
{
    json_arr_begin(o, key);
    for (int64_t i = 0; i < n; i++)
        json_put_num(o, NULL, bins[i]);
    json_arr_end(o);
}

void record_validation(struct record *r, int64_t step, const struct run_validation *v,
                       const double *bins, const double *average, double started_at, double seconds)
{
    struct evlog_event e;
    if (!r->log)
        return;
    event_begin(r->log, &e, validation);
    event_int(&e, validation, step, step);
    event_int(&e, validation, samples, v->samples);
    losses_put(&e.out, EVENT_FIELD(validation, bins, TREE), bins, v->bins);
    if (average)
        losses_put(&e.out, EVENT_FIELD(validation, average_bins, TREE), average, v->bins);
    event_num(&e, validation, started_at, started_at);
    event_num(&e, validation, seconds, seconds);
    commit(r, &e, false);
}

void record_verified(struct record *r, const char *data, struct hash128 fingerprint)
{
    struct evlog_event e;
    char hex[HASH_TEXT_BYTES];
    if (!r->log)
        return;
    event_begin(r->log, &e, data_verified);
    event_text(&e, data_verified, data, data);
    event_text(&e, data_verified, fingerprint, hash_format(fingerprint, hex));
    commit(r, &e, false);
}

void record_cadence(struct record *r, int64_t step, const struct cadence *c)
{
    struct evlog_event e;
    if (!r->log)
        return;
    event_begin(r->log, &e, ckpt_every);
    event_int(&e, ckpt_every, step, step);
    event_int(&e, ckpt_every, every_steps, c->every_steps);
    event_num(&e, ckpt_every, step_s, c->step_s);
    event_num(&e, ckpt_every, save_s, c->save_s);
    event_num(&e, ckpt_every, mtbf_s, c->mtbf_s);
    event_bool(&e, ckpt_every, save_measured, c->save_measured);
    event_bool(&e, ckpt_every, mtbf_measured, c->mtbf_measured);
    commit(r, &e, false);
}

void record_warm(struct record *r, const char *from, const struct warm_count *c)
{
    struct evlog_event e;
    if (!r->log)
        return;
    event_begin(r->log, &e, warm_started);
    event_text(&e, warm_started, from, from);
    event_int(&e, warm_started, tensors, c->tensors);
    event_int(&e, warm_started, taken, c->taken);
    event_int(&e, warm_started, missing, c->missing);
    event_int(&e, warm_started, unused, c->unused);
    commit(r, &e, true);
}

void record_space_low(struct record *r, int64_t step, const struct ckpt_room *room)
{
    struct evlog_event e;
    if (!r->log)
        return;
    event_begin(r->log, &e, space_low);
    event_int(&e, space_low, step, step);
    event_int(&e, space_low, needed_bytes, room->needed_bytes);
    event_int(&e, space_low, free_bytes, room->free_bytes);
    event_int(&e, space_low, free_files, room->free_files);
    event_int(&e, space_low, removed, room->removed);
    event_bool(&e, space_low, enough, room->enough);
    commit(r, &e, true);
}

void record_damaged(struct record *r, const char *dir, const char *reason)
{
    struct evlog_event e;
    if (!r->log)
        return;
    event_begin(r->log, &e, ckpt_damaged);
    event_text(&e, ckpt_damaged, dir, dir);
    event_text(&e, ckpt_damaged, reason, reason);
    commit(r, &e, true);
}

void record_refused(struct record *r, const char *reason)
{
    struct evlog_event e;
    if (!r->log)
        return;
    event_begin(r->log, &e, ckpt_refused);
    event_text(&e, ckpt_refused, reason, reason);
    commit(r, &e, true);
}

/* Holds a search through the events of all attempts. step is the greatest step of that kind, or the
 * step that is searched for. */
struct search { const char *kind; int64_t step; bool found; };
typedef void search_fn(struct search *s, int64_t step);

static int log_search(const char *path, search_fn *fn, struct search *s, struct err *err)
{
    struct evlog_reader *log = NULL;
    const cJSON *event;
    int rc;
    if ((rc = evlog_reader_open(path, &log, err)) < 0)
        return rc;
    while ((rc = evlog_reader_next(log, &event, err)) == 1)
        if (strcmp(json_text(event, "ev", ""), s->kind) == 0)
            fn(s, json_int(event, "step", 0));
    evlog_reader_close(log);
    return rc;
}

static int events_search(const char *run_dir, search_fn *fn, struct search *s, struct err *err)
{
    char events[LIMIT_PATH_BYTES], path[LIMIT_PATH_BYTES];
    int rc = 0;
    snprintf(events, sizeof events, "%s/events", run_dir);
    DIR *dir = opendir(events);
    if (!dir)
        return errno == ENOENT ? 0 : err_set_errno(err, ERR_IO, "cannot list '%s'", events);
    for (struct dirent *d; (d = readdir(dir));) {
        if (!str_starts(d->d_name, "rank0.") || !str_ends(d->d_name, ".evlog") ||
            snprintf(path, sizeof path, "%s/%s", events, d->d_name) <= 0)
            continue;
        if ((rc = log_search(path, fn, s, err)) < 0)
            break;
    }
    closedir(dir);
    return rc;
}

static void greatest(struct search *s, int64_t step) { s->step = num_max_i64(s->step, step); }
static void wanted(struct search *s, int64_t step) { s->found |= step == s->step; }

int record_saved_step(const char *run_dir, int64_t *step, struct err *err)
{
    struct search s = {"ckpt_saved", 0, false};
    int rc;
    if ((rc = events_search(run_dir, greatest, &s, err)) < 0)
        return rc;
    *step = s.step;
    return 0;
}

int record_has(const char *run_dir, const char *kind, int64_t step, bool *found, struct err *err)
{
    struct search s = {kind, step, false};
    int rc;
    if ((rc = events_search(run_dir, wanted, &s, err)) < 0)
        return rc;
    *found = s.found;
    return 0;
}

void record_stop_seen(struct record *r, int signo, const volatile struct timespec *heard)
{
    struct evlog_event e;
    char name[SIGNAL_NAME_BYTES];
    if (!r->log)
        return;
    event_begin(r->log, &e, stop_seen);
    if (signo) { /* else another rank received it */
        event_text(&e, stop_seen, signal, signal_name(signo, name));
        event_num(&e, stop_seen, heard_at,
                  heard ? (double)heard->tv_sec + 1e-9 * (double)heard->tv_nsec : NAN);
    }
    event_num(&e, stop_seen, seen_at, clock_wall_s());
    commit(r, &e, true);
}

void record_ended(struct record *r, int64_t next_step, const char *reason, const char *detail)
{
    struct evlog_event e;
    if (!r->log)
        return;
    event_begin(r->log, &e, train_ended);
    event_int(&e, train_ended, next_step, next_step);
    event_text(&e, train_ended, reason, reason);
    if (detail[0])
        event_text(&e, train_ended, detail, detail);
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
