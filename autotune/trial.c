#include "autotune/trial.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "autotune/oom.h"
#include "autotune/trial_other.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/pulse.h"
#include "base/spawn.h"
#include "base/str.h"
#include "launcher/start/command.h"

static const double POLL_S = 0.5, LOOK_S = 0.05, WORD_S = 3, LEAVE_S = 10;
extern char **environ;

enum { LOG_TAIL_BYTES = 1 << 16 };

/* ---- failure classes ---- */

/* These phrases say that memory was short: in the scheduler's lines about a cgroup, in an error of
 * our trainer, and in lines of other programs and libraries. device_words in an error of our
 * trainer mean that the device's memory was short. */
static const char *const scheduler_names[] = {"slurmstepd: ", "srun: ", NULL};
static const char *const scheduler_words[] = {"oom-kill", "oom_kill", "OOM Killed", "OUT_OF_MEMORY",
                                              "Out Of Memory", NULL};
static const char *const refusal_words[] = {"out of memory", "no memory", "cannot take ",
                                            "Cannot allocate memory", NULL};
static const char *const device_words[] = {"of the device", " are free and ", NULL};
static const char *const gpu_words[] = {"CUDA out of memory", "CUDA error: out of memory",
                                        "CUDA_ERROR_OUT_OF_MEMORY",
                                        "Cuda failure 'out of memory'", /* NCCL's words */
                                        "Cuda failure 2 'out of memory'", NULL};
static const char *const host_words[] = {"bad_alloc", NULL};
static const char trainer_name[] = "reel-train: ", layout_word[] = ": layout ";

static bool says(const char *text, const char *const *words)
{
    for (int i = 0; words[i]; i++)
        if (strstr(text, words[i]))
            return true;
    return false;
}

/* Tells whether the line is an error of our trainer: one without a level, or with level error. The
 * trainer's other lines may mention memory too. */
static bool is_error(const char *line)
{
    static const char *const levels[] = {"info: ", "warning: ", "debug: "};
    const char *at = strstr(line, trainer_name);
    for (size_t i = 0; at && i < ARRAY_LEN(levels); i++)
        if (str_starts(at + strlen(trainer_name), levels[i]))
            return false;
    return at != NULL;
}

bool trial_goes_on(const char *line)
{
    if (strstr(line, "NCCL WARN ")) /* NCCL warns of what its caller then gets as an error */
        return false;
    static const char *const words[] = {"warn", "retry", "fall back", "falling back", NULL};
    for (int i = 0; words[i]; i++)
        if (strcasestr(line, words[i]))
            return true;
    return false;
}

/* Returns which memory was short according to this line; TRIAL_UNTRIED: the line does not say. */
static enum trial_state line_class(const char *line)
{
    if (says(line, scheduler_names))
        return says(line, scheduler_words) ? TRIAL_OOM_HOST : TRIAL_UNTRIED;
    if (is_error(line)) {
        if (!says(line, refusal_words))
            return TRIAL_UNTRIED;
        return says(line, device_words) ? TRIAL_OOM_DEVICE : TRIAL_OOM_HOST;
    }
    if (strstr(line, trainer_name) || trial_goes_on(line))
        return TRIAL_UNTRIED;
    if (says(line, gpu_words))
        return TRIAL_OOM_DEVICE;
    return says(line, host_words) ? TRIAL_OOM_HOST : TRIAL_UNTRIED;
}

/* Holds what a log says: our trainer's first error, the last line of any other program, the first
 * line that says that memory was short (`proof`), and which memory that was. */
struct log_words {
    char error[256], last[256], proof[OOM_EVIDENCE_BYTES];
    enum trial_state memory;
};

static void line_take(const char *line, struct log_words *w)
{
    if (w->memory == TRIAL_UNTRIED && (w->memory = line_class(line)) != TRIAL_UNTRIED)
        snprintf(w->proof, sizeof w->proof, "%s", line);
    if (is_error(line) && !w->error[0])
        snprintf(w->error, sizeof w->error, "%s", line);
    if (!strstr(line, trainer_name) && strpbrk(line, "abcdefghijklmnopqrstuvwxyz"))
        snprintf(w->last, sizeof w->last, "%s", line);
}

