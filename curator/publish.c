#include "curator/publish.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

enum { SIDECAR_BYTES_MAX = 1 << 30, LINKS_MAX = 40 /* the kernel's limit too */ };

/* ---- where it lies ---- */

int publish_place(char out[LIMIT_PATH_BYTES], struct err *err)
{
    char to[LIMIT_PATH_BYTES], at[2 * LIMIT_PATH_BYTES];
    for (int links = 0; links < LINKS_MAX; links++) {
        ssize_t n = readlink(out, to, sizeof to - 1);
        if (n < 0)
            /* it is no link, or it cannot be read, and its next user reports that */
            return 0;
        to[n] = 0;
        const char *slash = *to == '/' ? NULL : strrchr(out, '/');
        n = snprintf(at, sizeof at, "%.*s%s", slash ? (int)(slash + 1 - out) : 0, out, to);
        if (n >= 3900)
            return err_set(err, ERR_IO, "the link '%s' leads to a name of %zd bytes: give an --out "
                                        "of at most 3900", out, n);
        snprintf(out, LIMIT_PATH_BYTES, "%s", at);
    }
    return err_set(err, ERR_IO,
                   "'%s' is a link that leads to itself: remove it, or give another --out", out);
}

int publish_place_check(const char *partial, const char *out, struct err *err)
{
    char folder[LIMIT_PATH_BYTES];
    struct stat from, to;
    snprintf(folder, sizeof folder, "%s", out);
    if (stat(out, &to) < 0) {
        char *slash = strrchr(folder, '/');
        snprintf(slash ? slash + 1 : folder, 2, "%s", slash ? "" : ".");
    }
    if (lstat(partial, &from) < 0 || stat(folder, &to) < 0)
        return err_set_errno(err, ERR_IO, "cannot look at '%s' and '%s'", partial, folder);
    if (S_ISLNK(from.st_mode))
        return err_set(err, ERR_IO, "'%s', where the dataset is built, is a link: remove it, or "
                                    "give an --out beside what it leads to", partial);
    if (from.st_dev != to.st_dev)
        return err_set(err, ERR_IO, "'%s', where the dataset is built, and '%s' are on two file "
                                    "systems, and no rename leads from one to the other: give an "
                                    "--out that "
                       "is no mount point, such as a folder in it", partial, out);
    return 0;
}

/* ---- what is there ---- */

void set_release(struct set *s)
{
    dataset_release(&s->data);
    record_release(&s->record);
}

/* Checks that all shards named in the index exist with the right size. The loader checks their
 * content. */
static int shards_check(const char *out, const struct dataset *d, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct stat st;
    for (int64_t i = 0; i < d->n_shards; i++) {
        snprintf(path, sizeof path, "%.3000s/%.1000s", out, d->shards[i].path);
        if (stat(path, &st) < 0)
            return err_set(err, ERR_CORRUPT, "shard '%s', which the index names, cannot be looked "
                                             "at (%s): restore it, or remove '%s' and curate again",
                           path, strerror(errno), out);
        if (st.st_size != d->shards[i].bytes)
            return err_set(err, ERR_CORRUPT, "shard '%s' has %lld bytes, the index says %lld: "
                                             "restore it, or remove '%s' and curate again",
                           path, (long long)st.st_size, (long long)d->shards[i].bytes, out);
    }
    return 0;
}

/* Loads the dataset and its record. ERR_EXISTS: `out` holds something else. */
static int set_load(const char *out, struct set *s, struct err *err)
{
    struct err why = {0};
    int rc = dataset_load(out, &s->data, &why);
    if (rc == ERR_NOT_FOUND)
        return err_set(err, ERR_EXISTS, "'%s' exists and holds something else: give another "
                                        "--out, or remove it", out);
    if (rc < 0)
        return err_set(err, rc, "%s (copies of the indexes there were lie in "
                                "'%s/.reel/generations')", why.text, out);
    if ((rc = record_load(out, s->data.fingerprint, &s->record, &why)) < 0)
        return err_set(err, rc, "'%s' holds a dataset whose record cannot be read: %s: restore "
                                "it, or give another --out", out, why.text);
    return shards_check(out, &s->data, err);
}

