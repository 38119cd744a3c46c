/* Loads a checkpoint into a run. Rank 0 lists the folders. All ranks together verify the newest
 * checkpoint (file k by rank k mod ranks), then the next older one, until one can be loaded. A
 * damaged checkpoint (a manifest whose checksum does not fit, a wrong size or hash, a missing file)
 * is renamed `….damaged`, which replaces an older such folder of the same step. If the file system
 * fails (EIO), a checkpoint is passed over and left as it is; if then none can be loaded, loading
 * ends with that error, since the file system may give it later. If a manifest's checksum fits but
 * this program cannot read it (a newer schema, an unknown key), loading ends with an error: an
 * older checkpoint would repeat steps that are not lost, and a newer program can read this one.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/num.h"
#include "trainer/ckpt/ckpt_priv.h"

void ckpt_dir_format(const char *ckpt_dir, int64_t step, char out[LIMIT_PATH_BYTES])
{
    snprintf(out, LIMIT_PATH_BYTES, "%s/step-%08lld", ckpt_dir, (long long)step);
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Reads the step from a folder's name. Returns false when it is no checkpoint's name. */
static bool step_of(const char *name, int64_t *step)
{
    const char *digits = name + 5;
    return str_starts(name, "step-") && strlen(digits) >= 8 &&
           strspn(digits, "0123456789") == strlen(digits) &&
           num_parse_i64(digits, "step", step, NULL) == 0;
}

int ckpt_list_load(const char *ckpt_dir, struct ckpt_list *out, struct err *err)
{
    DIR *dir = opendir(ckpt_dir);
    struct ckpt_list list = {0};
    int64_t step;
    int rc = 0;
    if (!dir)
        return errno == ENOENT ? 0 : err_set_errno(err, ERR_IO, "cannot list '%s'", ckpt_dir);
    for (struct dirent *d; (d = readdir(dir));) {
        if (!step_of(d->d_name, &step))
            continue;
        int64_t *grown = realloc(list.steps, (size_t)(list.n + 1) * sizeof *grown);
        if (!grown) {
            rc = err_set(err, ERR_NOMEM, "out of memory listing '%s'", ckpt_dir);
            goto out;
        }
        list.steps = grown, list.steps[list.n++] = step;
    }
    if (list.n > 1)
        qsort(list.steps, (size_t)list.n, sizeof *list.steps, newest_first);
    *out = list;
    list.steps = NULL; /* the caller owns it now */
out:
    closedir(dir);
    free(list.steps);
    return rc;
}

int64_t ckpt_newest_step(const char *run_dir)
{
    char dir[LIMIT_PATH_BYTES];
    struct ckpt_list list = {0};
    snprintf(dir, sizeof dir, "%s/ckpt", run_dir);
    int64_t step = ckpt_list_load(dir, &list, NULL) == 0 && list.n > 0 ? list.steps[0] : 0;
    free(list.steps);
    return step;
}

bool ckpt_is_run(const char *dir)
{
    char path[LIMIT_PATH_BYTES];
    snprintf(path, sizeof path, "%s/ckpt", dir);
    return file_exists(path);
}

int ckpt_dir_find(const char *dir, char out[LIMIT_PATH_BYTES], struct err *err)
{
    char ckpt[LIMIT_PATH_BYTES];
    snprintf(out, LIMIT_PATH_BYTES, "%s", dir);
    if (!ckpt_is_run(dir)) {
        snprintf(ckpt, sizeof ckpt, "%.4000s/manifest.json", dir);
        return file_exists(ckpt) ? 0
                                 : err_set(err, ERR_INPUT,
                                           "'%s' is no checkpoint, for it holds no manifest.json: "
                                           "give a folder <run>/ckpt/step-…, or that of a run",
                                           dir);
    }
    int64_t newest = ckpt_newest_step(dir);
    if (newest == 0)
        return err_set(err, ERR_INPUT, "run '%s' has no checkpoint (ckpt/step-…)", dir);
    snprintf(ckpt, sizeof ckpt, "%s/ckpt", dir);
    ckpt_dir_format(ckpt, newest, out);
    return 0;
}

int ckpt_list_share(const char *ckpt_dir, struct comm *world, struct ckpt_list *out,
                    struct err *err)
{
    struct ckpt_list list = {0};
    int rc, have = 0;
    if ((rc = comm_agree(world, world->rank == 0 ? ckpt_list_load(ckpt_dir, &list, err) : 0,
                         err)) < 0)
        goto out;
    if ((rc = comm_broadcast_bytes(world, &list.n, (int64_t)sizeof list.n, 0, err)) < 0)
        goto out;
    if (world->rank != 0)
        list.steps = calloc((size_t)list.n + 1, sizeof *list.steps);
    if (list.n > 0 && !list.steps)
        have = err_set(err, ERR_NOMEM, "out of memory listing '%s'", ckpt_dir);
    if ((rc = comm_agree(world, have, err)) < 0)
        goto out;
    if (list.n > 0 &&
        (rc = comm_broadcast_bytes(world, list.steps, list.n * (int64_t)sizeof *list.steps, 0,
                                   err)) < 0)
        goto out;
    *out = list;
    list.steps = NULL; /* the caller owns it now */
out:
    free(list.steps);
    return rc;
}

