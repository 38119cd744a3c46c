/* The format reel.ckpt/1.
 *
 * A checkpoint is a folder `step-<steps done, 8 digits>` holding `manifest.json` and one file a rank of the group that wrote it:
 *
 *     {"schema": "reel.ckpt/1", "step": 120, "updates": 120, "ordinal": "960", "config_hash": "…", "model": "dit-tiny",
 *      "layout": "tp=1,…", "dtype": "f32", "ema": true, "padded": 3792896,
 *      "tensors": [{"name": "patch_embed.weight", "shape": [192, 64], "offset": 0}, …],
 *      "files": [{"name": "rank-00000.bin", "first": 0, "n": 1896448, "bytes": …, "hash": "…"}, …],
 *      "checksum": "…"}
 *
 * Every buffer (weights, m, v, and ema when "ema") has the flat layout: tensor i's elements lie at offset … offset + count, row
 * major. File k holds elements first … first + n - 1 of each buffer, the buffers one after the other in that order, raw
 * little-endian numbers of "dtype", no header. The files cover 0 … padded - 1 without overlap. `hash` is XXH3-128 of the
 * file; "checksum", always last, is that of the manifest's own bytes up to the comma before it. Numbers are those of the run's
 * own dtype: loading gives back the same bits.
 *
 * A reader finds tensors by name and takes what it needs of each from whatever files hold it, so that the group that reads need not be like
 * the one that wrote. "layout" is for people; nothing depends on it.
 *
 * Publishing: rank 0 makes `.tmp-step-…`; every rank writes and syncs its file; rank 0 collects sizes and hashes, writes and
 * syncs the manifest, renames the folder and syncs its parent. A kill at any moment leaves the old checkpoints and at most a
 * `.tmp-…` folder, which the next save removes. All ranks agree on success before anybody goes on. A checkpoint that already
 * stands under the name is kept when it verifies (the run is the same whoever ran it), else set aside like any damaged one.
 *
 * Removing: after a save, the oldest beyond the `keep` newest go. Only those count whose manifest reads and whose files have the
 * right sizes, so that a damaged one never pushes out a good one.
 *
 * Loading: rank 0 lists the folders; each, from the newest, is verified by all ranks together (file k by rank k mod ranks). A
 * damaged one (unreadable manifest, wrong size or hash, missing file) is renamed `….damaged`, replacing an older such folder of
 * the same step, and the next one is tried. One that cannot be read because the file system fails (EIO) is passed over and left.
 */
#include "trainer/ckpt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/num.h"
#include "trainer/ckpt_priv.h"

static const char ckpt_schema[] = "reel.ckpt/1";
const char *const ckpt_buffer_names[] = {"weights", "m", "v", "ema", NULL};

/* ---- writing ---- */

static const void *piece_of(const struct optim *o, enum ckpt_buffer buffer)
{
    int64_t bytes = dtype_bytes(o->ops->stat), first = o->shard * o->dp->rank;
    const char *held[] = {o->weights, o->m, o->v, o->ema};
    if (!held[buffer])
        return NULL;
    return held[buffer] + (first - (buffer == CKPT_WEIGHTS ? 0 : o->own_first)) * bytes;
}

/* This rank's file: written, synced, and hashed from memory as it went out. */
static int rank_file_write(const char *dir, const struct optim *o, struct ckpt_file *out, struct hash_stream *hash, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    int64_t bytes = o->shard * dtype_bytes(o->ops->stat);
    snprintf(out->name, sizeof out->name, "rank-%05d.bin", o->dp->rank);
    out->first = o->shard * o->dp->rank;
    out->n = o->shard;
    out->bytes = 0;
    snprintf(path, sizeof path, "%s/%s", dir, out->name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666), rc = 0;
    if (fd < 0)
        return err_set_errno(err, ERR_IO, "cannot make '%s'", path);
    for (int b = 0; b < CKPT_BUFFERS && rc == 0; b++) {
        const void *piece = piece_of(o, (enum ckpt_buffer)b);
        if (!piece)
            continue;
        rc = file_write_all(fd, piece, (size_t)bytes, path, err);
        hash_stream_add(hash, piece, (size_t)bytes);
        out->bytes += bytes;
    }
    if (rc == 0)
        rc = file_fsync(fd, path, err);
    if (close(fd) < 0 && rc == 0)
        rc = err_set_errno(err, ERR_IO, "cannot close '%s'", path);
    out->hash = hash_stream_128(hash);
    return rc;
}

