/* Saves checkpoints in the format reel.ckpt/1.
 *
 * A checkpoint is a folder `step-<steps done, 8 digits>` holding `manifest.json` and tp·pp·(shard
 * group) files:
 *
 *     {"schema": "reel.ckpt/1", "step": 120, "updates": 120, "skips": 0, "ordinal": "960",
 *      "config_hash": "…", "model": {…reel.model/1…}, "layout": "tp=1,…", "dtype": "f32",
 *      "run_dtype": "bf16", "moments": "same", "residual": "f32",
 *      "objective": "v", "condition_frames": 1, "seed": "1234", "ema": true, "groups": […],
 *      "lora": {…}, "spikes": {"loss": [0.25, …], "norm": [1.5, …]},
 *      "tensors": [{"name": "patch_embed.weight", "shape": [192, 64]}, …],
 *      "files": [{"name": "rank-00000.bin", "n": 1896448, "trained": 1896448, "bytes": …,
 *                 "hash": "…"}, …],
 *      "checksum": "…"}
 *
 * "config_hash" is the hash of everything that decided these steps (profiles/run.h,
 * run_past_hash), so a run that is made longer can still load the checkpoint. Earlier versions
 * stored the hash of the run's whole configuration, which is accepted too. "updates" of the "step"
 * steps changed the weights. The last "skips" steps (left out: 0) did not, because a gradient was
 * not finite. "spikes" is the history of the last steps in a run with adamw.spike_z (spike.h), the
 * oldest first (left out: empty).
 *
 * "layout" is the canonical text of the layout under which the checkpoint was written
 * (profiles/layout.h). "tensors" are the model's parameters by their global names and shapes, in
 * the parameter list's order. "groups" and "lora" are the run's (profiles/finetune.c), left out
 * where it has none. The model, these and the layout determine where every element lies
 * (profiles/shard.h, piece.h).
 *
 * Files: each rank of the first replica of the shard group (its data rank is below the group's
 * size) writes one file, under every ZeRO stage. The files are listed in the order of the ranks.
 * The file of place (tp, pp) and piece f holds piece f of each unit that this place has, one unit
 * after the other. First come "n" elements of the weights; in a run of bf16, master weights stand
 * for the trained ones. Then come m, v, and with "ema" the average, each with "trained" elements
 * (left out: "n"), for trained units only. All are raw little-endian numbers of type "dtype",
 * without a header; with "moments": "bf16" (left out: same), m and v are bf16. A tensor that
 * several places hold is in the file of each.
 *
 * "dtype" is f64 or f32. In a run of bf16 the optimizer's numbers and the master weights are f32,
 * and "run_dtype" is "bf16" (left out: dtype). Frozen weights have no masters; the file holds them
 * widened to f32. "residual" is there when the residual stream has another type than the run.
 * "objective", "condition_frames" and "seed" are the run's. Samples depend on them, so a checkpoint
 * with other values is another run's (left out by earlier versions). `hash` is the XXH3-128 of
 * the file. "checksum" is the XXH3-128 of the manifest's own bytes up to the comma before it; it is
 * last and has this form in every version. Loading restores the same bits: the numbers have the
 * run's own type, and weights of bf16 are rounded from their masters.
 *
 * A reader finds tensors by name and takes the elements it needs from whichever files hold them.
 * So a checkpoint can be read under another layout than it was written under (ckpt_reshard.c).
 *
 * Publishing: rank 0 makes `.tmp-step-<step>.a<attempt>.<token>`; every rank writes and syncs its
 * file; rank 0 collects sizes and hashes, writes and syncs the manifest, renames the folder and
 * syncs its parent. A kill at any moment leaves the old checkpoints and at most a `.tmp-…` folder.
 * The next save of this attempt or a newer one removes that folder. It first renames it to a name
 * of its own, so that the process that wrote it, if it still lives, cannot publish a part of it.
 * Rank 0 checks before each rename that the run's folder is still its own (base/owner.h). All ranks
 * agree on success before any of them goes on. If a checkpoint already has the final name, it is
 * kept when it verifies, because the run is the same; if it is damaged, or loading passed it over
 * and it still cannot be read, it is set aside.
 *
 * Removing: after a save, the checkpoints that are older than the `keep` newest are removed, each
 * by a rename first, so that nobody sees a part of one. Besides the new checkpoint, only those
 * whose files were read again and match the manifest's checksums count towards `keep`
 * (ckpt_keep.c), so a damaged one never pushes out a good one. Damaged folders that were set aside
 * are removed by the same rule. When the disk has no room for a new checkpoint, old ones are
 * removed before it is written, down to the newest whole one (ckpt_room.c).
 */