int set_open(const char *out, struct set *s, struct err *err)
{
    struct stat st;
    *s = (struct set){0};
    if (stat(out, &st) < 0)
        return errno == ENOENT ? 0 : err_set_errno(err, ERR_IO, "cannot look at '%s'", out);
    if (S_ISDIR(st.st_mode) && rmdir(out) == 0)
        return 0; /* an empty folder is removed */
    int rc = set_load(out, s, err);
    if (rc < 0)
        set_release(s);
    return rc < 0 ? rc : 1;
}

/* Writes the index and the record of one generation below root. The fingerprint, after which they
 * are named, is known only after the index is written. */
static int generation_save(const char *root, struct dataset *d, const struct record *r,
                           struct err *err)
{
    char dir[LIMIT_PATH_BYTES], from[LIMIT_PATH_BYTES], to[LIMIT_PATH_BYTES];
    char hash[HASH_TEXT_BYTES];
    int rc;
    snprintf(dir, sizeof dir, "%.3900s/.reel/generations", root);
    /* This writes <dir>/.reel/index, which is renamed below. */
    if ((rc = dataset_save(dir, d, err)) < 0)
        return rc;
    if ((rc = record_save(root, d->fingerprint, r, err)) < 0)
        return rc;
    snprintf(from, sizeof from, "%.4000s/.reel/index", dir);
    snprintf(to, sizeof to, "%.4000s/%s.index", dir, hash_format(d->fingerprint, hash));
    if (rename(from, to) < 0)
        return err_set_errno(err, ERR_IO, "cannot name '%s'", to);
    snprintf(from, sizeof from, "%.4000s/.reel", dir);
    if ((rc = file_remove_tree(from, err)) < 0)
        return rc;
    return file_fsync_dir(dir, err);
}

/* Names the place of the finished sources below a dataset's folder while that is renamed. */
static void aside_name(const char *root, char out[LIMIT_PATH_BYTES])
{
    snprintf(out, LIMIT_PATH_BYTES, "%.4000s/.reel/work", root);
}

int publish_work_back(const char *partial, const char *work, struct err *err)
{
    char aside[LIMIT_PATH_BYTES];
    aside_name(partial, aside);
    if (rename(aside, work) < 0 && errno != ENOENT)
        return err_set_errno(err, ERR_IO, "cannot move '%s' to '%s'", aside, work);
    return 0;
}

int publish_work_drop(const char *out, struct err *err)
{
    char aside[LIMIT_PATH_BYTES];
    aside_name(out, aside);
    return file_remove_tree(aside, err);
}

int publish_new(const char *partial, const char *work, const char *out, struct dataset *d,
                const struct record *r, struct err *err)
{
    char aside[LIMIT_PATH_BYTES];
    int rc;
    aside_name(partial, aside);
    if ((rc = shards_meta_save(partial, d, err)) < 0)
        return rc;
    if ((rc = generation_save(partial, d, r, err)) < 0)
        return rc;
    if ((rc = dataset_save(partial, d, err)) < 0)
        return rc;
    if (rename(work, aside) < 0)
        return err_set_errno(err, ERR_IO, "cannot move '%s' to '%s'", work, aside);
    if ((rc = file_publish_dir(partial, out, err)) < 0)
        return rc;
    return publish_work_drop(out, err);
}

static int shard_move(const char *partial, const char *out, const char *name, const char *ending,
                      struct err *err)
{
    char from[LIMIT_PATH_BYTES], to[LIMIT_PATH_BYTES];
    snprintf(from, sizeof from, "%.4000s/%s%s", partial, name, ending);
    snprintf(to, sizeof to, "%.4000s/%s%s", out, name, ending);
    return rename(from, to) < 0 ? err_set_errno(err, ERR_IO, "cannot move '%s' to '%s'", from, to)
                                : 0;
}