static void log_words(const char *tail, struct log_words *out)
{
    char line[ERR_TEXT_BYTES + 64];
    *out = (struct log_words){.memory = TRIAL_UNTRIED};
    for (size_t n; *tail; tail += n + (tail[n] != '\0')) {
        n = strcspn(tail, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, tail);
        line_take(line, out);
    }
}

/* Returns the signal that ended the trial, or that a shell or MPI reports as a status above 128;
 * else 0. */
static int signal_of(const struct sched_step_status *end)
{
    return end->exit_signal ? end->exit_signal : end->exit_code > 128 ? end->exit_code - 128 : 0;
}

static void cause_say(const struct sched_step_status *end, const struct log_words *w,
                      char cause[256])
{
    char name[SIGNAL_NAME_BYTES];
    int signo = signal_of(end);
    if (w->error[0])
        snprintf(cause, 256, "%s", w->error);
    else if (signo)
        snprintf(cause, 256, "killed by %s%s%.200s", signal_name(signo, name),
                 w->last[0] ? ", after: " : "", w->last);
    else if (w->last[0] && w->memory != TRIAL_UNTRIED)
        snprintf(cause, 256, "%s", w->last);
    else if (w->last[0])
        snprintf(cause, 256, "ended with status %d; its last line: %.200s", end->exit_code,
                 w->last);
    else
        snprintf(cause, 256, "ended with exit code %d and wrote no error", end->exit_code);
}

static bool was_killed(const struct sched_step_status *end)
{
    return signal_of(end) == SIGKILL;
}

/* Says whether memory was short according to the kernel. The counter of our own cgroup suffices,
 * because the status may be that of a rank that ended by itself after another was killed. Other
 * evidence may be about other programs, so it counts only if SIGKILL ended the job step. */
static bool kernel_says(const struct trial_end *end)
{
    return end->oom_evidence[0] && (end->oom_own || was_killed(&end->step));
}

/* Classifies the end of a job step that had an exit code other than 0, or a signal. */
static enum trial_state failure_class(const struct trial_end *end, const struct log_words *w)
{
    int code = end->step.exit_code;
    bool refused = code == err_exit_code(ERR_USAGE) || code == err_exit_code(ERR_INPUT);
    if (kernel_says(end))
        return TRIAL_OOM_HOST;
    if (w->memory != TRIAL_UNTRIED)
        return w->memory;
    if (code == err_exit_code(ERR_DIVERGED))
        return TRIAL_NONFINITE;
    if (refused && strstr(w->error, layout_word))
        return TRIAL_ILLEGAL;
    if (signal_of(&end->step) == SIGTERM || code == err_exit_code(ERR_TEMP))
        return TRIAL_PREEMPTED;
    return TRIAL_FAILED;
}

enum trial_state trial_classify(const struct trial_end *end, const char *log_tail, char cause[256],
                                char evidence[OOM_EVIDENCE_BYTES])
{
    struct log_words words;
    cause[0] = evidence[0] = '\0';
    if (end->step.node_lost[0]) {
        snprintf(cause, 256, "node %s was lost", end->step.node_lost);
        return TRIAL_NODE;
    }
    if (end->silent_s > 0) {
        snprintf(cause, 256, "gave no sign of life for %.3g s", end->silent_s);
        return TRIAL_HANG;
    }
    if (end->slow)
        return TRIAL_OK;
    if (end->step.lost) {
        snprintf(cause, 256, "what watched it was killed");
        return TRIAL_FAILED;
    }
    if (end->step.exit_code == 0 && end->step.exit_signal == 0)
        return TRIAL_OK;
    log_words(log_tail, &words);
    cause_say(&end->step, &words, cause);
    enum trial_state state = failure_class(end, &words);
    if (trial_is_oom(state))
        snprintf(evidence, OOM_EVIDENCE_BYTES, "%s",
                 kernel_says(end) ? end->oom_evidence : words.proof);
    return state;
}

/* ---- running ---- */