#include "trainer/ckpt/ckpt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bf16.h"
#include "base/file.h"
#include "base/json.h"
#include "base/num.h"
#include "trainer/ckpt/ckpt_priv.h"

const char *const ckpt_buffer_names[] = {"weights", "m", "v", "ema", NULL};

/* ---- one rank's file ---- */

enum dtype ckpt_buffer_dtype(enum dtype dtype, enum run_moments moments, enum ckpt_buffer buffer)
{
    return moments == MOMENTS_BF16 && (buffer == CKPT_M || buffer == CKPT_V) ? DTYPE_BF16 : dtype;
}

int64_t ckpt_files(const struct layout *l) { return l->tp * l->pp * layout_shard_group(l); }

int64_t ckpt_file_of(const struct layout *l, int64_t tp, int64_t piece, int64_t pp)
{
    return (pp * layout_shard_group(l) + piece) * l->tp + tp;
}

int64_t ckpt_file_of_rank(const struct layout *l, int64_t rank)
{
    struct layout_place p = layout_place(l, rank);
    int64_t data = layout_data_rank(l, p);
    return data < layout_shard_group(l) ? ckpt_file_of(l, p.tp, data, p.pp) : -1;
}

/* Returns how many elements a buffer has in all pieces together. */
static int64_t buffer_elements(const struct shards *sh, enum ckpt_buffer buffer)
{
    return buffer == CKPT_WEIGHTS ? sh->total : sh->trained;
}

bool ckpt_whole(int64_t zero, enum ckpt_buffer buffer)
{
    return buffer == CKPT_WEIGHTS ? zero < 3 : zero < 1;
}

struct ckpt_state ckpt_state_of(const struct optim *o)
{
    return (struct ckpt_state){
        .params = o->c.params, .sh = o->c.sh, .zero = o->c.layout->zero,
        .dtype = o->c.ops->stat, .act = o->c.ops->act, .moments = o->c.run->moments,
        .buffers = {o->weights, o->m, o->v, o->ema}, .master = o->master, .slab = o->slab
    };
}

typedef int piece_fn(void *ctx, const void *data, int64_t bytes, struct err *err);

/* Calls fn for a piece, part by part. The slab brings each part into host memory first. */
static int piece_fetch(struct slab *slab, const char *data, int64_t bytes, piece_fn *fn, void *ctx,
                       struct err *err)
{
    int rc;
    for (int64_t at = 0, n; at < bytes; at += n) {
        const void *part;
        n = num_min_i64(bytes - at, slab_most_bytes(slab));
        if ((rc = slab_fetch(slab, data + at, n, &part, err)) < 0)
            return rc;
        if ((rc = fn(ctx, part, n, err)) < 0)
            return rc;
    }
    return 0;
}

struct out_file {
    int fd;
    char path[LIMIT_PATH_BYTES];
    int64_t bytes;
    struct hash_stream *hash;
    struct slab *slab;
};

static int out_write(void *ctx, const void *data, int64_t bytes, struct err *err)
{
    struct out_file *f = ctx;
    int rc = file_write_all(f->fd, data, (size_t)bytes, f->path, err);
    hash_stream_add(f->hash, data, (size_t)bytes);
    f->bytes += bytes;
    return rc;
}

