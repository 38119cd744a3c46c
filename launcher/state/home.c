#include "launcher/state/home.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/str.h"
#include "profiles/run.h"

enum { LEAST_PREFIX = 4 };

char *home_run_dir(const char *home, const char *run_id, char buf[LIMIT_PATH_BYTES])
{
    snprintf(buf, LIMIT_PATH_BYTES, "%.3900s/runs/%s", home, run_id);
    return buf;
}

/* Tells whether a folder contains something. Returns true if this user may not read it, because a
 * later error then says what is wrong. */
static bool holds_something(const char *path)
{
    DIR *dir = opendir(path);
    bool any = false;
    for (struct dirent *d; dir && !any && (d = readdir(dir));)
        any = strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0;
    if (dir)
        closedir(dir);
    return any || (!dir && errno == EACCES);
}

bool home_is_there(const char *home) { return holds_something(home); }

int home_runs_check(const char *home, struct err *err)
{
    char names[LIMIT_PATH_BYTES], runs[LIMIT_PATH_BYTES];
    snprintf(names, sizeof names, "%.3900s/names", home);
    snprintf(runs, sizeof runs, "%.3900s/runs", home);
    if (!holds_something(names) || holds_something(runs))
        return 0;
    return err_set(err, ERR_ENV,
                   "the folder %s, in which the runs lie, is %s, though names of runs are there: "
                   "mount its disk, or free each name by 'reel rm'",
                   runs, file_exists(runs) ? "empty" : "missing");
}

int home_used_check(const char *home, struct err *err)
{
    char names[LIMIT_PATH_BYTES];
    snprintf(names, sizeof names, "%.3900s/names", home);
    if (file_exists(names))
        return 0;
    return err_set(err, ERR_ENV,
                   "no run was ever made in %s, which is %s, though this job has run before: mount "
                   "its disk, set REEL_HOME to the one where the run lies, or, if the job ended "
                   "before it made a run, submit it anew",
                   home,
                   !file_exists(home) ? "missing" : home_is_there(home) ? "another" : "empty");
}

static int is_id(const char *name)
{
    return strlen(name) == ID_TEXT_BYTES - 1 &&
           strspn(name, "0123456789abcdef") == ID_TEXT_BYTES - 1;
}

struct listed {
    char *id;
    double mtime;
};

static int newest_first(const void *x, const void *y)
{
    const struct listed *a = x, *b = y;
    return a->mtime < b->mtime ? 1 : a->mtime > b->mtime ? -1 : strcmp(a->id, b->id);
}

static int listed_add(struct listed **list, size_t *n, const char *home, const char *id,
                      struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct stat st = {0};
    stat(home_run_dir(home, id, path), &st);
    struct listed *grown = realloc(*list, (*n + 1) * sizeof *grown);
    char *copy = strdup(id);
    if (grown)
        *list = grown;
    if (!grown || !copy) {
        free(copy);
        return err_set(err, ERR_NOMEM, "out of memory listing runs");
    }
    grown[(*n)++] = (struct listed){copy, (double)st.st_mtim.tv_sec +
                                              (double)st.st_mtim.tv_nsec * 1e-9};
    return 0;
}

int home_runs_list(const char *home, char ***ids, size_t *n, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct listed *list = NULL;
    size_t count = 0;
    char **out = NULL;
    int rc = 0;
    snprintf(path, sizeof path, "%s/runs", home);
    DIR *dir = opendir(path);
    if (!dir && errno != ENOENT)
        return err_set_errno(err, ERR_IO, "cannot list '%s'", path);
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (is_id(d->d_name) && (rc = listed_add(&list, &count, home, d->d_name, err)) < 0)
            goto out;
    if (!(out = calloc(count + 1, sizeof *out))) {
        rc = err_set(err, ERR_NOMEM, "out of memory listing runs");
        goto out;
    }
    if (count)
        qsort(list, count, sizeof *list, newest_first);
    for (size_t i = 0; i < count; i++)
        out[i] = list[i].id;
    *ids = out;
    *n = count;
    count = 0;
out:
    for (size_t i = 0; i < count; i++)
        free(list[i].id);
    free(list);
    if (dir)
        closedir(dir);
    return rc;
}

