/* reel launch: submits a run to the scheduler and follows it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/simd_kind.h"
#include "base/spawn.h"
#include "launcher/cmd/build.h"
#include "launcher/cmd/follow.h"
#include "launcher/cmd/launch_dry.h"
#include "launcher/cmd/lead.h"
#include "launcher/start/command.h"
#include "launcher/state/home.h"
#include "launcher/state/next.h"
#include "launcher/submit/change.h"
#include "launcher/submit/control.h"
#include "profiles/dataset.h"

static const struct opt opts[] = {
    CMD_OPT_JSON,
    CMD_OPT_DRY_RUN,
    {"plan", 0, OPT_TEXT, "FILE",
     "layout to use, as written by 'reel tune' (default: data parallel over the run's ranks)"},
    {"layout", 0, OPT_TEXT, "TEXT",
     "instead of --plan: 'dp=2,zero=1,mbs=1,recompute=none', keys in any order"},
    {"name", 0, OPT_TEXT, "NAME", "name of the run instead of the one in the file"},
    {"priority", 0, OPT_INT, "N", "priority instead of the one in the file", .min = -1000,
     .max = 1000},
    {"scheduler", 0, OPT_ENUM, "KIND", "who runs the job", .fallback = "local",
     .choices = (const char *const[]){"local", "slurm", NULL}, .flags = OPT_SETTING},
    {"partition", 0, OPT_TEXT, "NAME", "Slurm partition instead of the one in the file",
     .flags = OPT_SETTING},
    {"account", 0, OPT_TEXT, "NAME", "Slurm account instead of the one in the file",
     .flags = OPT_SETTING},
    {"qos", 0, OPT_TEXT, "NAME", "Slurm quality of service instead of the one in the file",
     .flags = OPT_SETTING},
    {"again", 0, OPT_ENUM, "HOW",
     "how it comes back, instead of resources.again of the file: its job requeued, or a successor "
     "that waits for its end",
     .fallback = "auto", .choices = again_names, .flags = OPT_SETTING},
    {"lead", 0, OPT_ENUM, "RULE",
     "when a step and a save take longer than a preemption leaves, or a step and two saves than "
     "half of the time limit",
     .fallback = "warn", .choices = (const char *const[]){"warn", "refuse", "ignore", NULL},
     .flags = OPT_SETTING},
    {"extend", 0, OPT_BOOL, NULL,
     "the file's run exists and gets more steps in its last stage, or stages after it: go on to "
     "the new end"},
    {"change", 0, OPT_ENUM, "WHAT",
     "the file's run exists and gets another learning rate (adamw.lr, schedule) for the steps to "
     "come",
     .choices = (const char *const[]){"lr", NULL}},
    {"detach", 'd', OPT_BOOL, NULL, "return as soon as the job is submitted"},
    {"quiet", 'q', OPT_BOOL, NULL, "no progress, only the end"},
};
const struct opt_cmd cmd_launch = {
    "launch",
    "run a training to its end, through preemption and crashes",
    "RUN.json", opts, ARRAY_LEN(opts), 1, 1,
    "Submits the run's agent and follows it. Interrupting (exit status 130) or killing this "
    "command changes nothing: the run goes on, and the same command with the same file takes it "
    "up again instead of making a second one. What an edited file or other options say of "
    "checkpoint, budget, validation, resources, plan and priority holds from the run's next "
    "attempt and is told line by line; a job that waits is replaced where it takes one with "
    "other resources. What decides the numbers stays: another value is refused, but for what "
    "--extend and --change allow."};

static int path_resolve(struct run *run, const char **path, const char *what, struct err *err)
{
    char *real = realpath(*path, NULL);
    if (!real)
        return err_set_errno(err, ERR_INPUT, "%s: cannot find '%s'", what, *path);
    *path = arena_strdup(&run->arena, real);
    free(real);
    return *path ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

static int data_resolve(struct run *run, const char **data, const char *what, struct err *err)
{
    int64_t thw[3];
    int rc;
    if ((rc = run_synthetic(*data, what, thw, err)) != 0)
        return rc < 0 ? rc : 0;
    return path_resolve(run, data, what, err);
}

/* Makes the paths of a run file absolute, because the run's own folder keeps a copy of the file. */
static int paths_resolve(struct run *run, struct err *err)
{
    char what[64];
    const char **held_out = &run->validation.data;
    int rc;
    if (*held_out && (rc = data_resolve(run, held_out, "validation.data", err)) < 0)
        return rc;
    for (int64_t i = 0; i < run->n_stages; i++) {
        struct run_stage *stage = &run->stages[i];
        snprintf(what, sizeof what, "stages[%lld].data", (long long)i);
        if ((rc = data_resolve(run, &stage->data, what, err)) < 0)
            return rc;
        snprintf(what, sizeof what, "stages[%lld].plan", (long long)i);
        if (stage->plan && (rc = path_resolve(run, &stage->plan, what, err)) < 0)
            return rc;
    }
    if (run->warm.from && (rc = path_resolve(run, &run->warm.from, "init.from", err)) < 0)
        return rc;
    return run_bind_data(run, NULL, err);
}

