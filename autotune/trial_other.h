/* trial_other: a trial of somebody else's trainer: its command line, and what its log says.
 *
 * The command is the user's, and starts the ranks itself; the adapter's words stand behind it. In
 * its own words {ranks} is their number, {nodes} that of the nodes that they take, and
 * {ranks_per_node} how many stand on one. Its log is read while it goes on: lines of steps
 * are its signs of life, and their times are measured; the first step is not counted. Where a
 * recorder of GPUs is given (libreel-cupti.so), two more steps run behind the measured ones, and
 * the file `record` stands in the trial's folder while they do, which is what the recorder waits
 * for. Otherwise the trainer's own timers tell what its steps are made of, where it prints them.
 *
 *     other_log_new(&other, plan, steps, dir, &log, err);
 *     while it runs: other_log_look(log, now);
 *     other_log_judge(log, &result);                 // of one that failed
 *     other_log_report(log, early, &result);         // of one that did not
 *     other_log_free(log);
 */
#ifndef AUTOTUNE_TRIAL_OTHER_H
#define AUTOTUNE_TRIAL_OTHER_H

#include "autotune/trial.h"
#include "launcher/start/command.h"
#include "profiles/adapter.h"

struct trial_other {
    const struct adapter *adapter; /* borrowed, as all pointers here */
    const char *const *argv;       /* the user's command, NULL-ended */
    const struct model *model;
    int64_t node_ranks;             /* how many a node of the cluster has */
    double model_flops, peak_flops; /* of a step, and of a rank's device; 0: unknown */
    /* With what backward computes again. 0: unknown, as what selective recomputation repeats is
     * each trainer's own choice. */
    double hardware_flops;
    char recorder[LIMIT_PATH_BYTES]; /* path of libreel-cupti.so; "": none */
};
/* Completes a trainer, of which adapter and command are known, and has a trial run it by `sched`,
 * which starts the command as it is. */
int other_trial(struct trial_other *o, const struct model *m, const struct plan *plan,
                struct sched *sched, struct trial_conf *conf, struct err *err);
/* Makes the command of a trial and its environment, which is ours. */
int other_command(const struct trial_conf *c, const struct plan *plan, struct arena *arena,
                  struct command *out, struct err *err);
/* Hashes what decides a trial beside its layout: the adapter, the command, and those files that the
 * command's words name and that may be programs. */
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
/* Names the node that the log says was lost; "" none. */
const char *other_log_node(const struct other_log *l);
/* Says whether each of the counted steps, two or more, was slower. */
bool other_log_slower(const struct other_log *l, double than_s);
/* Says why a trial failed, where the log says it better than its end. */
void other_log_judge(const struct other_log *l, struct trial_result *r);
/* Fills what was measured. A trial that was not ended early has failed, whatever it exits with,
 * where its log tells fewer steps than were asked for, and where they took no time. */
void other_log_report(const struct other_log *l, bool early, struct trial_result *r);

#endif
