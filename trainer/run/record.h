/* record: what rank 0 writes into the run's event log. Other ranks call too and nothing happens. Events and
 * fields: base/events.def. A step's event is written after the step; a failed write is logged and training goes on. */
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
    bool owes;         /* the disk was full, and events wait in memory for room */
};

struct record_step {
#define RECORD_MEMBER_PLAIN(field, type) EVENT_C_##type field;
#define RECORD_MEMBER_CASE(field, type)
#define STEP(field, type, since, by, shown, text) RECORD_MEMBER_##by(field, type)
#include "base/events.def"
    bool nonfinite;              /* why it was skipped; else it was a spike (spike.h) */
    bool loss_spike;             /* a spike of the loss, or else of the norm */
    bool again;                  /* a gradient was not finite, so it was computed twice; if it is not the second time it was */
    int64_t bad_rank, bad_layer; /* whose own gradients were not finite first in backward's order, the lowest of several (-1:
                                  * a sum over ranks made them so), and where that was met: 0.. or PARAM_LAYER_* */
    struct scan_found found; /* of one that still is not, by which operation it came, */
    int64_t found_rank;      /* on which rank; -1: by none */
    const double *kinds_s; /* [METER_KINDS] seconds by kind; NULL: not measured */
};

/* Opens <run_dir>/events/<writer>.a<attempt>.evlog, making the folder. *out is new. */
int record_log_open(const char *run_dir, int64_t attempt, const char *writer, struct evlog **out, struct err *err);
/* Opens <run_dir>/events/rank0.a<attempt>.evlog, making the folder. The run's id is the folder's name. */
int record_open(struct record *r, const char *run_dir, int64_t attempt, struct err *err);
void record_close(struct record *r);
void record_started(struct record *r, const struct run *run, const struct plan *plan, int64_t next_step, double peak_flops);
void record_step(struct record *r, const struct record_step *s);
enum { RECORD_PLACE_BYTES = 128 };
const char *record_nonfinite(const struct record_step *s, char text[RECORD_PLACE_BYTES]); /* "layer 3 on rank 0"; text or a literal */
const char *record_found(const struct record_step *s, char text[RECORD_PLACE_BYTES]); /* "made by gemm of layer 3 on rank 0, in forward" */
void record_ckpt(struct record *r, const char *kind, int64_t step, const char *dir, int64_t bytes, double started_at, double seconds);
/* bins: loss by noise level of the weights, of their average (NULL: none). */
void record_validation(struct record *r, int64_t step, const struct run_validation *v, const double *bins, const double *average,
                       double started_at, double seconds);
void record_verified(struct record *r, const char *data, struct hash128 fingerprint);
void record_cadence(struct record *r, int64_t step, const struct cadence *c);
void record_warm(struct record *r, const char *from, const struct warm_count *c);
void record_space_low(struct record *r, int64_t step, const struct ckpt_room *room);
void record_damaged(struct record *r, const char *dir, const char *reason);
/* The checkpoints that there are, or were, are not gone on from: the attempt ends. */
void record_refused(struct record *r, const char *reason);
/* Steps in the newest checkpoint that any attempt says it has saved; 0: none. ERR_IO, ERR_NOMEM. */
int record_saved_step(const char *run_dir, int64_t *step, struct err *err);
/* Is there an event of this kind and step, of whatever attempt? A kind that has no steps is found as of step 0. */
int record_has(const char *run_dir, const char *kind, int64_t step, bool *found, struct err *err);
/* The ranks have agreed to save and stop. signo, heard: this rank's own notice, 0 and NULL when it had none. */
void record_stop_seen(struct record *r, int signo, const volatile struct timespec *heard);
void record_ended(struct record *r, int64_t next_step, const char *reason, const char *detail); /* detail: of an error, else "" */
/* An attempt of a run whose folder holds events (a launched one) is refused before its log was made: the end alone, with this sentence. */
void record_rejected(const char *run_dir, int64_t attempt, const char *detail);

#endif
