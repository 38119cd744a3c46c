#include "autotune/probe.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "launcher/start/command.h"

enum { PROBE_DEADLINE_S = 120 };
/* step_wait() looks for signals every LOOK_S seconds, and reports every SAY_S seconds that the
 * probe goes on. */
static const double LOOK_S = 0.2, SAY_S = 5;

extern char **environ;

static int number(const struct json_doc *doc, const cJSON *o, const char *key, bool zero_ok,
                  double *out, struct err *err)
{
    double v = json_num(o, key, NAN);
    if (!isfinite(v) || v < 0 || (v == 0 && !zero_ok))
        return err_set(err, ERR_INPUT,
                       "%s: %s is missing or not a positive number: run 'reel-train probe --json' "
                       "by hand",
                       doc->name, key);
    *out = v;
    return 0;
}

static int view_read(const struct json_doc *doc, const cJSON *o, struct probe_view *v,
                     struct err *err)
{
    const struct { const char *key; double *to; bool zero_ok; } seconds[] = {
        {"gemm_s", &v->gemm_s}, {"attn_fwd_s", &v->attn_s[0]}, {"attn_bwd_s", &v->attn_s[1]},
        {"elementwise_s", &v->elementwise_s}, {"samples_s", &v->inputs_s[INPUT_SAMPLES]},
        {"angles_s", &v->inputs_s[INPUT_ANGLES], .zero_ok = true},
        {"patches_s", &v->inputs_s[INPUT_PATCHES]}, {"loss_s", &v->inputs_s[INPUT_LOSS]}};
    int rc;
    if ((rc = seq_parse(json_text(o, "seq", ""), "layer[].seq", &v->seq, err)) < 0)
        return err_context(err, "%s", doc->name);
    if ((v->samples = json_int(o, "samples", 0)) < 1)
        return err_set(err, ERR_INPUT, "%s: layer[].samples is missing or below 1", doc->name);
    for (size_t i = 0; i < ARRAY_LEN(seconds); i++)
        if ((rc = number(doc, o, seconds[i].key, seconds[i].zero_ok, seconds[i].to, err)) < 0)
            return rc;
    return 0;
}

static int views_read(const struct json_doc *doc, struct probe *p, struct err *err)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(doc->root, "layer"), *o;
    cJSON_ArrayForEach(o, list) {
        int rc;
        if (p->n_views == SPEED_POINTS)
            break;
        if ((rc = view_read(doc, o, &p->view[p->n_views++], err)) < 0)
            return rc;
    }
    if (p->n_views == 0 && p->ranks == 1)
        return err_set(err, ERR_INPUT, "%s: layer is missing or empty", doc->name);
    return 0;
}

static int probe_read(const struct json_doc *doc, struct probe *p, struct err *err)
{
    const cJSON *root = doc->root;
    int rc;
    if ((rc = json_check_schema(doc, "reel.probe/3", err)) < 0)
        return rc;
    p->ranks = json_int(root, "ranks", 0);
    if (p->ranks < 1)
        return err_set(err, ERR_INPUT, "%s: ranks is missing or below 1", doc->name);
    if ((rc = number(doc, root, "fma_flops", false, &p->fma_flops, err)) < 0)
        return rc;
    if ((rc = views_read(doc, p, err)) < 0)
        return rc;
    bool messages_only = p->n_views == 0;
    if ((rc = number(doc, root, "update_elements", messages_only, &p->update_elements, err)) < 0)
        return rc;
    if ((rc = number(doc, root, "update_s", messages_only, &p->update_s, err)) < 0)
        return rc;
    if ((rc = number(doc, root, "norm_s", messages_only, &p->norm_s, err)) < 0)
        return rc;
    if ((rc = number(doc, root, "clear_s", messages_only, &p->clear_s, err)) < 0)
        return rc;
    if ((rc = number(doc, root, "move_s", messages_only, &p->move_s, err)) < 0)
        return rc;
    if ((rc = number(doc, root, "latency_s", p->ranks == 1, &p->latency_s, err)) < 0)
        return rc;
    return number(doc, root, "bus_bytes_per_s", p->ranks == 1, &p->bus_bytes, err);
}