/* Calls fn for this rank's own piece of each of the units `from` .. end-1, one after the other. The
 * buffer holds numbers of type t. */
static int pieces_visit(const struct shards *sh, char *buffer, enum dtype t, bool whole,
                        int64_t from, int64_t end, piece_fn *fn, void *ctx, struct err *err)
{
    int64_t bytes = dtype_bytes(t);
    int rc;
    for (int64_t k = from; k < end; k++) {
        int64_t own = sh->units[k].offset / sh->group;
        if ((rc = fn(ctx, buffer + (whole ? piece_whole(sh, k, own) : own) * bytes,
                     sh->units[k].elements / sh->group * bytes, err)) < 0)
            return rc;
    }
    return 0;
}

/* A visitor receives the pieces of a buffer. `stored` gets those that need no conversion, at their
 * place in the buffer; `host` gets those that were widened to f32, in host memory. */
struct visitor {
    piece_fn *stored, *host;
    void *ctx;
    struct slab *slab;
};

/* Widens a part of a bf16 piece to f32 and passes it on. */
static int widened(void *ctx, const void *data, int64_t bytes, struct err *err)
{
    enum { BLOCK = 8192 };
    const struct visitor *v = ctx;
    const uint16_t *from = data;
    float block[BLOCK];
    int rc;
    for (int64_t i = 0, n = bytes / 2; i < n; i += BLOCK) {
        int64_t part = num_min_i64(BLOCK, n - i);
        for (int64_t j = 0; j < part; j++)
            block[j] = bf16_value(from[i + j]);
        if ((rc = v->host(v->ctx, block, part * (int64_t)sizeof *block, err)) < 0)
            return rc;
    }
    return 0;
}

static int piece_widen(void *ctx, const void *data, int64_t bytes, struct err *err)
{
    const struct visitor *v = ctx;
    return piece_fetch(v->slab, data, bytes, widened, ctx, err);
}

/* Visits this rank's own pieces of one buffer in the order and the type that its file has. */
static int buffer_visit(const struct ckpt_state *s, enum ckpt_buffer buffer, struct visitor *v,
                        struct err *err)
{
    int64_t n = buffer == CKPT_WEIGHTS ? s->sh->n_units : s->sh->n_trained;
    bool narrow = buffer == CKPT_WEIGHTS && s->act != s->dtype;
    if (!narrow)
        return pieces_visit(s->sh, s->buffers[buffer],
                            ckpt_buffer_dtype(s->dtype, s->moments, buffer),
                            ckpt_whole(s->zero, buffer), 0, n, v->stored, v->ctx, err);
    BUG_ON(s->act != DTYPE_BF16 || s->dtype != DTYPE_F32 || !s->master);
    int rc;
    if ((rc = pieces_visit(s->sh, s->master, s->dtype, ckpt_whole(s->zero, CKPT_M), 0,
                           s->sh->n_trained, v->stored, v->ctx, err)) < 0)
        return rc;
    return pieces_visit(s->sh, s->buffers[buffer], s->act, ckpt_whole(s->zero, buffer),
                        s->sh->n_trained, n, piece_widen, v, err);
}

int64_t ckpt_state_bytes(const struct ckpt_state *s)
{
    int64_t bytes = 0;
    for (int b = 0; b < CKPT_BUFFERS; b++)
        if (s->buffers[b])
            bytes += buffer_elements(s->sh, (enum ckpt_buffer)b) / s->sh->group *
                     dtype_bytes(ckpt_buffer_dtype(s->dtype, s->moments, (enum ckpt_buffer)b));
    return bytes;
}

struct copying { char *to; struct slab *slab; };

static int host_copy(void *ctx, const void *data, int64_t bytes, struct err *err)
{
    struct copying *c = ctx;
    (void)err;
    memcpy(c->to, data, (size_t)bytes);
    c->to += bytes;
    return 0;
}

