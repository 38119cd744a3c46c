/* tune: runs one search from beginning to end: probe, predict, measure, learn, choose. Everything
 * is recorded in the tune's event log.
 *
 * A tune's folder is <home>/tunes/<id>. Its id is the hash of what the answer depends on: model,
 * extent, gbs, dtype, host or cluster, memory, ranks, trial steps, BLAS, the trainer's binary
 * (another one's command, the programs that it names, and all that its adapter says), the dataset's
 * fingerprint. So the same question asked again finds its trials and measures only what is missing.
 * `fresh` takes a random id. A prediction is durable in the log before its trial starts.
 *
 * A search begins from what earlier ones learnt of the same host, stack and binary (learnt.h). A
 * node that a trial lost is left out of later trials. Where too few are left, tune_search returns
 * ERR_TEMP and t->short_of_nodes: in another allocation the same search goes on.
 *
 * The events are tune_started, trial_predicted, trial_started, trial_ended and tune_ended;
 * base/events.def lists their fields.
 */
#ifndef AUTOTUNE_TUNE_H
#define AUTOTUNE_TUNE_H

#include <signal.h>

#include "autotune/described.h"
#include "autotune/host_space.h"
#include "autotune/probe.h"
#include "profiles/space.h"
#include "autotune/trial.h"
#include "base/evlog.h"
#include "base/hash.h"
#include "base/id.h"
#include "base/lease.h"

enum { TUNE_RANKS = 16 }; /* so many numbers of ranks at most */
struct tune_conf {
    const char *home, *bin_dir; /* borrowed */
    const struct run *run;      /* its first stage is tuned; data paths absolute */
    struct seq seq;             /* tokens of a sample */
    const int64_t *ranks;
    size_t n_ranks;
    /* the only one that is measured, with as many ranks as ranks[0]; NULL: all are looked at */
    const struct layout *layout;
    const struct layout *baseline; /* is measured first; NULL: plain data parallelism */
    /* The machine that predictions are for, by described.h, and what trains on it; NULL: it is
     * probed. */
    const char *cluster, *stack;
    /* The trainer of trials, with its command, and a scheduler that starts it as it is; NULL: ours.
     * Needs a cluster; the stack is then the adapter's. */
    const struct adapter *adapter;
    const char *const *argv;
    struct sched *own_sched;
    bool gpu_hours;             /* the least time of all ranks together is looked for */
    int64_t scale_down;         /* with cluster: replicas of a trial, 0: its layout's */
    int64_t max_trials, trial_steps, repeats, cores;
    int64_t nodes;              /* of the allocation with the cores; 0: not known */
    double margin, budget_s;    /* budget_s 0: none */
    int64_t memory_bytes;       /* of the machine, for all ranks; 0: unknown */
    /* Silence that is taken for a hang, before a trial's first sign and after it; 0: tune.c's. */
    double start_s, quiet_s;
    const char *blas;
    const char *where;          /* whose measurements these are: a host's or a cluster's */
    /* takes over no earlier trials, except those of a search with the same salt */
    bool fresh;
    char salt[ID_TEXT_BYTES];   /* "": a random one */
    /* when set, tune_search ends the present trial and returns ERR_TEMP */
    const volatile sig_atomic_t *stop;
    struct sched *sched;
    /* reports progress, a line for each trial; may be NULL */
    void (*say)(void *ctx, const char *line);
    void *say_ctx;
};
struct tune {
    struct tune_conf conf;
    char id[40], dir[LIMIT_PATH_BYTES];
    struct space space;
    struct search_item *items;
    struct search search;
    struct hash128 program; /* of the trainer: ours, or another's with its adapter and command */
    char learns[HASH_TEXT_BYTES]; /* by which other tunings know that their trials teach this one */
    int64_t learnt;         /* measurements of those, from which it began */
    char lost[1024];        /* nodes that trials lost, "n1,n3": later ones leave them out */
    int64_t n_lost;
    bool short_of_nodes;    /* too few are left for the trial that comes next */
    struct device device;   /* peak of one core */
    struct evlog *log;
    struct lease *lease; /* held on the folder as long as the log is open */
    double started_mono;
    char (*trial_ids)[40];  /* for each item, the trial whose measurement stands; "" before */
    char trial[40];         /* the present trial */
    int64_t reused;
    /* layouts whose memory plan may fit, and the bytes of a rank of the one that takes the fewest:
     * of all that can run, or of a cluster's that are looked at */
    int64_t n_fit;
    double least_bytes;
    struct described *described;            /* of conf.cluster; else NULL */
    struct host_space *host;                /* the machine here as the probe found it; else NULL */
    struct target target;                   /* the one of these that there is */
    double (*trial_terms)[PRICE_TERMS];      /* with scale_down, for each item */
};
/* Probes, or reads the description of a cluster, and predicts, but starts nothing: it is what
 * --dry-run shows. ERR_NO before the probe when no layout fits the memory. Call tune_release in any
 * case. */
int tune_open(struct tune *t, const struct tune_conf *conf, struct err *err);
/* Measures until the search stops. ERR_NO when no trial came to its end. */
int tune_search(struct tune *t, struct plan *winner, struct err *err);
void tune_release(struct tune *t);

#endif
