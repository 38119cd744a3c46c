/* train_priv: declares what the sources train*.c share. */
#ifndef TRAINER_RUN_TRAIN_PRIV_H
#define TRAINER_RUN_TRAIN_PRIV_H

#include "trainer/ckpt/ckpt.h"
#include "trainer/ckpt/ckpt_async.h"
#include "trainer/data/loader.h"
#include "trainer/ops/compute.h"
#include "trainer/ops/graphs.h"
#include "trainer/run/attn_pin.h"
#include "trainer/run/cadence.h"
#include "trainer/run/gemm_pin.h"
#include "trainer/run/pipe.h"
#include "trainer/run/record.h"
#include "trainer/run/train.h"
#include "trainer/run/validate.h"
#include "trainer/watch/meter.h"
#include "trainer/watch/trace.h"

/* A leg consists of consecutive stages under one layout. train_open makes it and train_close ends
 * it. */
struct leg {
    int64_t first_stage, end_stage;
    const struct plan *plan; /* of its first stage */
    const struct layout *layout;
    struct comm_grid grid;
    struct param_list params;
    struct shards sh;
    struct compute compute;
    struct optim optim;
    struct units units;
    struct dit *dit;
    struct pipe pipe;
    struct scan scan; /* for a step that is computed a second time */
    struct graphs *graphs; /* NULL: none */
    bool graphs_told;      /* the log has said why the device makes no graphs */
    struct loader *loaders[LIMIT_STAGES];
    struct validate validate;
    /* These say, for each stage's data and then the validation's, whether shards are compared with
     * their checksums and, on rank 0, the hash of the index (zero for synthetic data and if it is
     * not known). */
    bool verify[LIMIT_STAGES + 1];
    struct hash128 fingerprints[LIMIT_STAGES + 1];
    struct ckpt_async async;
    bool space_back;               /* rank 0 sees room for the save that is owed */
    bool all_written;              /* all ranks have written their files of the save under way */
    double async_wall, async_mono; /* when that save was begun */
    /* These are the most packs of a step, and the most micro-batches of a replica, over the leg's
     * stages. */
    int64_t most_gbs, most_micros;
    struct buffer_list memory;
    struct buffer_stage stages[BUFFER_STAGES]; /* the part of it in which messages are staged */
    int64_t process_bytes; /* resident before the memory plan was allocated, and likely growth */
    int64_t shared_bytes;  /* the part of that in MPI's shared memory */
};

/* Holds an attempt, and its current leg. */
struct train {
    const struct train_conf *conf;
    const struct run *run;
    struct record record;
    /* It has rank 0's lease on the run's folder; a trial has none. */
    struct ckpt_writer writer;
    int64_t next_step, skips;
    int64_t step_syncs; /* the most stream syncs in a step */
    int64_t end_step; /* where the attempt ends; -1: not known yet */
    struct spike_history spikes; /* with adamw.spike_z: the last steps of this stage */
    struct cadence cadence;      /* with checkpoint.every_steps 0 */
    bool save_owed;              /* the disk had no room for the last save that was due */
    struct ckpt_room room;       /* as found before the last save */
    bool owed;                   /* a due validation was given up, or not begun */
    struct { double tokens, flops, seconds; } line; /* sums since the last line was printed */
    double *times;               /* step_s of this attempt, up to TRAIN_TIMES_MAX */
    int64_t n_times;
    struct train_phases phases; /* sums */
    double tokens, flops;       /* over the same steps */
    struct hash128 config_hash;
    struct gemm_pin gemm; /* on GPUs: the algorithms of this run's matrix products */
    struct attn_pin attn; /* on GPUs: the engine that computes its attention */
    struct meter meter;
    struct trace_clock trace_clock;
    /* With profile, these are seconds by kind: sums over the counted steps; those of the current
     * step; and CPU time, summed over the counted steps. */
    double kinds_s[METER_KINDS], step_kinds_s[METER_KINDS], kinds_cpu_s[METER_KINDS];
    double *named;     /* with profile, beside `times`: the share of a step that kinds cover */
    double peak_flops; /* of the world, by the plan of the last leg; 0: not known */
    struct leg leg;
};

/* ---- train.c ---- */
bool train_is_replaced(const struct train *t);

/* ---- train_open.c: ranks agree on their own failures before the next collective call ---- */
/* Checks the plans of all stages, before the first stage begins. */
int train_plans_check(struct train *t, struct err *err);
/* Compares the memory plans of all legs after that of next_step with the device's memory and with
 * the limits, so that none is refused when earlier ones are done. No leg may be open. The call is
 * collective. */