int probe_parse(const char *text, size_t len, const char *name, struct probe *out, struct err *err)
{
    struct json_doc doc = {0};
    struct probe p = {0};
    int rc;
    if ((rc = json_parse(text, len, name, &doc, err)) < 0)
        return rc;
    if ((rc = probe_read(&doc, &p, err)) < 0)
        goto out;
    *out = p;
out:
    json_release(&doc);
    return rc;
}

/* Reports a failed probe with the first line of its log. */
static int failed(const struct sched_step_status *end, int64_t ranks, const char *log,
                  struct err *err)
{
    struct str text = STR_INIT;
    file_read(log, LIMIT_CAPTURE_BYTES, &text, NULL);
    int rc = err_set(err, ERR_CHILD, "the probe on %lld ranks failed with exit status %d: %.*s",
                     (long long)ranks, end->exit_signal ? 128 + end->exit_signal : end->exit_code,
                     text.len ? (int)strcspn(text.p, "\n") : 0, text.len ? text.p : "");
    str_release(&text);
    return rc;
}

/* Fills the set with the signals that ask a program to end. */
static void leave_signals(sigset_t *out)
{
    sigemptyset(out);
    sigaddset(out, SIGINT);
    sigaddset(out, SIGTERM);
    sigaddset(out, SIGHUP);
}

static bool asked_to_leave(void)
{
    sigset_t pending;
    return sigpending(&pending) == 0 && (sigismember(&pending, SIGINT) == 1 ||
                                         sigismember(&pending, SIGTERM) == 1 ||
                                         sigismember(&pending, SIGHUP) == 1);
}

static void say_on(const struct probe_spec *spec, int64_t ranks, double since_s)
{
    char line[128];
    snprintf(line, sizeof line, "still measuring the machine with %lld rank%s, for %.0f s",
             (long long)ranks, ranks == 1 ? "" : "s", since_s);
    if (spec->say)
        spec->say(spec->say_ctx, line);
}

/* Waits for the end of the step, or until a signal asks the program to end. */
static int step_wait(struct sched_step *step, const struct probe_spec *spec, int64_t ranks,
                     struct sched_step_status *end, struct err *err)
{
    double started_s = clock_mono_s(), said_s = started_s;
    int rc;
    while ((rc = sched_step_poll(step, LOOK_S, end, err)) == 0 && !end->ended) {
        if (asked_to_leave())
            return err_set(err, ERR_TEMP, "asked to stop while the machine was measured");
        if (clock_mono_s() - said_s < SAY_S)
            continue;
        said_s = clock_mono_s();
        say_on(spec, ranks, said_s - started_s);
    }
    return rc;
}

static int step_run(struct sched *s, const struct probe_spec *probe, const struct command *command,
                    int64_t ranks, const char *log, struct err *err)
{
    struct sched_step_spec spec = SCHED_STEP_SPEC_INIT;
    struct sched_step_status end;
    struct sched_step *step = NULL;
    int rc;
    spec.argv = command->argv;
    spec.env = command->env;
    spec.log_path = log;
    spec.ranks = (int)ranks;
    spec.deadline_s = PROBE_DEADLINE_S;
    if ((rc = sched_step_start(s, &spec, &step, err)) < 0)
        return rc;
    rc = step_wait(step, probe, ranks, &end, err);
    sched_step_free(step);
    if (rc < 0)
        return rc;
    if (end.timed_out)
        return err_set(err, ERR_TIMEOUT,
                       "the probe on %lld ranks did not end within %d s: this machine is too busy, "
                       "or one layer of model '%s' too large, to be measured: ask again when it is "
                       "idle, or describe it and give --cluster",
                       (long long)ranks, PROBE_DEADLINE_S, probe->model->name);
    return end.exit_code != 0 ? failed(&end, ranks, log, err) : 0;
}

/* Loads what the probe on this many ranks wrote. */
static int result_load(const char *path, int64_t ranks, struct probe *out, struct err *err)
{
    struct str text = STR_INIT;
    int rc;
    if ((rc = file_read(path, LIMIT_CAPTURE_BYTES, &text, err)) < 0)
        goto out;
    if ((rc = probe_parse(text.p, text.len, "reel-train probe", out, err)) < 0)
        goto out;
    if (out->ranks != ranks)
        rc = err_set(err, ERR_CHILD, "the probe was started on %lld ranks and ran on %lld",
                     (long long)ranks, (long long)out->ranks);
out:
    str_release(&text);
    return rc;
}