void home_runs_free(char **ids, size_t n)
{
    for (size_t i = 0; ids && i < n; i++)
        free(ids[i]);
    free(ids);
}

int home_name_find(const char *home, const char *name, char id[ID_TEXT_BYTES], struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct str text = STR_INIT;
    int rc;
    snprintf(path, sizeof path, "%s/names/%s", home, name);
    if (!*name || strchr(name, '/') || name[0] == '.' || !file_exists(path))
        return err_set(err, ERR_NOT_FOUND, "no run is named '%s'", name);
    if ((rc = file_read(path, 256, &text, err)) < 0)
        goto out;
    if (text.len < ID_TEXT_BYTES - 1 || (text.p[ID_TEXT_BYTES - 1] = 0, !is_id(text.p))) {
        rc = err_set(err, ERR_CORRUPT,
                     "'%s' does not hold a run id: remove it, the run itself is not touched", path);
        goto out;
    }
    memcpy(id, text.p, ID_TEXT_BYTES);
out:
    str_release(&text);
    return rc;
}

/* Fails, and names the known run with the nearest name. */
static int not_found(const char *home, const char *wanted, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    const char *names[257];
    size_t n = 0;
    if (!home_is_there(home))
        return err_set(err, ERR_NOT_FOUND,
                       "no run '%s': there is %s folder %s: set REEL_HOME to the one where the "
                       "runs lie%s",
                       wanted, file_exists(home) ? "nothing in the" : "no", home,
                       file_exists(home) ? ", or mount their disk" : "");
    int rc = home_runs_check(home, err);
    if (rc < 0)
        return rc;
    snprintf(path, sizeof path, "%s/names", home);
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && n < 256 && (d = readdir(dir));)
        if (d->d_name[0] != '.' && (names[n] = strdup(d->d_name)))
            n++;
    names[n] = NULL;
    const char *near = str_nearest(wanted, names);
    rc = err_set(err, ERR_NOT_FOUND,
                 "no run '%s' under %s%s%s%s: 'reel status' lists the runs", wanted, home,
                 near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
    while (n > 0)
        free((char *)(uintptr_t)names[--n]);
    if (dir)
        closedir(dir);
    return rc;
}

int home_run_find(const char *home, const char *name_or_id, char id[ID_TEXT_BYTES],
                  struct err *err)
{
    char **ids = NULL, name[LIMIT_NAME_BYTES];
    size_t n = 0, fits = 0, which = 0, len = strlen(name_or_id);
    int rc = home_name_find(home, name_or_id, id, err);
    if (rc != ERR_NOT_FOUND)
        return rc;
    rc = home_runs_list(home, &ids, &n, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n && len >= LEAST_PREFIX; i++)
        if (strncmp(ids[i], name_or_id, len) == 0) {
            fits++;
            which = i;
        }
    if (fits == 1)
        memcpy(id, ids[which], ID_TEXT_BYTES);
    else if (is_id(name_or_id) && home_name_of(home, name_or_id, name, NULL) == 0)
        memcpy(id, name_or_id, ID_TEXT_BYTES); /* the run's folder does not exist any more */
    else if (fits > 1)
        rc = err_set(err, ERR_INPUT, "'%s' is the beginning of %zu run ids: give more digits",
                     name_or_id, fits);
    else
        rc = not_found(home, name_or_id, err);
    home_runs_free(ids, n);
    return rc;
}

char *home_name_or_id(const char *home, const char *id, char name[LIMIT_NAME_BYTES])
{
    if (home_name_of(home, id, name, NULL) < 0)
        snprintf(name, LIMIT_NAME_BYTES, "%s", id);
    return name;
}