static int files_save(const struct trial_conf *c, const struct run *run, const struct plan *plan,
                      struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    int rc;
    if ((rc = file_mkdirs(c->dir, err)) < 0)
        return rc;
    snprintf(path, sizeof path, "%s/run.json", c->dir);
    if (!c->other && (rc = run_save(run, path, err)) < 0)
        return rc;
    snprintf(path, sizeof path, "%s/plan.json", c->dir);
    return plan_save(plan, path, err);
}

static int command_make(const struct trial_conf *c, const struct plan *plan, struct arena *arena,
                        struct command *out, const char **log, struct err *err)
{
    *log = arena_printf(arena, "%s/log", c->dir);
    if (c->other && *log)
        return other_command(c, plan, arena, out, err);
    const char *run_json = arena_printf(arena, "%s/run.json", c->dir),
               *plan_json = arena_printf(arena, "%s/plan.json", c->dir);
    const char *steps = arena_printf(arena, "%lld", (long long)c->steps);
    const char *limit = arena_printf(arena, "%lld", (long long)c->limit_bytes);
    const char *give_up = arena_printf(arena, "%.9gs", c->give_up_s);
    if (!run_json || !plan_json || !steps || !limit || !give_up || !*log)
        return err_set(err, ERR_NOMEM, "out of memory");
    const char *args[20] = {
        "train", "--run", run_json, "--plan", plan_json, "--run-dir", c->dir, "--trial", "--steps",
        steps, "--no-verify", "--blas", c->blas};
    int n = 13;
    if (c->give_up_s > 0)
        args[n++] = "--give-up", args[n++] = give_up;
    if (c->limit_bytes > 0)
        args[n++] = "--memory-limit", args[n++] = limit;
    return command_trainer(c->bin_dir, layout_world(&plan->layout), c->sched->ops->starts_ranks,
                           args, (const char *const *)environ, arena, out, err);
}

/* Returns for how many seconds the trial has given no sign of life, if that is too long; else 0.
 * Our trainer appends to `pulse`; everything that another trainer prints is a sign of life. */
static double silence_of(const struct trial_conf *c, const struct other_log *log,
                         struct pulse *pulse)
{
    char path[LIMIT_PATH_BYTES];
    struct stat st;
    snprintf(path, sizeof path, "%s/pulse", c->dir);
    int64_t signs = log                       ? other_log_bytes(log)
                    : stat(path, &st) == 0 ? (int64_t)st.st_size
                                           : 0;
    bool began = log ? other_log_steps(log) > 0 : signs > 0;
    double quiet_s = pulse_look(pulse, clock_mono_s(), signs);
    return quiet_s > (began ? c->quiet_s : c->start_s) ? quiet_s : 0;
}

/* Reads the new lines of another trainer's log, and notes whether its steps are slow enough to end
 * it and which node was lost. */
static void log_look(const struct trial_conf *c, struct other_log *log, struct trial_end *end)
{
    if (!log)
        return;
    other_log_look(log, clock_mono_s());
    end->slow = c->give_up_s > 0 && other_log_slower(log, c->give_up_s);
    snprintf(end->step.node_lost, sizeof end->step.node_lost, "%s", other_log_node(log));
}

/* Waits until the trial ends, hangs, is too slow or loses a node, or until we are asked to stop. */
static int step_await(const struct trial_conf *c, struct sched_step *step, struct other_log *log,
                      struct trial_end *end, struct err *err)
{
    struct pulse pulse = {0};
    int rc;
    for (;;) {
        if ((rc = sched_step_poll(step, log ? LOOK_S : POLL_S, &end->step, err)) < 0)
            return rc;
        log_look(c, log, end);
        if (end->slow || end->step.ended || end->step.node_lost[0])
            return 0;
        if (c->stop && *c->stop)
            return err_set(err, ERR_TEMP, "asked to stop in the middle of a trial");
        if ((end->silent_s = silence_of(c, log, &pulse)) > 0)
            return 0;
    }
}

/* Asks another trainer's command to end, and waits for it. If it were killed at once, srun or
 * torchrun would leave its ranks running on other nodes. */
