/* reel db: fills, rebuilds, checks and queries the database. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "autotune/tune_story.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/num.h"
#include "db/ingest.h"
#include "db/schema.h"
#include "db/store.h"
#include "launcher/cmd/cmd.h"
#include "launcher/state/home.h"

enum { MOST_COLUMNS = 256 };

static const struct opt opts[] = {
    CMD_OPT_JSON,
    CMD_OPT_DRY_RUN,
    CMD_OPT_DB,
    {"wait", 0, OPT_SECONDS, "TIME", "how long to wait for another ingester", .fallback = "30",
     .min = 0, .max = 86400},
    {"all", 0, OPT_BOOL, NULL, "schema: tables and inner views too"},
};
const struct opt_cmd cmd_db = {
    "db",
    "fill, rebuild, check or ask the database of runs and trials",
    "ingest [DIR...] | rebuild [DIR...] | check | schema | query SQL",
    opts, ARRAY_LEN(opts), 1, -1,
    "ingest reads what is new in the event logs under REEL_HOME and the folders given. rebuild "
    "makes the database anew from the logs. check recomputes every MFU from tokens, step time and "
    "peak. query asks in SQL, read-only; see 'reel db schema' for the views."};

static int report_print(const struct ingest_report *r, const char *path, bool json, struct err *err)
{
    struct str text = STR_INIT;
    struct json_out o;
    char bytes[32];
    if (json) {
        json_out_init(&o, &text, 2);
        json_obj_begin(&o, NULL);
        json_put_text(&o, "schema", "reel.db/1");
        json_put_text(&o, "db", path);
        json_put_int(&o, "files", r->files);
        json_put_int(&o, "files_read", r->files_read);
        json_put_int(&o, "events_new", r->events_new);
        json_put_int(&o, "conflicts", r->conflicts);
        json_put_int(&o, "damage", r->damage);
        json_put_int(&o, "damage_bytes", r->damage_bytes);
        json_put_bool(&o, "kept_foreign", r->kept_foreign);
        json_obj_end(&o);
        str_addc(&text, '\n');
    } else {
        str_addf(&text, "%s: %lld new events from %lld of %lld logs", path,
                 (long long)r->events_new, (long long)r->files_read, (long long)r->files);
        if (r->damage)
            str_addf(&text, "; %lld damaged regions (%s), see table damage", (long long)r->damage,
                     num_format_bytes(r->damage_bytes, bytes, sizeof bytes));
        if (r->conflicts)
            str_addf(&text, "; %lld conflicting events", (long long)r->conflicts);
        if (r->kept_foreign)
            str_addf(&text,
                     "; what stood there was no database of reel's and is kept as %s.replaced",
                     path);
        str_addc(&text, '\n');
    }
    int rc = cmd_print(&text, err);
    str_release(&text);
    return rc;
}

static int dry_print(const struct cmd_env *env, const char *const *dirs, size_t n, bool rebuild,
                     bool json, struct err *err)
{
    struct str text = STR_INIT;
    struct json_out o;
    if (json) {
        json_out_init(&o, &text, 2);
        json_obj_begin(&o, NULL);
        json_put_text(&o, "schema", "reel.db/1");
        json_put_bool(&o, "dry_run", true);
        json_put_text(&o, "db", env->db_path);
        json_arr_begin(&o, "folders");
        for (size_t i = 0; i < n; i++)
            json_put_text(&o, NULL, dirs[i]);
        json_arr_end(&o);
        json_obj_end(&o);
    } else {
        str_addf(&text, "would %s %s from the event logs under", rebuild ? "make anew" : "fill",
                 env->db_path);
        for (size_t i = 0; i < n; i++)
            str_addf(&text, " %s", dirs[i]);
    }
    str_addc(&text, '\n');
    int rc = cmd_print(&text, err);
    str_release(&text);
    return rc;
}

/* Checks that REEL_HOME exists and is not empty. A missing or empty one may be on a disk that is
 * not mounted now, so it is neither created nor read into a database. It is not needed if folders
 * are named and the database is elsewhere. */
static int home_check(const struct cmd_env *env, size_t named, struct err *err)
{
    size_t n = strlen(env->home);
    bool inside = strncmp(env->db_path, env->home, n) == 0 && env->db_path[n] == '/';
    if (home_is_there(env->home) || (named > 0 && !inside))
        return 0;
    return err_set(err, ERR_NOT_FOUND, "there is %s folder %s: set REEL_HOME to the one where the "
                   "runs lie, or name folders of event logs and give --db FILE",
                   file_exists(env->home) ? "nothing in the" : "no", env->home);
}