/* Sets the run's ranks per node from the plan. `from` names the plan in the error. */
static int ranks_take(const char *from, const struct plan *plan, struct run *run, struct err *err)
{
    int64_t world = layout_world(&plan->layout), nodes = run->resources.nodes;
    if (world % nodes)
        return err_set(err, ERR_INPUT,
                       "%s: %lld ranks cannot be spread evenly over the run's %lld nodes", from,
                       (long long)world, (long long)nodes);
    run->resources.ranks_per_node = world / nodes;
    return 0;
}

static int layout_take(const char *text, struct run *run, struct plan *plan, struct err *err)
{
    struct err why = {0};
    int64_t own = 0;
    for (int64_t i = 0; i < run->n_stages; i++)
        own += run->stages[i].plan != NULL;
    if (own == run->n_stages)
        return err_set(err, ERR_USAGE,
                       "--layout: every stage of the run has a plan of its own (stages[].plan): "
                       "leave one of them out");
    if (layout_parse(text, &plan->layout, &why) < 0)
        return err_set(err, ERR_USAGE, "%s", why.text);
    if (layout_world(&plan->layout) < 0)
        return err_set(err, ERR_USAGE,
                       "--layout '%s': tp x cp x pp x dp is above %d ranks: give smaller ones",
                       text, LIMIT_RANKS);
    return ranks_take("--layout", plan, run, err);
}

/* Makes a plan if there is no tuned one: with the given layout, or with data parallelism over the
 * run's ranks. It has no peak FLOP/s, so the trainer measures that. */
static int plan_make(const char *layout, struct run *run, struct plan *plan, struct err *err)
{
    *plan = (struct plan){.layout = layout_default(),
                          .gbs = run->stages[0].gbs,
                          .dtype = run->dtype};
    plan->layout.dp = run->resources.nodes * run->resources.ranks_per_node;
    int rc = layout ? layout_take(layout, run, plan, err) : 0;
    if (rc < 0)
        return rc;
    snprintf(plan->model, sizeof plan->model, "%s", run->model.name);
    if (run->resources.gpus_per_node == 0) /* the trainer knows what its GPU is called */
        snprintf(plan->device, sizeof plan->device, "cpu");
    plan->model_hash = model_hash(&run->model);
    if ((rc = run_stage_seq(run, 0, NULL, &plan->seq, err)) < 0)
        return rc;
    return layout_check(&plan->layout, &run->model, plan->seq, plan->gbs,
                        layout_world(&plan->layout), err);
}

/* Loads a tuned plan, which must have been made for this model and batch. */
static int plan_take(const char *path, struct run *run, struct plan *plan, struct err *err)
{
    int rc = plan_load(path, plan, err);
    if (rc < 0)
        return rc;
    struct hash128 want = model_hash(&run->model), none = {0};
    if (memcmp(&plan->model_hash, &none, sizeof none) &&
        memcmp(&plan->model_hash, &want, sizeof want))
        return err_set(err, ERR_INPUT, "%s: made for model '%s', the run trains '%s': tune again",
                       path, plan->model, run->model.name);
    if (plan->gbs != run->stages[0].gbs)
        return err_set(err, ERR_INPUT, "%s: gbs is %lld, the run's is %lld: tune again", path,
                       (long long)plan->gbs, (long long)run->stages[0].gbs);
    if ((rc = launch_plan_ours(plan, path, err)) < 0)
        return rc;
    return ranks_take(path, plan, run, err);
}

static void settings_format(const struct opt_values *v, struct str *out)
{
    opt_json(v, out);
    str_addc(out, '\n');
}