static void other_stop(struct sched_step *step)
{
    struct sched_step_status status;
    sched_step_signal(step, SIGTERM, NULL);
    sched_step_poll(step, LEAVE_S, &status, NULL);
}

static int step_run(const struct trial_conf *c, const struct plan *plan, struct other_log *log,
                    struct trial_end *end, struct err *err)
{
    struct arena arena = {0};
    struct command command;
    struct sched_step *step = NULL;
    struct sched_step_spec spec = SCHED_STEP_SPEC_INIT;
    struct oom_watch watch;
    int rc;
    if ((rc = command_make(c, plan, &arena, &command, &spec.log_path, err)) < 0)
        goto out;
    spec.argv = command.argv;
    spec.env = command.env;
    /* another trainer's command starts its ranks */
    spec.ranks = log ? 1 : (int)layout_world(&plan->layout);
    if (!log)
        command_groups(&plan->layout, spec.groups);
    spec.cores = (int)c->cores;
    spec.exclude = c->exclude;
    oom_watch_begin(&watch, c->kernel_root ? c->kernel_root : "", log ? NULL : "reel-train");
    if ((rc = sched_step_start(c->sched, &spec, &step, err)) == 0)
        rc = step_await(c, step, log, end, err);
    if (step && log && !end->step.ended)
        other_stop(step);
    end->oom_own = watch.own;
    oom_watch_end(&watch, end->oom_evidence);
out:
    sched_step_free(step);
    arena_release(&arena);
    return rc;
}

/* Reads the last LOG_TAIL_BYTES of the trial's log. */
static int log_tail_read(const struct trial_conf *c, char tail[LOG_TAIL_BYTES + 1], struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    size_t n = 0;
    snprintf(path, sizeof path, "%s/log", c->dir);
    FILE *f = fopen(path, "re");
    if (!f && errno != ENOENT)
        return err_set_errno(err, ERR_IO, "cannot read '%s'", path);
    if (f) {
        if (fseek(f, -LOG_TAIL_BYTES, SEEK_END) < 0) /* the log is shorter */
            rewind(f);
        n = fread(tail, 1, LOG_TAIL_BYTES, f);
        fclose(f);
    }
    tail[n] = '\0';
    return 0;
}

/* Reads the parts of recorded steps on GPUs; they stay 0 where nothing was recorded. */
static void activity_read(const cJSON *activity, struct trial_result *r)
{
    const cJSON *classes = json_member(activity, "class_s");
    r->recorded_step_s = json_num(activity, "step_s", 0);
    for (int c = 0; c < KERNEL_CLASSES; c++)
        r->class_s[c] = json_num(classes, kernel_class_names[c], 0);
    r->idle_s = json_num(classes, KERNEL_NONE_NAME, 0);
    r->exposed_s = json_num(activity, "exposed_s", 0);
    r->hidden_s = json_num(activity, "hidden_s", 0);
    r->hfu = json_num(activity, "hfu", NAN);
    r->dropped = json_int(activity, "dropped", 0);
}

/* Reads the trainer's report. If it is missing or makes no sense, the trial has failed, but the
 * tuning goes on. */
static void report_read(const struct trial_conf *c, struct trial_result *r)
{
    char path[LIMIT_PATH_BYTES];
    struct json_doc doc = {0};
    struct err why = {0};
    snprintf(path, sizeof path, "%s/trial.json", c->dir);
    if (json_load(path, &doc, &why) == 0 && json_check_schema(&doc, "reel.trial/1", &why) == 0) {
        r->step_s = json_num(doc.root, "step_s", NAN);
        r->min_step_s = json_num(doc.root, "min_step_s", 0);
        r->tokens = json_num(doc.root, "tokens", 0);
        r->model_flops = json_num(doc.root, "model_flops", 0);
        r->mfu = json_num(doc.root, "mfu", NAN);
        r->peak_bytes = json_int(doc.root, "peak_bytes", 0);
        r->planned_bytes = json_int(doc.root, "planned_bytes", 0);
        r->steps = json_int(doc.root, "steps", 0);
        activity_read(json_member(doc.root, "activity"), r);
        for (int t = 0; t < PRICE_TERMS; t++)
            r->class_cpu_s[t] =
                json_num(json_member(doc.root, "class_cpu_s"), price_term_names[t], 0);
        if (cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(doc.root, "loss"))) {
            r->state = TRIAL_NONFINITE;
            snprintf(r->cause, sizeof r->cause, "its loss was not finite");
        } else if (!(r->step_s > 0) || r->steps < 2)
            err_set(&why, ERR_INPUT, "it measured %lld steps: 2 or more are needed",
                    (long long)r->steps);
    }
    if (!why.code && r->state == TRIAL_OK &&
        cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(doc.root, "stopped_early")))
        snprintf(r->cause, sizeof r->cause, "ended early: each of %lld steps slower than %.4g s",
                 (long long)r->steps - 1, c->give_up_s);
    if (why.code) {
        r->state = TRIAL_FAILED;
        snprintf(r->cause, sizeof r->cause, "no usable report: %.200s", why.text);
    }
    json_release(&doc);
}

