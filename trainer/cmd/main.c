/* This is the main function of reel-train, the program that runs on every rank. */
#include "base/json.h"
#include "base/program.h"
#include "profiles/catalog.h"
#include "profiles/environment.h"
#include "trainer/cmd/main.h"
#include "trainer/ops/simd.h"

#include <string.h>


static const struct opt_cmd *const commands[] = {
    &train_cmd_train, &train_cmd_ckpt, &train_cmd_probe, &train_cmd_layouts, &train_cmd_generate};
static train_cmd_fn *const runs[] = {train_cmd_train_run, train_cmd_ckpt_run, train_cmd_probe_run,
                                     train_cmd_layouts_run, train_cmd_generate_run};

static const struct opt_note examples[] = {
    {"reel-train train --model dit-tiny --data synthetic --seq 4x8x8 --gbs 4 --steps 20 --run-dir "
     "run",
     "twenty steps in this process", "train"},
    {"mpirun -n 4 reel-train train --run run.json --layout dp=2,tp=2 --run-dir run", "four ranks",
     "train"},
    {"reel-train ckpt show run/ckpt/step-00000020", "what a checkpoint holds", "ckpt"},
    {"reel-train ckpt diff run-a run-b", "where the newest checkpoints of two runs differ", "ckpt"},
    {"mpirun -n 2 reel-train probe --dtype bf16", "the rates of two ranks that compute together",
     "probe"},
    {"reel-train layouts --model dit-7b --ranks 8 --gbs 64 --all", "every layout of eight ranks",
     "layouts"},
    {"reel-train generate run/ckpt/step-00000020 --output latents",
     "latents, for 'reel-curate decode'", "generate"},
    {NULL, NULL, NULL},
};
static const struct opt_note files[] = {
    {"RUN-DIR/ckpt/step-N/", "a checkpoint, under any layout", "train ckpt generate"},
    {"RUN-DIR/events/", "the log of the run, a file for each writer", "train"},
    {"RUN.json", "what to train, as 'reel launch' takes it", "train ckpt generate"},
    {"PLAN.json", "a layout, as 'reel tune' writes it", "train"},
    {"MODEL.json", "a model as a reel.model/1 profile", "train layouts"},
    {"libopenblas.so.0", "loaded where --blas=openblas asks for it", "train probe generate"},
    {NULL, NULL, NULL},
};
static void about(struct str *out)
{
    str_addf(out, "MPI: %s\n", comm_mpi_library());
}

static void simd_about(struct str *out)
{
    enum simd simd = SIMD_GENERIC;
    struct err err = {0};
    if (simd_choose(&simd, &err) == 0)
        str_addf(out, "%s, of", simd_names[simd]);
    else
        str_addf(out, "none (%s), of", err.text);
    for (int i = 0; simd_names[i]; i++)
        str_addf(out, " %s", simd_names[i]);
}

static void words(const char *kind, struct str *out)
{
    for (size_t i = 0; strcmp(kind, "MODEL") == 0 && catalog_model_names[i]; i++)
        str_addf(out, "%s\t\n", catalog_model_names[i]);
}

static int command_run(const struct program_call *call, struct err *err)
{
    size_t i = 0;
    while (commands[i] != call->cmd)
        i++;
    return runs[i](call->values, call->argc, call->argv, err);
}

static const struct program program = {
    .page = {.program = "reel-train",
             .examples = examples,
             .files = files,
             .environment = train_environment,
             .exit_status = "0 done or yes, 1 no, 2 usage, 3 invalid input, 4 environment missing, "
                            "5 operation failed, 6 training diverged, "
                            "75 saved or temporary: run it again."},
    .summary = "train a video diffusion transformer; started by reel, by hand or by mpirun",
    .commands = commands,
    .n_commands = ARRAY_LEN(commands),
    .run = command_run,
    .about = about,
    .simd = simd_about,
    .words = words,
};

int main(int argc, char **argv)
{
    return program_main(&program, &build, argc, argv);
}