int publish_grown(const char *partial, const char *out, const struct dataset *base,
                  struct dataset *d, const struct record *r, struct err *err)
{
    int rc;
    for (int64_t i = base->n_shards; i < d->n_shards; i++) {
        if ((rc = shard_move(partial, out, d->shards[i].path, "", err)) < 0)
            return rc;
        if ((rc = shard_move(partial, out, d->shards[i].path, ".idx", err)) < 0)
            return rc;
    }
    if ((rc = file_fsync_dir(out, err)) < 0)
        return rc;
    if ((rc = generation_save(out, d, r, err)) < 0)
        return rc;
    if ((rc = dataset_save(out, d, err)) < 0)
        return rc;
    return shards_meta_save(out, d, err);
}

/* Returns 1 when the sidecar names each shard. Shards are usually listed in order, so the search
 * continues from the last one. */
static int sidecar_names(const char *out, const char *sidecar, const struct dataset *d,
                         struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct str text = STR_INIT;
    int rc;
    snprintf(path, sizeof path, "%.4000s/.nv-meta/%s", out, sidecar);
    if (!file_exists(path))
        return 0;
    if ((rc = file_read(path, SIDECAR_BYTES_MAX, &text, err)) < 0)
        goto out;
    const char *at = text.p;
    for (int64_t i = 0; at && i < d->n_shards; i++) {
        const char *next = strstr(at, d->shards[i].path);
        at = next ? next : strstr(text.p, d->shards[i].path);
    }
    rc = at != NULL;
out:
    str_release(&text);
    return rc;
}

/* Accepts a split file that the user wrote, too, if it names all shards, in whatever split. */
int publish_is_told(const char *out, const struct dataset *d, struct err *err)
{
    int rc = sidecar_names(out, ".info.json", d, err);
    return rc == 1 ? sidecar_names(out, "split.yaml", d, err) : rc;
}

/* Says whether this is a shard, or the index of a shard, whose number the dataset does not have. */
static bool is_stray(const char *name, const struct dataset *d)
{
    long long number;
    int n = 0;
    char made[SHARD_NAME_BYTES];
    if (sscanf(name, "shard-%lld.tar%n", &number, &n) != 1 || n == 0 || number < d->n_shards)
        return false;
    shard_name(number, made);
    return strncmp(name, made, strlen(made)) == 0 && (!name[n] || strcmp(name + n, ".idx") == 0);
}

/* Removes the files for which fn returns true from a folder below OUT ("" is OUT itself). A folder
 * that does not exist holds nothing. */
static int strays_remove(const char *out, const char *below,
                         bool (*fn)(const char *name, const struct dataset *d),
                         const struct dataset *d, struct err *err)
{
    char dir[LIMIT_PATH_BYTES];
    int rc = 0;
    snprintf(dir, sizeof dir, "%.4000s%s", out, below);
    DIR *folder = opendir(dir);
    if (!folder && errno == ENOENT)
        return 0;
    if (!folder)
        return err_set_errno(err, ERR_IO, "cannot read folder '%s'", dir);
    for (struct dirent *e; (e = readdir(folder));) {
        char path[LIMIT_PATH_BYTES + sizeof e->d_name + 1];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (fn(e->d_name, d) && unlink(path) < 0) {
            rc = err_set_errno(err, ERR_IO, "cannot remove '%s', which an update left behind",
                               path);
            goto out;
        }
    }
out:
    closedir(folder);
    return rc;
}

/* Says whether this is a temporary file, whose writer was killed (base/file.h). */
static bool is_half(const char *name, const struct dataset *d)
{
    (void)d;
    return strstr(name, ".tmp.") != NULL;
}

int publish_mend(const char *out, const struct dataset *d, struct err *err)
{
    static const char *const folders[] = {"/.nv-meta", "/.reel", "/.reel/generations"};
    char half[LIMIT_PATH_BYTES];
    int rc;
    if ((rc = strays_remove(out, "", is_stray, d, err)) < 0)
        return rc;
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        if ((rc = strays_remove(out, folders[i], is_half, d, err)) < 0)
            return rc;
    snprintf(half, sizeof half, "%.4000s/.reel/generations/.reel", out);
    if ((rc = file_remove_tree(half, err)) < 0)
        return rc;
    if ((rc = publish_work_drop(out, err)) < 0)
        return rc;
    return shards_meta_save(out, d, err);
}