int home_name_check(const char *home, const char *name, struct err *err)
{
    char path[LIMIT_PATH_BYTES], id[ID_TEXT_BYTES], other[LIMIT_NAME_BYTES];
    if (!is_id(name) || home_name_find(home, name, id, NULL) != ERR_NOT_FOUND ||
        !file_exists(home_run_dir(home, name, path)))
        return 0;
    return err_set(err, ERR_INPUT, "the name '%s' is the id of run '%s': choose another", name,
                   home_name_or_id(home, name, other));
}

int home_new_check(const char *home, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    int rc;
    if ((rc = file_mkdirs_check(home_run_dir(home, "<id>", path), err)) < 0)
        return rc;
    snprintf(path, sizeof path, "%.3900s/names", home);
    return file_mkdirs_check(path, err);
}

int home_name_claim(const char *home, const char *name, const char *id,
                    char taken_by[ID_TEXT_BYTES], struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    snprintf(path, sizeof path, "%s/names", home);
    int rc = id_name_check(name, "name", err);
    rc = rc < 0 ? rc : file_mkdirs(path, err);
    if (rc < 0)
        return rc;
    snprintf(path, sizeof path, "%.3800s/names/%s", home, name);
    rc = file_create_exclusive(path, id, strlen(id), err);
    if (rc != ERR_EXISTS || (rc = home_name_find(home, name, taken_by, err)) < 0)
        return rc;
    return err_set(err, ERR_EXISTS, "the name '%s' belongs to run %s already: choose another", name,
                   taken_by);
}

int home_name_of(const char *home, const char *id, char name[LIMIT_NAME_BYTES], struct err *err)
{
    char path[LIMIT_PATH_BYTES], bound[ID_TEXT_BYTES];
    bool found = false;
    snprintf(path, sizeof path, "%s/names", home);
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && !found && (d = readdir(dir));)
        if (d->d_name[0] != '.' && home_name_find(home, d->d_name, bound, NULL) == 0 &&
            strcmp(bound, id) == 0) {
            snprintf(name, LIMIT_NAME_BYTES, "%.*s", LIMIT_NAME_BYTES - 1, d->d_name);
            found = true;
        }
    if (dir)
        closedir(dir);
    return found ? 0 : err_set(err, ERR_NOT_FOUND, "run %s has no name", id);
}

static int name_remove(const char *home, const char *id, struct err *err)
{
    char name[LIMIT_NAME_BYTES], path[LIMIT_PATH_BYTES];
    if (home_name_of(home, id, name, NULL) < 0)
        return 0;
    snprintf(path, sizeof path, "%.3800s/names/%s", home, name);
    if (unlink(path) < 0 && errno != ENOENT)
        return err_set_errno(err, ERR_IO, "cannot remove the name '%s'", path);
    snprintf(path, sizeof path, "%s/names", home);
    return file_fsync_dir(path, err);
}

static const char removed_prefix[] = ".removed-";

/* Deletes the folders of removed runs, whichever process removed them. If two processes do so at
 * once, each finds files missing, which is no error. */
static int removed_sweep(const char *home, struct err *err)
{
    char path[LIMIT_PATH_BYTES], one[2 * LIMIT_PATH_BYTES];
    int rc = 0;
    snprintf(path, sizeof path, "%s/runs", home);
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        if (!str_starts(d->d_name, removed_prefix))
            continue;
        snprintf(one, sizeof one, "%s/%s", path, d->d_name);
        if ((rc = file_remove_tree(one, err)) < 0)
            break;
    }
    if (dir)
        closedir(dir);
    return rc;
}

int home_run_remove(const char *home, const char *id, struct err *err)
{
    char path[LIMIT_PATH_BYTES], gone[LIMIT_PATH_BYTES];
    int rc = name_remove(home, id, err);
    if (rc < 0)
        return rc;
    snprintf(gone, sizeof gone, "%.3800s/runs/%s%s", home, removed_prefix, id);
    if (rename(home_run_dir(home, id, path), gone) < 0 && errno != ENOENT)
        return err_set_errno(err, ERR_IO, "cannot remove the run's folder '%s'", path);
    return removed_sweep(home, err);
}
