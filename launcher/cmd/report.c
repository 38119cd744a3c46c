/* reel report: writes a run, its tuning and its data as one HTML file. */
#include <stdio.h>
#include <string.h>

#include "autotune/tune_story.h"
#include "base/file.h"
#include "db/ingest.h"
#include "launcher/cmd/cmd.h"
#include "launcher/report/report.h"
#include "launcher/report/report_plan.h"
#include "launcher/state/home.h"
#include "launcher/state/state.h"

static const struct opt opts[] = {
    CMD_OPT_JSON,
    CMD_OPT_DRY_RUN,
    CMD_OPT_DB,
    {"out", 'o', OPT_TEXT, "FILE", "where to write the page (with --json: nowhere unless given)",
     .fallback = "report.html"},
    {"tune", 0, OPT_TEXT, "ID",
     "show this tuning's trials (default: the newest of the run's model)"},
    {"plan", 0, OPT_TEXT, "FILE",
     "show these planned layouts: what 'reel plan -o' or 'reel plan --json' wrote (default: the "
     "run's own plan)"},
    {"curation", 0, OPT_TEXT, "ID",
     "show this curation (default: the one that made the run's dataset)"},
};
const struct opt_cmd cmd_report = {
    "report",
    "write a report: MFU, loss, where the time went, trials, data",
    "[RUN]", opts, ARRAY_LEN(opts), 0, 1,
    "RUN is a name, an id or its beginning; without it --tune ID reports a tuning alone, and "
    "--plan FILE planned layouts alone. Reads what is new in the logs first. One HTML file without "
    "outside assets; with --json the same numbers as one object on standard output."};

/* Finds the subject of the report. A name is looked up under REEL_HOME first; a run that does not
 * exist there any more may still be in the database. */
static int scope_find(const struct opt_values *v, const struct cmd_env *env, struct store *db,
                      struct report_scope *out, struct err *err)
{
    const char *const *operands, *run;
    char id[ID_TEXT_BYTES];
    run = opt_operands(v, &operands) ? operands[0] : NULL;
    if (run && home_run_find(env->home, run, id, NULL) == 0)
        run = id;
    return report_scope_find(db, run, opt_text(v, "tune"), opt_text(v, "curation"), out, err);
}

static int page_publish(struct store *db, const struct report_scope *scope,
                        const struct report_numbers *n, const char *path, struct err *err)
{
    struct str page = STR_INIT;
    char place[LIMIT_PATH_BYTES];
    int rc;
    if ((rc = report_html(db, scope, n, &page, err)) < 0)
        goto out;
    if ((rc = file_publish(cmd_output_place(path, place), page.p, page.len, err)) < 0)
        goto out;
    fprintf(stderr, "report: %s\n", path);
out:
    str_release(&page);
    return rc;
}

static int json_print(struct store *db, const struct report_scope *scope,
                      const struct report_numbers *n, struct err *err)
{
    struct str text = STR_INIT;
    int rc;
    if ((rc = report_json(db, scope, n, &text, err)) < 0)
        goto out;
    rc = cmd_print(&text, err);
out:
    str_release(&text);
    return rc;
}

/* Checks, if there is no database yet, that the run or tuning exists, and the folder for a database
 * too. A report on a run that does not exist creates no database, and no report creates that
 * folder. */
static int database_check(const struct cmd_env *env, const char *run, const char *tune,
                          struct err *err)
{
    char id[ID_TEXT_BYTES], path[LIMIT_PATH_BYTES];
    if (file_exists(env->db_path))
        return 0;
    snprintf(path, sizeof path, "%.3900s/tunes/%.100s", env->home, tune ? tune : "");
    if (run ? home_run_find(env->home, run, id, NULL) < 0 : !file_exists(path))
        return err_set(err, ERR_NOT_FOUND, "there is no database %s, and no %s '%s' under %s",
                       env->db_path, run ? "run" : "tuning", run ? run : tune, env->home);
    snprintf(path, sizeof path, "%s", env->db_path);
    char *slash = strrchr(path, '/');
    if (slash && slash != path)
        *slash = 0;
    if (!slash || file_exists(path))
        return 0;
    return err_set(err, ERR_NOT_FOUND,
                   "there is no folder '%s' for a database: make it, or give another --db", path);
}

