#include "launcher/cmd/tune_show.h"

#include <math.h>
#include <stdlib.h>

#include "base/num.h"

/* These limit the untried layouts that a dry run shows as text, and that JSON lists. */
enum { SHOWN = 8, NEXT = 100 };

static void json_space(const struct tune *t, struct json_out *o)
{
    json_put_int(o, "layouts", t->space.legal);
    json_put_int(o, "fit", t->n_fit);
    json_arr_begin(o, "excluded");
    for (size_t i = 0; i < t->space.n_excluded; i++) {
        json_obj_begin(o, NULL);
        json_put_text(o, "rule", t->space.excluded[i].rule);
        json_put_int(o, "count", t->space.excluded[i].count);
        json_put_text(o, "because", t->space.excluded[i].sentence);
        json_obj_end(o);
    }
    json_arr_end(o);
}

static void json_contenders(const struct tune *t, struct json_out *o)
{
    struct search_contenders close = search_contenders_find(&t->search);
    json_put_int(o, "contenders", close.n);
    json_put_int(o, "contenders_left", close.left);
}

static void json_item(const struct tune *t, int64_t i, struct json_out *o)
{
    double log_sd, predicted = search_predict(&t->search, i, NULL, &log_sd);
    const struct search_item *item = &t->items[i];
    json_obj_begin(o, NULL);
    layout_write(&item->layout, o, "layout");
    json_put_text(o, "state", trial_state_names[item->state]);
    json_put_text(o, "trial", t->trial_ids[i][0] ? t->trial_ids[i] : NULL);
    json_put_num(o, "predicted_step_s", predicted);
    json_put_num(o, "optimistic_step_s", predicted * exp(-SEARCH_SIGMAS * log_sd));
    json_put_num(o, "measured_step_s",
                 item->state == TRIAL_OK ? search_time(&t->search, i) : NAN);
    json_put_num(o, "planned_bytes", item->planned_bytes);
    json_obj_end(o);
}

/* Holds an untried layout and its predicted cost by the objective: s, or s times GPUs. */
struct ranked { int64_t at; double counts; };

static int by_counts(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->counts != y->counts ? (x->counts > y->counts) - (x->counts < y->counts)
                                  : (x->at > y->at) - (x->at < y->at);
}

/* Lists the untried layouts that may fit, the best by prediction first. The caller frees *out. */
static int rank_untried(const struct tune *t, struct ranked **out, size_t *n, struct err *err)
{
    struct ranked *list = calloc(t->space.n + 1, sizeof *list);
    *n = 0;
    if (!list)
        return err_set(err, ERR_NOMEM, "out of memory for %zu layouts", t->space.n);
    for (int64_t i = 0; i < (int64_t)t->space.n; i++) {
        if (t->items[i].state != TRIAL_UNTRIED || !search_fits(&t->search, i))
            continue;
        double seconds = search_predict(&t->search, i, NULL, NULL);
        list[(*n)++] = (struct ranked){i, search_weighted(&t->search, i, seconds)};
    }
    qsort(list, *n, sizeof *list, by_counts);
    *out = list;
    return 0;
}

/* Lists the layouts that were measured, then the best untried ones by prediction. */
static int json_items(const struct tune *t, struct json_out *o, struct err *err)
{
    struct ranked *next;
    size_t n;
    int rc = rank_untried(t, &next, &n, err);
    if (rc < 0)
        return rc;
    json_arr_begin(o, "candidates");
    for (size_t i = 0; i < t->space.n; i++)
        if (t->items[i].measures > 0)
            json_item(t, (int64_t)i, o);
    for (size_t k = 0; k < n && k < NEXT; k++)
        json_item(t, next[k].at, o);
    json_arr_end(o);
    free(next);
    return 0;
}

static void text_candidate(const struct tune *t, int64_t at, struct str *out)
{
    char time[32], bytes[32];
    double s = search_predict(&t->search, at, NULL, NULL);
    str_addf(out, "  %10s  %10s a rank  ", num_format_seconds_fine(s, time, sizeof time),
             num_format_bytes((int64_t)t->items[at].planned_bytes, bytes, sizeof bytes));
    layout_brief(&t->items[at].layout, out);
    str_addc(out, '\n');
}

static void text_space(const struct tune *t, struct str *out)
{
    char memory[32];
    str_addf(out, "%lld layouts can run, %lld are left out:\n", (long long)t->space.legal,
             (long long)(t->space.visited - t->space.legal));
    for (size_t i = 0; i < t->space.n_excluded; i++)
        str_addf(out, "  %8lld  %s\n", (long long)t->space.excluded[i].count,
                 t->space.excluded[i].sentence);
    str_addf(out, "%lld of the %lld that are looked at fit the memory, %s for %s; fastest by "
             "prediction:\n", (long long)t->n_fit, (long long)t->n_looked,
             num_format_bytes(t->search.conf.rank_bytes > 0 ? (int64_t)t->search.conf.rank_bytes
                                                            : t->conf.memory_bytes,
                              memory, sizeof memory),
             t->search.conf.rank_bytes > 0 ? "each rank" : "all ranks");
}

