/* reel score: compares predictions with tables of published measurements. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/score.h"
#include "base/file.h"
#include "base/progress.h"
#include "launcher/cmd/cmd.h"

static const struct opt opts[] = {
    CMD_OPT_JSON,
    {"constants", 0, OPT_TEXT, "FILE",
     "constants to predict with (reel.constants/1; default: the compiled-in ones)"},
    {"rows", 0, OPT_TEXT, "OUT",
     "write a line for each row of the tables: file, row, measured_s, predicted_s, bytes, p_fits, "
     "skipped"},
};
const struct opt_cmd cmd_score = {
    "score",
    "hold predicted times and bytes against tables of measurements",
    "TABLE.csv...", opts, ARRAY_LEN(opts), 1, -1,
    "A TABLE has one training run a line, with the columns source, ref, gpu, gpu_mem_gb, n_gpus, "
    "gpus_per_node, framework, precision, task, model, family, n_params_b, layers, hidden, ffn, "
    "heads, kv_heads, vocab, gated_mlp, seq_len, tp, sp, cp, pp, vpp, dp, zero, fsdp_size, ep, "
    "mbs, gbs, recompute, attn, step_time_s, tokens_per_s_gpu, tflops_gpu, mfu_pct, hfu_pct, "
    "peak_mem_gb, mem_kind, status, sweep_group and notes. Skipped are mixtures of experts, GPUs "
    "without a profile, shapes that were not published, times that hold the work of encoders, "
    "forecasts, and rows with values that no run can have, each of which is told with its line; "
    "a table of nothing else is refused. A word of gpu, framework, precision, recompute, attn or "
    "family that is not known is told, with what it is taken as, and its rows count as assumed. "
    "For what an empty cell is taken as, see docs/predictions.md. A row whose status is "
    "unsupported or error is predicted, but counts for no time and no memory.\n\n"
    "MAPE is the mean absolute error in percent; scaled: after one factor for the whole file. "
    "Spearman's rank correlation is taken within each sweep of 8 measured rows or more, and so are "
    "the regret of the first choice and of the best of the first three, and the trials until a "
    "row within 1 % of the sweep's best is in hand. Trials are in the order of predicted time; a "
    "row whose p_fits is below 0.02 is not tried, nor one that needs no fewer bytes than one that "
    "ran out of memory with the same attention, norms and recomputation. For all else a row is "
    "taken to fit where that is more likely than not.",
};

struct scored {
    struct table table;
    struct score_row *rows;
    struct score score;
};

static int table_score(const char *path, const struct constants *c, struct scored *out,
                       struct err *err)
{
    struct progress progress;
    int rc;
    progress_start(&progress, "score", 0, false);
    if ((rc = table_load(path, &out->table, err)) < 0)
        return rc;
    if (out->table.n_refused == out->table.n && (rc = table_refused_check(&out->table, err)) < 0)
        return rc;
    cmd_words_note(&out->table);
    cmd_refused_note(&out->table);
    out->rows = calloc(out->table.n + 1, sizeof *out->rows);
    if (!out->rows)
        return err_set(err, ERR_NOMEM, "out of memory for %s", path);
    return score_table(&out->table, c, &(struct told_rows){cmd_rows_tell, &progress}, out->rows,
                       &out->score, err);
}

/* ---- rows ---- */

static void csv_text(struct str *out, const char *text)
{
    bool quotes = strpbrk(text, ",\"\r\n") != NULL;
    str_add(out, quotes ? "\"" : "");
    for (; *text; text++)
        str_addf(out, *text == '"' ? "\"%c" : "%c", *text);
    str_add(out, quotes ? "\"" : "");
}

static void csv_number(struct str *out, bool there, double value)
{
    char text[JSON_NUM_BYTES];
    str_addf(out, ",%s", there ? json_format_num(value, text) : "");
}

/* Returns why a row is skipped: of a refused one its own sentence. *next counts the refused rows
 * that were met. "": it is used. */
static const char *why_skipped(const struct table *t, size_t i, size_t *next)
{
    const char *why = t->cases[i].skipped;
    if (*next < t->n_refused && t->refused[*next].row == t->cases[i].row)
        why = t->refused[(*next)++].says;
    return why ? why : "";
}