/* Writes the model into the probe's folder, so that a model described in a run file can be measured
 * like one of the catalog. */
static int model_put(const struct model *m, const char *path, struct err *err)
{
    struct str text = STR_INIT;
    struct json_out o;
    int rc;
    json_out_init(&o, &text, 0);
    model_write(m, &o, NULL);
    if ((rc = str_check(&text, err)) == 0)
        rc = file_publish(path, text.p, text.len, err);
    str_release(&text);
    return rc;
}

static int probe_in(struct sched *s, const char *dir, const struct probe_spec *spec, int64_t ranks,
                    struct probe *out, struct err *err)
{
    struct arena arena = {0};
    struct command command;
    const char *log = arena_printf(&arena, "%s/log", dir),
               *json = arena_printf(&arena, "%s/probe.json", dir),
               *model = arena_printf(&arena, "%s/model.json", dir),
               *seq = arena_printf(&arena, "%lldx%lldx%lld", (long long)spec->seq.t,
                                   (long long)spec->seq.h, (long long)spec->seq.w);
    const char *args[] = {"probe", "--json", "--dtype", dtype_names[spec->dtype],
                          "--blas", spec->blas, "--model", model, "--seq", seq,
                          "--out", json, spec->messages_only ? "--messages" : NULL, NULL};
    int rc;
    if (!log || !json || !model || !seq) {
        rc = err_set(err, ERR_NOMEM, "out of memory");
        goto out;
    }
    if ((rc = model_put(spec->model, model, err)) < 0)
        goto out;
    if ((rc = command_trainer(spec->bin_dir, ranks, s->ops->starts_ranks, args,
                              (const char *const *)environ, &arena, &command, err)) < 0)
        goto out;
    if ((rc = step_run(s, spec, &command, ranks, log, err)) < 0)
        goto out;
    rc = result_load(json, ranks, out, err);
out:
    arena_release(&arena);
    return rc;
}

