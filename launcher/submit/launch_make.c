/* This file creates runs, and finds existing ones. */
#include "launcher/submit/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/events.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/lease.h"
#include "launcher/state/home.h"
#include "launcher/state/next.h"
#include "launcher/wrap/wrap.h"
#include "profiles/stack.h"

void launch_init(struct launch *l, const char *home, const char *bin_dir, const char *run_id,
                 const struct run_budget *budget)
{
    *l = (struct launch){.home = home, .bin_dir = bin_dir};
    snprintf(l->run_id, sizeof l->run_id, "%s", run_id);
    home_run_dir(home, run_id, l->run_dir);
    l->budget = *budget;
}

static int foreign_open(const char *home, const char *bin_dir, const char *id, const char *run_dir,
                        struct launch *out, struct err *err)
{
    struct wrap wrap;
    int rc = wrap_load(run_dir, &wrap, err);
    if (rc < 0)
        return rc;
    launch_init(out, home, bin_dir, id, &wrap.budget);
    out->wrapped = true;
    wrap_release(&wrap);
    return 0;
}

/* Says which of the two files without which there is no run is not in its folder. */
static const char *file_lost(const char *run_dir)
{
    char path[LIMIT_PATH_BYTES + 16];
    snprintf(path, sizeof path, "%s/run.json", run_dir);
    return file_exists(path) ? "plan.json" : "run.json";
}

int launch_open(const char *home, const char *bin_dir, const char *name_or_id, struct launch *out,
                struct err *err)
{
    char id[ID_TEXT_BYTES], name[LIMIT_NAME_BYTES], path[LIMIT_PATH_BYTES];
    struct next next = {0};
    int rc = home_run_find(home, name_or_id, id, err);
    if (rc < 0)
        return rc;
    if (!file_exists(home_run_dir(home, id, path)) && (rc = home_runs_check(home, err)) < 0)
        return rc;
    if (!file_exists(path))
        return err_set(err, ERR_INPUT, "run '%s' has no folder '%s' any more: put it back, or free "
                       "the name by 'reel rm %s'", home_name_or_id(home, id, name), path, name);
    if (wrap_is(path))
        return foreign_open(home, bin_dir, id, path, out, err);
    rc = next_load(path, &next, err);
    if (rc == ERR_NOT_FOUND)
        return err_set(err, rc,
                       "run '%s' has no file of its own in its folder '%s' any more: put %s "
                       "back, or remove what is left by 'reel rm %s'",
                       home_name_or_id(home, id, name), path, file_lost(path), name);
    if (rc < 0)
        return rc;
    launch_init(out, home, bin_dir, id, &next.run.budget);
    next_release(&next);
    return 0;
}

static int event_created(const struct launch *l, const struct run *run, struct err *err)
{
    struct evlog *log = NULL;
    struct evlog_event e;
    struct str data = STR_INIT;
    char hash[HASH_TEXT_BYTES];
    int rc = launch_log_open(l, NULL, &log, err);
    if (rc < 0)
        return rc;
    for (int64_t i = 0; i < run->n_stages; i++) /* the fingerprint of synthetic data is zero */
        str_addf(&data, "%s%s", i ? " " : "", hash_format(run->stages[i].data_fingerprint, hash));
    event_begin(log, &e, run_created);
    event_text(&e, run_created, name, run->name);
    event_text(&e, run_created, config_hash, hash_format(run_config_hash(run), hash));
    event_text(&e, run_created, model, run->model.name);
    event_int(&e, run_created, total_steps, run_total_steps(run));
    event_text(&e, run_created, data_fingerprints, data.p);
    rc = evlog_commit(log, &e, true, err);
    str_release(&data);
    evlog_close(log);
    return rc;
}

/* Says whether a plan's stack is our own trainer; "": its machine was probed by that one. */
static bool is_our_stack(const char *name)
{
    struct stack stack;
    return !*name || (stack_load(name, &stack, NULL) == 0 && stack.kind == STACK_REEL);
}

