/* reel launch: hand a run to the scheduler and follow it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "launcher/cmd/follow.h"
#include "launcher/cmd/lead.h"
#include "profiles/dataset.h"

static const struct opt opts[] = {
    CMD_OPT_JSON,
    CMD_OPT_DRY_RUN,
    {"plan", 0, OPT_TEXT, "FILE", "layout to use, as written by 'reel tune' (default: data parallel over the run's ranks)"},
    {"name", 0, OPT_TEXT, "NAME", "name of the run instead of the one in the file"},
    {"priority", 0, OPT_INT, "N", "priority instead of the one in the file", .min = -1000, .max = 1000},
    {"scheduler", 0, OPT_ENUM, "KIND", "who runs the job", .fallback = "local",
     .choices = (const char *const[]){"local", "slurm", NULL}, .flags = OPT_SETTING},
    {"partition", 0, OPT_TEXT, "NAME", "Slurm partition instead of the one in the file", .flags = OPT_SETTING},
    {"account", 0, OPT_TEXT, "NAME", "Slurm account instead of the one in the file", .flags = OPT_SETTING},
    {"qos", 0, OPT_TEXT, "NAME", "Slurm quality of service instead of the one in the file", .flags = OPT_SETTING},
    {"again", 0, OPT_ENUM, "HOW", "how it comes back, instead of resources.again of the file: its job requeued, or a successor that waits for its end",
     .fallback = "auto", .choices = again_names, .flags = OPT_SETTING},
    {"lead", 0, OPT_ENUM, "RULE", "when saves take longer than a preemption leaves", .fallback = "warn",
     .choices = (const char *const[]){"warn", "refuse", "ignore", NULL}, .flags = OPT_SETTING},
    {"detach", 'd', OPT_BOOL, NULL, "return as soon as the job is submitted"},
    {"quiet", 'q', OPT_BOOL, NULL, "no progress, only the end"},
};
const struct opt_cmd cmd_launch = {
    "launch", "run a training to its end, through preemption and crashes", "RUN.json", opts, ARRAY_LEN(opts), 1, 1,
    "Submits the run's agent and follows it. Interrupting or killing this command changes nothing: the run goes on, and the "
    "same command with the same file takes it up again instead of making a second one."};

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
    int rc = run_synthetic(*data, what, thw, err);
    return rc == 0 ? path_resolve(run, data, what, err) : rc < 0 ? rc : 0;
}

/* Paths in a run file are the user's; in the run's own folder they are absolute. */
static int paths_resolve(struct run *run, struct err *err)
{
    char what[64];
    int rc = run->validation.data ? data_resolve(run, &run->validation.data, "validation.data", err) : 0;
    for (int64_t i = 0; i < run->n_stages && rc == 0; i++) {
        snprintf(what, sizeof what, "stages[%lld].data", (long long)i);
        rc = data_resolve(run, &run->stages[i].data, what, err);
        snprintf(what, sizeof what, "stages[%lld].plan", (long long)i);
        if (rc == 0 && run->stages[i].plan)
            rc = path_resolve(run, &run->stages[i].plan, what, err);
    }
    if (rc == 0 && run->warm.from)
        rc = path_resolve(run, &run->warm.from, "init.from", err);
    return rc < 0 ? rc : run_bind_data(run, err);
}

/* Without a tuned plan: data parallel over the run's ranks. No peak is known then, so no MFU is given. */
static int plan_make(const struct run *run, struct plan *plan, struct err *err)
{
    *plan = (struct plan){.layout = layout_default(), .gbs = run->stages[0].gbs, .dtype = run->dtype};
    plan->layout.dp = run->resources.nodes * run->resources.ranks_per_node;
    snprintf(plan->model, sizeof plan->model, "%s", run->model.name);
    snprintf(plan->device, sizeof plan->device, "cpu");
    plan->model_hash = model_hash(&run->model);
    int rc = run_stage_seq(run, 0, &plan->seq, err);
    return rc < 0 ? rc : layout_check(&plan->layout, &run->model, plan->seq, plan->gbs, layout_world(&plan->layout), err);
}

/* A tuned plan decides how many ranks there are; it must have been made for this model and batch. */
static int plan_take(const char *path, struct run *run, struct plan *plan, struct err *err)
{
    int rc = plan_load(path, plan, err);
    if (rc < 0)
        return rc;
    struct hash128 want = model_hash(&run->model), none = {0};
    if (memcmp(&plan->model_hash, &none, sizeof none) && memcmp(&plan->model_hash, &want, sizeof want))
        return err_set(err, ERR_INPUT, "%s: made for model '%s', the run trains '%s': tune again", path, plan->model,
                       run->model.name);
    if (plan->gbs != run->stages[0].gbs)
        return err_set(err, ERR_INPUT, "%s: gbs is %lld, the run's is %lld: tune again", path, (long long)plan->gbs,
                       (long long)run->stages[0].gbs);
    int64_t world = layout_world(&plan->layout), nodes = run->resources.nodes;
    if (world % nodes)
        return err_set(err, ERR_INPUT, "%s: %lld ranks cannot be spread evenly over the run's %lld nodes", path,
                       (long long)world, (long long)nodes);
    run->resources.ranks_per_node = world / nodes;
    return 0;
}

