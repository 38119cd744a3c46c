/* trial_other: runs a trial of another trainer: makes its command line, and reads its log.
 *
 * The command is the user's, and starts the ranks itself. The adapter's arguments are appended to
 * it. In the user's arguments, {ranks} stands for the number of ranks, {nodes} for the number of
 * nodes that they take, and {ranks_per_node} for the ranks on one node. The log is read while it
 * grows: everything that it prints is a sign of life, and lines of steps give their times. The
 * first step is not counted. A line with a number that no run can have is not understood, and is
 * told with the trial's end. If a recorder of GPUs is there (libreel-cupti.so), two more steps run
 * after the measured ones. While they run, the file `record` exists in the trial's folder, for
 * which the recorder waits. Otherwise the trainer's own timers, if it prints them, give the parts
 * of a step.
 *
 *     other_log_new(&other, plan, steps, dir, &log, err);
 *     while it runs: other_log_look(log, now);
 *     other_log_judge(log, &result);                 // of a trial that failed
 *     other_log_report(log, early, &result);         // of a trial that did not
 *     other_log_free(log);
 */
#ifndef AUTOTUNE_TRIAL_OTHER_H
#define AUTOTUNE_TRIAL_OTHER_H

#include "autotune/trial.h"
#include "launcher/start/command.h"
#include "profiles/adapter.h"

struct trial_other {
    const struct adapter *adapter; /* borrowed, like all pointers here */
    const char *const *argv;       /* the user's command, NULL-ended */
    const struct model *model;
    int64_t node_ranks;             /* ranks of a node of the cluster */
    double model_flops, peak_flops; /* of a step, and of a rank's device; 0: unknown */
    int64_t memory_bytes;           /* of a rank's device; 0: unknown */
    /* FLOPs of a step with those of recomputation. 0: unknown, because each trainer chooses itself
     * what selective recomputation repeats. */
    double hardware_flops;
    char recorder[LIMIT_PATH_BYTES]; /* path of libreel-cupti.so; "": none */
};
/* Completes o, in which adapter and command are set, and prepares conf for a trial that runs this
 * command. `sched` must start a command as it is. */
int other_trial(struct trial_other *o, const struct model *m, const struct plan *plan,
                struct sched *sched, struct trial_conf *conf, struct err *err);
/* Makes the command of a trial and its environment: ours, changed by the adapter. */
int other_command(const struct trial_conf *c, const struct plan *plan, struct arena *arena,
                  struct command *out, struct err *err);
/* Returns the argument of the user's command that names one of these nodes ("n1,n3"), such as the
 * value of srun's -w; NULL: none does. */
const char *other_names_node(const char *const *argv, const char *nodes);
/* Hashes what decides a trial besides its layout: the adapter, the command, and those files named
 * in the command that may be programs. */
int other_hash(const struct adapter *a, const char *const *argv, struct hash128 *out,
               struct err *err);

struct other_log;
int other_log_new(const struct trial_other *o, const struct plan *plan, int64_t steps,
                  const char *dir, struct other_log **out, struct err *err);
void other_log_free(struct other_log *l); /* NULL is fine */
/* Reads what was added to the log. */
void other_log_look(struct other_log *l, double now);
int64_t other_log_bytes(const struct other_log *l);
int64_t other_log_steps(const struct other_log *l);
/* Returns the node that was lost according to the log; "": none. */
const char *other_log_node(const struct other_log *l);
/* Says whether two or more steps were counted and each was slower than than_s. */
bool other_log_slower(const struct other_log *l, double than_s);
/* Sets why a trial failed, where the log says more than how the command ended. */
void other_log_judge(const struct other_log *l, struct trial_result *r);
/* Fills in the measurements. A trial that was not ended early has failed, whatever its exit status,
 * if its log reports fewer steps than were asked for, steps that took no time, or steps so short
 * that twice the devices' peak could not do them. */
void other_log_report(const struct other_log *l, bool early, struct trial_result *r);

#endif