static void tensors_write(const struct optim *o, struct json_out *j)
{
    json_arr_begin(j, "tensors");
    for (int64_t i = 0; i < o->params->n; i++) {
        const struct param *p = &o->params->items[i];
        json_obj_begin(j, NULL);
        json_put_text(j, "name", p->name);
        json_arr_begin(j, "shape");
        for (int d = 0; d < p->nd; d++)
            json_put_int(j, NULL, p->dim[d]);
        json_arr_end(j);
        json_put_int(j, "offset", o->flat->offset[i]);
        json_obj_end(j);
    }
    json_arr_end(j);
}

static void files_write(const struct ckpt_file *files, int n, struct json_out *j)
{
    char hash[HASH_TEXT_BYTES];
    json_arr_begin(j, "files");
    for (int i = 0; i < n; i++) {
        json_obj_begin(j, NULL);
        json_put_text(j, "name", files[i].name);
        json_put_int(j, "first", files[i].first);
        json_put_int(j, "n", files[i].n);
        json_put_int(j, "bytes", files[i].bytes);
        json_put_text(j, "hash", hash_format(files[i].hash, hash));
        json_obj_end(j);
    }
    json_arr_end(j);
}

static int manifest_write(const char *dir, const struct optim *o, const struct ckpt_meta *meta, const char *layout,
                          const struct ckpt_file *files, struct err *err)
{
    char path[LIMIT_PATH_BYTES], hash[HASH_TEXT_BYTES];
    struct str text = STR_INIT;
    struct json_out j;
    json_out_init(&j, &text, 1);
    json_obj_begin(&j, NULL);
    json_put_text(&j, "schema", ckpt_schema);
    json_put_int(&j, "step", meta->step);
    json_put_int(&j, "updates", o->updates);
    json_put_u64text(&j, "ordinal", meta->ordinal);
    json_put_text(&j, "config_hash", hash_format(meta->config_hash, hash));
    json_put_text(&j, "model", o->run->model.name);
    json_put_text(&j, "layout", layout);
    json_put_text(&j, "dtype", dtype_names[o->ops->stat]);
    json_put_bool(&j, "ema", o->ema != NULL);
    json_put_int(&j, "padded", o->padded);
    tensors_write(o, &j);
    files_write(files, o->dp->size, &j);
    if (str_check(&text, NULL) == 0)
        json_put_text(&j, "checksum", hash_format(hash_128(text.p, text.len), hash));
    json_obj_end(&j);
    str_addc(&text, '\n');
    snprintf(path, sizeof path, "%s/manifest.json", dir);
    int rc = str_check(&text, err);
    if (rc == 0)
        rc = file_publish(path, text.p, text.len, err);
    str_release(&text);
    return rc;
}

/* Rank 0: an empty folder to write into; what a killed save left is removed first. */
static int tmp_make(const char *ckpt_dir, const char *tmp, struct err *err)
{
    int rc = file_mkdirs(ckpt_dir, err);
    DIR *dir = rc == 0 ? opendir(ckpt_dir) : NULL;
    for (struct dirent *d; dir && rc == 0 && (d = readdir(dir));) {
        char path[LIMIT_PATH_BYTES];
        if (strncmp(d->d_name, ".tmp-", 5) == 0 && snprintf(path, sizeof path, "%s/%s", ckpt_dir, d->d_name) > 0)
            rc = file_remove_tree(path, err);
    }
    if (dir)
        closedir(dir);
    return rc == 0 ? file_mkdirs(tmp, err) : rc;
}