static void row_add(const struct scored *s, size_t i, size_t *refused, struct str *out)
{
    const struct table_case *c = &s->table.cases[i];
    const struct predicted *p = &s->rows[i].p;
    csv_text(out, s->table.name);
    str_addf(out, ",%lld", (long long)c->row);
    csv_number(out, !c->skipped && c->measured_s > 0, c->measured_s);
    csv_number(out, !c->skipped, p->seconds);
    csv_number(out, !c->skipped, p->bytes);
    csv_number(out, !c->skipped, p->p_fits);
    str_addc(out, ',');
    csv_text(out, why_skipped(&s->table, i, refused));
    str_addc(out, '\n');
}

static int rows_write(const struct scored *tables, size_t n, const char *path, struct err *err)
{
    struct str out = STR_INIT;
    char place[LIMIT_PATH_BYTES];
    int rc;
    str_add(&out, "file,row,measured_s,predicted_s,bytes,p_fits,skipped\n");
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0, refused = 0; k < tables[i].table.n; k++)
            row_add(&tables[i], k, &refused, &out);
    if ((rc = str_check(&out, err)) == 0)
        rc = file_publish(cmd_output_place(path, place), out.p, out.len, err);
    str_release(&out);
    return rc;
}

/* ---- output ---- */

static void assumed_write(const struct table *t, struct json_out *o)
{
    json_arr_begin(o, "assumed");
    for (size_t i = 0; i < t->n_words; i++) {
        const struct table_word *w = &t->words[i];
        json_obj_begin(o, NULL);
        json_put_text(o, "column", w->column);
        json_put_text(o, "word", w->word);
        json_put_text(o, "taken", w->taken);
        if (*w->nearest)
            json_put_text(o, "nearest", w->nearest);
        else
            json_put_null(o, "nearest");
        json_put_int(o, "line", w->line);
        json_put_int(o, "rows", w->rows);
        json_obj_end(o);
    }
    json_arr_end(o);
}

static void skipped_write(const struct score *s, struct json_out *o)
{
    json_arr_begin(o, "skipped");
    for (int i = 0; i < s->n_reasons; i++) {
        json_obj_begin(o, NULL);
        json_put_text(o, "because", s->reasons[i].because);
        json_put_int(o, "count", s->reasons[i].count);
        json_obj_end(o);
    }
    json_arr_end(o);
}

static void score_write(const struct scored *t, struct json_out *o)
{
    const struct score *s = &t->score;
    json_obj_begin(o, NULL);
    json_put_text(o, "file", s->file);
    json_put_int(o, "rows_used", s->used);
    json_put_int(o, "rows_skipped", s->skipped);
    json_put_int(o, "rows_assumed", s->assumed);
    skipped_write(s, o);
    assumed_write(&t->table, o);
    json_put_int(o, "oom_rows", s->oom_rows);
    json_put_int(o, "sweeps", s->sweeps);
    json_put_num(o, "mape_pct", s->mape_pct);
    json_put_num(o, "p90_pct", s->p90_pct);
    json_put_num(o, "mape_scaled_pct", s->mape_scaled_pct);
    json_put_num(o, "interval_held_pct", s->interval_held_pct);
    json_put_num(o, "spearman_mean", s->spearman_mean);
    json_put_num(o, "spearman_worst", s->spearman_worst);
    json_put_num(o, "regret1_mean_pct", s->regret1_mean_pct);
    json_put_num(o, "regret3_mean_pct", s->regret3_mean_pct);
    json_put_num(o, "oom_caught_pct", s->oom_caught_pct);
    json_put_num(o, "good_rejected_pct", s->good_rejected_pct);
    json_put_num(o, "trials_mean", s->trials_mean);
    json_put_num(o, "trials_worst", s->trials_worst);
    if (s->sweeps)
        json_put_int(o, "winner_pruned", s->winner_pruned);
    else
        json_put_null(o, "winner_pruned");
    json_obj_end(o);
}

/* Returns a device of the tables' rows of which rows were held out as well; else the first that a
 * row is of; NULL: no row is used. */
static const struct device *device_told(const struct scored *tables, size_t n,
                                        const struct held_out *h)
{
    const struct device *first = NULL;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < tables[i].table.n; k++) {
            const struct table_case *c = &tables[i].table.cases[k];
            if (c->skipped)
                continue;
            if (held_out_has(h->devices, c->cluster.device.name))
                return &c->cluster.device;
            first = first ? first : &c->cluster.device;
        }
    return first;
}

static void print_json(const struct scored *tables, size_t n, const struct constants *c,
                       struct str *out)
{
    struct json_out o;
    json_out_init(&o, out, 2);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", "reel.score/1");
    json_arr_begin(&o, "files");
    for (size_t i = 0; i < n; i++)
        score_write(&tables[i], &o);
    json_arr_end(&o);
    json_put_text(&o, "constants", c->name);
    held_out_write(&c->held_out, device_told(tables, n, &c->held_out), &o);
    json_obj_end(&o);
    str_addc(out, '\n');
}

