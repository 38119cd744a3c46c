/* Guards the changes of a run's ckpt folder. It gives unfinished and removed folders names that
 * only this process uses, and checks before each change that the folder still belongs to this
 * attempt.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "trainer/ckpt/ckpt_priv.h"

int ckpt_writer_check(const struct ckpt_writer *w, struct err *err)
{
    return w->lease ? owner_check(w->lease, w->run_dir, w->attempt, err) : 0;
}

void ckpt_tmp_format(const struct ckpt_writer *w, const char *what, int64_t step,
                     char out[LIMIT_PATH_BYTES])
{
    snprintf(out, LIMIT_PATH_BYTES, "%s/ckpt/.tmp-%s-%08lld.a%lld.%.8s", w->run_dir, what,
             (long long)step, (long long)w->attempt, w->lease ? lease_token(w->lease) : "0");
}

/* Returns the attempt that made a temporary name; 0 for what earlier versions made; -1: it is no
 * temporary name. */
static int64_t tmp_attempt(const char *name)
{
    const char *mark = strncmp(name, ".tmp-", 5) == 0 ? strstr(name, ".a") : NULL;
    long long attempt = 0;
    if (strncmp(name, ".tmp-", 5) != 0)
        return -1;
    return mark && sscanf(mark, ".a%lld.", &attempt) == 1 ? attempt : 0;
}

/* Removes a tree. It is renamed first, because the process that wrote it may still live and be
 * about to publish it: then it is published whole or not at all. */
static int tree_take(const char *from, const char *to, struct err *err)
{
    if (strcmp(from, to) != 0 && rename(from, to) < 0 && errno != ENOENT)
        return err_set_errno(err, ERR_IO, "cannot remove '%s'", from);
    return file_remove_tree(to, err);
}

int ckpt_tmp_clear(const struct ckpt_writer *w, const char *ckpt_dir, struct err *err)
{
    int64_t n = 0;
    int rc;
    if ((rc = ckpt_writer_check(w, err)) < 0)
        return rc;
    DIR *dir = opendir(ckpt_dir);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char path[LIMIT_PATH_BYTES + 256], gone[LIMIT_PATH_BYTES];
        int64_t attempt = tmp_attempt(d->d_name);
        snprintf(path, sizeof path, "%s/%s", ckpt_dir, d->d_name);
        ckpt_tmp_format(w, "left", n++, gone);
        if (attempt < 0 || attempt > w->attempt)
            continue;
        if ((rc = tree_take(path, gone, err)) < 0)
            goto out;
    }
out:
    if (dir)
        closedir(dir);
    return rc;
}

int ckpt_remove(const struct ckpt_writer *w, const char *dir, int64_t step, struct err *err)
{
    char gone[LIMIT_PATH_BYTES];
    int rc;
    if ((rc = ckpt_writer_check(w, err)) < 0)
        return rc;
    ckpt_tmp_format(w, "gone", step, gone);
    return tree_take(dir, gone, err);
}