static int set_aside(const char *dir, struct err *err)
{
    char to[LIMIT_PATH_BYTES + 16];
    snprintf(to, sizeof to, "%s.damaged", dir);
    int rc = file_remove_tree(to, err);
    if (rc == 0 && rename(dir, to) < 0)
        rc = err_set_errno(err, ERR_IO, "cannot set the damaged checkpoint '%s' aside", dir);
    return rc;
}

/* Whole by manifest and file sizes; with `hashes`, by content too. */
static int folder_check(const char *dir, bool hashes, struct err *err)
{
    struct ckpt_manifest m = {0};
    int rc = ckpt_manifest_load(dir, &m, err);
    if (rc == 0)
        rc = hashes ? ckpt_verify(dir, &m, 0, 1, err) : ckpt_sizes_check(dir, &m, 0, 1, err);
    ckpt_manifest_release(&m);
    return rc;
}

/* Of a look at a checkpoint: it is not whole. Anything else (no memory, a failing file system) says nothing about it. */
static bool is_damage(int rc)
{
    return rc == ERR_CORRUPT || rc == ERR_INPUT || rc == ERR_NOT_FOUND || rc == ERR_LIMIT;
}

/* Rank 0: the folder becomes visible, unless a good one of the same step is. */
static int publish(const char *tmp, const char *final, struct err *err)
{
    if (file_exists(final)) {
        int rc = folder_check(final, true, err);
        if (rc == 0)
            return file_remove_tree(tmp, err);
        if (!is_damage(rc) || (rc = set_aside(final, err)) < 0)
            return rc;
    }
    return file_publish_dir(tmp, final, err);
}

/* Failures are left alone: an old checkpoint too many harms nobody. */
static void keep_newest(const char *ckpt_dir, int64_t keep)
{
    struct ckpt_list list = {0};
    int64_t good = 0;
    if (ckpt_list_load(ckpt_dir, &list, NULL) < 0)
        return;
    for (int64_t i = 0; i < list.n; i++) {
        char path[LIMIT_PATH_BYTES];
        ckpt_dir_format(ckpt_dir, list.steps[i], path);
        if (good >= keep)
            file_remove_tree(path, NULL);
        else
            good += folder_check(path, false, NULL) == 0;
    }
    free(list.steps);
}

int ckpt_save(const char *run_dir, const struct optim *o, const struct ckpt_meta *meta, const char *layout, int64_t keep,
              struct ckpt_meta *written, struct err *err)
{
    char ckpt_dir[LIMIT_PATH_BYTES], tmp[LIMIT_PATH_BYTES], final[LIMIT_PATH_BYTES];
    struct ckpt_file own = {0}, *files = calloc((size_t)o->dp->size, sizeof *files);
    struct hash_stream *hash = hash_stream_new();
    bool first = o->dp->rank == 0;
    snprintf(ckpt_dir, sizeof ckpt_dir, "%s/ckpt", run_dir);
    snprintf(tmp, sizeof tmp, "%s/.tmp-step-%08lld", ckpt_dir, (long long)meta->step);
    ckpt_dir_format(ckpt_dir, meta->step, final);
    int rc = files && hash ? 0 : err_set(err, ERR_NOMEM, "out of memory saving");
    if (rc == 0 && first)
        rc = tmp_make(ckpt_dir, tmp, err);
    rc = comm_agree(o->dp, rc, err);
    if (rc == 0)
        rc = comm_agree(o->dp, rank_file_write(tmp, o, &own, hash, err), err);
    if (rc == 0)
        rc = comm_do(o->dp, &(struct comm_op){.kind = COMM_ALL_GATHER, .what = "files of a checkpoint", .send = &own, .recv = files,
                                              .n = (int64_t)sizeof own, .dtype = DTYPE_FP8}, NULL, err); /* bytes */
    if (rc == 0 && first && (rc = manifest_write(tmp, o, meta, layout, files, err)) == 0)
        rc = publish(tmp, final, err);
    rc = comm_agree(o->dp, rc, err);
    if (rc < 0 && first)
        file_remove_tree(tmp, NULL);
    if (rc == 0) {
        *written = *meta;
        written->updates = o->updates;
        for (int i = 0; i < o->dp->size; i++)
            written->bytes += files[i].bytes;
        if (first)
            keep_newest(ckpt_dir, keep);
    }
    hash_stream_free(hash);
    free(files);
    return rc;
}

