/* reel wrap: keeps another project's trainer alive, from inside a job script that its user
 * wrote. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/num.h"
#include "launcher/cmd/cmd.h"
#include "launcher/run/guard.h"
#include "launcher/submit/waits.h"
#include "launcher/submit/wrapped.h"
#include "launcher/wrap/wrap_rate.h"
#include "launcher/start/command.h"
#include "profiles/step_lines.h"

static const char *const notices[] = {"USR1", "USR2", "TERM", "INT", "HUP", "none", NULL};
static const int notice_signals[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP, 0};

static const char *const formats[] = {"none",      "megatron", "torchtitan", "nemo",
                                      "lightning", "hf",       NULL};

static const struct opt opts[] = {
    {"name", 0, OPT_TEXT, "NAME",
     "the run's name; the same name again goes on with the same run (default: the job's name and "
     "id)"},
    {"notice", 0, OPT_ENUM, "SIGNAL",
     "what asks the trainer to save and stop; Slurm sends every process TERM when it ends a job",
     .fallback = "TERM", .choices = notices},
    {"format", 0, OPT_ENUM, "TRAINER",
     "how it prints its steps: as Megatron-LM, torchtitan, NeMo, Lightning or the Trainer of "
     "transformers do",
     .fallback = "none", .choices = formats},
    {"step-pattern", 0, OPT_TEXT, "REGEX",
     "or a POSIX extended expression that finds them in a line, with one group, or with names: "
     "(?<step>[0-9]+), loss, time_ms, tokens and more, see below"},
    {"saves", 0, OPT_TEXT, "DIR",
     "its checkpoint folder: something new in it is progress, a name like iter_0000400 tells its "
     "steps"},
    {"done-file", 0, OPT_TEXT, "FILE", "it is done when this file is there, and only then"},
    {"steps", 0, OPT_INT, "N",
     "how many steps the run has: there it is done, and not when it exits with 0 before",
     .fallback = "0", .max = 1e12},
    {"max-crashes", 0, OPT_INT, "N",
     "crashes, hangs and early exits without progress that end the run; 0: no bound",
     .fallback = "3", .max = 1e6},
    {"max-preempts", 0, OPT_INT, "N", "preemptions without progress that end the run; 0: no bound",
     .fallback = "50", .max = 1e6},
    {"wall", 0, OPT_SECONDS, "TIME", "give up so long after its first attempt began; 0: never",
     .fallback = "0"},
    {"hang", 0, OPT_SECONDS, "TIME",
     "it hangs when it prints nothing for so long, and is ended; 0: never", .fallback = "0"},
    {"model", 0, OPT_TEXT, "MODEL",
     "the model it trains; with --seq and --gbs, one of 'reel model', its FLOPs and tokens are "
     "known"},
    {"seq", 0, OPT_TEXT, "S",
     "tokens of one sample: 8192, or frames x height x width after patching: 32x16x16"},
    {"gbs", 0, OPT_INT, "N", "samples of a step", .fallback = "0", .max = 1e9},
    {"flops-per-step", 0, OPT_NUM, "X",
     "model FLOPs of a step, forward and backward, over all GPUs; in place of --seq and --gbs",
     .fallback = "0", .max = 1e30},
    {"device", 0, OPT_TEXT, "GPU:TYPE", "what it runs on and computes in, for MFU: h100-sxm:bf16"},
    {"gpus", 0, OPT_INT, "N", "how many of them; 0: those of the Slurm job", .fallback = "0",
     .max = 1e9},
    {"node-agents", 0, OPT_BOOL, NULL,
     "a process on each node hears notices and tells the ranks there; with --notice none it only "
     "hears",
     .fallback = "true"},
};
const struct opt_cmd cmd_wrap = {
    "wrap",
    "keep any trainer alive from inside its own job script",
    "-- COMMAND [ARGUMENT...]", opts, ARRAY_LEN(opts), 1, -1,
    "Put it in front of the command that trains, as the script's last line: exec reel wrap -- srun "
    "python train.py. It starts the command, tells its ranks on every node when the job is to "
    "stop, and when they have ended gives the job back to Slurm (scontrol requeue) until the "
    "command is done or a budget is spent. The trainer has to save when it gets the signal, exit, "
    "and load its newest checkpoint when it starts. Use exec, so that Slurm's signals reach it; "
    "ask for #SBATCH --requeue, --open-mode=append and --signal=B:USR1@120. What the trainer "
    "prints goes to the job's output and to logs/attempt-N.log of the run's folder. It finds "
    "REEL_RUN_DIR, REEL_RUN_ID and REEL_ATTEMPT in its environment. It is done when it exits with "
    "0 and its --steps are reached or neither the job nor its steps were being ended; in doubt it "
    "was interrupted; exit 0 clearly short of --steps is an early_exit, which counts like a crash. "
    "Its exit status 75 says that it has saved and is to be run again. Job scripts to begin with: "
    "contrib/sbatch.\n\n"
    "How long its saves take is not known. Before the time limit it is told a minute ahead, or a "
    "step where that takes longer, and never before half of the limit: one that saves for longer "
    "needs an earlier --signal.\n\n"
    "Steps that it prints are recorded as those of our own trainer: a row a line, which says how "
    "many steps it covers. Names in --step-pattern: step (steps done), index (counted from 0), "
    "total, epoch, loss, grad_norm, lr, time_ms or time_s (of one step), tokens (of one step), tps "
    "(tokens a second and GPU). Where no time is printed, that between the lines counts. MFU comes "
    "from --device and from --flops-per-step, or --model, --seq and --gbs.\n\n"
    "Exit status 0: done. 75: ended early, and given back to Slurm; outside of a job nothing "
    "starts it again but the same command with the run's --name. 1: a budget is spent, or the run "
    "is cancelled."};

/* Makes the run's name. Slurm's job name may have any characters, but the run's name becomes the
 * name of a file. */
