/* table: reads tables of published measurements, one training run a line, under one header of 43
 * columns.
 *
 * A row becomes a case: model, extent, batch, layout, stack, cluster, and what was measured. Six
 * kinds of rows are skipped, each with its reason: mixtures of experts, GPUs without a profile,
 * shapes that were not published, times that include the work of encoders, forecasts, which are no
 * measurements, and rows that are refused. All others are used. Values that a row leaves out follow
 * the rules of docs/predictions.md, and by most of them the row counts as assumed. So does a row
 * with a word that table_word.c does not know; each such word is in the table's list once.
 *
 *     struct table t;
 *     table_load("sweep.csv", &t, err);
 *     for (size_t i = 0; i < t.n; i++) if (!t.cases[i].skipped) ...;
 *     table_release(&t);
 *
 * A table has at most 64 MiB and 256 columns. Errors: ERR_INPUT names file, line and column.
 * A row is refused, and the others are read, for values that no run can have: text where a number
 * belongs, a count that is 0 or not whole, a time below a nanosecond, a grid that does not divide
 * the GPUs, a micro-batch larger than a replica's share, a time that is too short for twice the
 * device's peak, a peak of memory above the card's, an unknown status. The table lists the refused
 * rows with a sentence for each; whoever wants none calls table_refused_check.
 */
#ifndef AUTOTUNE_TABLE_H
#define AUTOTUNE_TABLE_H

#include "profiles/work.h"
#include "profiles/hw.h"

/* TABLE_FAILED: the run ended, or never began, for another reason than memory. */
enum table_status { TABLE_OK, TABLE_OOM, TABLE_FAILED };
struct table_case {
    int64_t row;             /* number of the row, from 1 */
    const char *skipped;     /* the reason, static; NULL: the row is used */
    bool assumed;            /* something was left out and follows a rule */
    bool any_mbs, any_vpp, any_recompute; /* not published: chosen in predict.c */
    struct model model;
    struct seq seq;
    int64_t gbs, gpus;
    struct layout layout;
    struct stack stack;      /* with the row's own attention and norms */
    struct cluster cluster;
    bool fp8;
    unsigned again;          /* what selective recomputation repeats; 0: attention */
    bool frozen;             /* adapters are trained beside frozen weights */
    enum table_status status;
    double measured_s;       /* seconds of a step; 0: not published, or it did not run */
    double peak_bytes;       /* of a GPU; 0: not published */
    bool allocated;          /* the peak counts tensors only, not the rest of the process */
    char sweep[LIMIT_NAME_BYTES]; /* rows of one sweep can be ranked; "": none */
};
/* A word that reel does not know in its column, and what the rows that have it have in its place.
 * They count as assumed. Of rows that are skipped only the family is told, and the GPU where it
 * is why. */
struct table_word {
    const char *column;             /* static */
    char word[LIMIT_NAME_BYTES];    /* cut if it is longer */
    char taken[LIMIT_NAME_BYTES];   /* "bf16", "that of stack megatron" */
    char nearest[LIMIT_NAME_BYTES]; /* the known word that was probably meant; "": none is near */
    int64_t line;                   /* of the first row that has it, from 1 */
    int64_t rows;
};
/* A row with values that no run can have: a case that is skipped because of table_no_run. */
struct table_refused {
    int64_t row; /* from 1 */
    char *says;  /* a sentence with file, line, column and value */
};
extern const char *const table_no_run;
struct table {
    char *name;              /* of the file */
    struct table_case *cases;
    size_t n;
    struct table_word *words; /* unknown ones, each once */
    size_t n_words;
    struct table_refused *refused; /* in the order of their rows */
    size_t n_refused;
};
int table_load(const char *path, struct table *out, struct err *err);
/* Returns ERR_INPUT with the sentence of the first refused row, if there is one. */
int table_refused_check(const struct table *t, struct err *err);
void table_release(struct table *t); /* safe on a zeroed struct */

/* Receives progress of work that may take minutes: the rows that are done, and all rows. */
struct told_rows {
    void (*tell)(void *ctx, int64_t done, int64_t all);
    void *ctx;
};
static inline void table_told(const struct told_rows *told, int64_t done, int64_t all)
{
    if (told)
        told->tell(told->ctx, done, all);
}

#endif
