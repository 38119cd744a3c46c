/* Reads a checkpoint that was written under one layout into the buffers of another.
 *
 * There is one file for every place (tp, pp) of the writer's layout and every piece of its shard
 * group. The files are visited one after the other. A file holds spans of each tensor's elements,
 * and shard_to_global gives the numbers that a span's elements have in the whole tensor. Some of
 * them belong to this rank's part of the tensor (shard_to_local); where the rank holds only its own
 * pieces of units, some of those belong to its piece. Only these are read, each to its place, so
 * padding is neither read nor written.
 *
 * An element that several places of the writer hold is read from one of them. If the place that
 * corresponds to ours has all of the tensor that we have, it is read from there, so a rank that
 * resumes under its old layout reads exactly its old files. Otherwise it is read from the place
 * that counts it (own_rows).
 *
 * Weights of bf16 are rounded as they are read. For their f32 masters the weights in the file are
 * read a second time.
 *
 * Short spans go through a window on the file; long ones are read directly to their place. A file
 * that holds nothing for this rank is not opened.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bf16.h"
#include "base/num.h"
#include "trainer/ckpt/ckpt_priv.h"

enum { WINDOW_BYTES = 128 << 10 };

/* Reads one file at a time. */
struct reader {
    const char *dir;
    const struct ckpt_manifest *m;
    const struct ckpt_file *file;
    int fd; /* -1: not open */
    char path[LIMIT_PATH_BYTES];
    char *window;
    int64_t window_first, window_n; /* bytes of the file that the window holds */
};

/* Says where the elements of a tensor go: to this rank's part `t` of it, in a buffer of whole units
 * or in one that holds only this rank's pieces of units. u is the tensor's unit. */
struct dest {
    const struct shards *sh;
    const struct shard_unit *u;
    const struct shard_tensor *t;
    char *base;
    struct slab *slab;   /* reaches base; NULL: it is memory of the host */
    bool whole, rounded; /* rounded: to bf16, from f32 */
    int64_t got;         /* elements so far */
};

/* ---- one file ---- */

static int reader_init(struct reader *r, const char *dir, const struct ckpt_manifest *m,
                       struct err *err)
{
    *r = (struct reader){.dir = dir, .m = m, .fd = -1, .window = malloc(WINDOW_BYTES)};
    return r->window ? 0 : err_set(err, ERR_NOMEM, "out of memory reading '%s'", dir);
}

static void reader_leave(struct reader *r)
{
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
    r->window_n = 0;
}

static void reader_release(struct reader *r)
{
    reader_leave(r);
    free(r->window);
}

/* Chooses the file of place (tp, pp) and piece sh->group_rank. The first read opens the file. */
static int reader_choose(struct reader *r, const struct shards *sh, struct err *err)
{
    reader_leave(r);
    r->file = &r->m->files[ckpt_file_of(&r->m->layout, sh->place.tp, sh->group_rank, sh->place.pp)];
    snprintf(r->path, sizeof r->path, "%s/%s", r->dir, r->file->name);
    if (r->file->n != sh->total / sh->group || r->file->trained != sh->trained / sh->group)
        return err_set(err, ERR_CORRUPT,
                       "'%s' has %lld elements of the weights and %lld of other buffers, by the "
                       "layout that wrote it %lld and %lld",
                       r->path, (long long)r->file->n, (long long)r->file->trained,
                       (long long)(sh->total / sh->group), (long long)(sh->trained / sh->group));
    return 0;
}

