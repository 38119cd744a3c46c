#include "trainer/run/cadence.h"

#include <math.h>
#include <stdlib.h>

static const double SAVE_GUESS_S = 1, DAY_S = 86400;
enum { STEPS_FIRST = 4 /* steps of an attempt before the first decision */ };

double cadence_interval_s(double save_s, double mtbf_s)
{
    if (save_s >= 2 * mtbf_s)
        return fmax(mtbf_s, save_s);
    double ratio = save_s / (2 * mtbf_s);
    return fmax(save_s, sqrt(2 * save_s * mtbf_s) * (1 + sqrt(ratio) / 3 + ratio / 9) - save_s);
}

void cadence_init(struct cadence *c, double mtbf_s, double save_s, int64_t nodes)
{
    *c = (struct cadence){.mtbf_measured = mtbf_s > 0, .save_measured = save_s > 0};
    c->mtbf_s = c->mtbf_measured ? mtbf_s : CADENCE_NODE_DAYS * DAY_S / (double)nodes;
    c->save_s = c->save_measured ? save_s : SAVE_GUESS_S;
}

void cadence_step(struct cadence *c, double step_s)
{
    c->n_steps++;
    c->steps_s += c->n_steps > 1 ? step_s : 0;
    c->due |= c->n_steps == STEPS_FIRST;
}

void cadence_saved(struct cadence *c, double save_s)
{
    c->save_s = save_s;
    c->save_measured = true;
    c->due = c->n_steps >= STEPS_FIRST;
}

void cadence_next(struct cadence *c)
{
    c->n_steps = 0;
    c->steps_s = 0;
    c->due = false;
}

bool cadence_is_due(const struct cadence *c)
{
    return c->due;
}

int cadence_decide(struct cadence *c, struct comm *world, bool *changed, struct err *err)
{
    double longest[2] = {c->save_s, c->steps_s / (double)(c->n_steps - 1)};
    int rc = comm_max(world, longest, 2, err);
    if (rc < 0)
        return rc;
    double steps = cadence_interval_s(longest[0], c->mtbf_s) / fmax(longest[1], 1e-9);
    int64_t every = steps < 1 ? 1 : steps > 1e12 ? (int64_t)1e12 : (int64_t)llround(steps);
    *changed = c->every_steps == 0 || llabs(every - c->every_steps) * 10 > c->every_steps;
    if (*changed) {
        c->every_steps = every;
        c->step_s = longest[1];
    }
    c->due = false;
    return 0;
}