/* Copies partition, account, QOS and `again` into the run: from the command line, or from the
 * settings if the run's file leaves them open (`again` is open if it is "auto"). The stored run
 * keeps them, so that each resubmission uses the same. */
static int place_take(const struct opt_values *v, struct run *run, struct err *err)
{
    const struct {
        const char *name, **to;
    } places[] = {{"partition", &run->resources.partition},
                  {"account", &run->resources.account},
                  {"qos", &run->resources.qos}};
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if ((opt_typed(v, places[i].name) || (opt_given(v, places[i].name) && !*places[i].to)) &&
            !(*places[i].to = arena_strdup(&run->arena, opt_text(v, places[i].name))))
            return err_set(err, ERR_NOMEM, "out of memory");
    if (opt_typed(v, "again") || (opt_given(v, "again") && run->resources.again == AGAIN_AUTO))
        run->resources.again = (enum run_again)opt_enum(v, "again");
    return 0;
}

/* Takes the plan of the existing run of this name, because the run keeps its plan if no other is
 * given. It does not keep a plan for plain data parallelism, which is made for any number of ranks,
 * nor one that no longer fits the number of nodes. Returns whether the plan was taken; it is not if
 * the run does not exist or cannot be read, and a later step says why. */
static bool plan_keep(const char *home, struct run *run, struct plan *plan)
{
    char id[ID_TEXT_BYTES], dir[LIMIT_PATH_BYTES];
    struct run_state state;
    struct next now = {0};
    run_state_init(&state);
    bool there = home_name_find(home, run->name, id, NULL) == 0 &&
                 run_state_load(home_run_dir(home, id, dir), &state, NULL) == 0 &&
                 !launch_unborn(&state) && next_load(dir, &now, NULL) == 0;
    int64_t ranks = there ? now.run.resources.ranks_per_node : 0;
    bool kept = there && !change_plan_is_plain(&now.plan) &&
                layout_world(&now.plan.layout) == run->resources.nodes * ranks;
    if (kept) {
        *plan = now.plan;
        run->resources.ranks_per_node = ranks;
    }
    if (there)
        next_release(&now);
    run_state_release(&state);
    return kept;
}

static int load_all(const struct opt_values *v, const char *home, const char *run_path,
                    struct run *run, struct plan *plan, struct err *err)
{
    struct err why = {0};
    if (opt_given(v, "plan") && opt_given(v, "layout"))
        return err_set(err, ERR_USAGE,
                       "--plan and --layout both say how the run is spread: give one of them");
    int rc = run_load(run_path, run, err);
    if (rc < 0)
        return rc;
    if (opt_given(v, "name")) {
        if (id_name_check(opt_text(v, "name"), "--name", &why) < 0)
            return err_set(err, ERR_USAGE, "%s", why.text);
        snprintf(run->name, sizeof run->name, "%s", opt_text(v, "name"));
    }
    if (opt_given(v, "priority"))
        run->resources.priority = opt_int(v, "priority");
    if ((rc = place_take(v, run, err)) < 0)
        return rc;
    if ((rc = paths_resolve(run, err)) < 0)
        return err_context(err, "%s", run_path);
    if (opt_given(v, "plan"))
        return plan_take(opt_text(v, "plan"), run, plan, err);
    if (!opt_given(v, "layout") && plan_keep(home, run, plan))
        return 0;
    return plan_make(opt_text(v, "layout"), run, plan, err);
}

/* Asks 'reel-train ckpt fits' about the run file. Returns the exit status, or -1 if the program
 * could not be started, and adds the program's error sentence. */
static int fits_ask(const char *program, const char *run_path, struct str *sentence)
{
    static const char prefix[] = "reel-train: ";
    const char *argv[] = {program, "ckpt", "fits", run_path, NULL};
    struct spawn spawn = SPAWN_INIT;
    struct spawn_exit end;
    struct str said = STR_INIT;
    struct err why = {0};
    spawn.argv = argv;
    spawn.die_with_parent = true;
    int rc = spawn_run(&spawn, NULL, -1, NULL, &said, &end, &why);
    const char *text = rc < 0 ? why.text : said.len ? said.p : "it said nothing";
    text += strncmp(text, prefix, strlen(prefix)) == 0 ? strlen(prefix) : 0;
    str_addn(sentence, text, strcspn(text, "\n"));
    str_release(&said);
    return rc < 0 ? -1 : spawn_status(&end);
}