static int read_at(struct reader *r, int64_t offset, int64_t bytes, void *out, struct err *err)
{
    int64_t done = 0;
    if (r->fd < 0 && (r->fd = open(r->path, O_RDONLY | O_CLOEXEC)) < 0)
        return err_set_errno(err, ERR_IO, "cannot read '%s'", r->path);
    while (done < bytes) {
        ssize_t n = pread(r->fd, (char *)out + done, (size_t)(bytes - done), offset + done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set_errno(err, ERR_IO, "cannot read '%s'", r->path);
        if (n == 0)
            return err_set(err, ERR_CORRUPT, "'%s' is too short", r->path);
        done += n;
    }
    return 0;
}

static int64_t element_bytes(const struct reader *r, enum ckpt_buffer buffer)
{
    return dtype_bytes(ckpt_buffer_dtype(r->m->dtype, r->m->moments, buffer));
}

/* Reads n elements, from element `at` on, of one buffer in the chosen file. */
static int elements_read(struct reader *r, enum ckpt_buffer buffer, int64_t at, int64_t n,
                         void *out, struct err *err)
{
    int64_t each = element_bytes(r, buffer),
            offset = ckpt_buffer_first(r->m, r->file, buffer) + at * each, bytes = n * each;
    if (bytes >= WINDOW_BYTES)
        return read_at(r, offset, bytes, out, err);
    if (offset < r->window_first || offset + bytes > r->window_first + r->window_n) {
        r->window_n = 0;
        int64_t ahead = num_min_i64(WINDOW_BYTES, r->file->bytes - offset);
        int rc = ahead < bytes ? err_set(err, ERR_CORRUPT, "'%s' is too short", r->path)
                               : read_at(r, offset, ahead, r->window, err);
        if (rc < 0)
            return rc;
        r->window_first = offset, r->window_n = ahead;
    }
    memcpy(out, r->window + (offset - r->window_first), (size_t)bytes);
    return 0;
}

/* Reads elements as elements_read does, and rounds them to bf16. */
static int elements_round(struct reader *r, enum ckpt_buffer buffer, int64_t at, int64_t n,
                          uint16_t *out, struct err *err)
{
    enum { BLOCK = 8192 };
    float block[BLOCK];
    int rc;
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t part = num_min_i64(BLOCK, n - i);
        if ((rc = elements_read(r, buffer, at + i, part, block, err)) < 0)
            return rc;
        for (int64_t j = 0; j < part; j++)
            out[i + j] = bf16_round(block[j]);
    }
    return 0;
}

/* ---- one tensor ---- */

/* Reads n elements, from element `at` of the file's buffer on, to our buffer from element `to`
 * on. */
static int span_fetch(struct reader *r, enum ckpt_buffer buffer, const struct dest *d, int64_t to,
                      int64_t n, int64_t at, struct err *err)
{
    int64_t each = d->rounded ? dtype_bytes(DTYPE_BF16) : element_bytes(r, buffer), part;
    int rc;
    for (int64_t i = 0; i < n; i += part) {
        void *place, *own = d->base + (to + i) * each;
        part = num_min_i64(n - i, slab_most_bytes(d->slab) / each);
        if ((rc = slab_place(d->slab, own, part * each, &place, err)) < 0)
            return rc;
        if ((rc = d->rounded ? elements_round(r, buffer, at + i, part, place, err)
                             : elements_read(r, buffer, at + i, part, place, err)) < 0)
            return rc;
        slab_send(d->slab, own, place, part * each);
    }
    return 0;
}

/* Reads elements local .. local+n-1 of our part of the tensor, which begin at element `at` of the
 * file's buffer. If our buffer holds only our pieces of units, elements outside are not read. */
static int local_fetch(struct reader *r, enum ckpt_buffer buffer, struct dest *d, int64_t local,
                       int64_t n, int64_t at, struct err *err)
{
    int64_t to = d->t->offset + local;
    if (!d->whole) {
        struct piece own = piece_of(d->sh, d->u, d->t, local, local + n);
        at += own.local - local, to = own.at, n = own.n;
    }
    d->got += n;
    return span_fetch(r, buffer, d, to, n, at, err);
}

/* Reads what we need of tensor p. `have` is the piece of the writer's part `from` that the chosen
 * file holds. */