/* Reads logs into the database. They are looked for in REEL_HOME and in the named folders. */
static int ingest(const struct opt_values *v, const struct cmd_env *env, const char *const *dirs,
                  size_t n, bool rebuild, struct err *err)
{
    bool json = opt_bool(v, "json");
    double wait_s = opt_num(v, "wait");
    const char *all[64] = {env->home};
    struct ingest_report report = {0};
    struct store *db = NULL;
    if (n > 63)
        return err_set(err, ERR_USAGE, "%zu folders: give at most 63 at a time", n);
    struct stat st;
    for (size_t i = 0; i < n; i++)
        if (stat(dirs[i], &st) != 0 || !S_ISDIR(st.st_mode))
            return err_set(err, ERR_NOT_FOUND,
                           "no folder '%s': give a run, a dataset or a folder of event logs",
                           dirs[i]);
    memcpy(all + 1, dirs, n * sizeof *dirs);
    if (home_check(env, n, err) < 0)
        return err->code;
    if (!opt_bool(v, "dry-run"))
        tunes_close(env->home);
    if (opt_bool(v, "dry-run"))
        return dry_print(env, all, n + 1, rebuild, json, err);
    int rc;
    if (rebuild && (rc = ingest_rebuild(env->db_path, all, n + 1, wait_s, &report, err)) < 0)
        return rc;
    if (!rebuild && (rc = store_open(env->db_path, STORE_WRITE, &db, err)) < 0)
        return rc;
    if (!rebuild && (rc = ingest_run(db, all, n + 1, wait_s, &report, err)) < 0)
        goto out;
    rc = report_print(&report, env->db_path, json, err);
out:
    store_close(db);
    return rc;
}

void cmd_ingest(const struct cmd_env *env)
{
    const char *const dirs[] = {env->home};
    struct store *db = NULL;
    struct err err = {0};
    bool stale;
    tunes_close(env->home);
    if (ingest_open(env->db_path, dirs, 1, 5, &db, &stale, &err) < 0)
        fprintf(stderr,
                "reel: the records stay in the event logs, 'reel db ingest' reads them: %s\n",
                err.text);
    store_close(db);
}

static void row_text(struct store_query *q, struct str *out)
{
    for (int i = 0; i < store_columns(q); i++)
        str_addf(out, "%s%s", i ? "\t" : "", store_text(q, i));
    str_addc(out, '\n');
}

static int rows_add(struct store_query *q, bool json, struct str *text, struct err *err)
{
    struct json_out o;
    int rc, n = store_columns(q);
    json_out_init(&o, text, json ? 1 : 0);
    if (json) {
        json_obj_begin(&o, NULL);
        json_put_text(&o, "schema", "reel.query/1");
        json_arr_begin(&o, "rows");
    }
    for (int i = 0; i < n && !json; i++)
        str_addf(text, "%s%s", store_column_name(q, i), i + 1 < n ? "\t" : "\n");
    while ((rc = store_next(q, err)) > 0)
        json ? store_row_write(q, &o) : row_text(q, text);
    if (rc < 0 || !json)
        return rc;
    json_arr_end(&o);
    json_obj_end(&o);
    str_addc(text, '\n');
    return 0;
}

/* Adds the names of the views to the error of a query for a view or table that does not exist. */
static void views_name(struct err *err)
{
    struct str list = STR_INIT;
    size_t n = strlen(err->text);
    schema_views_list(&list);
    snprintf(err->text + n, sizeof err->text - n, ": the views are %s", list.p);
    str_release(&list);
}

/* Finds the columns of the public views that a query mentions. Adds all of them to `all`, as "loss,
 * lr, …", and the one nearest to `word`, if any is near, to `near`. */
static void columns_find(struct store *db, const char *sql, const char *word, struct str *all,
                         struct str *near)
{
    const char *names[MOST_COLUMNS + 1] = {NULL}, *nearest;
    struct arena arena;
    struct store_query *q = NULL;
    size_t n = 0;
    arena_init(&arena, 0);
    if (store_ask(db, "SELECT DISTINCT c.name FROM sqlite_schema v, pragma_table_info(v.name) c "
                  "WHERE v.type = 'view' AND v.name GLOB 'v_*' AND instr(lower(?1), v.name)",
                  &q, NULL) == 0) {
        store_bind_text(q, 1, sql);
        while (n < MOST_COLUMNS && store_next(q, NULL) > 0 &&
               (names[n] = arena_strdup(&arena, store_text(q, 0))))
            str_addf(all, "%s%s", n ? ", " : "", names[n]), n++;
    }
    if ((nearest = str_nearest(word, names)))
        str_add(near, nearest);
    store_end(q);
    arena_release(&arena);
}

/* Adds the nearest column, or else all columns, to the error of a query that names a missing
 * column. */
