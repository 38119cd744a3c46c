/* gemm_pin: fixes the table of algorithms for the matrix products of a run on GPUs
 * (REEL_GEMM_TABLE, trainer/cuda/gemm_table.h).
 *
 * Another algorithm gives results with other last bits, so the choice belongs to the run and not to
 * an attempt: the first attempt on GPUs writes the table that it was given into the run's folder,
 * as gemm.table, and later attempts use that. An empty file says that there was no table.
 *
 *     gemm_pin_find(world, run_dir, &pin, err);
 *     ... open the operations with the table pin.path
 *     gemm_pin_keep(&pin, err);   // only then, so that no damaged table is kept
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
    char kept[LIMIT_PATH_BYTES]; /* of the table in the run's folder */
    bool missing;                /* on rank 0: the run's folder has no table yet */
    struct str text;             /* what gemm_pin_keep will then write */
};

/* Finds the table on rank 0 and sends its path to all ranks, all of which call it. It warns if a
 * table is given and not used. */
int gemm_pin_find(struct comm *world, const char *run_dir, struct gemm_pin *out, struct err *err);
/* Writes the table into the run's folder, on rank 0, if it is missing there. */
int gemm_pin_keep(struct gemm_pin *pin, struct err *err);
void gemm_pin_release(struct gemm_pin *pin); /* is safe on a zeroed struct */

#endif