int probe_run(struct sched *s, const struct probe_spec *spec, int64_t ranks, struct probe *out,
              struct err *err)
{
    char dir[LIMIT_PATH_BYTES];
    const char *tmp = getenv("TMPDIR");
    sigset_t leave, before;
    leave_signals(&leave);
    snprintf(dir, sizeof dir, "%s/reel-probe.XXXXXX", tmp && *tmp ? tmp : "/tmp");
    pthread_sigmask(SIG_BLOCK, &leave, &before);
    int rc = mkdtemp(dir) ? probe_in(s, dir, spec, ranks, out, err)
                          : err_set_errno(err, ERR_IO, "cannot make a folder for the probe: '%s'",
                                          dir);
    file_remove_tree(dir, NULL);
    /* signals that arrived meanwhile are delivered now */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

/* ---- rates ---- */

/* Holds a view's work (profiles/work.h), summed over all parts but those of recomputation, and the
 * tokens of its micro-batch. */
struct view_work { struct speed_sums sums; double tokens; };

static struct view_work work_of(const struct work_spec *spec, const struct probe_view *v)
{
    struct work_spec one = *spec;
    struct model layer = *spec->model;
    struct layout l = layout_default();
    struct work w;
    struct view_work out = {{0}};
    layer.layers = 1, l.mbs = v->samples;
    one.model = &layer, one.seq = v->seq, one.gbs = v->samples;
    work_build(&one, &l, &w);
    for (int id = 0; id < WORK_PARTS; id++) {
        struct speed_sums p = speed_sums(&w, (enum work_part_id)id);
        if (id == WORK_LAYER_SELECTIVE || id == WORK_LAYER_FULL)
            continue;
        out.sums.gemm_flops += p.gemm_flops, out.sums.gemm_bytes += p.gemm_bytes;
        for (int back = 0; back < 2; back++) {
            out.sums.attn_flops[back] += p.attn_flops[back];
            out.sums.attn_bytes[back] += p.attn_bytes[back];
        }
        out.sums.bytes += p.bytes, out.sums.copied += p.copied;
        for (int i = 0; i < WORK_INPUTS; i++)
            out.sums.inputs[i] += p.inputs[i];
    }
    out.tokens = w.tokens;
    return out;
}

/* Fits seconds = flops / flops_s + bytes / bytes_s by least squares of relative errors. A rate that
 * would be negative becomes infinite. */
static struct speed_pair pair_fit(int n, const double *flops, const double *bytes, const double *s)
{
    double ff = 0, fb = 0, bb = 0, f = 0, b = 0;
    for (int i = 0; i < n; i++) {
        double x = flops[i] / s[i], y = bytes[i] / s[i];
        ff += x * x, fb += x * y, bb += y * y, f += x, b += y;
    }
    double det = ff * bb - fb * fb, by_flops = f / ff, by_bytes = 0;
    if (det > 1e-9 * ff * bb) {
        by_flops = (f * bb - b * fb) / det, by_bytes = (b * ff - f * fb) / det;
        if (by_bytes < 0)
            by_flops = f / ff, by_bytes = 0;
        else if (by_flops < 0)
            by_flops = 0, by_bytes = b / bb;
    }
    return (struct speed_pair){by_flops > 0 ? fmin(1e17, 1 / by_flops) : 1e17,
                              by_bytes > 0 ? fmin(1e20, 1 / by_bytes) : 1e20};
}

/* Returns the bytes of a view's elementwise work that does not copy, for each second that is left
 * when copies go at move_bytes. */
static double pace_of(const struct view_work *w, const struct probe_view *v, double move_bytes)
{
    double copies_s = fmin(w->sums.copied / move_bytes, 0.9 * v->elementwise_s);
    return (w->sums.bytes - w->sums.copied) / (v->elementwise_s - copies_s);
}

struct probe_pace probe_pace(const struct probe *p, const struct work_spec *work)
{
    const struct probe_view *v = &p->view[p->n_views - 1];
    struct view_work w = work_of(work, v);
    return (struct probe_pace){w.sums.gemm_flops / v->gemm_s,
                               {w.sums.attn_flops[0] / v->attn_s[0],
                                w.sums.attn_flops[1] / v->attn_s[1]},
                               w.sums.bytes / v->elementwise_s};
}

/* Sets the seconds of a number of each input: those of all views by their numbers. */
static void inputs_fit(const struct probe *p, const struct view_work *w, struct speed *r)
{
    for (int k = 0; k < WORK_INPUTS; k++) {
        double seconds = 0, numbers = 0;
        for (int i = 0; i < p->n_views; i++)
            seconds += p->view[i].inputs_s[k], numbers += w[i].sums.inputs[k];
        r->input_s[k] = numbers > 0 ? seconds / numbers : 0;
    }
}

/* Fits the rates of computation. */
static void compute_fit(const struct probe *p, const struct work_spec *work, struct speed *r)
{
    struct view_work w[SPEED_POINTS] = {0};
    double flops[SPEED_POINTS] = {0}, bytes[SPEED_POINTS] = {0}, s[SPEED_POINTS] = {0}, forward = 0,
           back = 0;
    int n = p->n_views;
    for (int i = 0; i < n; i++) {
        w[i] = work_of(work, &p->view[i]);
        flops[i] = w[i].sums.gemm_flops, bytes[i] = w[i].sums.gemm_bytes, s[i] = p->view[i].gemm_s;
    }
    r->gemm = pair_fit(n, flops, bytes, s);
    for (int i = 0; i < n; i++) {
        flops[i] = w[i].sums.attn_flops[0], bytes[i] = w[i].sums.attn_bytes[0];
        s[i] = p->view[i].attn_s[0];
        forward += p->view[i].attn_s[0], back += p->view[i].attn_s[1];
    }
    r->attention = pair_fit(n, flops, bytes, s);
    r->attention_backward = back / forward;
    inputs_fit(p, w, r);
    /* that of the view with the most tokens, to which those of others are relative */
    r->copy_bytes = pace_of(&w[n - 1], &p->view[n - 1], r->move_bytes);
    r->n_points = n;
    for (int i = 0; i < n; i++) {
        const struct probe_view *v = &p->view[i];
        const struct speed_sums *a = &w[i].sums;
        r->points[i] = (struct speed_point){
            w[i].tokens, v->gemm_s / speed_seconds(&r->gemm, a->gemm_flops, a->gemm_bytes),
            (v->attn_s[0] + v->attn_s[1]) /
                ((1 + r->attention_backward) *
                 speed_seconds(&r->attention, a->attn_flops[0], a->attn_bytes[0])),
            r->copy_bytes / pace_of(&w[i], v, r->move_bytes)};
    }
}

/* Returns the probe's view of the same micro-batch; NULL: it was not measured. */
static const struct probe_view *view_like(const struct probe *p, const struct probe_view *v)
{
    for (int i = 0; i < p->n_views; i++)
        if (p->view[i].samples == v->samples && seq_tokens(p->view[i].seq) == seq_tokens(v->seq))
            return &p->view[i];
    return NULL;
}

static double gemm_of(const struct probe_view *v) { return v->gemm_s; }
static double attention_of(const struct probe_view *v) { return v->attn_s[0] + v->attn_s[1]; }
static double elementwise_of(const struct probe_view *v) { return v->elementwise_s; }
static double inputs_of(const struct probe_view *v)
{
    double sum = 0;
    for (int i = 0; i < WORK_INPUTS; i++)
        sum += v->inputs_s[i];
    return sum;
}
static double all_of(const struct probe_view *v)
{
    return gemm_of(v) + attention_of(v) + elementwise_of(v);
}

/* Returns the share by which some computation slows down for each further core that computes: the
 * mean over the micro-batches that both probes measured, because a single one says little on a busy
 * machine. */
static double loss_of(const struct probe *one, const struct probe *apart,
                      double (*of)(const struct probe_view *))
{
    double others = (double)apart->ranks - 1, longer = 0;
    int n = 0;
    for (int i = 0; i < apart->n_views; i++) {
        const struct probe_view *alone = view_like(one, &apart->view[i]);
        if (alone)
            longer += of(&apart->view[i]) / of(alone) - 1, n++;
    }
    return others >= 1 && n > 0 ? fmin(10, fmax(0, longer / n / others)) : 0;
}

/* Returns the same for the update and its norm. */
static double update_loss_of(const struct probe *one, const struct probe *apart)
{
    double others = (double)apart->ranks - 1,
           longer = (apart->update_s + apart->norm_s) / (one->update_s + one->norm_s) - 1;
    return others >= 1 ? fmin(10, fmax(0, longer / others)) : 0;
}

/* Sets the latency and bandwidth of messages, if the probe had more than one rank. */
static void comm_fit(const struct probe *p, struct speed_link *out)
{
    if (p->ranks > 1)
        *out = (struct speed_link){p->latency_s, p->bus_bytes};
}

void probe_rates(const struct probe *one, const struct probe *apart, const struct probe *shared,
                 const struct work_spec *work, struct device *device, struct speed *out)
{
    double stat = (double)dtype_bytes(dtype_stat(work->act)),
           w = (double)dtype_bytes(work->act);
    struct device d = {.name = "cpu", .cpu = true};
    d.peak_flops[work->act] = one->fma_flops;
    /* The peak is that of a rank, which computes on one core. */
    snprintf(d.peak_source, sizeof d.peak_source, "measured FMA rate x 1 core");
    struct speed r = speed_prior(&d, work->act);
    r.move_bytes = 2 * one->update_elements * stat / one->move_s;
    compute_fit(one, work, &r);
    r.update_bytes = one->update_elements * (7 * stat + (w < stat ? w : 0)) / one->update_s;
    r.norm_bytes = one->update_elements * stat / one->norm_s;
    r.clear_bytes = one->update_elements * stat / one->clear_s;
    r.rank_loss = loss_of(one, apart, all_of);
    r.loss = (struct speed_loss){
        loss_of(one, apart, gemm_of), loss_of(one, apart, attention_of),
        loss_of(one, apart, elementwise_of), loss_of(one, apart, inputs_of),
        update_loss_of(one, apart)};
    comm_fit(apart, &r.link);
    comm_fit(shared, &r.link_shared);
    d.memory_bytes_per_s = r.copy_bytes;
    d.gemm_efficiency = fmin(1, r.gemm.flops_s / one->fma_flops);
    d.attn_fwd_efficiency = fmin(1, r.attention.flops_s / one->fma_flops);
    d.attn_bwd_efficiency = d.attn_fwd_efficiency;
    *device = d;
    *out = r;
}
