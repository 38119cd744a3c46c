/* This comment describes the content of the database.
 *
 * Logs are the truth, and the database is a cache of them that can be queried. It holds three kinds
 * of tables.
 *
 * 1. Four tables say where the rows came from: `source` (folders to look in), `file` (how far each
 * log was read), `damage` (regions of logs that could not be read), `conflict` (events that lost
 * against another under the same key).
 *
 * 2. `event` has one row for each event, with its whole text. `step`, `train_start` and
 * `trial_event` are projections of single events into typed columns, where queries over many rows
 * must be fast. The key of a projection is the id of its event, and it is deleted with its event.
 * `layout` holds the keys of each layout that a trial names by its text.
 *
 * 3. Two tables are computed from one run's events together, and updated whenever the run has new
 * ones (db/fold.c): `run_clock`, the difference between a host's monotonic clock and UTC, and
 * `span`, the run's time by cause. The tables fold* keep the state of the fold.
 *
 * Everything else is a view. The views v_* are public: names, columns, units and meaning stay, and
 * new columns may be added after the old ones. The other views and all tables may change with any
 * release.
 *
 * The SQL is in db/views.sql and in db/migrations/NN.sql, each of which brings user_version NN - 1
 * to NN. Published migrations never change; a new one is a new file. Views are made anew with the
 * last migration. So a change of a view's columns or meaning is a migration, which may consist of
 * a comment only: its version tells readers that the views have changed. A change of wording needs
 * no migration. The view views_text holds the hash of the text from which all views were made; a
 * program with another text makes them anew when it opens the database for writing.
 *
 * Units are seconds, bytes and FLOPs. `*_at`, `from` and `to` are UTC Unix seconds. mfu is a
 * fraction of the dense peak.
 *
 * MFU. model_flops is the step's model FLOPs (forward and backward, no recomputation) over all
 * ranks, and peak_flops the dense peak of all ranks together: mfu = model_flops / (step_s *
 * peak_flops). `step` keeps model_flops / tokens, so that the view check_mfu recomputes every
 * number from tokens, step_s and peak. `reel db check` reports the largest difference.
 */
#include "db/schema.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "db/schema_text.h"
#include "db/step_columns.h"
#include "db/store_priv.h"
#include "db/view_text.h"

enum { COLUMNS_LISTED_SINCE = 14 }; /* older columns of `step` are in the migrations themselves */

int schema_version(void)
{
    int n = 0;
    while (schema_migrations[n])
        n++;
    for (const struct step_column *c = step_columns; c->name; c++)
        n = c->since > n ? c->since : n;
    return n;
}

/* Returns the SQL of a migration; "": it has no file, because it only adds columns of
 * step_columns. */
static const char *migration(int from)
{
    int n = 0;
    while (schema_migrations[n] && n < from)
        n++;
    return schema_migrations[n] ? schema_migrations[n] : "";
}

/* ---- the columns of a step ---- */

/* Returns the text before a column's name, which says from where it comes. rest_s is the time for
 * which the job was suspended, as db/views.sql computes it. */
static const char *column_from(const struct step_column *c)
{
    if (strcmp(c->name, "step_s") == 0)
        return "max(0, s.step_s - s.rest_s) AS ";
    if (strcmp(c->name, "mfu") == 0)
        return "CASE s.rest_s WHEN 0 THEN s.mfu"
               " ELSE s.mfu * (s.step_s / nullif(s.step_s - s.rest_s, 0)) END AS ";
    return "s.";
}

/* Appends the columns of v_step from *at on, up to the one named `last`, each with a comma after
 * it. Without a name it appends all remaining columns, each with a comma before it. */
static void columns_add(struct str *out, const struct step_column **at, const char *last,
                        size_t last_bytes)
{
    bool found = false;
    for (; (*at)->name && !found; (*at)++) {
        found = last_bytes && strncmp((*at)->name, last, last_bytes) == 0 &&
                !(*at)->name[last_bytes];
        if ((*at)->shown)
            str_addf(out, last_bytes ? "  %s%s, -- %s\n" : "  , %s%s -- %s\n", column_from(*at),
                     (*at)->name, (*at)->text);
    }
}

/* Appends the text of the views, in which lines STEP are replaced by the columns of a step. */
static void views_text_add(struct str *out)
{
    static const char mark[] = "  /* STEP ";
    const struct step_column *column = step_columns;
    const char *at = schema_views, *found;
    for (; (found = strstr(at, mark)); at = strchr(found, '\n') + 1) {
        str_addn(out, at, (size_t)(found - at));
        found += sizeof mark - 1;
        columns_add(out, &column, found, strcspn(found, " *"));
    }
    str_addf(out, "%s", at);
}

/* Appends the views, in which the hash of their text replaces $hash. Returns that hash. */
static uint64_t views_add(struct str *out)
{
    static const char mark[] = "$hash";
    struct str text = STR_INIT;
    views_text_add(&text);
    uint64_t hash = hash_64(text.p, text.len);
    const char *found = strstr(text.p, mark);
    if (found)
        str_addf(out, "%.*s%016" PRIx64 "%s", (int)(found - text.p), text.p, hash,
                 found + sizeof mark - 1);
    out->failed |= text.failed;
    str_release(&text);
    return hash;
}

