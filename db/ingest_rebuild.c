#include "db/ingest.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "db/ingest_priv.h"

static int sources_copy(const char *db_path, struct store *to, struct err *err)
{
    struct store *old = NULL;
    struct store_query *q = NULL;
    int rc = 0;
    if (store_open(db_path, STORE_WRITE, &old, NULL) < 0 ||
        store_ask(old, "SELECT path FROM source", &q, NULL) < 0)
        goto out; /* the old one is absent, damaged or foreign: it is rebuilt all the same */
    while (store_next(q, NULL) > 0)
        if ((rc = ingest_source_add(to, store_text(q, 0), err)) < 0)
            break;
out:
    store_end(q);
    store_close(old);
    return rc;
}

/* Removes the journals of the old file, because SQLite would apply them to the new one. */
static void journals_remove(const char *path)
{
    static const char *const tails[] = {"-journal", "-wal", "-shm"};
    char name[LIMIT_PATH_BYTES + 16];
    for (size_t i = 0; i < ARRAY_LEN(tails); i++) {
        snprintf(name, sizeof name, "%s%s", path, tails[i]);
        unlink(name);
    }
}

/* Keeps a file that is not reel's database under another name before the rebuilt one takes its
 * place: the user may have mistyped --db. */
static int foreign_keep(const char *path, struct ingest_report *report, struct err *err)
{
    char kept[LIMIT_PATH_BYTES + 16];
    if (!store_is_foreign(path))
        return 0;
    snprintf(kept, sizeof kept, "%s.replaced", path);
    if (link(path, kept) != 0)
        return err_set_errno(err, ERR_INPUT,
                             "%s is no database of reel's and cannot be kept as %s: move it away "
                             "or give another --db",
                             path, kept);
    if (report)
        report->kept_foreign = true;
    return 0;
}

static int replace(const char *fresh, const char *path, struct ingest_report *report,
                   struct err *err)
{
    char dir[LIMIT_PATH_BYTES];
    int rc = foreign_keep(path, report, err);
    if (rc < 0)
        return rc;
    journals_remove(path);
    if (rename(fresh, path) != 0)
        return err_set_errno(err, ERR_IO, "cannot put the rebuilt database at %s", path);
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    if (!slash)
        return file_fsync_dir(".", err);
    slash[slash == dir] = 0;
    return file_fsync_dir(dir, err);
}

/* Makes a database at `fresh` from the logs, and closes it. */
static int fresh_make(const char *db_path, const char *fresh, const char *const *dirs,
                      size_t n_dirs, struct ingest_report *report, struct err *err)
{
    struct store *db = NULL;
    int rc;
    if ((rc = store_open(fresh, STORE_WRITE, &db, err)) < 0)
        return rc;
    bool known = file_exists(db_path) && !store_is_foreign(db_path);
    if (known && (rc = sources_copy(db_path, db, err)) < 0)
        goto out;
    if ((rc = ingest_locked(db, dirs, n_dirs, report, err)) < 0)
        goto out;
    /* The whole database must be in the one file. */
    rc = store_exec(db, "PRAGMA journal_mode=DELETE", err);
out:
    store_close(db);
    return rc;
}

static int rebuild_locked(const char *db_path, const char *fresh, const char *const *dirs,
                          size_t n_dirs, struct ingest_report *report, struct err *err)
{
    int rc;
    unlink(fresh);
    journals_remove(fresh);
    if ((rc = fresh_make(db_path, fresh, dirs, n_dirs, report, err)) < 0)
        goto out;
    rc = replace(fresh, db_path, report, err);
out:
    /* After the rename there is no file of this name. */
    unlink(fresh);
    journals_remove(fresh);
    return rc;
}

int ingest_rebuild(const char *db_path, const char *const *dirs, size_t n_dirs, double wait_s,
                   struct ingest_report *report, struct err *err)
{
    char fresh[LIMIT_PATH_BYTES];
    struct lease *held = NULL;
    int rc;
    if (snprintf(fresh, sizeof fresh, "%s.rebuild", db_path) >= (int)sizeof fresh)
        return err_set(err, ERR_LIMIT, "database path '%.80s…' is too long", db_path);
    if ((rc = store_folder_make(db_path, err)) < 0)
        return rc;
    if ((rc = ingest_lock(db_path, wait_s, &held, err)) < 0)
        return rc;
    rc = rebuild_locked(db_path, fresh, dirs, n_dirs, report, err);
    lease_drop(held);
    return rc;
}