/* Checks that the model finds its initial weights in init.from. Only the trainer can read them. If
 * it cannot run here, as on a login node without its libraries, a warning says that the job will
 * check. */
static int weights_check(const struct cmd_env *env, const char *run_path, const struct run *run,
                         struct err *err)
{
    char program[LIMIT_PATH_BYTES + 16];
    struct str sentence = STR_INIT;
    snprintf(program, sizeof program, "%s/reel-train", env->bin_dir);
    int status = run->warm.from ? fits_ask(program, run_path, &sentence) : 0;
    int rc;
    if ((rc = str_check(&sentence, err)) < 0)
        goto out;
    if (status == err_exit_code(ERR_INPUT))
        rc = err_set(err, ERR_INPUT, "%s", sentence.p);
    else if (status != 0)
        fprintf(stderr,
                "reel: whether the model can begin with init.from '%s' could not be checked here, "
                "for '%s' ended with %d (%s): the job will see\n",
                run->warm.from, program, status, sentence.p ? sentence.p : "");
out:
    str_release(&sentence);
    return rc;
}

/* Checks that the job could start the run's ranks on the planned devices, that its saves are fast
 * enough, and that the scheduler would accept it. `script` gets the text of the job script and may
 * be NULL; `pace` gets what is known of the saves, if anything depends on that. */
static int checks_run(const struct opt_values *v, const struct cmd_env *env, struct sched *s,
                      const struct run *run, const char *run_path, const struct plan *plan,
                      struct str *script, struct pace_model *pace, struct err *err)
{
    enum lead_rule rule = (enum lead_rule)opt_enum(v, "lead");
    char id[ID_TEXT_BYTES];
    struct launch l;
    enum simd ignored; /* only the job's nodes know whether their processors have it */
    int rc;
    if ((rc = simd_named(&ignored, err)) < 0)
        return rc;
    if ((rc = build_gpus_check(env->bin_dir, run, run_path, err)) < 0)
        return rc;
    if (strcmp(s->ops->kind, "local") == 0 && (rc = build_here_check(run, run_path, err)) < 0)
        return rc;
    if ((rc = command_ranks_check(layout_world(&plan->layout), s->ops->starts_ranks, err)) < 0)
        return rc;
    if ((rc = launch_plans_check(run, layout_world(&plan->layout), err)) < 0)
        return rc;
    if ((rc = weights_check(env, run_path, run, err)) < 0)
        return rc;
    if (strcmp(s->ops->kind, "slurm") == 0 || run->resources.time_limit_s > 0)
        pace_model_find(env->home, run->model.name, pace); /* nothing else depends on it */
    if ((rc = lead_check(s, run->resources.partition, run->resources.time_limit_s, pace, rule,
                         err)) < 0)
        return rc;
    bool there = launch_id_find(env->home, run->name, id);
    launch_init(&l, env->home, env->bin_dir, id, &run->budget);
    l.save_s = pace->save_s;
    l.has_job = there;
    return launch_check(&l, s, run, script, err);
}

/* Finds the words for how an existing run goes on, and its job. */
static int word_find(const struct launch *l, struct str *word, char job[STATE_JOB_BYTES],
                     struct err *err)
{
    struct run_state state;
    char why[STATE_TEXT_BYTES];
    run_state_init(&state);
    int rc;
    if ((rc = run_state_load(l->run_dir, &state, err)) < 0)
        goto out;
    enum run_next next = run_state_next(&state, &l->budget, why);
    snprintf(job, STATE_JOB_BYTES, "%s", state.job_id);
    if (next == RUN_NEXT_DONE || next == RUN_NEXT_CANCELLED || next == RUN_NEXT_PAUSED)
        str_add(word, next == RUN_NEXT_DONE        ? "is done"
                      : next == RUN_NEXT_CANCELLED ? "was cancelled"
                                                   : "is paused");
    else if (next == RUN_NEXT_FAILED)
        str_addf(word, "failed: %s", why);
    else
        str_addf(word, "goes on, job %s", job);
out:
    run_state_release(&state);
    return rc;
}