/* Holds the subject of the report and its database; db is NULL for plans alone. */
struct request {
    struct store *db;
    struct report_scope scope;
    struct report_numbers numbers;
    struct report_plans *plans;
    bool dry, stale, json;
    const char *page;
};

/* Opens the database and finds the subject of the report. Unless this is a dry run, it first reads
 * new records of the logs. */
static int database_read(const struct opt_values *v, const struct cmd_env *env, struct request *r,
                         struct err *err)
{
    const char *const *operands, *const dirs[] = {env->home};
    const char *run = opt_operands(v, &operands) ? operands[0] : NULL;
    char run_dir[LIMIT_PATH_BYTES];
    int rc;
    if ((rc = database_check(env, run, opt_text(v, "tune"), err)) < 0)
        return rc;
    if (r->dry && (rc = store_open(env->db_path, STORE_READ, &r->db, err)) < 0)
        return rc;
    if (!r->dry)
        tunes_close(env->home);
    if (!r->dry && (rc = ingest_open(env->db_path, dirs, 1, 5, &r->db, &r->stale, err)) < 0)
        return rc;
    if (r->stale)
        fprintf(stderr, "reel: another process fills the database, or it may only be read: the "
                        "report may lack the newest events\n");
    if ((rc = scope_find(v, env, r->db, &r->scope, err)) < 0)
        return rc;
    if (!r->dry && !r->stale)
        r->scope.claimed = run_state_claimed(home_run_dir(env->home, r->scope.run, run_dir));
    return 0;
}

/* Tells whether a page is written. */
static bool is_paged(const struct opt_values *v, const struct request *r)
{ return !r->dry && (!r->json || opt_given(v, "out")); }

/* Loads the planned layouts: those of --plan, or else those of the run's plan, which may be missing
 * with the run's folder. Refuses an output that is the file of an input. */
static int plans_read(const struct opt_values *v, const struct cmd_env *env, struct request *r,
                      struct err *err)
{
    char path[LIMIT_PATH_BYTES + 16], dir[LIMIT_PATH_BYTES];
    const char *plan = opt_text(v, "plan");
    int rc;
    snprintf(path, sizeof path, "%s/plan.json", home_run_dir(env->home, r->scope.run, dir));
    if (!plan && *r->scope.run && file_exists(path))
        plan = path;
    const char *inputs[] = {plan, env->db_path};
    if ((rc = cmd_spare("-o", r->page, inputs, ARRAY_LEN(inputs), err)) < 0)
        return rc;
    if (is_paged(v, r) && (rc = cmd_output_check("-o", r->page, err)) < 0)
        return rc;
    if (plan && (rc = report_plans_load(plan, &r->plans, err)) < 0)
        return rc;
    r->scope.plans = r->plans;
    if (opt_given(v, "plan") && r->plans->n == 0)
        return err_set(err, ERR_INPUT,
                       "%s: nothing is predicted in it: give what 'reel plan' or 'reel tune' wrote",
                       plan);
    return 0;
}

static int request_answer(const struct opt_values *v, const struct cmd_env *env,
                          struct request *r, struct err *err)
{
    int rc;
    if ((rc = report_numbers_read(r->db, &r->scope, &r->numbers, err)) < 0)
        return rc;
    if (r->dry)
        fprintf(stderr, "would write %s from %s as it is\n", r->page,
                r->db ? env->db_path : opt_text(v, "plan"));
    if (is_paged(v, r) && (rc = page_publish(r->db, &r->scope, &r->numbers, r->page, err)) < 0)
        return rc;
    /* a dry run prints numbers too, because that changes nothing */
    return r->json ? json_print(r->db, &r->scope, &r->numbers, err) : 0;
}

int cmd_report_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *const *operands;
    struct request r = {.dry = opt_bool(v, "dry-run"), .json = opt_bool(v, "json"),
                        .page = opt_text(v, "out")};
    bool recorded = opt_operands(v, &operands) || opt_given(v, "tune");
    int rc;
    if (!recorded && !opt_given(v, "plan"))
        return err_set(err, ERR_USAGE, "reel report: give a RUN ('reel status' lists them), --tune "
                                       "ID or --plan FILE");
    if (recorded && (rc = database_read(v, env, &r, err)) < 0)
        goto out;
    if ((rc = plans_read(v, env, &r, err)) < 0)
        goto out;
    rc = request_answer(v, env, &r, err);
out:
    report_plans_free(r.plans);
    store_close(r.db);
    return rc;
}
