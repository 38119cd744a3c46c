/* shard: computes which part of every parameter tensor a rank holds under a layout, and where it is
 * in the rank's flat buffers, by pure arithmetic.
 *
 * Tensor parallelism cuts matrices by rows or columns (params.h says which). Pipeline stages hold
 * the tensors of their layers; the first chunk's rank also holds the embedding, the last chunk's
 * rank the head, and every stage the conditioning. A tied head's matrix is the embedding: the last
 * stage has a copy of it. All parts that a rank holds are in one flat buffer of *units*, in the
 * parameter list's order: embedding, conditioning, each held layer, head. A unit is padded so that
 * it divides into the pieces of a shard group (FSDP): rank f of the group owns piece f of every
 * unit. All tp ranks of a stage have the same flat layout, and the conditioning unit has the same
 * layout on all stages, so pieces can be summed across tp and pp. A unit without tensors (the
 * conditioning of a model without any) is left out.
 *
 * Trained and frozen tensors (PARAM_TRAINABLE) are in separate units: first come all trained ones,
 * then the frozen ones. Gradients, moments and average cover only the first `trained` elements;
 * frozen tensors have none.
 *
 *     struct shards sh;
 *     shards_build(&model, &params, &layout, rank, &sh, err);
 *     sh.tensors[i].offset                                   // -1: not here
 *     shards_release(&sh);
 *
 * The layout must have passed layout_check() for the model, and `params` must come from
 * params_build() or finetune_params() for the model; otherwise the program aborts.
 * shards_build() returns ERR_NOMEM, or ERR_LIMIT for more than 2^62 elements.
 */
#ifndef PROFILES_SHARD_H
#define PROFILES_SHARD_H

#include "profiles/layout.h"
#include "profiles/params.h"

enum { SHARD_RANGES = 3 };
/* Names the ranks over which a tensor's gradients are partial sums, besides the data-parallel ranks
 * (dp·cp). */
enum {
    /* all tp ranks: the tensor is replicated over tp, and each rank sees some heads, columns or
     * (with sp) tokens */
    SHARD_SUM_TP = 1,
    SHARD_SUM_PP = 2, /* all stages: the tensor belongs to the conditioning */
    /* the tp ranks with a copy of the same k/v heads, for local rows from kv_row on */
    SHARD_SUM_KV = 4,
    SHARD_SUM_ENDS = 8, /* the first and the last stage: the embedding is a tied head */
};

/* Describes the local matrix of a tensor: up to three ranges of global rows (q, k, v; gate, up) and
 * one range of global columns. A vector is one row. */
struct shard_tensor {
    /* its place in the flat buffer, in elements; -1: this rank does not hold it (then all counts
     * are 0) */
    int64_t offset;
    int64_t rows, cols, count;  /* local */
    /* elements that it takes in the flat buffer: count. If tp does not divide a vocabulary, every
     * rank takes as many as the largest part */
    int64_t room;
    int n;                      /* row ranges */
    /* first global row and number of rows of each range; local rows follow one another */
    int64_t first[SHARD_RANGES], n_rows[SHARD_RANGES];
    int64_t col;                /* first global column */
    unsigned sums;
    /* first local row that has copies on other tp ranks; equal to rows if none has */
    int64_t kv_row;
    int64_t unit;               /* the unit that holds the tensor; -1: none */
    /* this rank counts rows 0 .. own_rows-1 where every element of the model must count exactly
     * once (norms, files): own_rows is rows, kv_row, or 0, depending on the rank's place among the
     * copies */
    int64_t own_rows;
};

/* Says how a tensor is cut, and over which ranks its gradients are partial sums. */
struct shard_kind {
    enum param_tp tp;
    int64_t rows, cols; /* of the whole matrix */
    int64_t parts;      /* cut by rows: parts that are cut each by itself (gate, up) */
    bool q, kv;         /* cut by heads: it has rows of queries, of keys and values */
    /* replicated over tp: each rank's gradient is a part of the sum, even without sp */
    bool partial;
    bool cond, tied;    /* it is the conditioning's; a tied head's */
};
/* Returns the kind of a tensor of a list, where an adapter follows its base. */
struct shard_kind shard_kind_of(const struct model *m, const struct param *p);
/* Returns what the rank at a place holds of a tensor, but for its place in the flat buffer. */
struct shard_tensor shard_tensor_cut(const struct model *m, const struct layout *l,
                                     struct layout_place place, const struct shard_kind *k);
/* Return the elements that a tensor takes in its unit, and a unit in the flat buffer. */
int64_t shard_tensor_room(const struct shard_tensor *t);
int64_t shard_unit_room(int64_t elements, int64_t group);

struct shard_unit {
    int64_t layer;              /* 0.. or PARAM_LAYER_* */
    /* the layer's tensors; the unit contains those whose tensors[i].unit is its index */
    int64_t first_param, n_params;
    /* the unit of the layer's other tensors, frozen or trained; -1: there is none */
    int64_t sibling;
    /* place and size in the flat buffer, multiples of group · BUFFER_FLAT_ALIGN */
    int64_t offset, elements;
};

struct shards {
    struct layout_place place;
    int64_t tp;
    /* the shard group's size, which is layout_shard_group() whatever zero is, and the rank's place
     * in it */
    int64_t group, group_rank;
    /* tp ranks that hold the same k/v heads: tp / kv_heads, at least 1 */
    int64_t kv_copies;
    int64_t n_units, n_trained;     /* number of units; the first n_trained hold trained tensors */
    struct shard_unit *units;
    int64_t n_tensors;              /* of the whole model */
    struct shard_tensor *tensors;   /* [params->n] */
    /* elements of the flat buffer, and of its trained part; a buffer of own pieces has these
     * divided by group */
    int64_t total, trained;
};

int shards_build(const struct model *m, const struct param_list *params, const struct layout *l,
                 int64_t rank, struct shards *out, struct err *err);
void shards_release(struct shards *sh); /* safe on a zeroed struct */
/* Returns the unit that holds a layer (or PARAM_LAYER_*), the trained one if there are two; -1: the
 * rank does not hold it. */
int64_t shards_unit(const struct shards *sh, int64_t layer);
/* Return the elements of the largest unit together with its sibling, and of the largest trained
 * unit. */
int64_t shards_most_elements(const struct shards *sh);
int64_t shards_most_trained(const struct shards *sh);
/* Returns the unit of tensor i; NULL when the rank does not hold it. */
static inline const struct shard_unit *shards_unit_of(const struct shards *sh, int64_t i)
{
    return sh->tensors[i].unit < 0 ? NULL : &sh->units[sh->tensors[i].unit];
}
/* Says whether this rank holds tensor i and the tensor is trained. */
static inline bool shards_trained(const struct shards *sh, int64_t i)
{
    return sh->tensors[i].unit >= 0 && sh->tensors[i].unit < sh->n_trained;
}

/* Converts the index of a local element of a tensor to the global one. *span: how many elements
 * from there on are consecutive in both. */
int64_t shard_to_global(const struct shard_tensor *t, const struct param *p, int64_t local,
                        int64_t *span);
/* Converts the index of a global element of a tensor to the local one, and sets *span likewise. -1:
 * the element is not in this shard, and neither are the *span global elements from it on. */
int64_t shard_to_local(const struct shard_tensor *t, const struct param *p, int64_t global,
                       int64_t *span);

#endif