static void columns_name(struct store *db, const char *sql, struct err *err)
{
    static const char says[] = "no such column: ";
    const char *at = strstr(err->text, says) + strlen(says);
    char word[LIMIT_NAME_BYTES];
    struct str all = STR_INIT, near = STR_INIT;
    at += strspn(at, "\""); /* newer libraries put the name into quotes */
    snprintf(word, sizeof word, "%.*s", (int)strcspn(at, "\" "), at);
    const char *dot = strrchr(word, '.'); /* the word may be "v_step.los" */
    columns_find(db, sql, dot ? dot + 1 : word, &all, &near);
    size_t n = strlen(err->text), room = sizeof err->text - n;
    if (near.len)
        snprintf(err->text + n, room, ": did you mean %s?", near.p);
    else if (all.len)
        snprintf(err->text + n, room, ": there are %s", all.p);
    str_release(&all);
    str_release(&near);
}

static int query(const struct cmd_env *env, const char *sql, bool json, struct err *err)
{
    struct store *db = NULL;
    struct store_query *q = NULL;
    struct str text = STR_INIT;
    int rc;
    if ((rc = store_open(env->db_path, STORE_READ, &db, err)) < 0)
        return rc;
    if ((rc = store_ask(db, sql, &q, err)) < 0) {
        if (rc == ERR_INPUT && strstr(err->text, "no such table"))
            views_name(err);
        else if (rc == ERR_INPUT && strstr(err->text, "no such column: "))
            columns_name(db, sql, err);
        goto out;
    }
    if ((rc = rows_add(q, json, &text, err)) < 0)
        goto out;
    rc = cmd_print(&text, err);
out:
    store_end(q);
    store_close(db);
    str_release(&text);
    return rc;
}

static const double MFU_TOLERANCE = 1e-9; /* the two computations differ by rounding only */

struct check {
    int64_t n, missing; /* recorded values of MFU; number of them that cannot be recomputed */
    double worst;       /* largest relative difference */
};

static int check_read(const struct cmd_env *env, struct check *out, struct err *err)
{
    static const char sql[] = "SELECT count(*), count(*) - count(difference),"
                              " coalesce(max(difference), 0) FROM check_mfu";
    struct store *db = NULL;
    struct store_query *q = NULL;
    int rc;
    if ((rc = store_open(env->db_path, STORE_READ | STORE_CHECK, &db, err)) < 0)
        return rc;
    if ((rc = store_ask(db, sql, &q, err)) < 0)
        goto out;
    if ((rc = store_next(q, err)) > 0)
        *out = (struct check){store_int(q, 0), store_int(q, 1), store_num(q, 2)};
out:
    store_end(q);
    store_close(db);
    return rc < 0 ? rc : 0;
}

static int check(const struct cmd_env *env, bool json, struct err *err)
{
    struct str text = STR_INIT;
    struct check c = {0};
    int rc;
    if ((rc = check_read(env, &c, err)) < 0)
        return rc;
    if (json)
        str_addf(&text,
                 "{\"schema\": \"reel.db.check/1\", \"mfu\": %lld, \"not_recomputable\": %lld, "
                 "\"largest_difference\": %.3g}\n",
                 (long long)c.n, (long long)c.missing, c.worst);
    else
        str_addf(&text,
                 "%lld MFU recomputed from tokens, step time and peak: largest relative difference "
                 "%.2g; %lld not recomputable\n",
                 (long long)c.n, c.worst, (long long)c.missing);
    rc = cmd_print(&text, err);
    str_release(&text);
    if (rc < 0 || (c.worst <= MFU_TOLERANCE && !c.missing))
        return rc;
    return err_set(err, ERR_NO,
                   "%s: recorded MFU and recomputed MFU differ by up to %.3g, %lld cannot be "
                   "recomputed: ask view check_mfu",
                   env->db_path, c.worst, (long long)c.missing);
}

static int schema(bool all, bool json, struct err *err)
{
    struct str text = STR_INIT, object = STR_INIT;
    struct json_out o;
    schema_describe(&text, all);
    int rc;
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    if (json) {
        json_out_init(&o, &object, 2);
        json_obj_begin(&o, NULL);
        json_put_text(&o, "schema", "reel.db.schema/1");
        json_put_text(&o, "text", text.p);
        json_obj_end(&o);
        str_addc(&object, '\n');
    }
    rc = cmd_print(json ? &object : &text, err);
out:
    str_release(&text);
    str_release(&object);
    return rc;
}

int cmd_db_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *const *w;
    size_t n = opt_operands(v, &w);
    bool json = opt_bool(v, "json");
    if (strcmp(w[0], "ingest") == 0 || strcmp(w[0], "rebuild") == 0)
        return ingest(v, env, w + 1, n - 1, w[0][0] == 'r', err);
    if (strcmp(w[0], "query") == 0 && n == 2)
        return query(env, w[1], json, err);
    if (strcmp(w[0], "check") == 0 && n == 1)
        return check(env, json, err);
    if (strcmp(w[0], "schema") == 0 && n == 1)
        return schema(opt_bool(v, "all"), json, err);
    return err_set(err, ERR_USAGE, "reel db: give ingest, rebuild, check, schema, or query SQL");
}