static int tensor_fetch(struct reader *r, enum ckpt_buffer buffer, const struct param *p,
                        const struct shard_tensor *from, struct piece have, struct dest *d,
                        struct err *err)
{
    int rc;
    for (int64_t done = 0, n; done < have.n; done += n) {
        int64_t there, here, global = shard_to_global(from, p, have.local + done, &there);
        int64_t local = shard_to_local(d->t, p, global, &here);
        n = num_min_i64(num_min_i64(there, here), have.n - done);
        if (local >= 0 && (rc = local_fetch(r, buffer, d, local, n, have.at + done, err)) < 0)
            return rc;
    }
    return 0;
}

/* ---- a rank's state ---- */

/* Names one of our buffers and the units that are read for it: all, or only the trained ones. */
struct target {
    enum ckpt_buffer buffer;
    char *base; /* NULL: this buffer is not read */
    bool whole, rounded, all;
    int64_t got; /* elements */
};
enum { TARGETS = CKPT_BUFFERS + 1 };

struct load {
    struct reader r;
    const struct ckpt_state *to;
    struct shards near; /* the place of the writer's layout that corresponds to ours */
    struct target targets[TARGETS];
};

static void targets_set(struct load *l)
{
    const struct ckpt_state *to = l->to;
    for (int b = 0; b < CKPT_BUFFERS; b++)
        l->targets[b] = (struct target){
            .buffer = (enum ckpt_buffer)b, .base = to->buffers[b],
            .whole = ckpt_whole(to->zero, (enum ckpt_buffer)b),
            .rounded = b == CKPT_WEIGHTS && to->act != to->dtype,
            .all = b == CKPT_WEIGHTS
        };
    l->targets[CKPT_BUFFERS] = (struct target){
        .buffer = CKPT_WEIGHTS, .base = to->master,
        .whole = ckpt_whole(to->zero, CKPT_M)
    };
    BUG_ON(l->r.m->dtype != to->dtype || (to->act != to->dtype && to->act != DTYPE_BF16));
}

/* Checks names and shapes. A tensor that is missing or of another shape makes the checkpoint
 * another model's. */
static int tensors_check(const char *dir, const struct ckpt_manifest *m,
                         const struct param_list *params, struct err *err)
{
    for (int64_t i = 0; i < params->n; i++) {
        const struct param *p = &params->items[i];
        const struct ckpt_tensor *t = i < m->n_tensors ? &m->tensors[i] : NULL;
        if (!t || strcmp(t->name, p->name) != 0 || t->nd != p->nd ||
            memcmp(t->dim, p->dim, sizeof t->dim[0] * (size_t)p->nd) != 0)
            return err_set(err, ERR_INPUT,
                           "%s: tensor '%s' is missing or of another shape: it is not this model's "
                           "checkpoint",
                           dir, p->name);
    }
    if (m->n_tensors > params->n)
        return err_set(err, ERR_INPUT, "%s: tensor '%s' is not one of this model's", dir,
                       m->tensors[params->n].name);
    return 0;
}

static int place_build(const struct ckpt_manifest *m, const struct param_list *params, int64_t tp,
                       int64_t pp, struct shards *out, struct err *err)
{
    int64_t rank = layout_rank(&m->layout, (struct layout_place){.tp = tp, .pp = pp});
    return shards_build(&m->model, params, &m->layout, rank, out, err);
}

static bool rows_within(const struct shard_tensor *a, int64_t first, int64_t n)
{
    for (int i = 0; i < a->n; i++)
        if (a->first[i] <= first && first + n <= a->first[i] + a->n_rows[i])
            return true;
    return false;
}

/* Tells whether part `a` of a tensor contains all rows and columns of part `b`. */
static bool covers(const struct shard_tensor *a, const struct shard_tensor *b)
{
    bool all = a->offset >= 0 && a->col <= b->col && b->col + b->cols <= a->col + a->cols;
    for (int i = 0; i < b->n && all; i++)
        all = rows_within(a, b->first[i], b->n_rows[i]);
    return all;
}

