/* train_nonfinite: finds which rank first met a number that is not finite, in which layer, and from
 * which operation the number came. */
#include "trainer/run/train_priv.h"

#include <math.h>

/* A place numbers the layers so that backward goes from the greatest place to the least, and
 * forward the other way. The embedding and the conditioning have places before layer 0. */
enum { PLACE_HEAD = 1 << 20, PLACE_OF_LAYER_0 = 3 };
static int64_t place_of(int64_t layer)
{
    return layer == PARAM_LAYER_HEAD ? PLACE_HEAD : layer + PLACE_OF_LAYER_0;
}

static int64_t layer_at(int64_t place)
{
    return place == PLACE_HEAD ? PARAM_LAYER_HEAD : place - PLACE_OF_LAYER_0;
}

/* Finds the rank whose numbers are the greatest in lexicographic order; of equal ones the lowest
 * rank. `found` says whether this rank has numbers. They are replaced by those of that rank. If no
 * rank has any, *rank is -1 and the numbers mean nothing. */
static int rank_first(const struct train *t, bool found, double numbers[], int n, int64_t *rank,
                      struct err *err)
{
    struct comm *world = t->conf->world;
    int rc;
    for (int i = 0; i < n; i++) {
        double greatest = found ? numbers[i] : -INFINITY;
        if ((rc = comm_max(world, &greatest, 1, err)) < 0)
            return rc;
        found = found && numbers[i] == greatest;
        numbers[i] = greatest;
    }
    double holder = found ? world->size - world->rank : 0;
    if ((rc = comm_max(world, &holder, 1, err)) < 0)
        return rc;
    *rank = holder > 0 ? world->size - (int64_t)holder : -1;
    return 0;
}

int train_nonfinite_find(struct train *t, struct record_step *s, struct err *err)
{
    int64_t unit = -1;
    int rc;
    if ((rc = units_nonfinite(&t->leg.units, &unit, err)) < 0)
        return rc;
    double place = unit < 0 ? 0 : (double)place_of(t->leg.sh.units[unit].layer);
    if ((rc = rank_first(t, unit >= 0, &place, 1, &s->bad_rank, err)) < 0)
        return rc;
    s->bad_layer = layer_at(s->bad_rank < 0 ? 0 : (int64_t)place);
    return 0;
}

int train_found_find(const struct train *t, struct scan_found f, struct record_step *s,
                     struct err *err)
{
    enum { MADE, FORWARD, PLACE, CALL, OP, NUMBERS };
    double numbers[NUMBERS] = {
        [MADE] = f.made,
        [FORWARD] = !f.backward,
        [PLACE] = (double)(f.backward ? place_of(f.layer) : -place_of(f.layer)),
        [CALL] = -(double)f.call,
        [OP] = f.op,
    };
    int rc = rank_first(t, f.any, numbers, NUMBERS, &s->found_rank, err);
    if (rc < 0)
        return rc;
    s->found = (struct scan_found){0};
    if (s->found_rank >= 0)
        s->found = (struct scan_found){
            .any = true,
            .made = numbers[MADE] > 0,
            .backward = numbers[FORWARD] == 0,
            .layer = layer_at((int64_t)fabs(numbers[PLACE])),
            .op = (enum meter_kind)numbers[OP],
            .call = (int64_t)-numbers[CALL],
        };
    return 0;
}
