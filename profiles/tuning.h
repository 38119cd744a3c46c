/* tuning: says what of a model a run trains, and how: groups of parameters, and low-rank adapters
 * (LoRA) beside frozen weights.
 *
 * A run and each of its checkpoints carry one. With the model it gives the one list of parameters,
 * flags and adapters included, that everything else follows from. A zeroed struct trains everything
 * alike. The texts "groups" and "lora" are described at the top of tuning.c.
 *
 *     tuning_read(&doc, doc.root, &tuning, err);   // members "groups" and "lora", both optional
 *     tuning_params(&model, &tuning, &list, err);   // params_build(), adapters added, groups applied
 *     if (list.items[i].lora == PARAM_LORA_A) ...   // its base is items[i - 1], its B items[i + 1]
 *     params_release(&list);
 *
 * Errors: ERR_INPUT naming the pattern that matches nothing; ERR_LIMIT, ERR_NOMEM.
 */
#ifndef PROFILES_TUNING_H
#define PROFILES_TUNING_H

#include "base/json.h"
#include "profiles/params.h"

enum { TUNING_GROUPS = 32, TUNING_MATCHES = 32 };
enum tuning_switch { TUNING_DEFAULT, TUNING_OFF, TUNING_ON };

struct tuning_group {
    char match[LIMIT_NAME_BYTES];
    double lr_scale;
    /* default: as the parameter list says; with lora only adapters are trained */
    enum tuning_switch decay, trainable;
};
struct tuning {
    int64_t n_groups;
    struct tuning_group groups[TUNING_GROUPS];
    struct {
        int64_t rank; /* 0: no adapters */
        double alpha;
        int64_t n_matches;
        char match[TUNING_MATCHES][LIMIT_NAME_BYTES];
    } lora;
};

int tuning_read(const struct json_doc *doc, const cJSON *root, struct tuning *out, struct err *err);
/* Leaves out members that are not set. */
void tuning_write(const struct tuning *t, struct json_out *o);
int tuning_params(const struct model *m, const struct tuning *t, struct param_list *out,
                  struct err *err);
/* Returns the factor of an adapter's product, alpha / rank; 0 without adapters. */
double tuning_lora_scale(const struct tuning *t);

#endif
