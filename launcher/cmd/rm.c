/* reel rm: removes a run, its checkpoints and its logs. */
#include <sys/types.h>
#include <sys/stat.h>
#include <fts.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/lease.h"
#include "base/num.h"
#include "launcher/cmd/cmd.h"
#include "launcher/state/home.h"
#include "launcher/submit/control.h"

static const struct opt opts[] = {
    CMD_OPT_DRY_RUN,
    CMD_OPT_JSON,
};
const struct opt_cmd cmd_rm = {
    "rm",
    "remove a run that has no living job: its checkpoints, logs and name",
    "RUN", opts, ARRAY_LEN(opts), 1, 1,
    "Asks nothing: --dry-run shows what would go. RUN is its name or its whole id. The name is "
    "free at once. What 'reel db ingest' has read of it stays in the database."};

struct removal {
    char id[ID_TEXT_BYTES], dir[LIMIT_PATH_BYTES], name[LIMIT_NAME_BYTES];
    int64_t files, bytes;
    bool json, dry, gone; /* gone: another process has removed or moved the folder */
};

/* Counts the files and bytes below the folder. */
static void measure(struct removal *r)
{
    char *const roots[] = {r->dir, NULL};
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    for (FTSENT *f; tree && (f = fts_read(tree));)
        if (f->fts_info == FTS_F || f->fts_info == FTS_SL || f->fts_info == FTS_DEFAULT) {
            r->files++;
            r->bytes += f->fts_statp->st_size;
        }
    if (tree)
        fts_close(tree);
}

/* Checks that no job of the run lives. If run.json is damaged or missing, the run's logs still say
 * which jobs it has. */
static int unused_check(const struct removal *r, const struct cmd_env *env,
                        const struct run_state *state, struct err *err)
{
    static const struct run_budget usual = RUN_BUDGET_INIT;
    struct launch l;
    struct sched *s = NULL;
    char what[STATE_TEXT_BYTES];
    enum control_life life = CONTROL_DEAD;
    bool scheduled = state->sched[0] && strcmp(state->sched, "none") != 0;
    int rc;
    if (launch_open(env->home, env->bin_dir, r->id, &l, NULL) < 0)
        launch_init(&l, env->home, env->bin_dir, r->id, &usual);
    if (scheduled && (rc = sched_open(state->sched, env->home, &s, err)) < 0)
        return err_context(err, "whether a job of run '%s' lives cannot be asked", r->name);
    if ((rc = control_lives(&l, s, state, &life, what, err)) < 0)
        goto out;
    if (life != CONTROL_DEAD)
        rc = err_set(err, ERR_NO, "run '%s' is in use: %s; end it by 'reel cancel', or pause it",
                     r->name, what);
    else
        rc = control_left_over_check(&l, s, state, err);
out:
    sched_close(s);
    return rc;
}

/* Reads the run's state, under the submitters' lock unless this is a dry run or the disk is full.
 * On a full disk no other process can take the lock either, to submit or to change anything. */
static int state_look(const struct removal *r, const struct launch *l, struct lease **lock,
                      struct run_state *state, struct err *err)
{
    int rc = r->dry ? ERR_FULL : launch_lock(l, lock, state, err);
    return rc == ERR_FULL ? run_state_load(r->dir, state, err) : rc;
}

/* Removes the run. It reads the run's state under the submitters' lock, so another process that
 * submits at the same time has either done so before or comes afterwards. */
static int run_remove(struct removal *r, const struct cmd_env *env, struct err *err)
{
    struct run_state state;
    struct launch l;
    static const struct run_budget usual = RUN_BUDGET_INIT;
    struct lease *lock = NULL;
    int rc = 0;
    run_state_init(&state);
    launch_init(&l, env->home, env->bin_dir, r->id, &usual);
    r->gone = !file_exists(r->dir);
    if (!r->gone && (rc = state_look(r, &l, &lock, &state, err)) < 0)
        goto out;
    if (!r->gone && (rc = unused_check(r, env, &state, err)) < 0)
        goto out;
    measure(r);
    if (!r->dry)
        rc = home_run_remove(env->home, r->id, err);
out:
    lease_drop(lock);
    run_state_release(&state);
    return rc;
}

static int removed_print(const struct removal *r, struct err *err)
{
    struct str text = STR_INIT;
    struct json_out o;
    char size[32];
    json_out_init(&o, &text, 2);
    if (r->json) {
        json_obj_begin(&o, NULL);
        json_put_text(&o, "schema", "reel.rm/1");
        json_put_text(&o, "run", r->id);
        json_put_text(&o, "name", r->name);
        json_put_text(&o, "run_dir", r->dir);
        json_put_bool(&o, "dry_run", r->dry);
        json_put_bool(&o, "was_gone", r->gone);
        json_put_int(&o, "files", r->files);
        json_put_int(&o, "bytes", r->bytes);
        json_obj_end(&o);
        str_addc(&text, '\n');
    } else if (r->gone) {
        str_addf(&text,
                 "%s the name '%s' of run %.8s, whose folder %s is not there; whether a job of it "
                 "is left only the scheduler knows\n",
                 r->dry ? "would free" : "freed", r->name, r->id, r->dir);
    } else {
        str_addf(&text, "%s run '%s' (%.8s): %lld file%s, %s in %s\n",
                 r->dry ? "would remove" : "removed", r->name, r->id, (long long)r->files,
                 r->files == 1 ? "" : "s", num_format_bytes(r->bytes, size, sizeof size), r->dir);
    }
    int rc = cmd_print(&text, err);
    str_release(&text);
    return rc;
}

/* Finds the run. Other commands accept the beginning of an id, but a removal does not. */
static int run_find(const char *home, const char *given, struct removal *r, struct err *err)
{
    char same[ID_TEXT_BYTES];
    int rc;
    if ((rc = home_run_find(home, given, r->id, err)) < 0)
        return rc;
    home_run_dir(home, r->id, r->dir);
    home_name_or_id(home, r->id, r->name);
    if (strcmp(given, r->id) == 0 || home_name_find(home, given, same, NULL) == 0)
        return 0;
    return err_set(err, ERR_INPUT,
                   "'%s' is the beginning of run '%s' (%s): give 'reel rm' the name or the whole "
                   "id",
                   given, r->name, r->id);
}

int cmd_rm_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *const *operands;
    struct removal r = {.json = opt_bool(v, "json"), .dry = opt_bool(v, "dry-run")};
    opt_operands(v, &operands);
    int rc;
    if ((rc = run_find(env->home, operands[0], &r, err)) < 0)
        return rc;
    if ((rc = run_remove(&r, env, err)) < 0)
        return rc;
    return removed_print(&r, err);
}
