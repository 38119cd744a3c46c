/* table_priv: holds what table.c, which reads lines, and table_case.c, which interprets them,
 * share. */
#ifndef AUTOTUNE_TABLE_PRIV_H
#define AUTOTUNE_TABLE_PRIV_H

#include "autotune/table.h"

#define TABLE_COLUMN_LIST(X)                                                                       \
    X(source) X(ref) X(gpu) X(gpu_mem_gb) X(n_gpus) X(gpus_per_node) X(framework) X(precision)     \
    X(task) X(model) X(family) X(n_params_b) X(layers) X(hidden) X(ffn) X(heads) X(kv_heads)       \
    X(vocab) X(gated_mlp) X(seq_len) X(tp) X(sp) X(cp) X(pp) X(vpp) X(dp) X(zero) X(fsdp_size)     \
    X(ep) X(mbs) X(gbs) X(recompute) X(attn) X(step_time_s) X(tokens_per_s_gpu) X(tflops_gpu)      \
    X(mfu_pct) X(hfu_pct) X(peak_mem_gb) X(mem_kind) X(status) X(sweep_group) X(notes)
enum table_column {
#define TABLE_COLUMN_ENUM(name) COLUMN_##name,
    TABLE_COLUMN_LIST(TABLE_COLUMN_ENUM)
#undef TABLE_COLUMN_ENUM
    TABLE_COLUMNS
};
struct table_line {
    const char *file;
    int64_t number;                   /* of the line in the file, from 1 */
    const char *field[TABLE_COLUMNS]; /* borrowed; "" where it is empty */
};
/* Holds the compiled-in profiles, so that each is parsed once for a table, not once for a row. */
struct table_profiles {
    struct device *devices;
    struct cluster *clusters; /* of one node */
    size_t n_devices, n_clusters;
    struct stacks stacks;
};
int table_profiles_load(struct table_profiles *out, struct err *err);
void table_profiles_release(struct table_profiles *p); /* safe on a zeroed struct */
/* Finds a table's unknown words by hash: each slot has 1 + the index of one, or 0. */
struct table_index { size_t *slots, n; };
/* The reason to skip a row whose GPU is not known. */
extern const char *const table_no_gpu;
/* Returns what the column gpu says behind the maker's name, with which drivers begin: the rest of
 * "NVIDIA H100 80GB HBM3" and of "Tesla A100". */
const char *table_gpu(const char *text);
/* Holds what the column recompute says. */
struct table_recompute {
    enum recompute kind;
    double layers;  /* of full: that many; 0: `share` of all */
    double share;
    unsigned again; /* of selective: what it repeats (enum work_again); 0: not said */
    bool known;     /* the whole text is, and is empty or "unstated" where no kind is named */
};
/* Reads it for a model with so many layers. Returns whether it names a kind. */
bool table_recompute(const char *text, int64_t layers, struct table_recompute *out);
/* Adds to a table's unknown words those of a line, whose case was read, and marks the case as
 * assumed. */
int table_words_note(struct table *t, struct table_index *index, const struct table_profiles *p,
                     const struct table_line *line, struct table_case *c, struct err *err);
/* Fills a case from a line, except for its row. Returns ERR_INPUT for text where a number belongs,
 * and for numbers that no run can have. */
int table_case_read(const struct table_line *line, const struct table_profiles *p,
                    struct table_case *out, struct err *err);

#endif