/* ---- finding and loading ---- */

void ckpt_dir_format(const char *ckpt_dir, int64_t step, char out[LIMIT_PATH_BYTES])
{
    snprintf(out, LIMIT_PATH_BYTES, "%s/step-%08lld", ckpt_dir, (long long)step);
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

int ckpt_list_load(const char *ckpt_dir, struct ckpt_list *out, struct err *err)
{
    DIR *dir = opendir(ckpt_dir);
    struct ckpt_list list = {0};
    if (!dir)
        return errno == ENOENT ? 0 : err_set_errno(err, ERR_IO, "cannot list '%s'", ckpt_dir);
    int rc = 0;
    for (struct dirent *d; rc == 0 && (d = readdir(dir));) {
        const char *digits = d->d_name + 5;
        int64_t step;
        if (!str_starts(d->d_name, "step-") || strlen(digits) < 8 || strspn(digits, "0123456789") != strlen(digits) ||
            num_parse_i64(digits, "step", &step, NULL) < 0)
            continue;
        int64_t *grown = realloc(list.steps, (size_t)(list.n + 1) * sizeof *grown);
        if (!grown)
            rc = err_set(err, ERR_NOMEM, "out of memory listing '%s'", ckpt_dir);
        else
            list.steps = grown, list.steps[list.n++] = step;
    }
    closedir(dir);
    if (rc < 0)
        free(list.steps);
    else
        *out = list;
    if (rc == 0 && list.n > 1)
        qsort(list.steps, (size_t)list.n, sizeof *list.steps, newest_first);
    return rc;
}

/* Rank 0's list on every rank: a network file system may show each rank another one. */
static int list_share(const char *ckpt_dir, struct comm *dp, struct ckpt_list *out, struct err *err)
{
    struct ckpt_list list = {0};
    int rc = comm_agree(dp, dp->rank == 0 ? ckpt_list_load(ckpt_dir, &list, err) : 0, err);
    if (rc == 0)
        rc = comm_broadcast_bytes(dp, &list.n, (int64_t)sizeof list.n, 0, err);
    if (rc == 0 && dp->rank != 0)
        list.steps = calloc((size_t)list.n + 1, sizeof *list.steps);
    if (rc == 0)
        rc = comm_agree(dp, list.n == 0 || list.steps ? 0 : err_set(err, ERR_NOMEM, "out of memory listing '%s'", ckpt_dir), err);
    if (rc == 0 && list.n > 0)
        rc = comm_broadcast_bytes(dp, list.steps, list.n * (int64_t)sizeof *list.steps, 0, err);
    if (rc < 0)
        free(list.steps);
    else
        *out = list;
    return rc;
}

/* Own range of every tensor of one buffer. A tensor that is missing or of another size makes the checkpoint another model's. */
static int buffer_load(const char *dir, const struct ckpt_manifest *m, struct optim *o, enum ckpt_buffer buffer, struct err *err)
{
    char *held[] = {o->weights, o->m, o->v, o->ema};
    int64_t bytes = dtype_bytes(o->ops->stat), own_first = buffer == CKPT_WEIGHTS ? 0 : o->own_first;
    int64_t own_end = buffer == CKPT_WEIGHTS ? o->padded : o->own_first + o->own_n;
    for (int64_t i = 0; i < o->params->n; i++) {
        const struct param *p = &o->params->items[i];
        int64_t t = ckpt_tensor_find(m, p->name), at = o->flat->offset[i];
        if (t < 0 || m->tensors[t].count != p->count)
            return err_set(err, ERR_INPUT, "%s: tensor '%s' is missing or of another shape: it is not this model's checkpoint",
                           dir, p->name);
        int64_t first = at > own_first ? at : own_first, end = at + p->count < own_end ? at + p->count : own_end;
        if (first >= end)
            continue;
        int rc = ckpt_read(dir, m, buffer, t, first - at, end - first, held[buffer] + (first - own_first) * bytes, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int state_load(const char *dir, const struct ckpt_manifest *m, struct optim *o, struct err *err)
{
    if (m->dtype != o->ops->stat)
        return err_set(err, ERR_INPUT, "%s: holds %s numbers, the run is %s", dir, dtype_names[m->dtype], dtype_names[o->ops->stat]);
    if (o->ema && !m->ema)
        return err_set(err, ERR_INPUT, "%s: holds no average (EMA), the run keeps one", dir);
    int rc = optim_zero(o, err);
    for (int b = 0; b < CKPT_BUFFERS && rc == 0; b++)
        if (b != CKPT_EMA || o->ema)
            rc = buffer_load(dir, m, o, (enum ckpt_buffer)b, err);
    o->updates = m->meta.updates;
    return rc;
}

/* One candidate: 0 loaded, ERR_CORRUPT damaged, ERR_IO not readable now, else an error that no other checkpoint mends; all
 * ranks alike. */
static int candidate_load(const char *dir, struct optim *o, struct hash128 config, struct ckpt_meta *out, struct err *err)
{
    struct ckpt_manifest m = {0};
    int rc = ckpt_manifest_load(dir, &m, err);
    if (rc == 0)
        rc = ckpt_verify(dir, &m, o->dp->rank, o->dp->size, err);
    if (is_damage(rc))
        rc = err->code = ERR_CORRUPT;
    rc = comm_agree(o->dp, rc, err);
    if (rc == 0 && memcmp(&m.meta.config_hash, &config, sizeof config) != 0)
        rc = err_set(err, ERR_INPUT, "%s: was written by another configuration (model, data, objective, optimizer or seed differ): "
                     "start a new run, or give the old run.json", dir);
    if (rc == 0)
        rc = comm_agree(o->dp, state_load(dir, &m, o, err), err);
    if (rc == 0)
        *out = m.meta;
    ckpt_manifest_release(&m);
    return rc;
}

/* Rank 0 tells and renames, all agree. */
static int candidate_reject(const char *dir, int status, struct optim *o, ckpt_damage_fn *on_damage, void *ctx, const char *why,
                            struct err *err)
{
    int rc = 0;
    if (o->dp->rank == 0) {
        if (on_damage)
            on_damage(ctx, dir, why);
        if (status == ERR_CORRUPT)
            rc = set_aside(dir, err);
    }
    return comm_agree(o->dp, rc, err);
}

int ckpt_load(const char *run_dir, struct optim *o, struct hash128 config_hash, ckpt_damage_fn *on_damage, void *ctx,
              struct ckpt_meta *out, bool *found, struct err *err)
{
    char ckpt_dir[LIMIT_PATH_BYTES], dir[LIMIT_PATH_BYTES];
    struct ckpt_list list = {0};
    snprintf(ckpt_dir, sizeof ckpt_dir, "%s/ckpt", run_dir);
    *found = false;
    int rc = list_share(ckpt_dir, o->dp, &list, err);
    for (int64_t i = 0; rc == 0 && i < list.n && !*found; i++) {
        struct err why = {0};
        ckpt_dir_format(ckpt_dir, list.steps[i], dir);
        int got = candidate_load(dir, o, config_hash, out, &why);
        if (got == ERR_CORRUPT || got == ERR_IO)
            rc = candidate_reject(dir, got, o, on_damage, ctx, why.text, err);
        else if (got < 0)
            rc = err_set(err, got, "%s", why.text);
        else
            *found = true;
    }
    free(list.steps);
    return rc;
}
