#include "tests/gpu/cases_lab.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/num.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

enum {
    REGIONS_MAX = 48,
    GUARD_BYTES = 256,  /* the least room on each side of a tensor */
    /* Columns beside a view. These leave its rows unaligned. Every other case takes the aligned
     * ones, with which the first row is aligned, and with 8 n columns every row. */
    VIEW_BEFORE = 3, VIEW_BEHIND = 2,
    VIEW_BEFORE_ALIGNED = 8, VIEW_BEHIND_ALIGNED = 16,
};

/* Describes one tensor or array with the room around it. */
struct region {
    const char *name;
    int64_t begin, end; /* bytes in the block */
    int64_t first, rows, row_bytes, pitch; /* the tensor's rows, in bytes of the block */
    enum dtype rounded; /* the type to which its numbers are rounded first */
};

struct lab_whole {
    struct lab lab; /* first member */
    struct case_types types;
    struct region region[REGIONS_MAX];
    int n;                    /* regions declared so far */
    int64_t bytes;            /* taken so far */
    char *device, *sent, *back;
    unsigned char *writable;  /* [bytes] 1: may be written by the call */
    bool is_sent;
    int sending;              /* the result of sending: 0 or an error */
    struct case_result *r;
    struct tensor out[CASE_OUTPUTS_MAX];
    bool is_count[CASE_OUTPUTS_MAX];
};

static struct lab_whole *whole(struct lab *l) { return (struct lab_whole *)l; }

/* ---- types ---- */

static enum dtype type_of(enum lab_class class, struct case_types t)
{
    switch (class) {
    case LAB_ACT: return t.act;
    case LAB_STAT: return t.stat;
    case LAB_WIDE: return t.act == DTYPE_BF16 ? DTYPE_F32 : t.act;
    case LAB_F64: return DTYPE_F64;
    case LAB_F32: return DTYPE_F32;
    case LAB_BF16: break;
    }
    return DTYPE_BF16;
}

static double rounded(double x, enum dtype t)
{
    return t == DTYPE_F64   ? x
           : t == DTYPE_F32 ? (double)(float)x
                            : (double)bf16_value(bf16_round_double(x));
}

static double number_at(const void *p, enum dtype t)
{
    return t == DTYPE_F64   ? *(const double *)p
           : t == DTYPE_F32 ? (double)*(const float *)p
                            : (double)bf16_value(*(const uint16_t *)p);
}

static void number_store(void *p, enum dtype t, double x)
{
    if (t == DTYPE_F64)
        *(double *)p = x;
    else if (t == DTYPE_F32)
        *(float *)p = (float)x;
    else
        *(uint16_t *)p = bf16_round_double(x);
}

/* ---- memory ---- */

/* Adds a region, with room for `beside` bytes on each side. Returns where it begins. */
static int64_t region_take(struct lab_whole *w, const char *name, int64_t bytes, int64_t beside,
                           enum dtype round_to)
{
    int64_t guard = (beside + GUARD_BYTES + DEV_ALIGN_BYTES - 1) / DEV_ALIGN_BYTES *
                    DEV_ALIGN_BYTES;
    int64_t at = w->bytes + guard;
    BUG_ON(w->n == REGIONS_MAX || w->is_sent);
    w->bytes = (at + bytes + guard + DEV_ALIGN_BYTES - 1) / DEV_ALIGN_BYTES * DEV_ALIGN_BYTES;
    w->region[w->n++] = (struct region){name, at - guard, w->bytes, at, 1, bytes, bytes, round_to};
    return at;
}

static int64_t place_of(const struct lab_whole *w, const void *device)
{
    return (const char *)device - w->device;
}

static const struct region *region_of(const struct lab_whole *w, int64_t at)
{
    for (int i = 0; i < w->n; i++)
        if (at < w->region[i].end)
            return &w->region[i];
    return &w->region[w->n - 1];
}

/* Returns the place of an element in the host's image of the block. */
static void *sent_at(const struct lab_whole *w, struct tensor t, int64_t i, int64_t j)
{
    return w->sent + place_of(w, tensor_at(&t, i, j));
}

