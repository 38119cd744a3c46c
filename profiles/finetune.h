/* finetune: says which parts of a model a run trains, and how: groups of parameters, and low-rank
 * adapters (LoRA) beside frozen weights.
 *
 * The file of a run and each of its checkpoints contain a struct finetune. Together with the model
 * it gives the one list of parameters, with flags and adapters, from which everything else follows.
 * A zeroed struct trains all parameters in the same way. The members "groups" and "lora" are
 * described at the top of finetune.c.
 *
 *     finetune_read(&doc, doc.root, &f, err);       // members "groups" and "lora", both optional
 *     finetune_params(&model, &f, &list, err);      // params_build(), adapters, groups applied
 *     if (list.items[i].lora == PARAM_LORA_A) ...   // its base is items[i - 1], its B items[i + 1]
 *     params_release(&list);
 *
 * Errors are ERR_INPUT, which names what is wrong (a pattern that matches nothing, for example),
 * ERR_LIMIT and ERR_NOMEM.
 */
#ifndef PROFILES_FINETUNE_H
#define PROFILES_FINETUNE_H

#include "base/json.h"
#include "profiles/params.h"

enum { FINETUNE_GROUPS = 32, FINETUNE_MATCHES = 32 };
enum finetune_switch { FINETUNE_DEFAULT, FINETUNE_OFF, FINETUNE_ON };

struct finetune_group {
    char match[LIMIT_NAME_BYTES];
    double lr_scale;
    /* default: as in the parameter list; with lora, only adapters are trained */
    enum finetune_switch decay, trainable;
};
struct finetune {
    int64_t n_groups;
    struct finetune_group groups[FINETUNE_GROUPS];
    struct {
        int64_t rank; /* 0: no adapters */
        double alpha;
        int64_t n_matches;
        char match[FINETUNE_MATCHES][LIMIT_NAME_BYTES];
    } lora;
};

int finetune_read(const struct json_doc *doc, const cJSON *root, struct finetune *out,
                  struct err *err);
/* Writes the members "groups" and "lora", and leaves out what is not set. */
void finetune_write(const struct finetune *t, struct json_out *o);
int finetune_params(const struct model *m, const struct finetune *t, struct param_list *out,
                    struct err *err);
/* Says whether a group freezes what it matches. */
bool finetune_freezes(const struct finetune *t);
/* Returns the factor of an adapter's product, alpha / rank; 0 without adapters. */
double finetune_lora_scale(const struct finetune *t);

#endif