int launch_plan_ours(const struct plan *plan, const char *from, struct err *err)
{
    if (!*plan->adapter || is_our_stack(plan->stack))
        return 0;
    return err_set(err, ERR_INPUT,
                   "%s: made for another trainer (adapter %s, stack %s), and this run is of reel's "
                   "own: give a plan that was made without --adapter or --export, or start that "
                   "trainer by 'reel wrap'",
                   from, plan->adapter, plan->stack);
}

static int stage_plan_load(const struct run *run, int64_t i, int64_t world, struct plan *plan,
                           struct err *err)
{
    const char *from = run->stages[i].plan;
    int rc;
    if ((rc = plan_load(from, plan, err)) < 0)
        return rc;
    if ((rc = launch_plan_ours(plan, from, err)) < 0)
        return err_context(err, "stages[%lld].plan", (long long)i);
    if (layout_world(&plan->layout) != world)
        return err_set(err, ERR_INPUT,
                       "stages[%lld].plan '%s' is for %lld ranks, the run has %lld: "
                       "give plans for as many",
                       (long long)i, from, (long long)layout_world(&plan->layout),
                       (long long)world);
    rc = layout_check(&plan->layout, &run->model, plan->seq, plan->gbs, world, err);
    return rc < 0 ? err_context(err, "stages[%lld].plan '%s'", (long long)i, from) : 0;
}

int launch_plans_check(const struct run *run, int64_t world, struct err *err)
{
    struct plan plan;
    int rc;
    for (int64_t i = 0; i < run->n_stages; i++)
        if (run->stages[i].plan && (rc = stage_plan_load(run, i, world, &plan, err)) < 0)
            return rc;
    return 0;
}

/* Copies the stages' plans into the run's folder, so that later edits of the user's files do not
 * change the run. */
static int stage_plans_write(const struct launch *l, struct run *run,
                             char paths[LIMIT_STAGES][LIMIT_PATH_BYTES + 32], int64_t world,
                             struct err *err)
{
    for (int64_t i = 0; i < run->n_stages; i++) {
        struct plan plan;
        if (!run->stages[i].plan)
            continue;
        snprintf(paths[i], sizeof paths[i], "%s/stage-%02lld.plan.json", l->run_dir, (long long)i);
        int rc = stage_plan_load(run, i, world, &plan, err);
        if (rc < 0 || (rc = plan_save(&plan, paths[i], err)) < 0)
            return rc;
        run->stages[i].plan = paths[i];
    }
    return 0;
}

/* Writes run.json, plan.json, and the plans of the stages, which run.json names. */
static int run_write_all(const struct launch *l, const struct run *run, const struct plan *plan,
                         struct err *err)
{
    char path[LIMIT_PATH_BYTES + 32];
    char(*plans)[LIMIT_PATH_BYTES + 32] = calloc(LIMIT_STAGES, sizeof *plans);
    struct run own = *run; /* shares all texts but the plans' paths */
    int rc;
    if (!plans)
        return err_set(err, ERR_NOMEM, "out of memory for a run");
    if ((rc = stage_plans_write(l, &own, plans, layout_world(&plan->layout), err)) < 0)
        goto out;
    snprintf(path, sizeof path, "%s/run.json", l->run_dir);
    rc = run_save(&own, path, err);
out:
    free(plans);
    return rc;
}

static int folder_write(const struct launch *l, const struct run *run, const struct plan *plan,
                        const char *settings_json, struct err *err)
{
    char path[LIMIT_PATH_BYTES + 32];
    int rc;
    if ((rc = file_mkdirs(l->run_dir, err)) < 0)
        return rc;
    if ((rc = run_write_all(l, run, plan, err)) < 0)
        return rc;
    snprintf(path, sizeof path, "%s/plan.json", l->run_dir);
    if ((rc = plan_save(plan, path, err)) < 0)
        return rc;
    snprintf(path, sizeof path, "%s/settings.json", l->run_dir);
    if (settings_json &&
        (rc = file_publish(path, settings_json, strlen(settings_json), err)) < 0)
        return rc;
    return event_created(l, run, err);
}

/* Opens the existing run of this name. The caller compares it with the new settings
 * (launcher/submit/change.h). */
