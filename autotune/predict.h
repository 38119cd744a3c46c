/* predict: predicts a row of a table: time, bytes, and the chance that it fits. Its only effect is
 * that the replay of a pipeline allocates memory.
 *
 * Where a row leaves open its micro-batch, virtual stages or recomputation, they are chosen here:
 * for each micro-batch and number of virtual stages the least recomputation that fits (with
 * probability 0.5 or more), and of these layouts the fastest that fits.
 *
 *     struct predict_room room;            // large: keep it in static or heap memory
 *     predict_open(&c, &room, err);        // once for a case
 *     predict_case(&c, v, false, &room, &p, err);
 */
#ifndef AUTOTUNE_PREDICT_H
#define AUTOTUNE_PREDICT_H

#include "autotune/footprint.h"
#include "autotune/price.h"
#include "autotune/table.h"

struct predicted {
    struct layout layout;    /* with what the row left out */
    double seconds;
    double bytes, p_fits;
    struct price_step step;
    struct footprint footprint;
};
/* Holds what predictions of one case share while constants change, and room for their work. */
struct predict_room {
    struct work_weights weights;
    struct work work;
    struct price_machine machine;
    struct price price;
};
/* Fills room->weights for a case. They do not depend on constants. */
int predict_open(const struct table_case *c, struct predict_room *room, struct err *err);
/* Predicts with v, the values of constants_resolve(). With `replay` the pipeline's schedule is
 * replayed, else the lower bound of price_step() is taken. `room` was filled by predict_open. */
int predict_case(const struct table_case *c, const double v[CONSTANTS], bool replay,
                 struct predict_room *room, struct predicted *out, struct err *err);
/* Predicts the case with this layout. */
int predict_layout(const struct table_case *c, const struct layout *l, const double v[CONSTANTS],
                   bool replay, struct predict_room *room, struct predicted *out, struct err *err);

#endif
