/* shard: which part of every parameter tensor a rank holds under a layout, and where in its flat buffers. Pure arithmetic.
 *
 * Tensor parallelism cuts matrices by rows or columns (params.h says which); pipeline stages hold the tensors of their layers, the
 * first chunk's rank the embedding, the last chunk's the head, every stage the conditioning. What a rank holds stands in one flat
 * buffer of *units*, in the parameter list's order: embedding, conditioning, each held layer, head. A unit is padded so that it divides
 * into the pieces of a shard group (FSDP): rank f of the group owns piece f of every unit. All tp ranks of a stage have
 * the same flat layout, and the conditioning unit has the same layout on all stages, so pieces can be summed across tp and pp.
 * A unit without tensors (the conditioning of a model without any) is left out.
 *
 * Tensors that are trained and tensors that are frozen (PARAM_TRAINABLE) have units of their own, first all of the former, then the
 * latter: gradients, moments and average are the first `trained` elements alone, and what is frozen has no place in them.
 *
 *     struct shards sh;
 *     shards_build(&model, &params, &layout, rank, &sh, err);
 *     sh.tensors[i].offset                                   // -1: not here
 *     shards_release(&sh);
 *
 * The layout must have passed layout_check() for the model, and the list be params_build()'s of it, or tuning_params()'s: broken invariants otherwise.
 * Errors: ERR_NOMEM; ERR_LIMIT past 2^62 elements.
 */
#ifndef PROFILES_SHARD_H
#define PROFILES_SHARD_H

#include "profiles/layout.h"
#include "profiles/params.h"

enum { SHARD_RANGES = 3 };
/* Beside the data-parallel ranks (dp·cp), where a tensor's gradients are partial sums. */
enum {
    SHARD_SUM_TP = 1, /* all tp ranks: replicated over tp, each sees some heads, columns or (with sp) tokens */
    SHARD_SUM_PP = 2, /* all stages: conditioning */
    SHARD_SUM_KV = 4, /* the tp ranks with a copy of the same k/v heads, for local rows kv_row and on */
};

/* The local matrix of a tensor: up to three ranges of global rows (q, k, v; gate, up), one range of global columns. A vector is one row. */
struct shard_tensor {
    int64_t offset;             /* elements, in the flat buffer; -1: not held by this rank (then all counts are 0) */
    int64_t rows, cols, count;  /* local */
    int n;                      /* row ranges */
    int64_t first[SHARD_RANGES], n_rows[SHARD_RANGES]; /* global first row and length of each; local rows follow one another */
    int64_t col;                /* first global column */
    unsigned sums;
    int64_t kv_row;             /* rows from here on have copies on other tp ranks; = rows without copies */
    int64_t unit;               /* whose; -1: not held */
    int64_t own_rows;           /* rows 0 .. own_rows-1 are counted by this rank where every element of the model must count once
                                 * (norms, files): rows, kv_row, or 0, by the rank's place among the copies */
};

struct shard_unit {
    int64_t layer;              /* 0.. or PARAM_LAYER_* */
    int64_t first_param, n_params; /* the layer's; those with tensors[i].unit of this unit are in it */
    int64_t sibling;            /* the unit of the layer's other tensors, frozen or trained; -1: there is none */
    int64_t offset, elements;   /* in the flat buffer; a multiple of group · BUFFER_FLAT_ALIGN */
};

struct shards {
    struct layout_place place;
    int64_t tp;
    int64_t group, group_rank;      /* shard group's size, layout_shard_group() whatever zero is, and own place in it */
    int64_t kv_copies;              /* tp ranks that hold the same k/v heads: tp / kv_heads, at least 1 */
    int64_t n_units, n_trained;     /* units; the first n_trained hold what is trained */
    struct shard_unit *units;
    int64_t n_tensors;              /* of the whole model */
    struct shard_tensor *tensors;   /* [params->n] */
    int64_t total, trained;         /* elements of the flat buffer, and of its part that is trained; / group: of buffers of own pieces */
};

int shards_build(const struct model *m, const struct param_list *params, const struct layout *l, int64_t rank, struct shards *out,
                 struct err *err);
void shards_release(struct shards *sh); /* safe on a zeroed struct */
/* Unit that holds layer l (or PARAM_LAYER_*), the trained one if it has both; -1 when not held. */
int64_t shards_unit(const struct shards *sh, int64_t layer);
/* Elements of the largest unit together with its sibling, and of the largest that is trained. */
int64_t shards_most_elements(const struct shards *sh);
int64_t shards_most_trained(const struct shards *sh);
/* Unit of tensor i; NULL when not held. */
static inline const struct shard_unit *shards_unit_of(const struct shards *sh, int64_t i)
{
    return sh->tensors[i].unit < 0 ? NULL : &sh->units[sh->tensors[i].unit];
}
/* Held here, and trained? */
static inline bool shards_trained(const struct shards *sh, int64_t i)
{
    return sh->tensors[i].unit >= 0 && sh->tensors[i].unit < sh->n_trained;
}

/* Local element j of a tensor -> global element; *run: how many follow one another in both. */
int64_t shard_to_global(const struct shard_tensor *t, const struct param *p, int64_t local, int64_t *run);
/* Global element g -> local element; *run likewise; -1: not in this shard (then *run global elements are not in it either). */
int64_t shard_to_local(const struct shard_tensor *t, const struct param *p, int64_t global, int64_t *run);

#endif