static int piece_copy(void *ctx, const void *data, int64_t bytes, struct err *err)
{
    struct copying *c = ctx;
    if (!c->slab)
        return host_copy(ctx, data, bytes, err);
    slab_take(c->slab, c->to, data, bytes);
    c->to += bytes;
    return 0;
}

int ckpt_state_copy(const struct ckpt_state *s, char *to, struct ckpt_state *out, struct err *err)
{
    struct ckpt_state copy = *s;
    struct copying c = {to, s->slab};
    struct visitor v = {piece_copy, host_copy, &c, s->slab};
    int rc;
    copy.zero = 3; /* the copy holds only this rank's own pieces, in the type of the files */
    copy.act = s->dtype, copy.master = NULL, copy.slab = NULL;
    for (int b = 0; b < CKPT_BUFFERS; b++) {
        if (!s->buffers[b])
            continue;
        copy.buffers[b] = c.to;
        if ((rc = buffer_visit(s, (enum ckpt_buffer)b, &v, err)) < 0)
            return rc;
    }
    if ((rc = slab_flush(s->slab, err)) < 0)
        return rc;
    *out = copy;
    return 0;
}

static int piece_write(void *ctx, const void *data, int64_t bytes, struct err *err)
{
    struct out_file *f = ctx;
    return piece_fetch(f->slab, data, bytes, out_write, f, err);
}

static int file_fill(struct out_file *f, const struct ckpt_state *s, struct err *err)
{
    struct visitor v = {piece_write, out_write, f, s->slab};
    int rc;
    for (int b = 0; b < CKPT_BUFFERS; b++)
        if (s->buffers[b] && (rc = buffer_visit(s, (enum ckpt_buffer)b, &v, err)) < 0)
            return rc;
    return file_fsync(f->fd, f->path, err);
}

