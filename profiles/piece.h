/* piece: what a rank of a shard group owns of each unit, and which runs of it belong together. Pure arithmetic over shard.h.
 *
 * Rank f of a shard group owns piece f of every unit. In a *whole* buffer (sh.total elements) the piece stands at unit.offset +
 * f · elements / group; in a buffer of *own pieces* (sh.total / group elements) at unit.offset / group, one unit after the other.
 *
 * Some runs of the pieces are partial sums over tp, over copies of k/v heads or over pp; others count once in norms. A
 * list of runs says which, so that an axis takes one packed all-reduce and a norm few calls. Ranks that sum together have equal lists.
 * They are about gradients: what is frozen has none.
 *
 *     struct piece_runs runs;
 *     piece_runs_build(&sh, &params, PIECE_SUM_TP, &runs, err);
 *     for (int64_t i = 0; i < runs.n; i++) use(piece_whole(&sh, runs.items[i].unit, runs.items[i].at), runs.items[i].n);
 *     piece_runs_release(&runs);
 */
#ifndef PROFILES_PIECE_H
#define PROFILES_PIECE_H

#include "profiles/shard.h"

/* A run of elements of one tensor that lie in the own piece of its unit. */
struct piece {
    int64_t local; /* the first of them in the local tensor */
    int64_t at;    /* its place in a buffer of own pieces */
    int64_t n;     /* 0: none */
};
/* Of the local elements first .. end-1 of tensor t, a tensor of unit u. */
struct piece piece_of(const struct shards *sh, const struct shard_unit *u, const struct shard_tensor *t, int64_t first, int64_t end);
/* Place in a whole buffer of the element at `at` of the own pieces, of unit number `unit`. */
int64_t piece_whole(const struct shards *sh, int64_t unit, int64_t at);

enum piece_rule {
    PIECE_ONCE,   /* counted by this rank where every element of the model counts once among tp and pp */
    PIECE_SUM_TP, /* to be summed over tp */
    PIECE_SUM_KV, /* over the copies of k/v heads */
    PIECE_SUM_PP, /* over the stages */
    PIECE_RULES,
};
struct piece_run { int64_t unit, at, n; }; /* elements of own pieces; gaps between the tensors of a run hold zeros */
struct piece_runs { struct piece_run *items; int64_t n, elements; };
int piece_runs_build(const struct shards *sh, const struct param_list *params, enum piece_rule rule, struct piece_runs *out,
                     struct err *err);
void piece_runs_release(struct piece_runs *runs); /* safe on a zeroed struct */
/* Elements of the sums, by rule; of PIECE_ONCE 0. One buffer to pack them holds the longest. */
int piece_sum_elements(const struct shards *sh, const struct param_list *params, int64_t out[PIECE_RULES], struct err *err);

#endif
