/* train_attn: announces the attention calls of a leg, before its first step, to a device whose
 * library computes attention by plans (ops.h, attn_plan). These are the calls for the micro-batches
 * that its steps (of each stage at most the next STEPS_MOST) and validations will read, which
 * follow from indices and random choices. It needs neither samples nor device memory, so it can run
 * before memory is planned, and the plan includes what the calls need. */
#include <stdio.h>
#include <stdlib.h>

#include "base/num.h"
#include "trainer/run/train_priv.h"

enum {
    STEPS_MOST = 1 << 14, /* steps of a stage: later ones seldom bring a new class of calls */
    STEPS_BEHIND = 2,     /* steps that a trial may run beyond max_steps (train_activity.c) */
};

/* Holds the part of a sample on which the attention calls depend. */
struct shape { int32_t t, h, w, text_len; };

struct told {
    struct dit *dit;
    bool backward;
    struct shape *last; /* [n] shapes of the micro-batch that was announced last */
    int64_t n;
};

/* Notes a micro-batch's shapes. Returns whether they are those that were announced last. */
static bool is_again(struct told *told, const struct batch *b)
{
    bool again = told->n == b->n;
    for (int64_t i = 0; i < b->n; i++) {
        const struct batch_sample *s = &b->samples[i];
        struct shape is = {s->t, s->h, s->w, s->drop_text ? 0 : s->text_len}, *was = &told->last[i];
        again = again && is.t == was->t && is.h == was->h && is.w == was->w &&
                is.text_len == was->text_len;
        *was = is;
    }
    told->n = b->n;
    return again;
}

static int tell(void *ctx, const struct batch *b, struct err *err)
{
    struct told *told = ctx;
    return is_again(told, b) ? 0 : dit_attn_plan(told->dit, b, told->backward, err);
}

/* Announces the steps of a stage from `step` on. */
static int stage_tell(struct train *t, int64_t stage, int64_t step, struct told *told,
                      struct err *err)
{
    int64_t from = num_max_i64(step, run_stage_first(t->run, stage)),
            end = num_min_i64(run_stage_first(t->run, stage + 1), from + STEPS_MOST);
    int rc = 0;
    if (t->conf->max_steps > 0)
        end = num_min_i64(end, step + t->conf->max_steps + STEPS_BEHIND);
    for (int64_t k = from; k < end && rc == 0; k++)
        rc = train_step_shapes(t, k, tell, told, err);
    return rc;
}

static int leg_tell(struct train *t, int64_t step, struct told *told, struct err *err)
{
    int rc;
    told->backward = true;
    for (int64_t i = t->leg.first_stage; i < t->leg.end_stage; i++)
        if ((rc = stage_tell(t, i, step, told, err)) < 0)
            return rc;
    told->backward = false;
    told->n = -1;
    return t->leg.validate.loader ? validate_shapes(&t->leg.validate, tell, told, err) : 0;
}

int train_attn_plan(struct train *t, int64_t step, const struct dit_config *c, struct err *err)
{
    struct ops *ops = t->leg.compute.ops;
    struct dit_config bare = *c;
    struct told told = {.n = -1};
    int rc;
    if (!ops->attn_plan)
        return 0;
    bare.bare = true;
    if (!(told.last = calloc((size_t)c->max_samples, sizeof *told.last)))
        return err_set(err, ERR_NOMEM, "out of memory");
    if ((rc = dit_new(&bare, ops, t->leg.compute.stream, NULL, &told.dit, err)) < 0)
        goto out;
    rc = leg_tell(t, step, &told, err);
out:
    dit_free(told.dit);
    free(told.last);
    return rc;
}
