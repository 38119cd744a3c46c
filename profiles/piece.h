/* piece: tells which piece of each unit a rank of a shard group owns, and which spans of it belong
 * together. Its functions are pure arithmetic over shard.h.
 *
 * Rank f of a shard group owns piece f of every unit. In a *whole* buffer (sh.total elements) the
 * piece stands at unit.offset + f · elements / group. In a buffer of *own pieces* (sh.total / group
 * elements) it stands at unit.offset / group, one unit after the other.
 *
 * Some spans of the pieces are partial sums over tp, over copies of k/v heads or over pp; others
 * are the elements that this rank counts, so that norms count each element once. A list of spans
 * says which these are, so that each axis needs one packed all-reduce and a norm needs few calls.
 * Ranks that sum together have equal lists. The lists are about gradients, so they leave out frozen
 * tensors.
 *
 *     struct piece_spans spans;
 *     piece_spans_build(&sh, &params, PIECE_SUM_TP, &spans, err);
 *     for (int64_t i = 0; i < spans.n; i++)
 *         use(piece_whole(&sh, spans.items[i].unit, spans.items[i].at), spans.items[i].n);
 *     piece_spans_release(&spans);
 */
#ifndef PROFILES_PIECE_H
#define PROFILES_PIECE_H

#include "profiles/shard.h"

/* Describes a span of consecutive elements of one tensor that lie in the rank's own piece of the
 * tensor's unit. */
struct piece {
    int64_t local; /* the first element, counted in the local tensor */
    int64_t at;    /* its index in a buffer of own pieces */
    int64_t n;     /* number of elements; 0: the piece has none of them */
};
/* Returns the part of local elements first .. end-1 of tensor t, a tensor of unit u, that lies in
 * the rank's own piece. */
struct piece piece_of(const struct shards *sh, const struct shard_unit *u,
                      const struct shard_tensor *t, int64_t first, int64_t end);
/* Returns the index in a whole buffer of the element with index `at` among the own pieces, in unit
 * number `unit`. */
int64_t piece_whole(const struct shards *sh, int64_t unit, int64_t at);

enum piece_rule {
    /* elements that this rank counts, so that every element of the model counts once over all tp
     * and pp ranks */
    PIECE_ONCE,
    PIECE_SUM_TP, /* gradients that are summed over tp */
    PIECE_SUM_KV, /* gradients that are summed over the copies of k/v heads */
    PIECE_SUM_PP, /* gradients that are summed over the pipeline stages */
    PIECE_RULES,
};
/* Finds the local elements *first .. *end-1 of a tensor to which a rule applies. */
void piece_rule_range(const struct shard_tensor *t, enum piece_rule rule, int64_t *first,
                      int64_t *end);
/* Describes a span of own pieces. Gaps between the tensors of a span hold zeros. */
struct piece_span { int64_t unit, at, n; };
struct piece_spans { struct piece_span *items; int64_t n, elements; };
int piece_spans_build(const struct shards *sh, const struct param_list *params,
                      enum piece_rule rule, struct piece_spans *out, struct err *err);
void piece_spans_release(struct piece_spans *spans); /* safe on a zeroed struct */
/* Computes the number of elements of each rule's sum; 0 for PIECE_ONCE. One buffer of the largest
 * number is enough to pack any of them. */
int piece_sum_elements(const struct shards *sh, const struct param_list *params,
                       int64_t out[PIECE_RULES], struct err *err);

#endif
