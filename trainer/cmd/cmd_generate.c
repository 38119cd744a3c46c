/* reel-train generate: makes samples from a checkpoint and writes them as latents. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/num.h"
#include "trainer/ckpt/ckpt_priv.h"
#include "trainer/cmd/device.h"
#include "trainer/cmd/main.h"
#include "trainer/run/generate.h"

static const struct opt opts[] = {
    {"run", 0, OPT_TEXT, "FILE",
     "the run the checkpoint is of (default: run.json in the folder above ckpt/)"},
    {"data", 0, OPT_TEXT, "DIR",
     "dataset whose captions, shapes and frame rates are taken (default: the run's last stage's)"},
    {"output", 'o', OPT_TEXT, "DIR",
     "where the latents go, one .npy a sample", .flags = OPT_REQUIRED},
    {"force", 0, OPT_BOOL, NULL, "write over samples that are there already"},
    {"first", 0, OPT_INT, "N",
     "first draw of the data's order", .fallback = "0", .min = 0, .max = 1e12},
    {"samples", 0, OPT_INT, "N",
     "how many, at most to the end of a pass over the data; after it the same come again",
     .fallback = "8", .min = 1, .max = 1e9},
    {"batch", 0, OPT_INT, "N", "how many at a time", .fallback = "4", .min = 1, .max = 1e6},
    {"sampler", 0, OPT_ENUM, "NAME",
     "integrator of the probability-flow ODE", .fallback = "heun", .choices = sampler_names},
    {"steps", 0, OPT_INT, "N", "its steps", .fallback = "35", .min = 1, .max = SAMPLER_STEPS_MAX},
    {"level-max", 0, OPT_NUM, "X",
     "noise over data amplitude to begin with", .fallback = "80", .min = 1e-6, .max = 1e9},
    {"level-min", 0, OPT_NUM, "X",
     "and of the last step but one", .fallback = "0.002", .min = 1e-9, .max = 1e9},
    {"guidance", 0, OPT_NUM, "G",
     "classifier-free guidance; 1: none", .fallback = "1", .min = -100, .max = 1000},
    {"first-frames", 0, OPT_BOOL, NULL, "give the model the first frames of the data"},
    {"weights", 0, OPT_ENUM, "NAME",
     "model, or average (EMA)",
     .fallback = "model", .choices = (const char *const[]){"model", "average", NULL}},
    {"seed", 0, OPT_TEXT, "K", "of the first noise", .fallback = "1"},
    DEVICE_OPTS,
};
const struct opt_cmd train_cmd_generate = {
    "generate", "sample from a checkpoint", "CKPT", opts, ARRAY_LEN(opts), 1, 1,
    "CKPT is a folder <run>/ckpt/step-…, written under any layout, or a run's, for its newest. "
    "Under mpirun each rank makes its share of the batches. 'reel-curate decode' makes pictures of "
    "the latents."};

static void say(void *ctx, const char *line)
{
    (void)ctx;
    log_msg(LOG_INFO, "%s", line);
}

struct places { char ckpt[LIMIT_PATH_BYTES], run[LIMIT_PATH_BYTES]; };
static int run_find(const struct opt_values *v, struct places *at, struct run *run,
                    struct err *err)
{
    if (opt_text(v, "run"))
        snprintf(at->run, sizeof at->run, "%s", opt_text(v, "run"));
    else
        snprintf(at->run, sizeof at->run, "%s/../../run.json", at->ckpt);
    int rc = run_load(at->run, run, err);
    return rc < 0 && !opt_text(v, "run") ? err_context(err, "give --run FILE") : rc;
}

static int conf_make(const struct opt_values *v, const struct comm *world, struct run *run,
                     struct places *at, struct generate_conf *out, struct err *err)
{
    const char *const *operands;
    uint64_t seed = 0;
    opt_operands(v, &operands);
    const char *data = opt_text(v, "data");
    int rc = num_parse_u64(opt_text(v, "seed"), "--seed", &seed, err);
    if (rc < 0)
        return err->code = ERR_USAGE;
    if (opt_num(v, "level-min") >= opt_num(v, "level-max"))
        return err_set(err, ERR_USAGE, "--level-min is %g, not below --level-max %g",
                       opt_num(v, "level-min"), opt_num(v, "level-max"));
    if ((rc = ckpt_dir_find(operands[0], at->ckpt, err)) < 0)
        return rc;
    if ((rc = run_find(v, at, run, err)) < 0)
        return rc;
    int64_t share = num_ceil_div(opt_int(v, "samples"), world->size);
    *out = (struct generate_conf){
        .run = run, .run_path = at->run, .ckpt = at->ckpt, .out = opt_text(v, "output"),
        .data = data ? data : run->stages[run->n_stages - 1].data,
        .average = opt_enum(v, "weights") == 1, .first_frames = opt_bool(v, "first-frames"),
        .force = opt_bool(v, "force"),
        .first = opt_int(v, "first"), .samples = opt_int(v, "samples"),
        .batch = num_min_i64(opt_int(v, "batch"), share),
        .guidance = opt_num(v, "guidance"),
        .rank = world->rank, .ranks = world->size,
        .seed = seed, .sampler = (enum sampler_kind)opt_enum(v, "sampler"),
        .steps = opt_int(v, "steps"),
        .level_max = opt_num(v, "level-max"), .level_min = opt_num(v, "level-min"),
        .say = world->rank == 0 ? say : NULL};
    return 0;
}

/* Generates samples on all ranks. No rank writes a sample before every rank has checked that it
 * would not write over a file. */
static int generate_all(const struct opt_values *v, struct comm *world, int64_t *made,
                        struct err *err)
{
    struct run run = {0};
    struct places at;
    struct generate_conf conf;
    struct generate *g = NULL;
    int rc = conf_make(v, world, &run, &at, &conf, err);
    if ((rc = comm_agree(world, rc, err)) < 0)
        goto out;
    if ((rc = device_take(v, run.resources.gpus_per_node, world, &conf.compute, err)) < 0)
        goto out;
    if ((rc = comm_agree(world, generate_open(&conf, &g, err), err)) < 0)
        goto out;
    rc = comm_agree(world, generate_make(g, made, err), err);
out:
    generate_close(g);
    run_release(&run);
    return rc;
}

/* Says how many samples all ranks together have made. */
static int made_say(struct comm *world, int64_t made, struct err *err)
{
    double all = (double)made;
    int rc;
    if ((rc = comm_sum(world, &all, 1, err)) < 0)
        return rc;
    if (world->rank == 0)
        log_msg(LOG_INFO, "%.0f samples, made by %d ranks", all, world->size);
    return 0;
}

int train_cmd_generate_run(const struct opt_values *v, int argc, char **argv, struct err *err)
{
    struct comm *world = NULL;
    int64_t made = 0;
    int rc;
    if ((rc = train_world_open(&argc, &argv, &world, err)) < 0)
        return rc;
    if ((rc = generate_all(v, world, &made, err)) < 0)
        goto out;
    if (world->size > 1)
        rc = made_say(world, made, err);
out:
    if (rc < 0)
        train_sentence_say(world, err);
    comm_close(world);
    return rc;
}