static void settings_format(const struct opt_values *v, struct str *out)
{
    opt_json(v, out);
    str_addc(out, '\n');
}

static int dry_print(const struct run *run, const struct plan *plan, struct err *err)
{
    struct str text = STR_INIT;
    struct json_out o;
    json_out_init(&o, &text, 2);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", "reel.launch/1");
    json_put_bool(&o, "dry_run", true);
    json_put_text(&o, "name", run->name);
    json_put_int(&o, "total_steps", run_total_steps(run));
    json_put_int(&o, "ranks", layout_world(&plan->layout));
    layout_write(&plan->layout, &o, "layout");
    json_obj_end(&o);
    str_addc(&text, '\n');
    int rc = cmd_print(&text, err);
    str_release(&text);
    return rc;
}

/* What the command line and the settings say of where it runs goes into the run's own file: every resubmission says the same. */
static int place_take(const struct opt_values *v, struct run *run, struct err *err)
{
    const struct {
        const char *name, **to;
    } places[] = {{"partition", &run->resources.partition}, {"account", &run->resources.account}, {"qos", &run->resources.qos}};
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if (opt_given(v, places[i].name) && !(*places[i].to = arena_strdup(&run->arena, opt_text(v, places[i].name))))
            return err_set(err, ERR_NOMEM, "out of memory");
    if (opt_given(v, "again"))
        run->resources.again = (enum run_again)opt_enum(v, "again");
    return 0;
}

static int load_all(const struct opt_values *v, const char *run_path, struct run *run, struct plan *plan, struct err *err)
{
    struct err why = {0};
    int rc = run_load(run_path, run, err);
    if (rc < 0)
        return rc;
    if (opt_given(v, "name")) {
        if (run_name_check(opt_text(v, "name"), "--name", &why) < 0)
            return err_set(err, ERR_USAGE, "%s", why.text);
        snprintf(run->name, sizeof run->name, "%s", opt_text(v, "name"));
    }
    if (opt_given(v, "priority"))
        run->resources.priority = opt_int(v, "priority");
    if ((rc = place_take(v, run, err)) < 0)
        return rc;
    if ((rc = paths_resolve(run, err)) < 0)
        return err_context(err, "%s", run_path);
    return opt_given(v, "plan") ? plan_take(opt_text(v, "plan"), run, plan, err) : plan_make(run, plan, err);
}

/* Before anything is recorded: what the job will start is there. */
static int programs_check(const char *bin_dir, struct err *err)
{
    static const char *const names[] = {"reel", "reel-train"};
    char path[LIMIT_PATH_BYTES + 16];
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof path, "%s/%s", bin_dir, names[i]);
        if (access(path, X_OK) != 0)
            return err_set_errno(err, ERR_ENV, "cannot run '%s', which the job needs", path);
    }
    return 0;
}

static int submitted_print(const struct launch *l, bool json, struct err *err)
{
    struct str text = STR_INIT;
    struct json_out o;
    json_out_init(&o, &text, 2);
    if (json) {
        json_obj_begin(&o, NULL);
        json_put_text(&o, "schema", "reel.launch/1");
        json_put_text(&o, "run", l->run_id);
        json_put_text(&o, "run_dir", l->run_dir);
        json_put_text(&o, "state", "submitted");
        json_obj_end(&o);
    } else {
        str_addf(&text, "run %s submitted: 'reel watch %.8s' follows it", l->run_id, l->run_id);
    }
    str_addc(&text, '\n');
    int rc = cmd_print(&text, err);
    str_release(&text);
    return rc;
}

int cmd_launch_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *const *operands;
    struct run run = {0};
    struct plan plan;
    struct launch l;
    struct sched *s = NULL;
    struct str settings = STR_INIT;
    bool existed = false;
    opt_operands(v, &operands);
    int rc = load_all(v, operands[0], &run, &plan, err);
    if (rc < 0 || (rc = programs_check(env->bin_dir, err)) < 0)
        goto out;
    if (opt_bool(v, "dry-run")) {
        rc = dry_print(&run, &plan, err);
        goto out;
    }
    settings_format(v, &settings);
    if ((rc = sched_open(opt_text(v, "scheduler"), env->home, &s, err)) < 0 ||
        (rc = lead_check(env, s, run.resources.partition, run.model.name, (enum lead_rule)opt_enum(v, "lead"), err)) < 0 ||
        (rc = launch_create(env->home, env->bin_dir, &run, &plan, settings.p, &l, &existed, err)) < 0)
        goto out;
    if (existed && !opt_bool(v, "quiet"))
        fprintf(stderr, "run '%s' exists (%s): taking it up\n", run.name, l.run_id);
    if ((rc = launch_submit(&l, s, NULL, err)) < 0)
        goto out;
    if (opt_bool(v, "detach")) {
        rc = submitted_print(&l, opt_bool(v, "json"), err);
    } else {
        rc = cmd_follow(&l, s, opt_bool(v, "json"), opt_bool(v, "quiet"), err);
        cmd_ingest(env);
    }
out:
    sched_close(s);
    run_release(&run);
    str_release(&settings);
    return rc;
}