static int submitted_print(const struct launch *l, bool existed, const struct change_told *told,
                           bool json, struct err *err)
{
    struct str text = STR_INIT, word = STR_INIT;
    struct json_out o;
    char job[STATE_JOB_BYTES] = "";
    int rc;
    if ((rc = word_find(l, &word, job, err)) < 0)
        goto out;
    if (!existed)
        str_clear(&word), str_addf(&word, "submitted, job %s", job);
    json_out_init(&o, &text, 2);
    if (json) {
        json_obj_begin(&o, NULL);
        json_put_text(&o, "schema", "reel.launch/1");
        json_put_text(&o, "run", l->run_id);
        json_put_text(&o, "run_dir", l->run_dir);
        json_put_text(&o, "state", existed ? word.p : "submitted");
        json_put_text(&o, "job_id", job);
        json_put_int(&o, "changes", told->n);
        json_obj_end(&o);
    } else {
        str_addf(&text, "run %s %s: 'reel watch %.8s' follows it", l->run_id, word.p ? word.p : "",
                 l->run_id);
    }
    str_addc(&text, '\n');
    if ((rc = str_check(&word, err)) < 0)
        goto out;
    rc = cmd_print(&text, err);
out:
    str_release(&text);
    str_release(&word);
    return rc;
}

/* Prints how the run goes on, and does not follow it. If the run existed before, the scheduler is
 * first asked whether the run's job lives. */
static int detach(const struct launch *l, struct sched *s, bool existed,
                  const struct change_told *told, bool json, struct err *err)
{
    enum run_next next = RUN_NEXT_WAIT;
    struct err why = {0};
    int rc;
    if (existed && (rc = launch_settle(l, s, &next, err)) < 0)
        return rc;
    int verdict = cmd_follow_verdict(l, next, &why);
    if ((json || verdict == 0) && (rc = submitted_print(l, existed, told, json, err)) < 0)
        return rc;
    return verdict < 0 ? err_set(err, verdict, "%s", why.text) : 0;
}

/* Adds to the error that the run was created, and how to launch it again or to free its name. */
static void made_tell(const char *name, struct err *err)
{
    struct err why = *err;
    err_set(err, why.code,
            "%s; run '%s' is made: launch it again then, or free its name by 'reel rm %s'",
            why.text, name, name);
}

/* Lists the keys of the run file that options have set. */
static void options_said(const struct opt_values *v, const char *keys[8])
{
    static const char *const of[][2] = {
        {"priority", "resources.priority"},    {"partition", "resources.partition"},
        {"account", "resources.account"},      {"qos", "resources.qos"},
        {"again", "resources.again"},          {"plan", "resources.ranks_per_node"},
        {"layout", "resources.ranks_per_node"}};
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(of); i++)
        if (opt_given(v, of[i][0]))
            keys[n++] = of[i][1];
    keys[n] = NULL;
}

static void changes_say(const struct change_told *told, const char *name)
{
    const char *line = told->lines.len ? told->lines.p : "";
    while (*line) {
        size_t len = strcspn(line, "\n");
        bool change = memmem(line, len, " -> ", 4) != NULL;
        fprintf(stderr, "run '%s': %.*s", name, (int)len, line);
        if (change)
            fprintf(stderr, " from attempt %lld", (long long)told->attempt);
        fputc('\n', stderr);
        line += len + (line[len] == '\n');
    }
}

/* Refuses to extend a run that is over if the scheduler still has a job of it, because the run
 * would go on in a second job beside that one. */
static int extend_check(const struct opt_values *v, const struct launch *l, struct sched *s,
                        struct err *err)
{
    struct run_state state;
    int rc;
    if (!opt_bool(v, "extend"))
        return 0;
    run_state_init(&state);
    if ((rc = run_state_load(l->run_dir, &state, err)) < 0)
        goto out;
    rc = control_left_over_check(l, s, &state, err);
out:
    run_state_release(&state);
    return rc;
}

/* Changes an existing run as its file and the options say. A dry run only lists the changes. */
static int change_ask(const struct opt_values *v, const char *path, const struct run *run,
                      const struct plan *plan, const struct launch *l, struct sched *s,
                      struct change_told *told, struct err *err)
{
    const char *keys[8];
    struct json_doc file = {0};
    int rc;
    if ((rc = extend_check(v, l, s, err)) < 0)
        return rc;
    options_said(v, keys);
    if ((rc = json_load(path, &file, err)) < 0)
        return rc;
    struct change_ask ask = {.run = run,
                             .plan = plan,
                             .plan_given = opt_given(v, "plan") || opt_given(v, "layout"),
                             .file = file.root,
                             .options = keys,
                             .extend = opt_bool(v, "extend"),
                             .rate = opt_given(v, "change"),
                             .dry = opt_bool(v, "dry-run")};
    rc = change_apply(l, &ask, told, err);
    json_release(&file);
    return rc;
}