int ckpt_file_write(const char *dir, const struct ckpt_state *s, int64_t rank,
                    struct ckpt_file *out, struct err *err)
{
    struct ckpt_file file = {
        .n = s->sh->total / s->sh->group,
        .trained = s->sh->trained / s->sh->group
    };
    struct out_file f = {.fd = -1, .hash = hash_stream_new(), .slab = s->slab};
    int rc;
    if (!f.hash)
        return err_set(err, ERR_NOMEM, "out of memory saving");
    snprintf(file.name, sizeof file.name, "rank-%05lld.bin", (long long)rank);
    snprintf(f.path, sizeof f.path, "%s/%s", dir, file.name);
    if ((f.fd = open(f.path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) < 0) {
        rc = err_set_errno(err, ERR_IO, "cannot make '%s'", f.path);
        goto out;
    }
    if ((rc = file_fill(&f, s, err)) < 0)
        goto out;
    int fd = f.fd;
    f.fd = -1;
    if (close(fd) < 0) {
        rc = err_set_errno(err, ERR_IO, "cannot close '%s'", f.path);
        goto out;
    }
    file.bytes = f.bytes;
    file.hash = hash_stream_128(f.hash);
    *out = file;
out:
    if (f.fd >= 0)
        close(f.fd);
    hash_stream_free(f.hash);
    return rc;
}

static void tensors_write(const struct param_list *params, struct json_out *j)
{
    json_arr_begin(j, "tensors");
    for (int64_t i = 0; i < params->n; i++) {
        const struct param *p = &params->items[i];
        json_obj_begin(j, NULL);
        json_put_text(j, "name", p->name);
        json_arr_begin(j, "shape");
        for (int d = 0; d < p->nd; d++)
            json_put_int(j, NULL, p->dim[d]);
        json_arr_end(j);
        json_obj_end(j);
    }
    json_arr_end(j);
}

static void files_write(const struct ckpt_file *files, int64_t n, struct json_out *j)
{
    char hash[HASH_TEXT_BYTES];
    json_arr_begin(j, "files");
    for (int64_t i = 0; i < n; i++) {
        json_obj_begin(j, NULL);
        json_put_text(j, "name", files[i].name);
        json_put_int(j, "n", files[i].n);
        json_put_int(j, "trained", files[i].trained);
        json_put_int(j, "bytes", files[i].bytes);
        json_put_text(j, "hash", hash_format(files[i].hash, hash));
        json_obj_end(j);
    }
    json_arr_end(j);
}

static void numbers_write(const char *key, const double *x, int64_t n, struct json_out *j)
{
    json_arr_begin(j, key);
    for (int64_t i = 0; i < n; i++)
        json_put_num(j, NULL, x[i]);
    json_arr_end(j);
}

static void spikes_write(const struct spike_history *h, struct json_out *j)
{
    if (h->n == 0)
        return;
    json_obj_begin(j, "spikes");
    numbers_write("loss", h->loss, h->n, j);
    numbers_write("norm", h->norm, h->n, j);
    json_obj_end(j);
}

int ckpt_manifest_write(const char *dir, const struct ckpt_manifest *m,
                        const struct param_list *params, struct err *err)
{
    char path[LIMIT_PATH_BYTES], hash[HASH_TEXT_BYTES];
    struct str text = STR_INIT;
    struct json_out j;
    json_out_init(&j, &text, 1);
    json_obj_begin(&j, NULL);
    json_put_text(&j, "schema", CKPT_SCHEMA);
    json_put_int(&j, "step", m->meta.step);
    json_put_int(&j, "updates", m->meta.updates);
    json_put_int(&j, "skips", m->meta.skips);
    json_put_u64text(&j, "ordinal", m->meta.ordinal);
    json_put_text(&j, "config_hash", hash_format(m->meta.config_hash, hash));
    model_write(&m->model, &j, "model");
    layout_write(&m->layout, &j, "layout");
    json_put_text(&j, "dtype", dtype_names[m->dtype]);
    if (m->run_dtype != m->dtype)
        json_put_text(&j, "run_dtype", dtype_names[m->run_dtype]);
    json_put_text(&j, "moments", moments_names[m->moments]);
    if (m->residual != RESIDUAL_SAME)
        json_put_text(&j, "residual", residual_names[m->residual]);
    json_put_text(&j, "objective", objective_names[m->objective]);
    json_put_int(&j, "condition_frames", m->condition_frames);
    json_put_u64text(&j, "seed", m->seed);
    json_put_bool(&j, "ema", m->ema);
    finetune_write(&m->finetune, &j);
    spikes_write(&m->meta.spikes, &j);
    tensors_write(params, &j);
    files_write(m->files, m->n_files, &j);
    if (str_check(&text, NULL) == 0)
        json_put_text(&j, "checksum", hash_format(hash_128(text.p, text.len), hash));
    json_obj_end(&j);
    str_addc(&text, '\n');
    snprintf(path, sizeof path, "%s/manifest.json", dir);
    int rc;
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    rc = file_publish(path, text.p, text.len, err);
out:
    str_release(&text);
    return rc;
}

/* ---- publishing ---- */

/* Removes what killed saves left, then makes an empty folder to write into. Rank 0 calls it. */
static int tmp_make(const struct ckpt_writer *w, const char *ckpt_dir, const char *tmp,
                    struct err *err)
{
    int rc;
    if ((rc = file_mkdirs(ckpt_dir, err)) < 0)
        return rc;
    if ((rc = ckpt_tmp_clear(w, ckpt_dir, err)) < 0)
        return rc;
    return file_mkdirs(tmp, err);
}

int ckpt_set_aside(const struct ckpt_writer *w, const char *dir, struct err *err)
{
    char to[LIMIT_PATH_BYTES + 16];
    int rc;
    snprintf(to, sizeof to, "%s.damaged", dir);
    if ((rc = ckpt_writer_check(w, err)) < 0)
        return rc;
    if ((rc = file_remove_tree(to, err)) < 0)
        return rc;
    if (rename(dir, to) < 0 && errno != ENOENT)
        return err_set_errno(err, ERR_IO, "cannot set the damaged checkpoint '%s' aside", dir);
    return 0;
}

/* Checks that a checkpoint is whole by manifest, file sizes and content. */
static int folder_check(const char *dir, struct err *err)
{
    struct ckpt_manifest m = {0};
    int rc;
    if ((rc = ckpt_manifest_load(dir, &m, err)) < 0)
        return rc;
    rc = ckpt_verify(dir, &m, 0, 1, err);
    ckpt_manifest_release(&m);
    return rc;
}

bool ckpt_is_damage(int rc)
{
    return rc == ERR_CORRUPT || rc == ERR_NOT_FOUND;
}

/* Checks the folder of this step that already has the final name. Returns 0 if it is whole and
 * stays; ERR_NOT_FOUND if it has been set aside, because it is damaged, or because it cannot be
 * read and could not be when this attempt loaded an older one and so did its steps again. */
static int standing_judge(const struct ckpt_writer *w, int64_t step, const char *final,
                          struct err *err)
{
    int rc = folder_check(final, err);
    if (!ckpt_is_damage(rc) && !(rc == ERR_IO && step <= w->passed_over))
        return rc;
    if ((rc = ckpt_set_aside(w, final, err)) < 0)
        return rc;
    return ERR_NOT_FOUND;
}

/* Gives the folder its final name, on rank 0, unless a whole checkpoint of the same step has it.
 * The folder under that name is always whole and of this run: if another process publishes one
 * between the check and the rename, the rename fails because that folder is not empty. */
static int publish(const struct ckpt_save *s, const char *final, struct err *err)
{
    const struct ckpt_writer *w = s->w;
    int rc = file_exists(final) ? standing_judge(w, s->meta.step, final, err) : ERR_NOT_FOUND;
    if (rc == ERR_NOT_FOUND && (rc = ckpt_writer_check(w, err)) == 0 &&
        (rc = file_publish_dir(s->tmp, final, err)) == ERR_EXISTS)
        rc = folder_check(final, err);
    if (rc < 0)
        return rc;
    return file_remove_tree(s->tmp, err);
}

/* Writes the manifest with every rank's file, in the order of ckpt_file_of, and publishes the
 * folder. Rank 0 calls it. Ranks that write no file have n = 0. */
static int manifest_publish(const struct ckpt_save *s, const char *final,
                            const struct ckpt_file *files, struct err *err)
{
    const struct optim *o = s->o;
    struct ckpt_manifest m = {
        .meta = s->meta, .model = o->c.run->model, .layout = *o->c.layout,
        .finetune = o->c.run->finetune,
        .dtype = o->c.ops->stat, .run_dtype = o->c.ops->act,
        .moments = o->c.run->moments, .residual = o->c.run->residual,
        .objective = o->c.run->objective, .condition_frames = o->c.run->condition_frames,
        .seed = o->c.run->seed,
        .ema = o->ema != NULL
    };
    if (!(m.files = calloc((size_t)ckpt_files(o->c.layout), sizeof *m.files)))
        return err_set(err, ERR_NOMEM, "out of memory for the names of a checkpoint's files");
    for (int i = 0; i < o->c.world->size; i++)
        if (files[i].n)
            m.files[ckpt_file_of_rank(o->c.layout, i)] = files[i], m.n_files++;
    BUG_ON(m.n_files != ckpt_files(o->c.layout));
    int rc = ckpt_manifest_write(s->tmp, &m, o->c.params, err);
    free(m.files);
    if (rc < 0)
        return rc;
    return publish(s, final, err);
}

int ckpt_save_begin(const struct ckpt_writer *w, const struct optim *o,
                    const struct ckpt_meta *meta, int64_t keep, struct ckpt_save *s,
                    struct err *err)
{
    struct comm *world = o->c.world;
    *s = (struct ckpt_save){.w = w, .o = o, .meta = *meta};
    s->meta.updates = o->updates;
    snprintf(s->ckpt_dir, sizeof s->ckpt_dir, "%s/ckpt", w->run_dir);
    ckpt_tmp_format(w, "step", meta->step, s->tmp);
    int rc;
    if ((rc = comm_agree(world, world->rank == 0 ? tmp_make(w, s->ckpt_dir, s->tmp, err) : 0,
                         err)) < 0)
        return rc;
    /* the name has a token of the lease, which only rank 0 holds */
    if ((rc = comm_broadcast_bytes(world, s->tmp, sizeof s->tmp, 0, err)) < 0)
        return rc;
    rc = ckpt_keep_begin(&s->keep, w, s->ckpt_dir, meta->step, keep, world, err);
    if (rc < 0 && world->rank == 0)
        file_remove_tree(s->tmp, NULL);
    return rc;
}

int ckpt_save_write(struct ckpt_save *s, const struct ckpt_state *state, struct err *err)
{
    bool writes = ckpt_file_of_rank(s->o->c.layout, s->o->c.world->rank) >= 0;
    int rc;
    if (writes && (rc = ckpt_file_write(s->tmp, state, s->o->c.world->rank, &s->own, err)) < 0)
        return rc;
    ckpt_keep_check(&s->keep);
    return 0;
}

/* Gathers name, sizes and hash of every rank's file; then rank 0 publishes the folder. */
static int files_publish(struct ckpt_save *s, struct ckpt_file *files, struct err *err)
{
    struct comm *world = s->o->c.world;
    char final[LIMIT_PATH_BYTES];
    struct comm_op gather = {
        .kind = COMM_ALL_GATHER, .what = "files of a checkpoint",
        .send = &s->own, .recv = files, .n = sizeof s->own, .dtype = DTYPE_BYTE
    };
    int rc;
    ckpt_dir_format(s->ckpt_dir, s->meta.step, final);
    if ((rc = comm_do(world, &gather, NULL, err)) < 0)
        return rc;
    for (int i = 0; i < world->size; i++)
        s->meta.bytes += files[i].bytes;
    return world->rank == 0 ? manifest_publish(s, final, files, err) : 0;
}

/* Publishes the checkpoint if every rank has written its file. All ranks get the same result. */
static int folder_publish(struct ckpt_save *s, int status, struct ckpt_file *files,
                          struct err *err)
{
    struct comm *world = s->o->c.world;
    int rc = status == 0 && !files ? err_set(err, ERR_NOMEM, "out of memory saving") : status;
    if ((rc = comm_agree(world, rc, err)) < 0)
        return rc;
    return comm_agree(world, files_publish(s, files, err), err);
}

int ckpt_save_finish(struct ckpt_save *s, int status, struct ckpt_meta *written, struct err *err)
{
    struct comm *world = s->o->c.world;
    struct ckpt_file *files = calloc((size_t)world->size, sizeof *files);
    int rc;
    if ((rc = folder_publish(s, status, files, err)) < 0) {
        if (world->rank == 0)
            file_remove_tree(s->tmp, NULL);
        goto out;
    }
    if ((rc = ckpt_keep_finish(&s->keep, err)) < 0)
        goto out;
    *written = s->meta;
out:
    ckpt_keep_release(&s->keep);
    free(files);
    return rc;
}

int ckpt_save(const struct ckpt_writer *w, const struct optim *o, const struct ckpt_meta *meta,
              int64_t keep, struct ckpt_meta *written, struct err *err)
{
    struct ckpt_save s;
    struct ckpt_state state = ckpt_state_of(o);
    int rc;
    if ((rc = ckpt_save_begin(w, o, meta, keep, &s, err)) < 0)
        return rc;
    return ckpt_save_finish(&s, ckpt_save_write(&s, &state, err), written, err);
}
