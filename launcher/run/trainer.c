#include "launcher/run/trainer.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/events.h"
#include "base/owner.h"
#include "launcher/run/node_agent.h"
#include "launcher/run/placement.h"
#include "launcher/run/ranks.h"
#include "launcher/start/command.h"
#include "launcher/state/pace.h"
#include "launcher/state/space.h"
#include "profiles/saved.h"

/* Rank 0 on another node counts as dead after this long without a heartbeat. Until then it may
 * publish a checkpoint, which the next attempt may load. */
static const double RANK0_SILENT_S = 4 * LEASE_BEAT_S;

extern char **environ;

/* ---- both kinds ---- */

void trainer_init(struct trainer *t, struct duty *duty, struct attempt *attempt,
                  const struct run_state *state, const char *home, const char *bin_dir,
                  struct arena *arena)
{
    *t = (struct trainer){
        .kind = duty->kind,
        .duty = duty,
        .attempt = attempt,
        .state = state,
        .home = home,
        .bin_dir = bin_dir,
        .arena = arena,
    };
}

void trainer_end_step(struct trainer *t)
{
    sched_step_free(t->step);
    t->step = NULL;
}

void trainer_release(struct trainer *t)
{
    trainer_end_step(t);
    foreign_close(&t->foreign);
}

static void event_started(struct trainer *t, int ranks)
{
    struct evlog_event e;
    event_begin(t->attempt->log, &e, trainer_started);
    event_int(&e, trainer_started, ranks, ranks);
    event_bool(&e, trainer_started, foreign, t->kind->foreign);
    event_bool(&e, trainer_started, prints_steps, t->foreign.steps.reader != NULL);
    attempt_event(t->attempt, &e);
}

int trainer_start(struct trainer *t, struct err *err)
{
    char log[LIMIT_PATH_BYTES];
    struct sched_step_spec spec = SCHED_STEP_SPEC_INIT;
    int rc;
    if ((rc = t->kind->command(t, &spec, err)) < 0)
        return rc;
    spec.log_path = attempt_output_log(t->attempt, log);
    if ((rc = t->kind->place(t, &spec, err)) < 0)
        return rc;
    if ((rc = sched_step_start(t->duty->steps, &spec, &t->step, err)) < 0)
        return rc;
    event_started(t, spec.ranks);
    return 0;
}

/* ---- reel's own trainer ---- */

static int ours_load(struct duty *d, const char *run_dir, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    snprintf(path, sizeof path, "%s/run.json", run_dir);
    int rc = run_load(path, &d->run, err);
    snprintf(path, sizeof path, "%s/plan.json", run_dir);
    if (rc < 0 || (rc = plan_load(path, &d->plan, err)) < 0)
        return rc;
    d->budget = d->run.budget;
    d->time_limit_s = d->run.resources.time_limit_s;
    d->node_agents = d->run.resources.node_agents;
    d->notice = SIGUSR1;
    return 0;
}

/* Finds the job of a run of reel's own trainer, whose ranks the scheduler itself starts. */
static int ours_job(struct duty *d, const char *home, struct err *err)
{
    const char *kind = getenv("REEL_JOB_SCHED");
    bool by_hand = !kind || !*kind;
    int rc = sched_open(by_hand ? "local" : kind, home, &d->steps, err);
    if (rc < 0 || by_hand)
        return rc;
    d->sched = d->steps;
    return sched_self(d->sched, &d->self, err);
}

/* Adds arguments with the mean time between failures and the time of a save, from which the trainer
 * chooses how often it saves. */
static void cadence_args(struct trainer *t, const char *args[], size_t *n)
{
    double mtbf_s = pace_mtbf_s(t->state), save_s = pace_save_s(t->state);
    if (mtbf_s > 0)
        args[(*n)++] = arena_printf(t->arena, "--mtbf=%.6gs", mtbf_s);
    if (save_s > 0)
        args[(*n)++] = arena_printf(t->arena, "--save-took=%.6gs", save_s);
}

/* Makes the trainer's environment: this process's, with the id by which its ranks are found. */
static int environment(struct trainer *t, const char ***env, struct err *err)
{
    char trainer_id[LIMIT_NAME_BYTES];
    node_agent_trainer_id(t->attempt->run_dir, t->attempt->number, trainer_id);
    /* GPUs are numbered by PCI address, as topo numbers them, unless a site says otherwise. */
    const char *extra[] = {arena_printf(t->arena, RANKS_VARIABLE "=%s", trainer_id),
                           getenv("CUDA_DEVICE_ORDER") ? NULL : "CUDA_DEVICE_ORDER=PCI_BUS_ID",
                           NULL};
    if (!extra[0])
        return err_set(err, ERR_NOMEM, "out of memory");
    return command_environment((const char *const *)environ, extra, t->arena, env, err);
}

