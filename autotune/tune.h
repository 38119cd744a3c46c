/* tune: runs one tuning from beginning to end: probe, predict, measure, learn, choose. Everything
 * is recorded in the tuning's event log.
 *
 * A tuning's folder is <home>/tunes/<id>. Its id is the hash of the question: model, what of it is
 * trained and whether it is averaged, extent, gbs, data types, host or cluster (with the stack and
 * scale_down), cores, memory, ranks, the layout if only one is measured, trial steps, BLAS, the
 * trainer's binary (of another trainer: its command, the programs that it names, and its adapter),
 * and the dataset's path and fingerprint. So when the same question is asked again, its trials are
 * found, and only what is missing is measured. With `fresh`, a salt is hashed too, so that only
 * trials with the same salt are found. A prediction is durable in the log before its trial starts.
 *
 * A search begins from what earlier ones learnt with the same host, stack and binary (learnt.h). A
 * node that a trial lost is not used by later trials. If too few nodes are left, tune_search
 * returns ERR_TEMP and sets t->short_of_nodes: in another allocation the same search continues.
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

enum { TUNE_RANKS = 16 }; /* at most this many numbers of ranks */
struct tune_conf {
    const char *home, *bin_dir; /* borrowed */
    const struct run *run;      /* its first stage is tuned; data paths absolute */
    struct seq seq;             /* tokens of a sample */
    const int64_t *ranks;
    size_t n_ranks;
    /* The only layout to measure, with ranks[0] ranks; NULL: all are considered. */
    const struct layout *layout;
    const struct layout *baseline; /* measured first; NULL: plain data parallelism */
    /* The cluster that predictions are for and the stack that trains on it (described.h); NULL:
     * this machine is probed. */
    const char *cluster, *stack;
    /* The adapter of another trainer, its command, and a scheduler that starts the command as it
     * is; NULL: our trainer. Another trainer needs a cluster, and the adapter names the stack. */
    const struct adapter *adapter;
    const char *const *argv;
    struct sched *own_sched;
    bool gpu_hours;             /* minimise step time x ranks, not step time */
    int64_t scale_down;         /* with a cluster: replicas of a trial; 0: those of its layout */
    int64_t max_trials, trial_steps, repeats, cores;
    int64_t nodes;              /* of the allocation; 0: not known */
    double margin, budget_s;    /* budget_s 0: none */
    int64_t memory_bytes;       /* of the machine, for all ranks; 0: unknown */
    /* A silence of this many seconds counts as a hang, before a trial's first sign of life and
     * after it; 0: the defaults of tune.c. */
    double start_s, quiet_s;
    const char *blas;
    const char *where;          /* name of the host or cluster that is measured */
    /* No earlier trials are taken over, except those of a search with the same salt. */
    bool fresh;
    char salt[ID_TEXT_BYTES];   /* "": a random one */
    /* When it is set, tune_search ends the present trial and returns ERR_TEMP. */
    const volatile sig_atomic_t *stop;
    struct sched *sched;
    /* Receives progress, a line for each trial; may be NULL. */
    void (*say)(void *ctx, const char *line);
    void *say_ctx;
};
struct tune {
    struct tune_conf conf;
    char id[40], dir[LIMIT_PATH_BYTES];
    struct space space;
    struct search_item *items;
    struct search search;
    struct hash128 program; /* the trainer: our binary, or adapter and command */
    char learns[HASH_TEXT_BYTES]; /* key: tunings with the same key learn from each other */
    int64_t learnt;         /* measurements of other tunings from which it began */
    char lost[1024];        /* nodes that trials lost, "n1,n3"; later trials avoid them */
    int64_t n_lost;
    bool short_of_nodes;    /* too few nodes are left for the next trial */
    struct device device;   /* the device of a rank; on this machine, one core */
    struct evlog *log;
    struct lease *lease; /* held on the folder while the log is open */
    double started_mono;
    char (*trial_ids)[40];  /* for each item, the trial that gave its time; "": none */
    char trial[40];         /* the present trial */
    int64_t reused;
    /* Of n_looked layouts n_fit may fit the memory; the nearest to it takes nearest_bytes a rank.
     * On this machine those are looked at that recompute no more than they must, for a cluster its
     * candidates. */
    int64_t n_looked, n_fit;
    struct layout nearest;
    double nearest_bytes;
    struct described *described;            /* the cluster of conf.cluster; else NULL */
    struct host_space *host;                /* this machine as probed; else NULL */
    struct target target;                   /* the target of `described` or of `host` */
    struct price_bill *trial_bills;         /* with scale_down, for each item */
};
/* Probes the machine, or reads the description of a cluster, and predicts, but starts no trial:
 * --dry-run shows this. Returns ERR_NO, before it probes, if no layout fits the memory. Call
 * tune_release in any case. */
int tune_open(struct tune *t, const struct tune_conf *conf, struct err *err);
/* Measures until the search stops or budget_s have passed. Returns ERR_NO if no trial succeeded. */
int tune_search(struct tune *t, struct plan *winner, struct err *err);
void tune_release(struct tune *t);

#endif