static int state_load(const char *dir, const struct ckpt_manifest *m, struct optim *o,
                      struct err *err)
{
    if (m->run_dtype != o->c.ops->act)
        return err_set(err, ERR_INPUT, "%s: was written by a run in %s, this one is in %s", dir,
                       dtype_names[m->run_dtype], dtype_names[o->c.ops->act]);
    if (o->ema && !m->ema)
        return err_set(err, ERR_INPUT, "%s: holds no average (EMA), the run keeps one", dir);
    if (m->moments != o->c.run->moments)
        return err_set(err, ERR_INPUT, "%s: holds moments of type '%s', the run's are '%s'", dir,
                       moments_names[m->moments], moments_names[o->c.run->moments]);
    int rc;
    if ((rc = optim_zero(o, err)) < 0)
        return rc;
    struct ckpt_state to = ckpt_state_of(o);
    if ((rc = ckpt_state_load(dir, m, &to, err)) < 0)
        return rc;
    o->updates = m->meta.updates;
    return 0;
}

/* Turns ERR_INPUT and ERR_LIMIT into one sentence: this program cannot read the checkpoint. Other
 * results stay as they are. The reason comes first, without the list of known keys, and the path
 * last, because a reader with little room shows only the beginning of the sentence. */
static int unreadable(const char *dir, int status, struct err *err)
{
    char why[ERR_TEXT_BYTES];
    const char *name = strrchr(dir, '/'), *at;
    char *list;
    if (status != ERR_INPUT && status != ERR_LIMIT)
        return status;
    snprintf(why, sizeof why, "%s", err->text);
    if ((list = strstr(why, ": known here are")))
        *list = '\0';
    at = str_starts(why, dir) && why[strlen(dir)] == '/' ? why + strlen(dir) + 1 : why;
    return err_set(err, ERR_INPUT,
                   "checkpoint %s cannot be read by this reel-train: %.400s; it is whole, and is "
                   "left as it is: go on with the program that wrote it, or a newer one ('%s')",
                   name ? name + 1 : dir, at, dir);
}

/* Says whether this run trained the checkpoint's steps. The checkpoint carries the hash of what
 * decided these steps; one of an earlier version carries that of the whole configuration. */
static bool is_own(const struct ckpt_meta *m, const struct run *run, struct hash128 config)
{
    struct hash128 past = run_past_hash(run, m->step);
    return memcmp(&m->config_hash, &past, sizeof past) == 0 ||
           memcmp(&m->config_hash, &config, sizeof config) == 0;
}

/* Tries one candidate. Returns 0: loaded; ERR_CORRUPT: damaged; ERR_IO: not readable now; else an
 * error for which trying another checkpoint is no remedy. All ranks get the same result. */
static int candidate_load(const char *dir, struct optim *o, struct hash128 config,
                          struct ckpt_meta *out, struct err *err)
{
    struct ckpt_manifest m = {0};
    int rc = unreadable(dir, ckpt_manifest_load(dir, &m, err), err);
    if (rc == 0) /* all ranks agree on what follows */
        rc = ckpt_verify(dir, &m, o->c.world->rank, o->c.world->size, err);
    if (ckpt_is_damage(rc))
        rc = err->code = ERR_CORRUPT;
    if ((rc = comm_agree(o->c.world, rc, err)) < 0)
        goto out;
    if (!is_own(&m.meta, o->c.run, config)) {
        rc = err_set(err, ERR_INPUT,
                     "%s: was written by another configuration (model, data, objective, "
                     "optimizer, seed, or the learning rate of the steps until then differ): start "
                     "a new run, or give the old run.json. Steps may be added to it; where its "
                     "warm-up was left out, or its rate falls, say what held so far "
                     "(schedule.warmup_steps, past)",
                     dir);
        goto out;
    }
    if ((rc = comm_agree(o->c.world, state_load(dir, &m, o, err), err)) < 0)
        goto out;
    *out = m.meta;
out:
    ckpt_manifest_release(&m);
    return rc;
}

/* Rejects a candidate: rank 0 reports it, and sets it aside if it is damaged. All ranks agree on
 * the result. */
static int candidate_reject(const struct ckpt_writer *w, const char *dir, int status,
                            struct optim *o, ckpt_damage_fn *on_damage, void *ctx, const char *why,
                            struct err *err)
{
    int rc = 0;
    if (o->c.world->rank == 0) {
        if (on_damage)
            on_damage(ctx, dir, why);
        if (status == ERR_CORRUPT)
            rc = ckpt_set_aside(w, dir, err);
    }
    return comm_agree(o->c.world, rc, err);
}

int ckpt_load(struct ckpt_writer *w, struct optim *o, struct hash128 config_hash,
              ckpt_damage_fn *on_damage, void *ctx, struct ckpt_meta *out, bool *found,
              struct err *err)
{
    char ckpt_dir[LIMIT_PATH_BYTES], dir[LIMIT_PATH_BYTES];
    struct ckpt_list list = {0};
    struct err unread = {0}; /* of the newest checkpoint that the file system did not give */
    snprintf(ckpt_dir, sizeof ckpt_dir, "%s/ckpt", w->run_dir);
    *found = false;
    int rc;
    if ((rc = ckpt_list_share(ckpt_dir, o->c.world, &list, err)) < 0)
        return rc;
    for (int64_t i = 0; i < list.n && !*found; i++) {
        struct err why = {0};
        ckpt_dir_format(ckpt_dir, list.steps[i], dir);
        int got = candidate_load(dir, o, config_hash, out, &why);
        *found = got == 0;
        if (got == ERR_IO && unread.code == 0)
            unread = why, w->passed_over = list.steps[i];
        if (got == ERR_CORRUPT || got == ERR_IO)
            rc = candidate_reject(w, dir, got, o, on_damage, ctx, why.text, err);
        else if (got < 0)
            rc = err_set(err, got, "%s", why.text);
        if (rc < 0)
            goto out;
    }
    if (!*found && unread.code < 0)
        rc = err_set(err, ERR_IO, "no checkpoint can be loaded: %s", unread.text);
out:
    free(list.steps);
    return rc;
}