/* Returns how many of the writer's elements of tensor i are to be taken from this place. */
static int64_t taken_elements(const struct load *l, const struct shards *from, int64_t i)
{
    const struct shard_tensor *t = &from->tensors[i];
    bool near = from->place.tp == l->near.place.tp && from->place.pp == l->near.place.pp;
    if (covers(&l->near.tensors[i], &l->to->sh->tensors[i]))
        return near ? t->count : 0;
    return t->own_rows * t->cols;
}

/* Reads what the chosen file holds of one unit of the writer into one of our buffers. */
static int unit_load(struct load *l, const struct shards *from, const struct shard_unit *u,
                     struct target *to, struct err *err)
{
    const struct shards *sh = l->to->sh;
    int rc;
    for (int64_t i = u->first_param; i < u->first_param + u->n_params; i++) {
        if (shards_unit_of(from, i) != u || sh->tensors[i].unit < 0)
            continue;
        struct dest d = {
            .sh = sh, .u = shards_unit_of(sh, i), .t = &sh->tensors[i],
            .base = to->base, .slab = l->to->slab, .whole = to->whole, .rounded = to->rounded
        };
        int64_t take = taken_elements(l, from, i);
        if (take > 0 &&
            (rc = tensor_fetch(&l->r, to->buffer, &l->to->params->items[i], &from->tensors[i],
                               piece_of(from, u, &from->tensors[i], 0, take), &d, err)) < 0)
            return rc;
        to->got += d.got;
    }
    return 0;
}

/* Reads the file of the writer's place and piece. */
static int chosen_load(struct load *l, const struct shards *from, struct err *err)
{
    int rc;
    if ((rc = reader_choose(&l->r, from, err)) < 0)
        return rc;
    for (struct target *t = l->targets; t < l->targets + TARGETS; t++)
        for (int64_t k = 0; t->base && k < (t->all ? from->n_units : from->n_trained); k++)
            if ((rc = unit_load(l, from, &from->units[k], t, err)) < 0)
                return rc;
    return 0;
}

/* Reads all files of one place of the writer's layout. */
static int place_load(struct load *l, int64_t tp, int64_t pp, struct err *err)
{
    struct shards from = {0};
    int rc;
    if ((rc = place_build(l->r.m, l->to->params, tp, pp, &from, err)) < 0)
        return rc;
    for (int64_t f = 0; f < from.group; f++) {
        from.group_rank = f;
        if ((rc = chosen_load(l, &from, err)) < 0)
            goto out;
    }
out:
    shards_release(&from);
    return rc;
}

/* Returns how many elements a rank needs for one buffer. */
static int64_t needed_elements(const struct ckpt_state *s, const struct target *to)
{
    int64_t n = 0;
    for (int64_t i = 0; i < s->sh->n_tensors; i++) {
        const struct shard_tensor *t = &s->sh->tensors[i];
        if (t->unit >= 0 && (to->all || shards_trained(s->sh, i)))
            n += to->whole ? t->count : piece_of(s->sh, shards_unit_of(s->sh, i), t, 0, t->count).n;
    }
    return n;
}

int ckpt_state_load(const char *dir, const struct ckpt_manifest *m, const struct ckpt_state *to,
                    struct err *err)
{
    const struct layout *w = &m->layout;
    struct load l = {.to = to};
    int rc;
    if ((rc = tensors_check(dir, m, to->params, err)) < 0)
        return rc;
    if ((rc = reader_init(&l.r, dir, m, err)) < 0)
        return rc;
    targets_set(&l);
    if ((rc = place_build(m, to->params, to->sh->place.tp % w->tp, to->sh->place.pp % w->pp,
                          &l.near, err)) < 0)
        goto out;
    for (int64_t pp = 0; pp < w->pp; pp++)
        for (int64_t tp = 0; tp < w->tp; tp++)
            if ((rc = place_load(&l, tp, pp, err)) < 0)
                goto out;
    if ((rc = slab_flush(to->slab, err)) < 0)
        goto out;
    for (const struct target *t = l.targets; t < l.targets + TARGETS; t++)
        BUG_ON(t->base && t->got != needed_elements(to, t));
out:
    shards_release(&l.near);
    reader_release(&l.r);
    return rc;
}