static void number_add(struct str *out, const char *what, double value, const char *unit)
{
    if (isfinite(value))
        str_addf(out, "%s %.3g%s", what, value, unit);
}

static void constants_text(const struct scored *tables, size_t n, const struct constants *c,
                           struct str *out)
{
    str_addf(out, "constants %s: ", c->name);
    held_out_say(&c->held_out, device_told(tables, n, &c->held_out), out);
    str_addc(out, '\n');
}

static void print_text(const struct score *s, struct str *out)
{
    str_addf(out, "%s: %lld rows used, %lld with assumptions, %lld skipped\n", s->file,
             (long long)s->used, (long long)s->assumed, (long long)s->skipped);
    for (int i = 0; i < s->n_reasons; i++)
        str_addf(out, "  %lld: %s\n", (long long)s->reasons[i].count, s->reasons[i].because);
    if (isfinite(s->mape_pct)) {
        number_add(out, "  time: MAPE", s->mape_pct, " %");
        number_add(out, ", nine of ten within", s->p90_pct, " %");
        number_add(out, ", after one factor", s->mape_scaled_pct, " %");
        number_add(out, "; intervals of nine of ten hold", s->interval_held_pct, " %");
        str_addc(out, '\n');
    }
    if (s->sweeps) {
        str_addf(out, "  rank: %lld sweeps", (long long)s->sweeps);
        number_add(out, ", Spearman mean", s->spearman_mean, "");
        number_add(out, ", worst", s->spearman_worst, "");
        number_add(out, "; regret of the first choice", s->regret1_mean_pct, " %");
        number_add(out, ", of three", s->regret3_mean_pct, " %\n");
        number_add(out, "  trials: mean", s->trials_mean, "");
        number_add(out, ", worst", s->trials_worst, "");
        str_addf(out, ", winners lost %lld\n", (long long)s->winner_pruned);
    }
    bool caught = isfinite(s->oom_caught_pct);
    number_add(out, "  memory: caught", s->oom_caught_pct, " % of those that ran out");
    number_add(out, caught ? "; rejected" : "  memory: rejected", s->good_rejected_pct,
               " % of those that fit");
    if (caught || isfinite(s->good_rejected_pct))
        str_addc(out, '\n');
}

/* Refuses a file for --rows that is an input, or that cannot be written. */
static int rows_check(const struct opt_values *v, const char *const *tables, size_t n,
                      struct err *err)
{
    const char *rows = opt_text(v, "rows"), *constants = opt_text(v, "constants");
    int rc;
    if ((rc = cmd_spare("--rows", rows, tables, n, err)) < 0)
        return rc;
    if ((rc = cmd_spare("--rows", rows, &constants, 1, err)) < 0)
        return rc;
    return cmd_output_check("--rows", rows, err);
}

int cmd_score_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *const *paths;
    size_t n = opt_operands(v, &paths);
    struct constants *c = calloc(1, sizeof *c);
    struct scored *tables = calloc(n, sizeof *tables);
    struct str out = STR_INIT;
    int rc = 0;
    (void)env;
    if (!c || !tables) {
        rc = err_set(err, ERR_NOMEM, "out of memory for %zu tables", n);
        goto out;
    }
    if ((rc = rows_check(v, paths, n, err)) < 0)
        goto out;
    if ((rc = constants_load(opt_text(v, "constants"), c, err)) < 0)
        goto out;
    if (opt_given(v, "constants"))
        cmd_constants_note(opt_text(v, "constants"), c, NULL);
    for (size_t i = 0; i < n; i++)
        if ((rc = table_score(paths[i], c, &tables[i], err)) < 0)
            goto out;
    if (opt_text(v, "rows") && (rc = rows_write(tables, n, opt_text(v, "rows"), err)) < 0)
        goto out;
    if (opt_bool(v, "json"))
        print_json(tables, n, c, &out);
    else
        constants_text(tables, n, c, &out);
    for (size_t i = 0; i < n && !opt_bool(v, "json"); i++)
        print_text(&tables[i].score, &out);
    rc = cmd_print(&out, err);
out:
    for (size_t i = 0; tables && i < n; i++) {
        table_release(&tables[i].table);
        free(tables[i].rows);
    }
    free(tables);
    free(c);
    str_release(&out);
    return rc;
}
