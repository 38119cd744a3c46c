/* wrap: holds the settings of a wrapped command, another project's trainer that reel keeps alive,
 * and loads and saves them as <run_dir>/wrap.json (schema reel.wrap/1).
 *
 * The agent starts the command unchanged, and only adds REEL_TRAINER (launcher/run/ranks.h),
 * REEL_RUN_DIR, REEL_RUN_ID and REEL_ATTEMPT to its environment. It copies the command's output to
 * the job's output, and passes stop notices on as the signal in `notice`. The first matching line
 * says how the command ended:
 *     a done file is named                 done if the file exists, whatever the exit status; if it
 *                                          does not exist, the last line applies
 *     exit 0, and --steps are reached      done, even if it was asked to stop; its output or its
 *                                          newest checkpoint shows the number of steps
 *     exit 0 after a stop notice           interrupted: it has saved. The batch process, the steps
 *                                          (by the node agents) and the scheduler are asked whether
 *                                          there was a notice; if none can answer, a notice is
 *                                          assumed
 *     exit 0, clearly short of --steps     early_exit, which counts like a crash
 *     exit 0                               done
 *     exit 75 (EX_TEMPFAIL of sysexits.h)  interrupted: it was asked to stop in a way that the
 *                                          agent did not see, and has saved
 *     anything else                        the cause is found as for reel-train: a stop notice, a
 *                                          lost node, a hang, a full disk (space.h), or a crash
 * The command makes progress when its step pattern finds higher numbers in its output, or when its
 * checkpoint folder has a new entry. If neither is known, no attempt counts as progress, and three
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
    const char *const *argv;  /* NULL-terminated; without its secrets if it was loaded */
    const char *cwd;
    int64_t notice;           /* signal that asks it to save and stop; 0: it gets none */
    const char *step_pattern; /* how it prints its steps: a pattern, see step_lines.h, */
    const char *format;       /* or the name of a known format; NULL: none */
    const char *saves;        /* its checkpoint folder; NULL: unknown */
    const char *done_file;    /* NULL: none */
    int64_t total_steps;      /* 0: unknown */
    bool node_agents;
    struct run_budget budget;
    /* FLOPs and peak for MFU (wrap_rate.h); 0 and NULL if unknown */
    const char *model, *device, *flops_formula, *peak_source;
    const char *no_mfu;       /* why MFU is not computed; NULL: it is */
    int64_t gpus;
    double flops_per_step, tokens_per_step; /* of the global batch, forward and backward */
    double peak_flops;        /* dense, of all devices together */
    struct arena arena;       /* owns the texts */
};

/* Fills in the defaults; the arena is initialised. */
void wrap_init(struct wrap *w);
void wrap_release(struct wrap *w); /* safe on a zeroed struct */
bool wrap_is(const char *run_dir); /* tells whether this run is a wrapped one */
int wrap_load(const char *run_dir, struct wrap *out, struct err *err);
/* Writes the file, atomically. What may be a secret in the command (base/secret.h) is not in it:
 * whoever runs the command has it from its own arguments (agent_conf). */
int wrap_save(const struct wrap *w, const char *run_dir, struct err *err);
/* Checks that the command, as it was loaded, lacks nothing. */
int wrap_command_check(const struct wrap *w, struct err *err);

/* Returns the modification time of the newest entry of the checkpoint folder, UTC s; 0: there is
 * none. */
double wrap_newest_save(const struct wrap *w);

/* Says how the checkpoint folder of --saves looks after the trainer's end. A trainer that was done,
 * or stopped because it was asked to (in_order), should have saved something. */
enum wrap_saves { WRAP_SAVES_GOOD, WRAP_SAVES_MISSING, WRAP_SAVES_EMPTY };
enum wrap_saves wrap_saves_look(const struct wrap *w, bool in_order);
/* Returns the beginning of a sentence about a folder that is not good; the folder's name
 * follows. */
const char *wrap_saves_say(enum wrap_saves saves);

/* Returns the bytes on disk of the largest entry of the checkpoint folder, an estimate for another
 * save. 0: there is none. */
int64_t wrap_save_bytes(const struct wrap *w);

/* Returns the number of steps in the newest checkpoint, as far as names show it: from
 * latest_checkpointed_iteration.txt (Megatron) or latest (DeepSpeed) if there is one, else from the
 * newest entry with a step, iteration or checkpoint number in its name ("iter_0000400", "step-400",
 * "checkpoint-400"). -1: no name shows it. */
int64_t wrap_saved_steps(const struct wrap *w);
/* Returns the number of steps in the name of a checkpoint, such as "iter_0000400"; -1: none. */
int64_t wrap_name_steps(const char *name);

#endif
