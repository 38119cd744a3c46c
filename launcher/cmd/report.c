/* reel report: writes a run, its tuning and its data as one HTML file. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "db/ingest.h"
#include "launcher/cmd/cmd.h"
#include "launcher/report/report.h"
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
    {"curation", 0, OPT_TEXT, "ID",
     "show this curation (default: the one that made the run's dataset)"},
};
const struct opt_cmd cmd_report = {
    "report",
    "write a report: MFU, loss, where the time went, trials, data",
    "[RUN]", opts, ARRAY_LEN(opts), 0, 1,
    "RUN is a name, an id or its beginning; without it --tune ID reports a tuning alone. Reads "
    "what is new in the logs first. One HTML file without outside assets; with --json the same "
    "numbers as one object on standard output."};

/* Finds what the report is about. A name is looked up under REEL_HOME first; what is not there any
 * more may still be in the database. */
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
    int rc;
    if ((rc = report_html(db, scope, n, &page, err)) < 0)
        goto out;
    if ((rc = file_publish(path, page.p, page.len, err)) < 0)
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

/* Checks, where there is no database yet, that what the report is about exists. A question makes a
 * database for nothing else, and never a folder for it. */
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

int cmd_report_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *const *operands, *const dirs[] = {env->home};
    struct store *db = NULL;
    struct report_scope scope;
    struct report_numbers n;
    char run_dir[LIMIT_PATH_BYTES];
    bool stale = false, json = opt_bool(v, "json");
    if (!opt_operands(v, &operands) && !opt_given(v, "tune"))
        return err_set(err, ERR_USAGE,
                       "reel report: give a RUN ('reel status' lists them) or --tune ID");
    bool dry = opt_bool(v, "dry-run");
    const char *run = opt_operands(v, &operands) ? operands[0] : NULL;
    int rc;
    if ((rc = database_check(env, run, opt_text(v, "tune"), err)) < 0)
        return rc;
    if (dry && (rc = store_open(env->db_path, STORE_READ, &db, err)) < 0)
        return rc;
    if (!dry && (rc = ingest_open(env->db_path, dirs, 1, 5, &db, &stale, err)) < 0)
        return rc;
    if (stale)
        fprintf(stderr, "reel: another process fills the database, or it may only be read: the "
                        "report may lack the newest events\n");
    if ((rc = scope_find(v, env, db, &scope, err)) < 0)
        goto out;
    if (!dry && !stale)
        scope.claimed = run_state_claimed(home_run_dir(env->home, scope.run, run_dir));
    if ((rc = report_numbers_read(db, &scope, &n, err)) < 0)
        goto out;
    const char *page = opt_text(v, "out");
    bool paged = !dry && (!json || opt_given(v, "out"));
    if (dry)
        fprintf(stderr, "would write %s from %s as it is\n", page, env->db_path);
    if (paged && (rc = page_publish(db, &scope, &n, page, err)) < 0)
        goto out;
    if (json) /* a dry run prints numbers too, because that changes nothing */
        rc = json_print(db, &scope, &n, err);
out:
    store_close(db);
    return rc;
}
