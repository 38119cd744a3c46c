/* layout: says how a run is spread over ranks, and whether that is legal.
 *
 * World = tp·cp·pp·dp. `order` says which ranks are neighbours on nodes and switches: the axis that
 * it names first varies fastest, by default tp, then cp, dp, pp. The loss never depends on it.
 * `zero` 0..3 says what is sharded over data-parallel ranks (0 nothing, 1 optimizer, 2 + gradients,
 * 3 + parameters). `fsdp` is the shard group's size and divides dp·cp; it is unused when zero is 0.
 *
 * Legality is a table of named rules (layout.c), each with a sentence. The tuner excludes layouts
 * by these rules, and the trainer refuses them. The rules say what the mathematics allows; the
 * trainer checks by itself what it has code for.
 */
#ifndef PROFILES_LAYOUT_H
#define PROFILES_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "base/str.h"
#include "profiles/model.h"

enum cp_kind { CP_RING, CP_A2A, CP_2D };
enum recompute { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };
extern const char *const cp_kind_names[];
extern const char *const recompute_names[];
enum { LAYOUT_ORDERS = 24 };
extern const char *const layout_order_names[]; /* "tp-cp-dp-pp", the default, and 23 others */

struct layout {
    int64_t tp, sp, cp, pp, vpp, dp; /* sp is 0 or 1 */
    enum cp_kind cp_kind;
    int64_t zero, fsdp;
    int64_t mbs;
    enum recompute recompute;
    /* with RECOMPUTE_FULL, how many first layers of each virtual stage are recomputed; 0 = all */
    int64_t recompute_layers;
    int order; /* index among layout_order_names */
};
struct layout layout_default(void); /* all ones, sp 0, zero 0, fsdp 0 (= dp), recompute none */
bool layout_equal(const struct layout *a, const struct layout *b);
int layout_compare(const struct layout *a, const struct layout *b); /* a total order, for qsort */

/* Reads "tp=2,dp=4,zero=1,recompute=full". Keys come in any order; missing ones have their
 * defaults. If several values of `order` place all ranks in the same way, the first of them is
 * taken. */
int layout_parse(const char *text, struct layout *out, struct err *err);
/* Writes the canonical text, with every key. `order` is written only if it is not the default, so
 * that other layouts have the same text as before orders existed. */
void layout_format(const struct layout *l, struct str *out);
/* Writes the layout for people: "tp=2 dp=4 zero=1 mbs=1 recompute=none". dp, zero, mbs and
 * recompute are always written, other keys only if they do not have their default. */
void layout_brief(const struct layout *l, struct str *out);
/* Reads a layout from JSON: a text, or an object as in older plans. */
int layout_read(const struct json_doc *doc, const cJSON *obj, const char *path, struct layout *out,
                struct err *err);
void layout_write(const struct layout *l, struct json_out *o, const char *key);
/* Returns tp·cp·pp·dp, or -1 when it is past LIMIT_RANKS. */
int64_t layout_world(const struct layout *l);
int64_t layout_shard_group(const struct layout *l);          /* fsdp, or dp when fsdp is 0 */

/* Returns 0 if `l` can run `m` with `gbs` samples of extent `s` on `world` ranks, else ERR_INPUT
 * with the broken rule. Trainer and tuner share this one list of rules. */
int layout_check(const struct layout *l, const struct model *m, struct seq s, int64_t gbs,
                 int64_t world, struct err *err);

/* Returns the index of the first broken rule; -1: the layout is legal. A search uses it to count
 * which rule excluded how many layouts. */
int layout_broken_rule(const struct layout *l, const struct model *m, struct seq s, int64_t gbs,
                       int64_t world);
int layout_rule_count(void);
const char *layout_rule_name(int rule);     /* "tp-divides-heads" */
const char *layout_rule_sentence(int rule); /* the condition, and what to give instead */

/* Returns the number of samples of a data-parallel replica. gbs is split as evenly as possible (the
 * first gbs mod dp replicas have one more), then by mbs; the last micro-batch of a replica may be
 * short. */
int64_t layout_replica_samples(const struct layout *l, int64_t gbs, int64_t replica);
/* Returns the replica's first sample of the global batch. */
int64_t layout_replica_first(const struct layout *l, int64_t gbs, int64_t replica);
int64_t layout_micro_batches(const struct layout *l, int64_t gbs, int64_t replica);
int64_t layout_micro_batch_samples(const struct layout *l, int64_t gbs, int64_t replica,
                                   int64_t micro_batch);

/* Holds the place of a rank along each axis. layout_place() and layout_rank() convert between ranks
 * and places by the layout's order, so that no other code does; layout_rank() of a place with 1 on
 * one axis and 0 elsewhere is the axis's stride. */
struct layout_place { int64_t tp, cp, dp, pp; };
struct layout_place layout_place(const struct layout *l, int64_t rank);
int64_t layout_rank(const struct layout *l, struct layout_place p);
/* Returns the first order that places all ranks as l's order does: an axis of one rank may stand
 * anywhere. */
int layout_order_plain(const struct layout *l);
/* Lists the orders that place the ranks of a grid differently, each in its plain form; returns
 * their number. The first is the default. l->order is not used. */
int layout_orders(const struct layout *l, int out[LAYOUT_ORDERS]);
/* Returns the rank's place in its data group, place.dp · cp + place.cp. Ranks that share a tp and a
 * pp place form a data group of dp·cp ranks, cp fastest. layout_shard_group() consecutive ones of
 * them form a shard group. */
int64_t layout_data_rank(const struct layout *l, struct layout_place p);
/* Returns the first layer of a pipeline chunk. Chunk c of pp·vpp holds layers first(c) ..
 * first(c+1)-1, split as evenly as possible, with one more in the first chunks. It is on stage c
 * mod pp, as its virtual stage c / pp. first(pp·vpp) is the number of layers. */
int64_t layout_chunk_first(const struct layout *l, int64_t layers, int64_t chunk);
/* Returns the number of slices of rows into which the sum over tp ranks at the end of a branch is
 * cut, for `rows` tokens; each slice is summed while the next one's product is computed. Slice c of
 * n rows is rows n·c/slices .. n·(c+1)/slices - 1, where the n rows are all rows, or with sp the
 * part of each tp rank. */
enum { LAYOUT_TP_SLICES = 2, LAYOUT_TP_SLICE_ROWS = 4 /* fewest rows of a slice */ };
int64_t layout_tp_slices(const struct layout *l, int64_t rows);
/* Returns the first token of cp rank r's span in a sample. Rank r has tokens first(r) ..
 * first(r+1)-1: near-equal spans, n·r/cp. */
int64_t layout_span_first(int64_t tokens, int64_t cp, int64_t r);
/* Returns the turn of a sample, which decides how its segments are dealt to cp ranks. Segment k of
 * n (frames, or places in a frame) goes to cp rank floor(k · cp / n) - turn, modulo cp. If cp does
 * not divide n, the ranks take turns at having one more. If it does, the turn is 0, and frames stay
 * with the rank that has their tokens. */
int64_t layout_segment_turn(int64_t segments, int64_t cp, int64_t sample);
/* Returns the number of consecutive cp ranks in an all-to-all group. The ring goes over the cp / a
 * groups. It is cp for a2a and 1 for ring. For 2d it is the largest a above 1 and below cp that
 * divides cp, where tp·a divides heads, and divides kv_heads or is a multiple of it (rule
 * cp-2d-splits). */
int64_t layout_a2a_group(const struct layout *l, const struct model *m);

#endif
