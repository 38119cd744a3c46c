#include "autotune/held_out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/score.h"

static const char *const elsewhere = "its part is not asked for"; /* why a row is skipped */

/* A size is all rows whose models have these layers of this width. */
struct size {
    int64_t layers, hidden, rows;
    int part;
};
struct judge {
    struct table all;       /* the rows of all tables that can be judged; its cases are owned */
    struct size *sizes;
    size_t n_sizes;
    size_t *size_of;        /* of each row, its index in sizes */
    int parts;
    struct score_row *rows; /* predictions */
    struct constants *c;    /* the fit of the moment */
    int part;               /* the part that it is judged on */
    const struct told_rows *told; /* borrowed; NULL: no progress is reported */
};

/* Tells of the rows of a fit as a share of all fits. */
static void tell(void *ctx, int64_t done, int64_t all)
{
    const struct judge *j = ctx;
    table_told(j->told, j->part * all + done, j->parts * all);
}

/* ---- parts ---- */

static size_t size_find(struct judge *j, const struct model *m)
{
    for (size_t i = 0; i < j->n_sizes; i++)
        if (j->sizes[i].layers == m->layers && j->sizes[i].hidden == m->hidden)
            return i;
    j->sizes[j->n_sizes] = (struct size){.layers = m->layers, .hidden = m->hidden, .part = -1};
    return j->n_sizes++;
}

/* Copies the rows that can be judged: those that ran or ran out of memory. Sweeps of different
 * tables stay apart. */
static void rows_take(struct judge *j, const struct table *tables, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < tables[i].n; k++) {
            const struct table_case *from = &tables[i].cases[k];
            struct table_case *c = &j->all.cases[j->all.n];
            if (from->skipped || from->status == TABLE_FAILED)
                continue;
            *c = *from;
            if (*from->sweep)
                snprintf(c->sweep, sizeof c->sweep, "%zu %.*s", i, LIMIT_NAME_BYTES - 24,
                         from->sweep);
            size_t size = size_find(j, &c->model);
            j->sizes[size].rows++;
            j->size_of[j->all.n++] = size;
        }
}

/* Returns the size with the most rows that has no part yet. */
static struct size *largest_left(struct judge *j)
{
    struct size *most = NULL;
    for (size_t i = 0; i < j->n_sizes; i++)
        if (j->sizes[i].part < 0 && (!most || j->sizes[i].rows > most->rows))
            most = &j->sizes[i];
    return most;
}

/* Gives each size, the largest first, to the part that has the fewest rows. */
static void parts_deal(struct judge *j)
{
    int64_t rows[HELD_OUT_PARTS] = {0};
    struct size *s;
    j->parts = j->n_sizes < HELD_OUT_PARTS ? (int)j->n_sizes : HELD_OUT_PARTS;
    while ((s = largest_left(j))) {
        s->part = 0;
        for (int p = 1; p < j->parts; p++)
            s->part = rows[p] < rows[s->part] ? p : s->part;
        rows[s->part] += s->rows;
    }
}

/* ---- fits ---- */

/* Has only the rows of a part counted, or only those of all other parts; part -1: none. */
static void rows_choose(struct judge *j, int part, bool others)
{
    for (size_t i = 0; i < j->all.n; i++)
        j->all.cases[i].skipped =
            (j->sizes[j->size_of[i]].part == part) == others ? elsewhere : NULL;
}

/* Copies the constants to begin with. Values go back to their priors, because a file's may have
 * been fitted on the rows to judge. */
static void begin(const struct constants *start, struct constants *c)
{
    *c = *start;
    for (int64_t i = 0; i < c->n; i++)
        if (c->items[i].prior > 0)
            c->items[i].value = c->items[i].prior;
}

/* Tells whether the fit that each part is judged by has a row to learn from. */
static bool all_learn(struct judge *j)
{
    for (int part = 0; part < j->parts; part++) {
        bool learns = false;
        rows_choose(j, part, true);
        for (size_t i = 0; i < j->all.n && !learns; i++)
            learns = calibrate_learns(&j->all.cases[i]);
        if (!learns)
            return false;
    }
    return true;
}

