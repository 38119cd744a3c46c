/* gemm_pin: which table of algorithms the products of a run on GPUs keep to (REEL_GEMM_TABLE,
 * trainer/cuda/gemm_table.h).
 *
 * Another algorithm gives other last bits, so the choice is the run's and not an attempt's: the
 * first attempt on GPUs leaves the table that it was given in the run's folder, as gemm.table, and
 * later ones use that. A file without content says that there was none.
 *
 *     gemm_pin_find(world, run_dir, &pin, err);
 *     ... operations are opened with the table pin.path
 *     gemm_pin_keep(&pin, err);   // so that no damaged table stays
 *     gemm_pin_release(&pin);
 */
#ifndef TRAINER_RUN_GEMM_PIN_H
#define TRAINER_RUN_GEMM_PIN_H

#include <stdbool.h>

#include "base/limits.h"
#include "base/str.h"
#include "trainer/comm/comm.h"

struct gemm_pin {
    char path[LIMIT_PATH_BYTES]; /* of the table; "": none */
    char kept[LIMIT_PATH_BYTES]; /* of the run's own */
    bool missing;                /* on rank 0: the run has none yet, */
    struct str text;             /* and gets this */
};

/* Finds the table on rank 0 and tells all ranks; collective. It warns of a table that is given and
 * not used. */
int gemm_pin_find(struct comm *world, const char *run_dir, struct gemm_pin *out, struct err *err);
/* Leaves the table in the run's folder, on rank 0 where it is missing. */
int gemm_pin_keep(struct gemm_pin *pin, struct err *err);
void gemm_pin_release(struct gemm_pin *pin); /* is safe on a zeroed struct */

#endif
