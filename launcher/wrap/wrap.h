/* wrap: another project's trainer, which is kept alive like ours: its settings, <run_dir>/wrap.json
 * (schema reel.wrap/1).
 *
 * The agent starts its command as it is, and only adds REEL_TRAINER (launcher/run/ranks.h),
 * REEL_RUN_DIR, REEL_RUN_ID and REEL_ATTEMPT to its environment. It copies what the command prints
 * to the job's own output, and passes notices on as the signal that the command wants. The first of
 * these lines that holds says how it ended:
 *     a done file is named                 done if it is there, whatever the exit status
 *     exit 0, and --steps are reached      done, though it may have been asked to stop: by what it
 *                                          printed, or its newest checkpoint
 *     exit 0 and it was asked to stop, at  interrupted: it has saved. The batch process, the steps
 *     whatever level, or nobody can say    (by the node agents) and the job's state at the
 *                                          scheduler are all asked
 *     exit 0, clearly short of --steps     early_exit, which counts like a crash
 *     exit 0                               done
 *     exit 75 (EX_TEMPFAIL of sysexits.h)  it was told to stop, though we did not hear it, and has
 *                                          saved
 *     anything else                        as with our own trainer: by the notice, the lost node,
 *                                          the silence, the full disk (space.h), or a crash
 * It makes progress when its step pattern finds higher numbers in what it prints, or when there is
 * something new in its checkpoint folder. Without either no attempt counts as progress, and three
 * crashes in all (by default) end the run. */
#ifndef LAUNCHER_WRAP_WRAP_H
#define LAUNCHER_WRAP_WRAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/limits.h"
#include "profiles/run.h"

enum { WRAP_AGAIN = 75 };

struct wrap {
    char name[LIMIT_NAME_BYTES];
    const char *const *argv;  /* NULL-ended */
    const char *cwd;
    int64_t notice;           /* the signal that asks it to save and stop; 0: it is not told */
    const char *step_pattern; /* how it prints its steps, see step_lines.h: a pattern, */
    const char *format;       /* or a format known by name; NULL: none */
    const char *saves;        /* its checkpoint folder; NULL: not known */
    const char *done_file;    /* NULL: none */
    int64_t total_steps;      /* 0: not known */
    bool node_agents;
    struct run_budget budget;
    /* the FLOPs and the peak for MFU (wrap_rate.h); 0 and NULL if not known */
    const char *model, *device, *flops_formula, *peak_source;
    const char *no_mfu;       /* why there is no MFU; NULL: there is */
    int64_t gpus;
    double flops_per_step, tokens_per_step; /* of the global batch, forward and backward */
    double peak_flops;        /* dense, of all devices together */
    struct arena arena;       /* owns the texts */
};

/* Fills in the defaults; the arena is initialised. */
void wrap_init(struct wrap *w);
void wrap_release(struct wrap *w); /* safe on a zeroed struct */
bool wrap_is(const char *run_dir); /* Is this run a wrapped one? */
int wrap_load(const char *run_dir, struct wrap *out, struct err *err);
int wrap_save(const struct wrap *w, const char *run_dir, struct err *err); /* atomic */

/* Returns the modification time of the newest entry of its checkpoint folder, UTC s; 0 when there
 * is none. */
double wrap_newest_save(const struct wrap *w);

/* Says how the checkpoint folder of --saves looks after the trainer's end. A trainer that ended in
 * order (it was done, or stopped because it was asked to) should have saved something. */
enum wrap_saves { WRAP_SAVES_GOOD, WRAP_SAVES_MISSING, WRAP_SAVES_EMPTY };
enum wrap_saves wrap_saves_look(const struct wrap *w, bool in_order);
/* Returns what to say of a folder that is not good, before its name. */
const char *wrap_saves_say(enum wrap_saves saves);

/* Returns the bytes on disk of the largest entry of its checkpoint folder, which another save
 * probably takes too. 0: there is none. */
int64_t wrap_save_bytes(const struct wrap *w);

/* Returns how many steps its newest checkpoint contains, as far as names show it:
 * latest_checkpointed_iteration.txt (Megatron) or latest (DeepSpeed) if there is one, else the
 * newest entry that is named by a step, iteration or checkpoint number ("iter_0000400", "step-400",
 * "checkpoint-400"). -1: no name shows it. */
int64_t wrap_saved_steps(const struct wrap *w);
/* Returns the number in such a name; -1 none. Pure. */
int64_t wrap_name_steps(const char *name);

#endif
