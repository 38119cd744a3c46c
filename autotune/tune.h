/* tune: one search from beginning to end: probe, predict, measure, learn, choose; everything in the tune's event log.
 *
 * A tune's folder is <home>/tunes/<id>; its id is the hash of what the answer depends on (model, extent, gbs, dtype, host or cluster, memory,
 * ranks, trial steps, BLAS, the trainer's binary, the dataset's fingerprint), so that the same question asked again finds its trials and measures only what is
 * missing. `fresh` takes a random id. A prediction is durable in the log before its trial starts.
 *
 * Events: tune_started, trial_predicted, trial_started, trial_ended, tune_ended (fields: the contract in db/ingest.c).
 */
#ifndef AUTOTUNE_TUNE_H
#define AUTOTUNE_TUNE_H

#include <signal.h>

#include "autotune/probe.h"
#include "profiles/space.h"
#include "autotune/trial.h"
#include "base/evlog.h"
#include "base/id.h"
#include "base/lease.h"

struct tune_conf {
    const char *home, *bin_dir; /* borrowed */
    const struct run *run;      /* its first stage is tuned; data paths absolute */
    struct seq seq;             /* tokens of a sample */
    const int64_t *ranks;
    size_t n_ranks;
    const struct layout *layout; /* the only one that is measured, with as many ranks as ranks[0]; NULL: all are looked at */
    int64_t max_trials, trial_steps, repeats, cores;
    double margin, budget_s;    /* budget_s 0: none */
    int64_t memory_bytes;       /* of the machine, for all ranks; 0: unknown */
    const char *blas;
    const char *where;          /* whose measurements these are: host, or cluster */
    bool fresh;                 /* take over no earlier trials, but those of a search with the same salt */
    char salt[ID_TEXT_BYTES];   /* "": a random one */
    const volatile sig_atomic_t *stop; /* asked to stop: tune_search ends the present trial and is ERR_TEMP */
    struct sched *sched;
    void (*say)(void *ctx, const char *line); /* progress, a line a trial; may be NULL */
    void *say_ctx;
};
struct tune {
    struct tune_conf conf;
    char id[40], dir[LIMIT_PATH_BYTES];
    struct space space;
    struct search_item *items;
    struct search search;
    struct device device;   /* peak of one core */
    struct cost_rates rates;
    struct cost_spec cost;
    struct evlog *log;
    struct lease *lease; /* on the folder, as long as the log is open */
    double started_mono;
    char (*trial_ids)[40];  /* of each item, the one whose measurement stands; "" before */
    char trial[40];         /* the present one */
    int64_t reused;
    size_t n_fit;           /* layouts that may fit the memory, by plan */
};
/* Probe and predict, start nothing: what --dry-run shows. ERR_NO before the probe when no layout fits the memory. tune_release in any case. */
int tune_open(struct tune *t, const struct tune_conf *conf, struct err *err);
/* Measure until the search stops. ERR_NO when no trial came to its end. */
int tune_search(struct tune *t, struct plan *winner, struct err *err);
/* The plan of item i as predicted now. */
void tune_plan(const struct tune *t, int64_t i, struct plan *out);
void tune_release(struct tune *t);

#endif