struct tensor lab_new(struct lab *l, const char *name, enum lab_class class, int64_t rows,
                      int64_t cols)
{
    struct lab_whole *w = whole(l);
    enum dtype t = type_of(class, case_types_of(l->o));
    bool aligned = l->c->seed / 2 % 2;
    int64_t before = !l->c->views ? 0 : aligned ? VIEW_BEFORE_ALIGNED : VIEW_BEFORE;
    int64_t behind = !l->c->views ? 0 : aligned ? VIEW_BEHIND_ALIGNED : VIEW_BEHIND;
    int64_t ld = before + cols + behind;
    int64_t at = region_take(w, name, rows * ld * dtype_bytes(t), ld * dtype_bytes(t),
                             type_of(class, w->types));
    struct region *r = &w->region[w->n - 1];
    r->first = at + before * dtype_bytes(t);
    r->rows = rows;
    r->row_bytes = cols * dtype_bytes(t);
    r->pitch = ld * dtype_bytes(t);
    return (struct tensor){w->device + at + before * dtype_bytes(t), t, rows, cols, ld};
}

struct tensor lab_in(struct lab *l, const char *name, enum lab_class class, int64_t rows,
                     int64_t cols)
{
    struct lab_whole *w = whole(l);
    struct tensor t = lab_new(l, name, class, rows, cols);
    double *x = l->filling ? malloc((size_t)(cols + 1) * sizeof *x) : NULL;
    uint64_t which = l->c->seed << 8 | (uint64_t)w->n;
    for (int64_t i = 0; x && i < rows; i++) {
        philox_normal_fill(0, PHILOX_TEST, which, (uint64_t)(i * cols), (size_t)cols, x);
        for (int64_t j = 0; j < cols; j++)
            number_store(sent_at(w, t, i, j), t.dtype,
                         rounded(x[j], w->region[w->n - 1].rounded));
    }
    free(x);
    return t;
}

void *lab_bytes(struct lab *l, const char *name, const void *values, int64_t bytes)
{
    struct lab_whole *w = whole(l);
    int64_t at = region_take(w, name, bytes, 0, DTYPE_F64);
    if (l->filling && values)
        memcpy(w->sent + at, values, (size_t)bytes);
    return w->device + at;
}

const void *lab_host(struct lab *l, const void *device)
{
    struct lab_whole *w = whole(l);
    return l->filling ? w->sent + place_of(w, device) : device;
}

/* ---- numbers ---- */

void lab_put(struct lab *l, struct tensor t, int64_t i, int64_t j, double x)
{
    struct lab_whole *w = whole(l);
    if (l->filling)
        number_store(sent_at(w, t, i, j), t.dtype,
                     rounded(x, region_of(w, place_of(w, t.ptr))->rounded));
}

double lab_get(struct lab *l, struct tensor t, int64_t i, int64_t j)
{
    return l->filling ? number_at(sent_at(whole(l), t, i, j), t.dtype) : 0;
}

void lab_scale(struct lab *l, struct tensor t, double factor, double shift)
{
    for (int64_t i = 0; l->filling && i < t.rows; i++)
        for (int64_t j = 0; j < t.cols; j++)
            lab_put(l, t, i, j, factor * lab_get(l, t, i, j) + shift);
}

void lab_fill(struct lab *l, struct tensor t, double x)
{
    for (int64_t i = 0; l->filling && i < t.rows; i++)
        for (int64_t j = 0; j < t.cols; j++)
            lab_put(l, t, i, j, x);
}

double *lab_values(struct lab *l, struct tensor t)
{
    double *x = calloc((size_t)(t.rows * t.cols + 1), sizeof *x);
    BUG_ON(!x);
    for (int64_t i = 0; l->filling && i < t.rows; i++)
        for (int64_t j = 0; j < t.cols; j++)
            x[i * t.cols + j] = lab_get(l, t, i, j);
    return x;
}

struct case_types lab_types(struct lab *l) { return whole(l)->types; }

double lab_uniform(const struct lab *l, uint64_t i)
{
    return philox_uniform_at(1, PHILOX_TEST, l->c->seed, i);
}

/* ---- outputs ---- */

void lab_working(struct lab *l, struct tensor t)
{
    struct lab_whole *w = whole(l);
    for (int64_t i = 0; l->filling && i < t.rows; i++)
        memset(w->writable + place_of(w, tensor_at(&t, i, 0)), 1,
               (size_t)(t.cols * dtype_bytes(t.dtype)));
}