static int text_items(const struct tune *t, struct str *out, struct err *err)
{
    struct ranked *next;
    size_t n;
    int rc = rank_untried(t, &next, &n, err);
    if (rc < 0)
        return rc;
    text_space(t, out);
    for (size_t k = 0; k < n && k < SHOWN; k++)
        text_candidate(t, next[k].at, out);
    free(next);
    return 0;
}

/* Writes by how much the winner is better than the baseline, by the objective. */
static void text_baseline(const struct tune *t, struct str *out)
{
    int64_t base = t->search.baseline, best = t->search.best;
    if (base < 0 || t->items[base].state != TRIAL_OK)
        return;
    double base_counts = search_weighted(&t->search, base, search_time(&t->search, base)),
           best_counts = search_weighted(&t->search, best, search_time(&t->search, best));
    if (t->conf.gpu_hours)
        str_addf(out, "  %.2f of the GPU-hours of ", best_counts / base_counts);
    else
        str_addf(out, "  %.2f times as fast as ", base_counts / best_counts);
    str_add(out, t->conf.baseline ? "the default (" : "plain data parallelism (");
    layout_brief(&t->items[base].layout, out);
    str_add(out, ")\n");
}

/* Writes that the trial ran with fewer replicas, and that the effect of the others is predicted. */
static void text_scaled(const struct tune *t, const struct plan *p, struct str *out)
{
    char measured[32];
    if (p->scaled_dp == 0)
        return;
    num_format_seconds_fine(t->items[t->search.best].measured_s, measured, sizeof measured);
    str_addf(out, "  scaled: measured %s with dp=%lld, and what dp=%lld adds is predicted\n",
             measured, (long long)p->scaled_dp, (long long)p->layout.dp);
}

/* Writes how many contenders a bound has left with too few measurements. */
static void text_contenders(const struct tune *t, struct str *out)
{
    struct search_contenders close = search_contenders_find(&t->search);
    if (close.left > 0)
        str_addf(out, "  %lld of %lld layouts whose intervals meet the best's were measured less "
                 "often than --repeats asks: the same question, asked again, goes on with them\n",
                 (long long)close.left, (long long)close.n);
}

static void text_winner(const struct tune *t, const struct plan *p, const char *path,
                        struct str *out)
{
    char measured[32];
    struct str layout = STR_INIT;
    layout_format(&p->layout, &layout);
    str_addf(out, "winner: %s a step, %s\n",
             num_format_seconds_fine(p->measured_step_s, measured, sizeof measured), layout.p);
    text_scaled(t, p, out);
    text_baseline(t, out);
    str_addf(out, "  %lld layout%s measured, %lld measured again%s, stopped: %s\n",
             (long long)t->search.trials, t->search.trials == 1 ? "" : "s",
             (long long)t->search.repeated,
             t->reused ? ", beside those of an earlier search" : "", t->search.stop_reason);
    text_contenders(t, out);
    if (*p->adapter)
        str_addf(out, "  as flags of %s: %s\n", p->adapter, p->flags);
    if (*p->environment)
        str_addf(out, "  in the environment: env %s\n", p->environment);
    if (path)
        str_addf(out, "plan written to %s; records in %s\n", path, t->dir);
    else
        str_addf(out, "no plan is written; records in %s\n", t->dir);
    str_release(&layout);
}

int tune_text(const struct tune_answer *a, struct str *out, struct err *err)
{
    if (!a->winner)
        return text_items(a->tune, out, err);
    text_winner(a->tune, a->winner, a->path, out);
    return 0;
}

int tune_json(const struct tune_answer *a, struct str *out, struct err *err)
{
    const struct tune *t = a->tune;
    const struct plan *winner = a->winner;
    struct json_out o;
    json_out_init(&o, out, 2);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", "reel.tune/1");
    json_put_bool(&o, "dry_run", winner == NULL);
    json_put_text(&o, "tune", t->id);
    json_put_text(&o, "winner", winner ? t->trial_ids[t->search.best] : NULL);
    json_put_text(&o, "plan", winner ? a->path : NULL);
    if (winner && *winner->adapter)
        json_put_text(&o, "flags", winner->flags);
    if (winner && *winner->environment)
        json_put_text(&o, "environment", winner->environment);
    json_put_num(&o, "measured_step_s", winner ? winner->measured_step_s : NAN);
    json_put_text(&o, "reason", t->search.stop_reason);
    json_put_int(&o, "trials", t->search.trials);
    json_put_int(&o, "repeated", t->search.repeated);
    json_contenders(t, &o);
    json_put_int(&o, "reused", t->reused);
    json_space(t, &o);
    int rc = json_items(t, &o, err);
    json_obj_end(&o);
    str_addc(out, '\n');
    return rc;
}
