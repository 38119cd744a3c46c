/* layout: how a run is spread over ranks, and whether that is legal.
 *
 * World = tp·cp·pp·dp, tp fastest, then cp, dp, pp. `zero` 0..3 says what is sharded over data parallel ranks (0 nothing,
 * 1 optimizer, 2 + gradients, 3 + parameters); `fsdp` is the shard group's size and divides dp·cp (unused when zero is 0).
 *
 * Legality is a table of named rules (layout.c), each with a sentence: the tuner excludes by it, the trainer refuses by it.
 * It says what the mathematics allows; what the present trainer has code for is the trainer's own check.
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

struct layout {
    int64_t tp, sp, cp, pp, vpp, dp; /* sp 0|1 */
    enum cp_kind cp_kind;
    int64_t zero, fsdp;
    int64_t mbs;
    enum recompute recompute;
    int64_t recompute_layers; /* RECOMPUTE_FULL on the first k layers of each virtual stage; 0 = all */
};
struct layout layout_default(void); /* all ones, sp 0, zero 0, fsdp 0 (= dp), recompute none */
bool layout_equal(const struct layout *a, const struct layout *b);

/* "tp=2,dp=4,zero=1,recompute=full": keys in any order, omitted ones at their default. */
int layout_parse(const char *text, struct layout *out, struct err *err);
void layout_format(const struct layout *l, struct str *out); /* canonical, every key */
/* Reads the text in JSON, or the object that it was in plans of before. */
int layout_read(const struct json_doc *doc, const cJSON *obj, const char *path, struct layout *out, struct err *err);
void layout_write(const struct layout *l, struct json_out *o, const char *key);
int64_t layout_world(const struct layout *l);                /* -1 when the product is past LIMIT_RANKS */
int64_t layout_shard_group(const struct layout *l);          /* fsdp, or dp when fsdp is 0 */

/* 0 if `l` can run `m` with `gbs` samples of `s` on `world` ranks; else ERR_NO with the broken rule. One rule list for
 * trainer and tuner. */
int layout_check(const struct layout *l, const struct model *m, struct seq s, int64_t gbs, int64_t world, struct err *err);

/* The same without a text: index of the first broken rule, -1 if legal; for counting what a search excluded and why. */
int layout_broken_rule(const struct layout *l, const struct model *m, struct seq s, int64_t gbs, int64_t world);
int layout_rule_count(void);
const char *layout_rule_name(int rule);     /* "tp-divides-heads" */
const char *layout_rule_sentence(int rule); /* what must hold, and what to give instead */

/* Micro-batches of data-parallel replica r: gbs split as evenly as it goes (the first gbs mod dp replicas have one
 * more), then by mbs; the last micro-batch of a replica may be short. */
int64_t layout_replica_samples(const struct layout *l, int64_t gbs, int64_t replica);
int64_t layout_replica_first(const struct layout *l, int64_t gbs, int64_t replica); /* its first sample of the batch */
int64_t layout_micro_batches(const struct layout *l, int64_t gbs, int64_t replica);
int64_t layout_micro_batch_samples(const struct layout *l, int64_t gbs, int64_t replica, int64_t micro_batch);

/* Place of a rank along the axes: tp fastest, then cp, dp, pp. */
struct layout_place { int64_t tp, cp, dp, pp; };
struct layout_place layout_place(const struct layout *l, int64_t rank);
int64_t layout_rank(const struct layout *l, struct layout_place p);
/* Ranks that share a tp and pp place form the data group, of dp·cp ranks, cp fastest: place.dp · cp + place.cp. A shard group is
 * layout_shard_group() consecutive ones of them. */
int64_t layout_data_rank(const struct layout *l, struct layout_place p);
/* Pipeline chunk c of pp·vpp holds layers first(c) .. first(c+1)-1, as even as it goes, the first ones one more; it lives on stage c mod pp
 * as its virtual stage c / pp. first(pp·vpp) = layers. */
int64_t layout_chunk_first(const struct layout *l, int64_t layers, int64_t chunk);
/* The sum over tp ranks that ends a branch is made in slices of rows, each under the next one's product: how many, of `rows` tokens. Of a
 * tp rank's part of n rows slice i is rows n·i/slices .. n·(i+1)/slices - 1; the parts: all rows, or with sp those of each rank. */
enum { LAYOUT_TP_SLICES = 2, LAYOUT_TP_SLICE_ROWS = 4 /* least of one */ };
int64_t layout_tp_slices(const struct layout *l, int64_t rows);
/* cp rank r of `cp` has tokens first(r) .. first(r+1)-1 of a sample: near-equal runs, n·r/cp. */
int64_t layout_run_first(int64_t tokens, int64_t cp, int64_t r);
/* Segment k of sample i's n (frames, or places in a frame) goes to cp rank floor(k · cp / n) - turn, modulo cp: where n does not divide, the
 * ranks take turns at having one more; where it does, none has, and frames stay with the rank that has their tokens. */
int64_t layout_segment_turn(int64_t segments, int64_t cp, int64_t sample);
/* 2d: all-to-all groups of a = this many consecutive cp ranks, the ring over the cp / a groups. cp for a2a, 1 for ring;
 * for 2d the largest a below cp, above 1, that divides cp with heads divisible by tp·a (rule cp-2d-splits). */
int64_t layout_a2a_group(const struct layout *l, const struct model *m);

#endif
