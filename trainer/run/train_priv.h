/* train_priv: what setting up (train_open.c) and running (train.c) share. */
#ifndef TRAINER_RUN_TRAIN_PRIV_H
#define TRAINER_RUN_TRAIN_PRIV_H

#include "trainer/ckpt/ckpt.h"
#include "trainer/ckpt/ckpt_async.h"
#include "trainer/data/loader.h"
#include "trainer/run/cadence.h"
#include "trainer/run/pipe.h"
#include "trainer/run/record.h"
#include "trainer/run/train.h"
#include "trainer/run/validate.h"
#include "trainer/watch/meter.h"
#include "trainer/watch/trace.h"

/* What train_open makes and train_close ends: the stages that follow one another under one layout. */
struct leg {
    int64_t first_stage, end_stage;
    const struct plan *plan; /* of its first stage */
    const struct layout *layout;
    struct comm_grid grid;
    struct param_list params;
    struct shards sh;
    struct dev *dev;
    struct dev_stream *stream;
    struct ops *ops;
    struct optim optim;
    struct units units;
    struct dit *dit;
    struct pipe pipe;
    struct loader *loaders[LIMIT_STAGES];
    struct validate validate;
    /* Of each stage's data, and behind them of the validation's: whether shards are compared with
     * their checksums, and on rank 0 the hash of the index. It is zero for synthetic data and where
     * it is not known. */
    bool verify[LIMIT_STAGES + 1];
    struct hash128 fingerprints[LIMIT_STAGES + 1];
    struct ckpt_async async;
    bool space_back;  /* rank 0 sees room for the save that is owed */
    bool all_written; /* every rank's file of the one under way */
    double async_wall, async_mono; /* when the one under way was begun */
    int64_t most_gbs, most_micros; /* packs of a step, a replica's micro-batches, over its stages */
    struct buffer_list memory;
    int64_t process_bytes; /* resident before any of the memory plan was taken, and some growth */
    int64_t shared_bytes;  /* of what was resident then, in MPI's shared memory */
};

/* An attempt, and the leg that it is on. */
struct train {
    const struct train_conf *conf;
    const struct run *run;
    struct record record;
    struct ckpt_writer writer; /* with rank 0's lease on the run's folder; without one for a trial */
    int64_t next_step, skips;
    int64_t end_step; /* the attempt goes no further; -1: not known yet */
    struct spike_history spikes; /* with adamw.spike_z; of this stage's last steps */
    struct cadence cadence;      /* with checkpoint.every_steps 0 */
    bool save_owed;        /* the disk had no room for the last save that was due */
    struct ckpt_room room; /* found before the last save */
    bool owed;             /* a validation that is due was given up, or not begun */
    struct { double at_s, tokens, flops, seconds; } line; /* the last one said of a step: when; since then */
    double *times;         /* step_s of this attempt, up to TRAIN_TIMES_MAX */
    int64_t n_times;
    struct train_phases phases; /* sums */
    double tokens, flops;       /* over the same steps */
    struct hash128 config_hash;
    struct meter meter;
    struct trace_clock trace_clock;
    /* With profile, seconds by kind: sums over the counted steps, and those of the step at hand. */
    double kinds_s[METER_KINDS], step_kinds_s[METER_KINDS];
    double *named;     /* with profile, beside times: the share of the step that has a name */
    double peak_flops; /* of the world, by the plan of the last leg; 0 unknown */
    struct leg leg;
};

/* train_open.c. Each rank's own failures are agreed on before the next collective call. */
int train_plans_check(struct train *t, struct err *err); /* of all stages, before the first */
int train_open(struct train *t, int64_t step, struct err *err); /* the leg that step lies in */
void train_close(struct train *t);
void train_say(const struct train *t, const char *line); /* rank 0 */
int64_t train_resident_peak_bytes(void);
/* Returns what MPI's shared memory has grown by since process_bytes were measured. */
int64_t train_segments_bytes(const struct train *t);
static inline void train_phase_set(const struct train *t, const char *phase)
{
    if (t->conf->phase)
        *t->conf->phase = phase;
}
/* train_state.c. Collective. */
int train_state_load(struct train *t, struct err *err); /* the newest checkpoint, or first weights; sets next_step */
int train_state_save(struct train *t, struct err *err); /* now */
int train_save_begin(struct train *t, struct err *err); /* in the background */
int train_save_finish(struct train *t, struct err *err); /* the one under way is published; want of space is no failure, the save is owed */
/* A disk without room ends no training that goes on: the save is tried again when there is room, or the next one is due. Returns 0. */
int train_save_put_off(const struct train *t, const struct err *why);
bool train_space_back(const struct train *t); /* has a save that is owed room now? This rank's own look */
void train_cadence_tell(struct train *t);          /* not collective */
/* train_nonfinite.c. Collective. */
/* Finds whose gradients were not finite, and where: of all ranks the one that met that first in backward's order,
 * as it goes down to the stages below. */
int train_nonfinite_find(const struct train *t, struct record_step *s, struct err *err);
/* Finds by which operation the first such number came: one that read finite numbers before one that did not,
 * forward before backward, then the first place, and the first call there. Ranks that share a layer make the same
 * calls. */
int train_found_find(const struct train *t, struct scan_found found, struct record_step *s, struct err *err);
/* train_verify.c */
int train_verify_decide(struct train *t, struct err *err); /* collective: what is to be compared before the leg */
void train_verify_note(struct train *t);                   /* it was, by all ranks */
/* train_profile.c */
int64_t train_profile_bytes(const struct train *t); /* for the memory plan */
int train_profile_open(struct train *t, struct err *err); /* of the attempt; collective */
void train_profile_attach(struct train *t);              /* of a leg: its device and operations are measured */
void train_profile_close(struct train *t);
void train_profile_step_begin(struct train *t);
void train_profile_step_end(struct train *t, struct record_step *s); /* before the step's time is kept in `times` */
int train_profile_end(struct train *t, const struct train_report *r, struct err *err); /* the table, the trace; collective, after the last leg */

#endif