static void name_make(const struct opt_values *v, const char *job_id, const char *const *argv,
                      char out[LIMIT_NAME_BYTES])
{
    const char *name = opt_text(v, "name"), *job = getenv("SLURM_JOB_NAME"),
               *slash = strrchr(argv[0], '/');
    time_t now = time(NULL);
    struct tm tm;
    char when[32];
    gmtime_r(&now, &tm);
    strftime(when, sizeof when, "%Y%m%d-%H%M%S", &tm);
    if (name)
        snprintf(out, LIMIT_NAME_BYTES, "%s", name);
    else if (*job_id)
        snprintf(out, LIMIT_NAME_BYTES, "%.80s-%s", job && *job ? job : "job", job_id);
    else
        snprintf(out, LIMIT_NAME_BYTES, "%.80s-%s", slash ? slash + 1 : argv[0], when);
    for (char *c = out; !name && *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", *c))
            *c = '_';
}

/* Makes a path absolute, because the agent works in another folder. */
static const char *path_absolute(const char *path, const char *cwd, struct arena *arena)
{
    return !path || path[0] == '/' ? path : arena_printf(arena, "%s/%s", cwd, path);
}

/* Checks that the command's arguments are UTF-8, because wrap.json cannot store other bytes
 * unchanged. */
static int words_check(const char *const *words, struct err *err)
{
    for (int i = 0; words[i]; i++)
        for (const char *p = words[i]; *p;) {
            size_t n = json_utf8_len(p, strlen(p));
            if (n == 0)
                return err_set(err, ERR_INPUT,
                               "argument %d of the command is not UTF-8: put the command into a "
                               "script of its own, and give that",
                               i);
            p += n;
        }
    return 0;
}

/* Checks, before the trainer starts, the options that say how its step lines are read and how many
 * steps it has. */
static int steps_check(const struct wrap *w, struct err *err)
{
    struct step_reader *reader = NULL;
    if (w->format && w->step_pattern)
        return err_set(err, ERR_USAGE, "--format and --step-pattern: give one of them");
    if (w->total_steps > 0 && !w->format && !w->step_pattern && !w->saves && !w->done_file)
        return err_set(err, ERR_USAGE,
                       "--steps %lld: nothing tells how far it came: give --format, --step-pattern "
                       "or --saves, or leave --steps out",
                       (long long)w->total_steps);
    int rc = w->format || w->step_pattern
                 ? step_reader_new(w->step_pattern, w->format, w->total_steps, &reader, err)
                 : 0;
    step_reader_free(reader);
    return rc;
}

/* Copies the options into the settings, and makes paths absolute. */
static void options_take(const struct opt_values *v, struct wrap *w)
{
    w->notice = notice_signals[opt_enum(v, "notice")];
    w->step_pattern = opt_text(v, "step-pattern");
    w->saves = path_absolute(opt_text(v, "saves"), w->cwd, &w->arena);
    w->done_file = path_absolute(opt_text(v, "done-file"), w->cwd, &w->arena);
    w->total_steps = opt_int(v, "steps");
    w->node_agents = opt_bool(v, "node-agents");
    w->budget.crash = opt_int(v, "max-crashes");
    w->budget.preempt = opt_int(v, "max-preempts");
    w->budget.wall_s = opt_num(v, "wall");
    w->budget.hang_s = opt_num(v, "hang");
    if (opt_enum(v, "format") > 0)
        w->format = formats[opt_enum(v, "format")];
}

static int wrap_make(const struct opt_values *v, const char *job_id, struct wrap *w,
                     struct err *err)
{
    const char *const *operands;
    size_t n = opt_operands(v, &operands);
    char cwd[LIMIT_PATH_BYTES];
    const char **argv = arena_array(&w->arena, n + 1, sizeof *argv);
    if (!getcwd(cwd, sizeof cwd))
        return err_set_errno(err, ERR_ENV, "cannot name the working folder");
    if (!argv || !(w->cwd = arena_strdup(&w->arena, cwd)))
        return err_set(err, ERR_NOMEM, "out of memory");
    memcpy(argv, operands, n * sizeof *argv);
    w->argv = argv;
    name_make(v, job_id, operands, w->name);
    options_take(v, w);
    struct wrap_rate rate = {opt_text(v, "model"),  opt_text(v, "seq"),
                             opt_int(v, "gbs"),     opt_num(v, "flops-per-step"),
                             opt_text(v, "device"), opt_int(v, "gpus")};
    int rc;
    if (id_name_check(opt_given(v, "name") ? opt_text(v, "name") : w->name, "--name", err) < 0)
        return err->code = ERR_USAGE;
    if ((rc = words_check(argv, err)) < 0)
        return rc;
    if ((rc = steps_check(w, err)) < 0)
        return rc;
    if ((rc = wrap_rate_fill(w, &rate, err)) < 0)
        return rc;
    return command_find(operands[0], &w->arena, &argv[0], err);
}

/* Tells the user how the run goes on if no scheduler starts the command again. */
static void again_say(const struct cmd_env *env, const struct launch *l)
{
    struct run_state state;
    char why[STATE_TEXT_BYTES] = "";
    run_state_init(&state);
    if (run_state_load(l->run_dir, &state, NULL) == 0)
        waits_why(env->home, &state, &l->budget, NULL, why);
    if (*why)
        fprintf(stderr, "reel: run '%s' is not over: %s\n", state.name, why);
    run_state_release(&state);
}

int cmd_wrap_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *job = getenv("SLURM_JOB_ID"), *restarts = getenv("SLURM_RESTART_COUNT");
    const char *job_id = job ? job : "";
    bool first = !restarts || !*restarts || strcmp(restarts, "0") == 0;
    struct wrap w;
    struct launch l;
    int exit_code = 5;
    bool unnamed = !opt_given(v, "name");
    int rc;
    wrap_init(&w);
    if ((rc = wrap_make(v, job_id, &w, err)) < 0)
        goto out;
    if ((rc = wrapped_open(env->home, env->bin_dir, &w, job_id, !first, unnamed, &l, err)) < 0)
        goto out;
    struct agent_conf conf = {l.run_dir, env->home, env->bin_dir, w.argv};
    if ((rc = guard_run(&conf, &exit_code, err)) < 0)
        goto out;
    if (exit_code == WRAP_AGAIN && !job)
        again_say(env, &l);
    rc = cmd_agent_status(exit_code);
out:
    wrap_release(&w);
    return rc;
}