/* Waits a moment for our own request to stop after a trial failed or was killed. Preemption reaches
 * the trial and us in either order; if it reaches us too, the end of the trial says nothing about
 * the layout. */
static int word_wait(const struct trial_conf *c, const struct trial_end *end,
                     enum trial_state state, struct err *err)
{
    bool judged =
        state != TRIAL_FAILED && state != TRIAL_PREEMPTED && !was_killed(&end->step);
    if (!c->stop || judged)
        return 0;
    for (double until = clock_mono_s() + WORD_S; !*c->stop && clock_mono_s() < until;)
        clock_sleep_s(0.05);
    return *c->stop ? err_set(err, ERR_TEMP, "asked to stop in the middle of a trial") : 0;
}

/* Reads the rest of another trainer's log and takes its measurements, or its cause of failure. */
static void other_read(const struct trial_conf *c, struct other_log *log,
                       const struct trial_end *end, struct trial_result *r)
{
    other_log_look(log, clock_mono_s());
    if (r->state != TRIAL_OK)
        other_log_judge(log, r);
    else
        other_log_report(log, end->slow, r);
    if (r->state == TRIAL_OK && end->slow) {
        char note[sizeof r->cause];
        snprintf(note, sizeof note, "%s", r->cause);
        snprintf(r->cause, sizeof r->cause,
                 "ended early: each of %lld steps slower than %.4g s%s%.180s",
                 (long long)r->steps - 1, c->give_up_s, note[0] ? "; " : "", note);
    }
}

/* Judges the trial from how it ended, its log, and our trainer's report. */
static int result_judge(const struct trial_conf *c, struct other_log *lines,
                        const struct trial_end *end, struct trial_result *r, struct err *err)
{
    char *tail = malloc(LOG_TAIL_BYTES + 1);
    int rc;
    if (!tail)
        return err_set(err, ERR_NOMEM, "out of memory for a trial's log");
    if ((rc = log_tail_read(c, tail, err)) < 0)
        goto out;
    r->state = trial_classify(end, tail, r->cause, r->evidence);
    snprintf(r->node, sizeof r->node, "%s", end->step.node_lost);
    if (lines)
        other_read(c, lines, end, r);
    else if (r->state == TRIAL_OK)
        report_read(c, r);
out:
    free(tail);
    return rc;
}

int trial_run(const struct trial_conf *conf, const struct run *run, const struct plan *plan,
              struct trial_result *out, struct err *err)
{
    struct trial_end end = {0};
    struct trial_result r = {.mfu = NAN};
    struct other_log *lines = NULL;
    int rc;
    if ((rc = files_save(conf, run, plan, err)) < 0)
        return rc;
    if (conf->other &&
        (rc = other_log_new(conf->other, plan, conf->steps, conf->dir, &lines, err)) < 0)
        return rc;
    if ((rc = step_run(conf, plan, lines, &end, err)) < 0)
        goto out;
    if ((rc = result_judge(conf, lines, &end, &r, err)) < 0)
        goto out;
    rc = word_wait(conf, &end, r.state, err);
    *out = r;
out:
    other_log_free(lines);
    return rc;
}