int train_memory_check(struct train *t, struct err *err);
/* Opens the leg of `step`. */
int train_open(struct train *t, int64_t step, struct err *err);
void train_close(struct train *t);
/* Prints a line by conf->say, on rank 0. */
void train_say(const struct train *t, const char *line);
int64_t train_resident_peak_bytes(void);
/* Returns how much MPI's shared memory has grown since process_bytes was measured. */
int64_t train_mpi_bytes(const struct train *t);
/* Tells whether the ranks' devices exchange data among themselves. */
static inline bool train_exchanges(const struct train *t)
{
    return t->conf->coll && t->conf->world->size > 1;
}
static inline void train_phase_set(const struct train *t, const char *phase)
{
    if (t->conf->phase)
        *t->conf->phase = phase;
}

/* ---- train_attn.c ---- */
/* Announces the attention calls of the current leg, from a step on, to a device that plans them. */
int train_attn_plan(struct train *t, int64_t step, const struct dit_config *c, struct err *err);

/* ---- train_step.c: collective ---- */
/* Runs a step and describes it in *s. *stop becomes true if a rank was asked to stop. */
int train_step_run(struct train *t, int64_t step, bool *stop, struct record_step *s,
                   struct err *err);
/* Calls `tell` with the shapes of this replica's micro-batches of a step; reads no payloads. */
int train_step_shapes(struct train *t, int64_t step, batch_shapes_fn *tell, void *ctx,
                      struct err *err);
/* Fails with ERR_DIVERGED, after a save, if too many steps in a row were not finite. */
int train_health_check(struct train *t, const struct record_step *s, struct err *err);

/* ---- train_report.c ---- */
/* Prints a line about steps if one is due, or if this is the first or last step (edge). */
void train_step_line(struct train *t, const struct record_step *s, bool edge);
/* Adds a step to the sums from which train_means_report computes means and medians. */
void train_phases_add(struct train *t, const struct record_step *s);
void train_means_report(const struct train *t, struct train_report *out);
/* Reports the last step and the memory; collective, at the end of a leg. */
int train_report_make(struct train *t, const struct record_step *last, struct train_report *out,
                      struct err *err);

/* ---- train_state.c: collective ---- */
/* Loads the newest checkpoint, or makes the first weights; sets next_step. */
int train_state_load(struct train *t, struct err *err);
/* Saves a checkpoint before it returns. */
int train_state_save(struct train *t, struct err *err);
/* Begins to save in the background. */
int train_save_begin(struct train *t, struct err *err);
/* Publishes the save under way. A full disk is no failure: the save is owed then. */
int train_save_finish(struct train *t, struct err *err);
/* Prints that a save is put off; returns 0. A disk without room does not end the training: the save
 * is tried again when there is room, or when the next one is due. */
int train_save_put_off(const struct train *t, const struct err *why);
/* Says whether there is room now for a save that was put off, as this rank sees it. It is not
 * collective. */
bool train_space_back(const struct train *t);
/* Prints how often checkpoints are saved, and records it. It is not collective. */
void train_cadence_tell(struct train *t);

/* ---- train_nonfinite.c: collective ---- */
/* Finds the rank that first met a gradient that is not finite, and in which layer. First means in
 * the order of backward, which goes down from stage to stage. */
int train_nonfinite_find(struct train *t, struct record_step *s, struct err *err);
/* Finds, over all ranks, the operation whose result was the first that is not finite. An operation
 * that read only finite numbers comes before others; then forward comes before backward; then the
 * order of layers and of calls decides. Ranks that share a layer make the same calls. */
int train_found_find(const struct train *t, struct scan_found found, struct record_step *s,
                     struct err *err);

/* ---- train_verify.c ---- */
/* Decides which data is compared with its checksums before the leg; collective. */
int train_verify_decide(struct train *t, struct err *err);
/* Notes that all ranks have compared that data. */
void train_verify_note(struct train *t);

/* ---- train_profile.c ---- */
/* Returns what profiling adds to the memory plan. */
int64_t train_profile_bytes(const struct train *t);
/* Prepares an attempt; collective. */
int train_profile_open(struct train *t, struct err *err);
/* Makes the device and operations of a leg be measured. */
int train_profile_attach(struct train *t, struct err *err);
void train_profile_close(struct train *t);
void train_profile_step_begin(struct train *t);
/* Ends a step's measurement, before its time is kept in `times`. */
void train_profile_step_end(struct train *t, struct record_step *s);
/* Prints the table and writes the trace; collective, after the last leg. */
int train_profile_end(struct train *t, const struct train_report *r, struct err *err);

/* ---- train_activity.c ---- */
/* Records two more steps of a trial, after the others, if a GPU computes; collective. If they
 * cannot be recorded, out->activity_refused says why. */
int train_activity_run(struct train *t, struct train_report *out, struct err *err);

/* ---- train_classes.c ---- */
/* Measures one to five more steps of a trial, after the others, if CPUs compute; collective. It
 * does nothing if steps are measured anyway (--profile). */
int train_classes_run(struct train *t, struct train_report *out, struct err *err);

#endif