/* ---- whole tensors ---- */

struct ckpt_source {
    struct reader r;
    struct param_list params;
    struct shards whole;   /* of one rank that holds the whole model */
    struct shards *places; /* [tp · pp], tp fastest */
    int64_t n_places;
};

void ckpt_source_close(struct ckpt_source *s)
{
    if (!s)
        return;
    for (int64_t i = 0; i < s->n_places; i++)
        shards_release(&s->places[i]);
    free(s->places);
    shards_release(&s->whole);
    params_release(&s->params);
    reader_release(&s->r);
    free(s);
}

static int places_open(struct ckpt_source *s, const struct ckpt_manifest *m, struct err *err)
{
    struct layout alone = layout_default();
    int64_t tp = m->layout.tp, n = tp * m->layout.pp;
    int rc;
    if ((rc = finetune_params(&m->model, &m->finetune, &s->params, err)) < 0)
        return rc;
    if ((rc = tensors_check(s->r.dir, m, &s->params, err)) < 0)
        return rc;
    if ((rc = shards_build(&m->model, &s->params, &alone, 0, &s->whole, err)) < 0)
        return rc;
    if (!(s->places = calloc((size_t)n, sizeof *s->places)))
        return err_set(err, ERR_NOMEM, "out of memory reading '%s'", s->r.dir);
    for (int64_t i = 0; i < n; i++, s->n_places++)
        if ((rc = place_build(m, &s->params, i % tp, i / tp, &s->places[i], err)) < 0)
            return rc;
    return 0;
}

int ckpt_source_open(const char *dir, const struct ckpt_manifest *m, struct ckpt_source **out,
                     struct err *err)
{
    struct ckpt_source *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, ERR_NOMEM, "out of memory reading '%s'", dir);
    int rc;
    if ((rc = reader_init(&s->r, dir, m, err)) < 0)
        goto out;
    if ((rc = places_open(s, m, err)) < 0)
        goto out;
    *out = s;
    s = NULL; /* the caller owns it now */
out:
    ckpt_source_close(s);
    return rc;
}

/* Reads the rows of a tensor that one place counts as its own, from that place's files. */
static int place_read(struct ckpt_source *s, struct shards *from, enum ckpt_buffer buffer,
                      int64_t t, struct dest *d, struct err *err)
{
    const struct param *p = &s->params.items[t];
    const struct shard_tensor *part = &from->tensors[t];
    int rc;
    for (int64_t f = 0; part->unit >= 0 && part->own_rows > 0 && f < from->group; f++) {
        from->group_rank = f;
        struct piece have = piece_of(from, shards_unit_of(from, t), part, 0,
                                     part->own_rows * part->cols);
        if (have.n == 0)
            continue;
        if ((rc = reader_choose(&s->r, from, err)) < 0)
            return rc;
        if ((rc = tensor_fetch(&s->r, buffer, p, part, have, d, err)) < 0)
            return rc;
    }
    return 0;
}

bool ckpt_source_has(const struct ckpt_source *s, enum ckpt_buffer buffer, int64_t t)
{
    return buffer == CKPT_WEIGHTS || buffer == CKPT_EMA || shards_trained(&s->whole, t);
}

int ckpt_source_read(struct ckpt_source *s, enum ckpt_buffer buffer, int64_t t, void *out,
                     struct err *err)
{
    struct shard_tensor all = s->whole.tensors[t];
    struct dest d = {.t = &all, .base = out, .whole = true};
    int rc;
    BUG_ON(!ckpt_source_has(s, buffer, t));
    if (!shards_trained(&s->whole, t))
        buffer = CKPT_WEIGHTS;
    all.offset = 0;
    for (int64_t i = 0; i < s->n_places; i++)
        if ((rc = place_read(s, &s->places[i], buffer, t, &d, err)) < 0)
            return rc;
    BUG_ON(d.got != all.count);
    return 0;
}