static int part_judge(struct judge *j, const char *of, const struct constants *start,
                      struct err *err)
{
    const struct told_rows told = {tell, j};
    struct calibrate_report ignored;
    int rc;
    begin(start, j->c);
    rows_choose(j, j->part, true);
    if ((rc = calibrate_tables(&j->all, 1, of, &told, j->c, &ignored, err)) < 0)
        return rc;
    rows_choose(j, j->part, false);
    return score_predict(&j->all, j->c, NULL, j->rows, err);
}

/* Lists the devices of all rows, each once. Those for which there is no room are left out, so that
 * nothing is said to have been judged that was not. */
static void devices_list(const struct judge *j, char out[HELD_OUT_DEVICES_BYTES])
{
    size_t n = 0;
    *out = '\0';
    for (size_t i = 0; i < j->all.n; i++) {
        const char *name = j->all.cases[i].cluster.device.name;
        if (!held_out_has(out, name) && n + strlen(name) + 3 < HELD_OUT_DEVICES_BYTES)
            n += (size_t)snprintf(out + n, HELD_OUT_DEVICES_BYTES - n, "%s%s", n ? ", " : "", name);
    }
}

static void figures_take(const struct judge *j, const struct score *s, const char *of, size_t n,
                         struct held_out *out)
{
    struct held_out h = {.rows = s->used, .sweeps = s->sweeps, .oom_rows = s->oom_rows,
                         .mape_pct = s->mape_pct,
                         .spearman_mean = s->spearman_mean, .spearman_worst = s->spearman_worst,
                         .oom_caught_pct = s->oom_caught_pct,
                         .good_rejected_pct = s->good_rejected_pct};
    bool alone = j->n_sizes == (size_t)j->parts;
    if (alone)
        snprintf(h.rule, sizeof h.rule, "each of %d model sizes by a fit on the other%s", j->parts,
                 j->parts > 2 ? "s" : "");
    else
        snprintf(h.rule, sizeof h.rule, "%zu model sizes in %d parts, each by a fit on the others",
                 j->n_sizes, j->parts);
    if (strlen(of) < sizeof h.of)
        snprintf(h.of, sizeof h.of, "%s", of);
    else
        snprintf(h.of, sizeof h.of, "%zu tables", n);
    devices_list(j, h.devices);
    *out = h;
}

static int parts_judge(struct judge *j, const char *of, size_t n, const struct constants *start,
                       struct held_out *out, struct err *err)
{
    struct score s;
    int rc;
    for (j->part = 0; j->part < j->parts; j->part++)
        if ((rc = part_judge(j, of, start, err)) < 0)
            return rc;
    rows_choose(j, -1, true);
    if ((rc = score_rows(&j->all, j->rows, &s, err)) < 0)
        return rc;
    figures_take(j, &s, of, n, out);
    return 0;
}

/* ---- set-up ---- */

static int judge_open(struct judge *j, const struct table *tables, size_t n, const char *of,
                      struct err *err)
{
    size_t rows = 1;
    for (size_t i = 0; i < n; i++)
        rows += tables[i].n;
    j->all.cases = calloc(rows, sizeof *j->all.cases);
    j->all.name = strdup(of);
    j->sizes = calloc(rows, sizeof *j->sizes);
    j->size_of = calloc(rows, sizeof *j->size_of);
    j->rows = calloc(rows, sizeof *j->rows);
    j->c = malloc(sizeof *j->c);
    if (!j->all.cases || !j->all.name || !j->sizes || !j->size_of || !j->rows || !j->c)
        return err_set(err, ERR_NOMEM, "out of memory for %zu rows", rows);
    rows_take(j, tables, n);
    parts_deal(j);
    return 0;
}

static void judge_release(struct judge *j)
{
    table_release(&j->all);
    free(j->sizes);
    free(j->size_of);
    free(j->rows);
    free(j->c);
}

int held_out_judge(const struct table *tables, size_t n, const char *of,
                   const struct told_rows *told, const struct constants *start,
                   struct held_out *out, struct err *err)
{
    struct judge j = {.told = told};
    int rc;
    if ((rc = judge_open(&j, tables, n, of, err)) < 0)
        goto out;
    if (j.parts < 2)
        *out = (struct held_out){.because = "all rows are of one model size"};
    else if (!all_learn(&j))
        *out = (struct held_out){.because = "all rows to learn from are held out at once"};
    else
        rc = parts_judge(&j, of, n, start, out, err);
out:
    judge_release(&j);
    return rc;
}
