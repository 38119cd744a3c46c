/* record: writes the trainer's events into the run's event log, on rank 0. Other ranks may call the
 * functions that write an event, which then do nothing.
 *
 * base/events.def lists events and fields. A step's event is written after the step; a failed write
 * is logged, and training goes on.
 */
#ifndef TRAINER_RUN_RECORD_H
#define TRAINER_RUN_RECORD_H

#include <time.h>

#include "base/events.h"
#include "profiles/plan.h"
#include "profiles/run.h"
#include "trainer/ckpt/ckpt.h"
#include "trainer/ckpt/warm_start.h"
#include "trainer/run/cadence.h"
#include "trainer/watch/scan.h"

struct record {
    struct evlog *log; /* NULL: nothing is recorded */
    bool owes;         /* the disk is full, and events wait in memory for room */
};

struct record_step {
#define RECORD_MEMBER_PLAIN(field, type) EVENT_C_##type field;
#define RECORD_MEMBER_CASE(field, type)
#define STEP(field, type, since, by, shown, text) RECORD_MEMBER_##by(field, type)
#include "base/events.def"
    bool nonfinite;  /* why it was skipped: a gradient was not finite; false: a spike (spike.h) */
    bool loss_spike; /* the spike was one of the loss; false: of the norm */
    /* A gradient was not finite, so the step was computed twice. If `nonfinite` is false, it was
     * finite the second time. */
    bool again;
    /* bad_rank is the rank whose gradients were, in the order of backward, the first that were not
     * finite (of several ranks the lowest); -1: they became so in a sum over ranks. bad_layer is
     * the layer where that was found: 0.. or PARAM_LAYER_*. */
    int64_t bad_rank, bad_layer;
    /* found is the operation that made the step's second computation not finite; found_rank is the
     * rank where it did so; -1: no operation did. */
    struct scan_found found;
    int64_t found_rank;
    const double *kinds_s; /* [METER_KINDS] seconds by kind; NULL: not measured */
};

/* Opens <run_dir>/events/<writer>.a<attempt>.evlog; makes the folder. *out is new. */
int record_log_open(const char *run_dir, int64_t attempt, const char *writer, struct evlog **out,
                    struct err *err);
/* Opens <run_dir>/events/rank0.a<attempt>.evlog; makes the folder. The run's id is the folder's
 * name. */
int record_open(struct record *r, const char *run_dir, int64_t attempt, struct err *err);
void record_close(struct record *r);
void record_started(struct record *r, const struct run *run, const struct plan *plan,
                    int64_t next_step, double peak_flops);
void record_step(struct record *r, const struct record_step *s);
enum { RECORD_PLACE_BYTES = 128 };
/* Returns the place of the first gradient that was not finite, in `text` or as a literal: "layer 3
 * on rank 0". */
const char *record_nonfinite(const struct record_step *s, char text[RECORD_PLACE_BYTES]);
/* Returns which operation first met a number that was not finite: "made by gemm of layer 3 on rank
 * 0, in forward". */
const char *record_found(const struct record_step *s, char text[RECORD_PLACE_BYTES]);
void record_ckpt(struct record *r, const char *kind, int64_t step, const char *dir, int64_t bytes,
                 double started_at, double seconds);
/* Records a validation. bins hold the loss by noise level, of the weights and of their average
 * (NULL: none). */
void record_validation(struct record *r, int64_t step, const struct run_validation *v,
                       const double *bins, const double *average, double started_at,
                       double seconds);
void record_verified(struct record *r, const char *data, struct hash128 fingerprint);
void record_cadence(struct record *r, int64_t step, const struct cadence *c);
void record_warm(struct record *r, const char *from, const struct warm_count *c);
void record_space_low(struct record *r, int64_t step, const struct ckpt_room *room);
void record_damaged(struct record *r, const char *dir, const char *reason);
/* Records that the attempt ends, because it does not resume from the checkpoints that exist or
 * existed. */
void record_refused(struct record *r, const char *reason);
/* Finds the number of steps in the newest checkpoint that any attempt recorded as saved; 0: none.
 * ERR_IO, ERR_NOMEM. */
int record_saved_step(const char *run_dir, int64_t *step, struct err *err);
/* Finds whether any attempt wrote an event of this kind and step. Events of a kind without steps
 * count as those of step 0. */
int record_has(const char *run_dir, const char *kind, int64_t step, bool *found, struct err *err);
/* Records that the ranks have agreed to save and stop. signo and heard are those of this rank's own
 * notice; they are 0 and NULL if it had none. */
void record_stop_seen(struct record *r, int signo, const volatile struct timespec *heard);
/* Records the end of the attempt. detail is the sentence of an error, else "". */
void record_ended(struct record *r, int64_t next_step, const char *reason, const char *detail);
/* Records only the end, with this sentence, of an attempt that was refused before its log was made.
 * It does so if the run's folder holds events, that is, if the run was launched. */
void record_rejected(const char *run_dir, int64_t attempt, const char *detail);

#endif
