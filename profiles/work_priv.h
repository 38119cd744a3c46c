/* work_priv: adds operations and messages to a part. The accounts of all stacks share it. */
#ifndef PROFILES_WORK_PRIV_H
#define PROFILES_WORK_PRIV_H

#include "base/err.h"
#include "profiles/work.h"

static inline void work_gemm_add(struct work_part *p, double m, double n, double k, double count)
{
    BUG_ON(p->n_gemms == WORK_GEMMS);
    p->gemms[p->n_gemms++] = (struct work_gemm){m, n, k, count};
}

static inline void work_attention_add(struct work_part *p, struct work_attention a)
{
    BUG_ON(p->n_attentions == WORK_ATTENTIONS);
    p->attentions[p->n_attentions++] = a;
}

/* Adds a message, unless it has no bytes, as in groups of one rank. */
static inline void work_message_add(struct work_part *p, enum traffic_group group,
                                    enum traffic_kind kind, enum work_hide hide, double bytes,
                                    double count)
{
    if (!(bytes > 0 && count > 0))
        return;
    BUG_ON(p->n_messages == WORK_MESSAGES);
    p->messages[p->n_messages++] = (struct work_message){group, kind, hide, bytes, count};
}

#endif
