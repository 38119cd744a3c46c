/* main: declares the subcommands of reel-train. Each is an option table and a function, as in
 * `reel`. */
#ifndef TRAINER_CMD_MAIN_H
#define TRAINER_CMD_MAIN_H

#include "base/opt.h"
#include "trainer/comm/comm.h"

/* Runs a subcommand, which prints its data on stdout (rank 0 only), talks on stderr, and returns 0
 * or an error. */
typedef int train_cmd_fn(const struct opt_values *v, int argc, char **argv, struct err *err);

extern const struct opt_cmd train_cmd_train, train_cmd_ckpt, train_cmd_probe, train_cmd_layouts,
    train_cmd_generate;
train_cmd_fn train_cmd_train_run, train_cmd_ckpt_run, train_cmd_probe_run, train_cmd_layouts_run,
    train_cmd_generate_run;

/* Opens the world of the ranks that mpirun or srun started, or of this process alone. From then on
 * all ranks compute with the widest vectors that all of them support (trainer/ops/simd.h). */
int train_world_open(int *argc, char ***argv, struct comm **out, struct err *err);
/* Logs what failed, on rank 0 and on every rank of a broken world, and empties the text of
 * *err, so that it is not logged again. It is called before any rank ends, because mpirun kills the
 * others when a rank has ended with a status that is not 0. */
void train_sentence_say(const struct comm *world, struct err *err);
int train_print(const struct str *text, struct err *err);

#endif