/* Makes the trainer's command. It has --stop-ok, which gives exit status 0 after a stop: the
 * trainer's events say how it ended, and mpirun would delay any other status by two seconds. */
static int ours_command(struct trainer *t, struct sched_step_spec *spec, struct err *err)
{
    const char *dir = t->attempt->run_dir;
    char *run_json = arena_printf(t->arena, "%s/run.json", dir);
    char *plan_json = arena_printf(t->arena, "%s/plan.json", dir);
    char *attempt = arena_printf(t->arena, "%lld", (long long)t->attempt->number);
    if (!run_json || !plan_json || !attempt)
        return err_set(err, ERR_NOMEM, "out of memory");
    const char *args[16] = {"train", "--run", run_json, "--plan", plan_json, "--run-dir", dir,
                            "--attempt", attempt, "--stop-ok"};
    const char **env;
    struct command command;
    size_t n = 10;
    if (t->state->saved_step > 0)
        args[n++] = "--resume";
    if (t->duty->run.ckpt_every_steps == 0)
        cadence_args(t, args, &n);
    spec->ranks = (int)layout_world(&t->duty->plan.layout);
    spec->cwd = dir;
    int rc;
    if ((rc = environment(t, &env, err)) < 0)
        return rc;
    if ((rc = command_trainer(t->bin_dir, spec->ranks, t->duty->steps->ops->starts_ranks, args,
                              (const char *const *)env, t->arena, &command, err)) < 0)
        return rc;
    spec->argv = command.argv;
    spec->env = command.env;
    return 0;
}

static int ours_place(struct trainer *t, struct sched_step_spec *spec, struct err *err)
{
    struct placement placement;
    (void)err;
    command_groups(&t->duty->plan.layout, spec->groups);
    placement_find(&placement, t->duty->steps, t->home, &t->duty->self, spec, t->arena);
    placement_record(&placement, t->attempt);
    spec->cpus = placement.cpus;
    return 0;
}

static void ours_tell(struct trainer *t, const char *shared)
{
    (void)shared;
    sched_step_signal(t->step, SIGUSR1, NULL);
}

/* Tells whether rank 0 lives. As long as it does it owns the run's folder. */
static bool ours_lives(struct trainer *t, bool told)
{
    (void)told;
    return owner_lives(&t->owner, t->attempt->run_dir, t->attempt->number, RANK0_SILENT_S);
}

static void ours_follow(struct trainer *t, bool last)
{
    (void)t;
    (void)last;
}

/* Returns the path of the log of rank 0, which writes an event for every step, save and load. */
static char *ours_pulse(const struct trainer *t, char buf[LIMIT_PATH_BYTES])
{
    return attempt_rank0_log(t->attempt, buf);
}

static bool ours_is_through(const struct trainer *t)
{
    (void)t;
    return false;
}

static bool ours_exited(struct trainer *t, const struct sched_step_status *exit)
{
    attempt_misunderstood_note(t->attempt, exit->exit_code);
    return false;
}

/* Says for a trainer that had no room for the word how much room its save needs, so that the next
 * attempt knows when there is enough. */
static void ours_space_low(struct trainer *t, const struct run_attempt *told)
{
    int64_t needed = 0;
    if (saved_bytes(&t->duty->run, &t->duty->plan.layout, &needed, NULL) == 0)
        space_event_low(t->attempt, needed + SAVED_BESIDE_BYTES,
                        space_left(t->attempt->run_dir, NULL),
                        space_files_left(t->attempt->run_dir, NULL),
                        told ? run_attempt_reach(told) : 0);
}

static void ours_ended(struct trainer *t, const struct sched_step_status *exit, bool stopped,
                       struct trainer_end *end)
{
    (void)stopped;
    const struct run_attempt *told = attempt_told(t->state, t->attempt->number);
    end->disk_full = space_missed(t->attempt, told, exit->exit_code);
    if (end->disk_full && !(told && told->space.any))
        ours_space_low(t, told);
}

const struct trainer_kind trainer_ours = {
    .changes = true,
    .yields = true,
    .waits_by_hand = true,
    .stays_cancelled = true,
    .tells_divergence = true,
    .load = ours_load,
    .job = ours_job,
    .command = ours_command,
    .place = ours_place,
    .tell = ours_tell,
    .lives = ours_lives,
    .follow = ours_follow,
    .pulse = ours_pulse,
    .is_through = ours_is_through,
    .exited = ours_exited,
    .ended = ours_ended,
};