/* Changes a run that exists. The changes take effect from its next attempt on, and a waiting job
 * that cannot run with them is replaced. */
static int existing_change(const struct opt_values *v, const char *path, const struct run *run,
                           const struct plan *plan, struct launch *l, struct sched *s,
                           struct change_told *told, struct err *err)
{
    char old[SCHED_ID_BYTES], new[SCHED_ID_BYTES];
    int rc = change_ask(v, path, run, plan, l, s, told, err);
    if (rc < 0)
        return rc;
    if (!opt_bool(v, "quiet"))
        fprintf(stderr, "run '%s' exists (%s): taking it up\n", run->name, l->run_id);
    changes_say(told, run->name);
    /* The run's budget may have changed. */
    if ((rc = launch_open(l->home, l->bin_dir, l->run_id, l, err)) < 0)
        return rc;
    if ((rc = launch_renew(l, s, old, new, err)) < 0)
        return rc;
    if (new[0])
        fprintf(stderr, "run '%s': job %s was submitted%s%s\n", run->name, new,
                old[0] ? " in place of job " : "", old);
    return 0;
}

/* Checks that the run exists if --extend or --change is given; otherwise checks that a run may have
 * this name. */
static int existed_check(const struct opt_values *v, const struct cmd_env *env, const char *name,
                         struct err *err)
{
    char id[ID_TEXT_BYTES];
    if (!opt_bool(v, "extend") && !opt_given(v, "change"))
        return home_name_check(env->home, name, err);
    int rc = home_name_find(env->home, name, id, NULL);
    return rc == ERR_NOT_FOUND
               ? err_set(err, ERR_NOT_FOUND, "%s: no run is named '%s': leave it out to make one",
                         opt_bool(v, "extend") ? "--extend" : "--change", name)
               : 0;
}

static int dry_run(const struct opt_values *v, const struct cmd_env *env, struct sched *s,
                   const char *path, const struct run *run, const struct plan *plan,
                   const struct str *script, struct err *err)
{
    char id[ID_TEXT_BYTES], new_dir[LIMIT_PATH_BYTES], reason[STATE_TEXT_BYTES];
    struct launch l;
    struct run_state state;
    struct change_told told = {0};
    struct err why = {0};
    struct launch_dry d = {run, plan, "create", "", home_run_dir(env->home, "<id>", new_dir),
                           script, &told};
    int rc, verdict = 0;
    run_state_init(&state);
    if ((rc = home_name_find(env->home, run->name, id, err)) < 0 && rc != ERR_NOT_FOUND)
        goto out;
    if (rc == 0) {
        if ((rc = launch_open(env->home, env->bin_dir, id, &l, err)) < 0)
            goto out;
        if ((rc = run_state_load(l.run_dir, &state, err)) < 0)
            goto out;
        bool unborn = launch_unborn(&state);
        d.state = run_state_word(&state, &l.budget);
        d.word = unborn ? "replace" : "take up";
        d.run_dir = unborn ? d.run_dir : l.run_dir;
        if (l.wrapped) {
            rc = err_set(err, ERR_EXISTS,
                         "run '%s' is one of 'reel wrap': give this one another name (--name)",
                         run->name);
            goto out;
        }
        if (!unborn && (rc = change_ask(v, path, run, plan, &l, s, &told, err)) < 0)
            goto out;
        if (!unborn)
            verdict = cmd_follow_verdict(&l, run_state_next(&state, &l.budget, reason), &why);
    }
    if ((rc = launch_dry_print(&d, s, opt_bool(v, "json"), err)) == 0 && verdict < 0)
        rc = err_set(err, verdict, "%s", why.text);
out:
    run_state_release(&state);
    str_release(&told.lines);
    return rc;
}

/* Opens the scheduler that runs the job. If Slurm is not available, the error suggests the local
 * one. */
static int scheduler_open(const struct opt_values *v, const struct cmd_env *env, struct sched **s,
                          struct err *err)
{
    const char *kind = opt_text(v, "scheduler");
    struct err why = {0};
    int rc = sched_open(kind, env->home, s, &why);
    bool advise = rc == ERR_ENV && strcmp(kind, "slurm") == 0;
    return rc < 0 ? err_set(err, rc, "%s%s", why.text, advise ? ", or --scheduler local" : "") : 0;
}