static int existing_take(const char *home, const char *bin_dir, const char *id, struct launch *out,
                         struct err *err)
{
    int rc;
    if ((rc = launch_open(home, bin_dir, id, out, err)) < 0)
        return rc;
    if (out->wrapped)
        return err_set(err, ERR_EXISTS,
                       "run %s is one of 'reel wrap': give this one another name (--name)", id);
    return 0;
}

bool launch_unborn(const struct run_state *s)
{
    return s->refused_order > 0 && s->refused_order >= s->intent_order && s->submitted_at == 0 &&
           s->n_attempts == 0;
}

bool launch_id_find(const char *home, const char *name, char id[ID_TEXT_BYTES])
{
    char dir[LIMIT_PATH_BYTES];
    struct run_state state;
    run_state_init(&state);
    bool there = home_name_find(home, name, id, NULL) == 0;
    if (!there || run_state_load(home_run_dir(home, id, dir), &state, NULL) < 0 ||
        launch_unborn(&state))
        snprintf(id, ID_TEXT_BYTES, "<id>");
    run_state_release(&state);
    return there;
}

/* Removes a run whose every submission was refused, so that a new run can have its name. Returns 1
 * if it removed the run. */
static int unborn_remove(const char *home, const char *bin_dir, const char *id, struct err *err)
{
    struct launch l;
    struct run_state state;
    static const struct run_budget usual = RUN_BUDGET_INIT;
    struct lease *lock = NULL;
    bool unborn = false;
    int rc = 0;
    run_state_init(&state);
    launch_init(&l, home, bin_dir, id, &usual);
    if (file_exists(l.run_dir) && (rc = run_state_load(l.run_dir, &state, err)) < 0)
        goto out;
    if (!launch_unborn(&state))
        goto out;
    if ((rc = launch_lock(&l, &lock, &state, err)) < 0)
        goto out;
    unborn = launch_unborn(&state);
    if (unborn)
        rc = home_run_remove(home, id, err);
out:
    lease_drop(lock);
    run_state_release(&state);
    return rc < 0 ? rc : unborn;
}

/* Finds out whether a run has the name. A run whose every submission was refused is removed
 * first. */
static int name_look(const char *home, const char *bin_dir, const char *name,
                     char taken[ID_TEXT_BYTES], bool *existed, struct err *err)
{
    int rc;
    if ((rc = home_name_find(home, name, taken, err)) < 0)
        return rc == ERR_NOT_FOUND ? 0 : rc;
    if ((rc = unborn_remove(home, bin_dir, taken, err)) < 0)
        return rc == ERR_NOT_FOUND ? 0 : rc;
    *existed = rc == 0;
    return 0;
}

/* Writes a new run's folder, and binds its name last, so that a found name always leads to a
 * complete run. If the name cannot be bound, because another process bound it first (*existed,
 * `taken` is its run's id) or the disk is full, the folder is removed. */
static int run_make(struct launch *l, const struct run *run, const struct plan *plan,
                    const char *settings_json, char taken[ID_TEXT_BYTES], bool *existed,
                    struct err *err)
{
    int rc;
    if ((rc = folder_write(l, run, plan, settings_json, err)) < 0)
        goto out;
    rc = home_name_claim(l->home, run->name, l->run_id, taken, err);
    *existed = rc == ERR_EXISTS;
out:
    if (rc < 0)
        file_remove_tree(l->run_dir, NULL);
    return rc;
}

int launch_create(const char *home, const char *bin_dir, const struct run *run,
                  const struct plan *plan, const char *settings_json, struct launch *out,
                  bool *existed, struct err *err)
{
    char id[ID_TEXT_BYTES], taken[ID_TEXT_BYTES];
    struct id unique;
    struct launch l;
    int rc;
    *existed = false;
    if ((rc = name_look(home, bin_dir, run->name, taken, existed, err)) < 0)
        return rc;
    if (*existed)
        return existing_take(home, bin_dir, taken, out, err);
    if ((rc = id_random(&unique, err)) < 0)
        return rc;
    launch_init(&l, home, bin_dir, id_format(unique, id), &run->budget);
    if ((rc = run_make(&l, run, plan, settings_json, taken, existed, err)) < 0)
        return *existed ? existing_take(home, bin_dir, taken, out, err) : rc;
    *out = l;
    return 0;
}