struct case_output *lab_out(struct lab *l, const char *name, int part, struct tensor t)
{
    struct lab_whole *w = whole(l);
    struct case_result *r = w->r;
    BUG_ON(r->n == CASE_OUTPUTS_MAX);
    lab_working(l, t);
    w->out[r->n] = t;
    r->out[r->n] = (struct case_output){.name = name, .part = part, .rows = t.rows, .cols = t.cols,
                                        .stored = t.dtype, .judged = t.dtype, .twin = -1};
    return &r->out[r->n++];
}

void lab_exact(struct case_output *x) { x->exact = true; }

void lab_count(struct lab *l, const char *name, int64_t *at)
{
    struct lab_whole *w = whole(l);
    /* A count is copied like an f64, which has as many bytes. */
    struct case_output *x = lab_out(l, name, 0, tensor_of(at, DTYPE_F64, 1, 1));
    lab_exact(x);
    w->is_count[w->r->n - 1] = true;
}

void lab_twin(struct lab *l, const char *name)
{
    struct case_result *r = whole(l)->r;
    for (int k = 0; k < r->n - 1; k++)
        if (strcmp(r->out[k].name, name) == 0)
            r->out[r->n - 1].twin = k;
    BUG_ON(r->out[r->n - 1].twin < 0);
}

/* ---- a run ---- */

/* Makes the address sanitizer report accesses outside of tensors, where the device is the CPU. It
 * works in units of 8 bytes, so it may miss accesses to the columns directly before a view. */
static void surroundings_close(const struct lab_whole *w)
{
    ASAN_POISON_MEMORY_REGION(w->device, (size_t)w->bytes);
    for (const struct region *r = w->region; r < w->region + w->n; r++)
        for (int64_t i = 0; i < r->rows; i++)
            ASAN_UNPOISON_MEMORY_REGION(w->device + r->first + i * r->pitch, (size_t)r->row_bytes);
}

static int send(struct lab_whole *w)
{
    struct dev *dev = w->lab.o->dev;
    dev->copy(dev, w->device, w->sent, w->bytes, DEV_H2D, w->lab.s);
    int rc = dev->stream_sync(dev, w->lab.s, w->lab.err);
    surroundings_close(w);
    return rc;
}

bool lab_ready(struct lab *l)
{
    struct lab_whole *w = whole(l);
    if (!l->filling)
        return false;
    if (!w->is_sent)
        w->sending = send(w);
    return w->is_sent = true;
}

/* Fills memory with 16-bit numbers that are NaN as bf16, and in pairs and fours NaN as f32 and f64.
 * They differ from place to place, so that a copy of one to another place is detected. They repeat
 * after 8191 numbers, which is a prime. */
static void poison(char *at, int64_t bytes)
{
    enum { PERIOD = 2 * 8191 };
    for (int64_t i = 0; i + 1 < bytes && i < PERIOD; i += 2) {
        uint16_t word = (uint16_t)(0xfff1 + (uint32_t)i * UINT32_C(2654435761) / 65536 % 15);
        memcpy(at + i, &word, sizeof word);
    }
    for (int64_t i = PERIOD; i < bytes; i += PERIOD)
        memcpy(at + i, at, (size_t)num_min_i64(bytes - i, PERIOD));
}

static int memory_take(struct lab_whole *w)
{
    struct dev *dev = w->lab.o->dev;
    struct err *err = w->lab.err;
    int rc;
    if ((rc = dev->alloc(dev, "a case", w->bytes, (void **)&w->device, err)) < 0)
        return rc;
    if ((rc = dev->alloc_host(dev, "a case", w->bytes, (void **)&w->sent, err)) < 0)
        return rc;
    if ((rc = dev->alloc_host(dev, "a case", w->bytes, (void **)&w->back, err)) < 0)
        return rc;
    if (!(w->writable = calloc((size_t)w->bytes, 1)))
        return err_set(err, ERR_NOMEM, "%s, %s: no memory", w->lab.c->op, w->lab.c->name);
    poison(w->sent, w->bytes);
    return 0;
}

static void memory_free(struct lab_whole *w, char *device)
{
    struct dev *dev = w->lab.o->dev;
    dev->free(dev, device);
    dev->free_host(dev, w->sent);
    dev->free_host(dev, w->back);
    free(w->writable);
}