/* Appends the SQL that adds this column to an existing table. */
static void column_sql_add(struct str *out, const struct step_column *c)
{
    const char *type = c->type == EVENT_TEXT ? "TEXT" : c->type == EVENT_NUM ? "REAL" : "INTEGER";
    const char *at = schema_step_column, *found;
    for (; (found = strchr(at, '$')); at = found + 5) {
        bool name = strncmp(found, "$name", 5) == 0, is_type = strncmp(found, "$type", 5) == 0;
        str_addn(out, at, (size_t)(found - at));
        str_addf(out, "%s", name ? c->name : is_type ? type : "$");
        if (!name && !is_type)
            found -= 4;
    }
    str_addf(out, "%s", at);
}

/* ---- migrating ---- */

static int exec(sqlite3 *sql, const char *text, struct err *err)
{
    int rc = sqlite3_exec(sql, text, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : store_error(sql, rc, "change the schema", err);
}

static int version_read(sqlite3 *sql, int *version, struct err *err)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(sql, "PRAGMA user_version", -1, &stmt, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW)
        *version = sqlite3_column_int(stmt, 0);
    sqlite3_finalize(stmt);
    return rc == SQLITE_ROW ? 0 : store_error(sql, rc, "read the schema version", err);
}

/* Applies the migration to this version. */
static int version_make(sqlite3 *sql, int version, int last, struct err *err)
{
    struct str text = STR_INIT;
    str_addf(&text, "%s", migration(version - 1));
    for (const struct step_column *c = step_columns; c->name; c++)
        if (c->since == version && version >= COLUMNS_LISTED_SINCE)
            column_sql_add(&text, c);
    if (version == last && last == schema_version())
        views_add(&text);
    int rc = str_check(&text, err);
    rc = rc < 0 ? rc : exec(sql, text.p, err);
    str_release(&text);
    return rc;
}

/* Applies one migration and sets its version, and commits both. Changes nothing if another process
 * has done it already. */
static int step_commit(sqlite3 *sql, int from, int last, struct err *err)
{
    char pragma[96];
    int now = from, rc;
    if ((rc = version_read(sql, &now, err)) < 0)
        return rc;
    if (now != from)
        return exec(sql, "COMMIT", err);
    if ((rc = version_make(sql, from + 1, last, err)) < 0)
        return rc;
    snprintf(pragma, sizeof pragma, "PRAGMA application_id=%d; PRAGMA user_version=%d",
             SCHEMA_APPLICATION_ID, from + 1);
    if ((rc = exec(sql, pragma, err)) < 0)
        return rc;
    return exec(sql, "COMMIT", err);
}

static int step_apply(sqlite3 *sql, int from, int last, struct err *err)
{
    int rc;
    if ((rc = exec(sql, "BEGIN IMMEDIATE", err)) < 0)
        return rc;
    if ((rc = step_commit(sql, from, last, err)) < 0)
        sqlite3_exec(sql, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

/* Sets *same to whether the views were made from the text with this hash. */
static int views_look(sqlite3 *sql, uint64_t hash, bool *same, struct err *err)
{
    static const char ask[] =
        "SELECT count(*) FROM sqlite_schema WHERE name = 'views_text' AND instr(sql, ?1)";
    char text[17];
    sqlite3_stmt *stmt = NULL;
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    int rc = sqlite3_prepare_v2(sql, ask, -1, &stmt, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_text(stmt, 1, text, -1, SQLITE_STATIC);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW)
        *same = sqlite3_column_int(stmt, 0) > 0;
    sqlite3_finalize(stmt);
    return rc == SQLITE_ROW ? 0 : store_error(sql, rc, "look at the views", err);
}

/* Makes the views and commits them. Changes nothing if a newer program has migrated the
 * database. */
static int views_commit(sqlite3 *sql, const char *text, struct err *err)
{
    int now = 0, rc;
    if ((rc = version_read(sql, &now, err)) < 0)
        return rc;
    if (now == schema_version() && (rc = exec(sql, text, err)) < 0)
        return rc;
    return exec(sql, "COMMIT", err);
}

/* Makes the views anew if they were made from another text. */
static int views_settle(sqlite3 *sql, struct err *err)
{
    struct str text = STR_INIT;
    uint64_t hash = views_add(&text);
    bool same = true;
    int rc;
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    if ((rc = views_look(sql, hash, &same, err)) < 0 || same)
        goto out;
    if ((rc = exec(sql, "BEGIN IMMEDIATE", err)) < 0)
        goto out;
    if ((rc = views_commit(sql, text.p, err)) < 0)
        sqlite3_exec(sql, "ROLLBACK", NULL, NULL, NULL);
out:
    str_release(&text);
    return rc;
}

int schema_migrate(sqlite3 *sql, int version, struct err *err)
{
    int now = 0, rc;
    BUG_ON(version > schema_version());
    if ((rc = version_read(sql, &now, err)) < 0)
        return rc;
    for (; now < version; now++)
        if ((rc = step_apply(sql, now, version, err)) < 0)
            return rc;
    return version == schema_version() ? views_settle(sql, err) : 0;
}

/* ---- describing ---- */

void schema_describe(struct str *out, bool all)
{
    str_addf(out,
             "Schema %d. Times are UTC Unix seconds, durations seconds, mfu a fraction of the "
             "dense peak.\n"
             "The views v_* are public and stable; everything else may change.\n",
             schema_version());
    struct str views = STR_INIT;
    views_add(&views);
    view_text_describe(out, views.p, true);
    if (all)
        view_text_describe(out, views.p, false);
    str_release(&views);
    for (int i = 0; all && schema_migrations[i]; i++)
        str_addf(out, "\n-- tables, migration %d\n%s", i + 1, schema_migrations[i]);
}

void schema_views_list(struct str *out)
{
    view_text_list(out, schema_views);
}
