/* params: lists a model's parameter tensors, in one fixed order.
 *
 * This one list drives initialisation, gradient reduction, norm, sharding, checkpoint and
 * resharding. Names are global ("blocks.3.attn.qkv.weight"). Shapes are the whole tensor's,
 * row-major, [out, in] for matrices. Names, shapes and order are listed at the top of params.c;
 * checkpoints depend on them.
 *
 *     struct param_list list;
 *     if (params_build(&model, &list, err) < 0) return ...;
 *     for (int64_t i = 0; i < list.n; i++) use(&list.items[i]);
 *     params_release(&list);
 */
#ifndef PROFILES_PARAMS_H
#define PROFILES_PARAMS_H

#include <stdint.h>

#include "profiles/model.h"

enum { PARAM_LAYER_EMBED = -1, PARAM_LAYER_COND = -2, PARAM_LAYER_HEAD = -3 };
enum param_init {
    PARAM_ZERO,
    PARAM_ONE,
    PARAM_NORMAL, /* N(0, init_std) */
    PARAM_XAVIER, /* uniform in +-sqrt(6 / (in + out)) */
};
enum {
    PARAM_DECAY = 1,       /* weight decay applies */
    PARAM_TRAINABLE = 2,
    PARAM_PER_TOKEN = 4,   /* multiplies every video token (6·N of flops_reel) */
    PARAM_PER_SAMPLE = 8,  /* used once per sample (conditioning, AdaLN) */
    PARAM_PER_TEXT = 16,   /* multiplies every text token (cross K/V) */
    /* A token embedding that is also the head's matrix: there it multiplies every token, and with a
     * pipeline the last stage has a copy of it. */
    PARAM_TIED = 32,
};
/* Marks a run's low-rank adapters (finetune.h): in the list A follows its base, and B follows A. */
enum param_lora { PARAM_LORA_NONE, PARAM_LORA_A, PARAM_LORA_B };
/* Names the axis that is split over TP: none, dim 0 (out), dim 1 (in), dim 0 by heads. */
enum param_tp { PARAM_TP_NONE, PARAM_TP_ROW, PARAM_TP_COL, PARAM_TP_HEADS };

/* Says what a tensor is for, in the words of `reel model`. The four between COND and HEAD are in
 * the layers. */
enum param_part {
    PART_EMBED,
    PART_COND,
    PART_ATTN,
    PART_CROSS,
    PART_MLP,
    PART_MODULATION,
    PART_HEAD,
    PARAM_PARTS
};
/* "embedding", "conditioning", "self-attention", ... ended by NULL */
extern const char *const param_part_names[];

struct param {
    char name[LIMIT_NAME_BYTES];
    int nd;
    int64_t dim[4];
    int64_t count;      /* product of dims */
    int64_t layer;      /* 0.., or PARAM_LAYER_* */
    enum param_init init;
    double init_std;    /* PARAM_NORMAL */
    unsigned flags;
    enum param_tp tp;
    enum param_lora lora;
    double lr_scale;
    enum param_part part;
};

/* Return the rows and columns of a parameter as a matrix; a vector is one row. */
static inline int64_t param_rows(const struct param *p) { return p->nd > 1 ? p->dim[0] : 1; }
static inline int64_t param_cols(const struct param *p) { return p->count / param_rows(p); }

struct param_list {
    struct param *items;
    int64_t n, total; /* tensors, elements */
};

int params_build(const struct model *m, struct param_list *out, struct err *err);
void params_release(struct param_list *list);
/* Returns the index of a name, -1 if absent. It searches linearly: use it in set-up, not in a
 * step. */
int64_t params_find(const struct param_list *list, const char *name);
/* Returns the number of elements in the layers only (layer >= 0): the backbone count that published
 * tables of this family print. */
int64_t params_backbone(const struct param_list *list);

#endif