/* Checks whether memory and disk suffice, and whether a new run's folders can be made. The disk is
 * not checked for an existing run, which deletes older checkpoints to make room. */
static int room_check(const struct cmd_env *env, const struct sched *s, const struct run *run,
                      const struct plan *plan, struct err *err)
{
    char id[ID_TEXT_BYTES], dir[LIMIT_PATH_BYTES];
    bool is_new = home_name_find(env->home, run->name, id, NULL) == ERR_NOT_FOUND;
    struct launch_dry d = {.run = run, .plan = plan};
    d.run_dir = home_run_dir(env->home, "<id>", dir);
    int rc;
    if (is_new && (rc = home_new_check(env->home, err)) < 0)
        return rc;
    return launch_room_check(&d, s, is_new, err);
}

/* Loads the run and its plan, opens the scheduler, and makes all checks except room_check, which
 * comes after the output of a dry run. */
static int all_check(const struct opt_values *v, const struct cmd_env *env, const char *path,
                     struct run *run, struct plan *plan, struct sched **s, struct str *script,
                     struct pace_model *pace, struct err *err)
{
    int rc;
    if ((rc = load_all(v, env->home, path, run, plan, err)) < 0)
        return rc;
    if ((rc = build_programs_check(env->bin_dir, err)) < 0)
        return rc;
    if ((rc = existed_check(v, env, run->name, err)) < 0)
        return rc;
    if ((rc = scheduler_open(v, env, s, err)) < 0)
        return rc;
    return checks_run(v, env, *s, run, path, plan, script, pace, err);
}

/* Creates the run. If a run of its name exists, changes that one as the file and the options
 * say. */
static int run_make(const struct opt_values *v, const struct cmd_env *env, const char *path,
                    const struct run *run, const struct plan *plan, struct sched *s,
                    struct launch *l, bool *existed, struct change_told *told, struct err *err)
{
    struct str settings = STR_INIT;
    int rc;
    settings_format(v, &settings);
    if ((rc = launch_create(env->home, env->bin_dir, run, plan, settings.p, l, existed, err)) < 0)
        goto out;
    if (*existed)
        rc = existing_change(v, path, run, plan, l, s, told, err);
out:
    str_release(&settings);
    return rc;
}

/* Creates the run, submits it and follows it. */
static int run_launch(const struct opt_values *v, struct cmd_env *env, const char *path,
                      const struct run *run, const struct plan *plan, struct sched *s,
                      double save_s, struct err *err)
{
    struct launch l;
    struct change_told told = {0};
    bool existed = false, json = opt_bool(v, "json");
    int rc;
    if ((rc = run_make(v, env, path, run, plan, s, &l, &existed, &told, err)) < 0)
        goto out;
    l.save_s = save_s;
    if ((rc = launch_submit(&l, s, NULL, err)) < 0) {
        if (rc == ERR_FULL && !existed) /* the next launch finds out whether there is a job */
            made_tell(run->name, err);
        goto out;
    }
    if (opt_bool(v, "detach")) {
        rc = detach(&l, s, existed, &told, json, err);
    } else {
        rc = cmd_follow(&l, s, json, opt_bool(v, "quiet"), err);
        cmd_ingest(env);
        cmd_follow_leave();
    }
out:
    str_release(&told.lines);
    return rc;
}

int cmd_launch_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *const *operands;
    struct run run = {0};
    static struct plan plan; /* a plan and a run together are too large for the stack */
    struct sched *s = NULL;
    struct str script = STR_INIT;
    struct pace_model pace = {0};
    bool dry = opt_bool(v, "dry-run");
    int rc;
    opt_operands(v, &operands);
    if ((rc = all_check(v, env, operands[0], &run, &plan, &s, &script, &pace, err)) < 0)
        goto out;
    if (dry && (rc = dry_run(v, env, s, operands[0], &run, &plan, &script, err)) < 0)
        goto out;
    if ((rc = room_check(env, s, &run, &plan, err)) < 0 || dry)
        goto out;
    launch_differs_note(&run, &plan, s);
    rc = run_launch(v, env, operands[0], &run, &plan, s, pace.save_s, err);
out:
    sched_close(s);
    run_release(&run);
    str_release(&script);
    return rc;
}