/* Returns ERR_CORRUPT if one of these bytes has changed and is outside of the outputs. */
static int stray_look(const struct lab_whole *w, int64_t begin, int64_t end)
{
    const struct op_case *c = w->lab.c;
    for (int64_t i = begin; i < end; i++)
        if (!w->writable[i] && w->sent[i] != w->back[i])
            return err_set(w->lab.err, ERR_CORRUPT,
                           "%s, %s%s: memory of '%s' or beside it has changed, byte %ld, and is no "
                           "output of the call", c->op, c->name, c->views ? ", views" : "",
                           region_of(w, i)->name, (long)(i - region_of(w, i)->begin));
    return 0;
}

static int strays_look(const struct lab_whole *w)
{
    int rc = 0;
    for (int64_t at = 0, n; at < w->bytes && rc == 0; at += n) {
        n = num_min_i64(w->bytes - at, DEV_ALIGN_BYTES);
        if (memcmp(w->sent + at, w->back + at, (size_t)n) != 0)
            rc = stray_look(w, at, at + n);
    }
    return rc;
}

static int output_take(const struct lab_whole *w, int k)
{
    struct case_output *x = &w->r->out[k];
    const struct tensor *t = &w->out[k];
    if (!(x->x = malloc((size_t)(x->rows * x->cols + 1) * sizeof *x->x)))
        return err_set(w->lab.err, ERR_NOMEM, "%s, %s: no memory", w->lab.c->op, w->lab.c->name);
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->cols; j++) {
            const char *p = w->back + place_of(w, tensor_at(t, i, j));
            x->x[i * x->cols + j] = w->is_count[k] ? (double)*(const int64_t *)p
                                                   : number_at(p, t->dtype);
        }
    return 0;
}

static int twins_look(const struct lab_whole *w)
{
    const struct case_result *r = w->r;
    for (int k = 0; k < r->n; k++) {
        const struct case_output *a = &r->out[k], *b = a->twin < 0 ? a : &r->out[a->twin];
        BUG_ON(a->rows != b->rows || a->cols != b->cols);
        for (int64_t i = 0; i < a->rows * a->cols; i++)
            if (memcmp(&a->x[i], &b->x[i], sizeof *a->x) != 0)
                return err_set(w->lab.err, ERR_NO,
                               "%s, %s: element %ld of '%s' is %.9g, and %.9g in '%s', which should "
                               "have the same bits", w->lab.c->op, w->lab.c->name, (long)i, a->name,
                               a->x[i], b->x[i], b->name);
    }
    return 0;
}

static int results_take(struct lab_whole *w)
{
    struct dev *dev = w->lab.o->dev;
    int rc = w->sending < 0 ? w->sending : dev->stream_sync(dev, w->lab.s, w->lab.err);
    ASAN_UNPOISON_MEMORY_REGION(w->device, (size_t)w->bytes);
    if (rc < 0)
        return rc;
    dev->copy(dev, w->back, w->device, w->bytes, DEV_D2H, w->lab.s);
    if ((rc = dev->stream_sync(dev, w->lab.s, w->lab.err)) < 0)
        return rc;
    if ((rc = strays_look(w)) < 0)
        return rc;
    for (int k = 0; k < w->r->n; k++)
        if ((rc = output_take(w, k)) < 0)
            return rc;
    return twins_look(w);
}

/* Lets the case declare its tensors a first time, to count the memory that they need. Addresses are
 * not used, but none may be NULL. */
static void room_count(struct lab_whole *w, char *nowhere)
{
    w->device = nowhere;
    w->lab.c->make(&w->lab, w->lab.c->data);
    w->device = NULL;
    w->n = w->r->n = 0;
}

int case_run(struct ops *o, struct dev_stream *s, const struct op_case *c, struct case_types types,
             struct case_result *out, struct err *err)
{
    static char nowhere[1];
    struct case_result r = {.c = c, .narrow = o->narrow_attn};
    struct lab_whole w = {.lab = {.o = o, .s = s, .c = c, .err = err}, .types = types, .r = &r};
    int rc;
    room_count(&w, nowhere);
    if ((rc = memory_take(&w)) < 0)
        goto out;
    w.bytes = 0;
    w.lab.filling = true;
    c->make(&w.lab, c->data);
    lab_ready(&w.lab);
    if ((rc = results_take(&w)) < 0)
        goto out;
    *out = r;
    r = (struct case_result){0};
out:
    memory_free(&w, w.device);
    case_release(&r);
    return rc;
}

void case_release(struct case_result *r)
{
    for (int k = 0; k < r->n; k++)
        free(r->out[k].x);
    *r = (struct case_result){0};
}
