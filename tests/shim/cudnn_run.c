/* Runs the graph of a plan, one segment after another. Each operation computes its whole result
 * before the next begins. Sums are in f32, in the order of their terms; a number is rounded to the
 * type of its tensor, and a factor of a product to bf16, as for tensor cores.
 *
 * As on a GPU, tiles extend past the end of a segment, so a few more rows and columns are computed.
 * The elements of the caller's tensors there count as JUNK, so that a missing mask changes results.
 * Nothing is written there. */
#include "cudnn_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/err.h"

enum { TILE = 16, JUNK = 7, PERIOD = 128, HAZARD = 64 };
static const float LOWEST_LSE = -88.7F; /* exp of minus that is the largest float */

/* ---- lengths ---- */

/* Tells whether y is the transpose of x, by their strides: the columns of one are the rows of the
 * other. */
static bool is_turned(const struct run_tensor *x, const struct run_tensor *y)
{
    return (x->stride[2] > x->stride[3]) != (y->stride[2] > y->stride[3]);
}

/* Records an axis's lengths; returns false if it already has others. */
static bool note(struct run_lengths *l, const struct run_tensor *t, int axis, int64_t id)
{
    int64_t *of = &l->of[t->id][axis];
    if (t->id == 0 || id == 0 || t->dim[axis] == 1)
        return true;
    if (*of != 0 && *of != id)
        return false;
    *of = id;
    return true;
}

static bool share(struct run_lengths *l, const struct run_tensor *x, int x_axis,
                  const struct run_tensor *y, int y_axis)
{
    if (x->id == 0 || y->id == 0 || x->by_value || y->by_value ||
        x->dim[x_axis] != y->dim[y_axis])
        return true;
    return note(l, y, y_axis, l->of[x->id][x_axis]) && note(l, x, x_axis, l->of[y->id][y_axis]);
}

static bool op_lengths(struct run_lengths *l, const struct run_op *op)
{
    if (op->kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
        return note(l, &op->a, 2, op->m.id) && note(l, &op->y, 2, op->m.id) &&
               note(l, &op->b, 3, op->n.id) && note(l, &op->y, 3, op->n.id) &&
               note(l, &op->a, 3, op->k.id) && note(l, &op->b, 2, op->k.id);
    if (op->kind == CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR)
        return note(l, &op->a, 2, op->m.id) && note(l, &op->y, 2, op->m.id) &&
               note(l, &op->stats, 2, op->m.id) && note(l, &op->b, 2, op->n.id) &&
               note(l, &op->t, 2, op->n.id);
    bool turn = op->kind == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR && is_turned(&op->a, &op->y);
    for (int axis = 2; axis < RUN_DIMS; axis++)
        if (!share(l, &op->a, axis, &op->y, turn ? 5 - axis : axis) ||
            !share(l, &op->b, axis, &op->y, axis) || !share(l, &op->t, axis, &op->y, axis))
            return false;
    return true;
}

bool run_lengths_find(const struct run_graph *g, struct run_lengths *l)
{
    memset(l, 0, sizeof *l);
    for (int round = 0; round < g->n; round++)
        for (int i = 0; i < g->n; i++)
            if (!op_lengths(l, &g->op[i]))
                return false;
    for (int i = 0; i < g->n; i++) {
        const struct run_tensor *t[] = {&g->op[i].a, &g->op[i].b, &g->op[i].y};
        for (int k = 0; k < 3; k++)
            if (t[k]->offset && !l->of[t[k]->id][2] && !l->of[t[k]->id][3])
                return false;
    }
    return true;
}

/* ---- one segment ---- */

struct segment {
    const struct run *r;
    struct run_lengths lengths;
    int64_t at;               /* its index */
    float *kept[RUN_IDS];     /* virtual tensors: [heads, rows, columns] with the margin */
    bool *low;                /* [heads, queries] rows whose P overflows in keys past the end */
    int64_t queries;
};

/* Return how many rows or columns a segment has, and how many are computed. */
static int64_t present(const struct segment *s, const struct run_tensor *t, int axis)
{
    int64_t id = s->lengths.of[t->id][axis];
    return id ? ((const int32_t *)s->r->at[id])[s->at] : t->dim[axis];
}

static int64_t computed(const struct segment *s, const struct run_tensor *t, int axis)
{
    int64_t n = (present(s, t, axis) / TILE + 2) * TILE;
    return s->lengths.of[t->id][axis] && n < t->dim[axis] ? n : t->dim[axis];
}

static int64_t numbers(const struct segment *s, const struct run_tensor *t)
{
    return t->dim[1] * computed(s, t, 2) * computed(s, t, 3);
}

static int64_t place(const struct segment *s, const struct run_tensor *t, int64_t h, int64_t i,
                     int64_t j)
{
    const int64_t *offset = t->offset ? (const int64_t *)s->r->at[t->offset] + s->at : NULL;
    int64_t first = offset ? *offset : s->at * t->stride[0];
    BUG_ON(offset && offset[1] < offset[0]); /* offsets must not decrease */
    return first + h * t->stride[1] + i * t->stride[2] + j * t->stride[3];
}

static float number_at(const struct segment *s, const struct run_tensor *t, int64_t h, int64_t i,
                       int64_t j)
{
    const void *at = s->r->at[t->id];
    if (t->by_value)
        return s->r->number[t->id];
    if (i >= present(s, t, 2) || j >= present(s, t, 3))
        return JUNK;
    switch (t->type) {
    case CUDNN_DATA_BFLOAT16: return bf16_value(((const uint16_t *)at)[place(s, t, h, i, j)]);
    case CUDNN_DATA_INT32: return (float)((const int32_t *)at)[place(s, t, h, i, j)];
    default: return ((const float *)at)[place(s, t, h, i, j)];
    }
}

/* Returns all numbers of a tensor, [heads, rows, columns]; the caller releases them with drop. */
static float *whole(const struct segment *s, const struct run_tensor *t)
{
    int64_t rows = computed(s, t, 2), cols = computed(s, t, 3);
    float *x = t->is_virtual ? s->kept[t->id] : malloc((size_t)(numbers(s, t) + 1) * sizeof *x);
    BUG_ON(!x);
    for (int64_t e = 0; !t->is_virtual && e < numbers(s, t); e++)
        x[e] = number_at(s, t, e / (rows * cols), e / cols % rows, e % cols);
    return x;
}

static void drop(const struct run_tensor *t, float *x)
{
    if (!t->is_virtual)
        free(x);
}

/* Stores all numbers of a result, and takes ownership of x. */
static void store(struct segment *s, const struct run_tensor *t, float *x)
{
    int64_t rows = computed(s, t, 2), cols = computed(s, t, 3);
    for (int64_t e = 0; e < numbers(s, t); e++) {
        int64_t h = e / (rows * cols), i = e / cols % rows, j = e % cols;
        if (t->is_virtual)
            x[e] = t->type == CUDNN_DATA_BFLOAT16 ? bf16_value(bf16_round(x[e])) : x[e];
        else if (i >= present(s, t, 2) || j >= present(s, t, 3))
            continue;
        else if (t->type == CUDNN_DATA_BFLOAT16)
            ((uint16_t *)s->r->at[t->id])[place(s, t, h, i, j)] = bf16_round(x[e]);
        else
            ((float *)s->r->at[t->id])[place(s, t, h, i, j)] = x[e];
    }
    if (t->is_virtual)
        s->kept[t->id] = x;
    else
        free(x);
}

static float *room(const struct segment *s, const struct run_tensor *t)
{
    float *x = calloc((size_t)numbers(s, t) + 1, sizeof *x);
    BUG_ON(!x);
    return x;
}

/* ---- operations ---- */

/* Holds an operand of a pointwise operation or product. An axis of extent 1 is broadcast to the
 * result's, and a head to all heads of its group. */
struct operand { const struct run_tensor *t; float *x; int64_t rows, cols; };

static struct operand operand_of(const struct segment *s, const struct run_tensor *t)
{
    if (t->id == 0)
        return (struct operand){t, NULL, 0, 0};
    return (struct operand){t, whole(s, t), computed(s, t, 2), computed(s, t, 3)};
}

static float value(const struct operand *o, int64_t heads, int64_t h, int64_t i, int64_t j)
{
    if (!o->x)
        return 0;
    h = h * o->t->dim[1] / heads;
    return o->x[(h * o->rows + (o->rows == 1 ? 0 : i)) * o->cols + (o->cols == 1 ? 0 : j)];
}

static float combined(const struct run_op *op, float a, float b, float t, int64_t i, int64_t j)
{
    switch (op->mode) {
    case CUDNN_POINTWISE_MUL: return a * b;
    case CUDNN_POINTWISE_SUB: return a - b;
    case CUDNN_POINTWISE_EXP: return expf(a);
    case CUDNN_POINTWISE_IDENTITY: return a;
    case CUDNN_POINTWISE_CMP_LT: return a < b;
    case CUDNN_POINTWISE_LOGICAL_AND: return a != 0 && b != 0;
    case CUDNN_POINTWISE_GEN_INDEX: return (float)(op->axis == 2 ? i : j);
    case CUDNN_POINTWISE_BINARY_SELECT: return t != 0 ? a : b;
    }
    BUG_ON(true);
}

static bool is_result(const struct run_graph *g, int64_t id)
{
    for (int i = 0; i < g->n; i++)
        if (g->op[i].y.id == id)
            return true;
    return false;
}

/* Marks the rows for which exp(scores - lse) overflows in P of keys past the end. */
static void low_note(struct segment *s, const struct run_op *op, const struct operand *lse)
{
    int64_t rows = computed(s, &op->y, 2);
    if (op->mode != CUDNN_POINTWISE_SUB || op->b.is_virtual || is_result(s->r->graph, op->b.id) ||
        present(s, &op->a, 3) % PERIOD != HAZARD)
        return;
    s->queries = rows;
    s->low = calloc((size_t)(op->y.dim[1] * rows), sizeof *s->low);
    BUG_ON(!s->low);
    for (int64_t e = 0; e < op->y.dim[1] * rows; e++)
        s->low[e] = value(lse, op->y.dim[1], e / rows, e % rows, 0) < LOWEST_LSE;
}

static void pointwise_run(struct segment *s, const struct run_op *op)
{
    struct operand a = operand_of(s, &op->a), b = operand_of(s, &op->b), t = operand_of(s, &op->t);
    int64_t heads = op->y.dim[1], rows = computed(s, &op->y, 2), cols = computed(s, &op->y, 3);
    float *y = room(s, &op->y);
    for (int64_t e = 0; e < heads * rows * cols; e++) {
        int64_t h = e / (rows * cols), i = e / cols % rows, j = e % cols;
        y[e] = combined(op, value(&a, heads, h, i, j), value(&b, heads, h, i, j),
                        value(&t, heads, h, i, j), i, j);
    }
    low_note(s, op, &b);
    drop(&op->a, a.x), drop(&op->b, b.x), drop(&op->t, t.x);
    store(s, &op->y, y);
}

/* Rounds a factor that is no bf16 tensor: P or dS. */
static void factor_round(const struct segment *s, const struct run_tensor *t, float *x)
{
    for (int64_t e = 0; t->is_virtual && t->type == CUDNN_DATA_FLOAT && e < numbers(s, t); e++)
        x[e] = bf16_value(bf16_round(x[e]));
}

static void matmul_run(struct segment *s, const struct run_op *op)
{
    struct operand a = operand_of(s, &op->a), b = operand_of(s, &op->b);
    factor_round(s, &op->a, a.x);
    int64_t heads = op->y.dim[1], rows = computed(s, &op->y, 2), cols = computed(s, &op->y, 3);
    bool is_dq = !op->y.is_virtual && op->a.stride[3] == 1;
    float *y = room(s, &op->y);
    for (int64_t e = 0; e < heads * rows; e++) {
        int64_t h = e / rows, i = e % rows;
        const float *left = a.x + (h * op->a.dim[1] / heads * a.rows + i) * a.cols,
                    *right = b.x + h * op->b.dim[1] / heads * b.rows * b.cols;
        for (int64_t k = 0; k < a.cols; k++)
            for (int64_t j = 0; j < cols; j++)
                y[e * cols + j] += left[k] * right[k * b.cols + j];
        for (int64_t j = 0; is_dq && s->low && s->low[h * s->queries + i] && j < cols; j++)
            y[e * cols + j] = (float)NAN;
    }
    drop(&op->a, a.x), drop(&op->b, b.x);
    store(s, &op->y, y);
}

static void reduction_run(struct segment *s, const struct run_op *op)
{
    struct operand a = operand_of(s, &op->a);
    float *y = room(s, &op->y);
    BUG_ON(op->y.dim[3] != 1 || op->y.dim[1] != op->a.dim[1]);
    for (int64_t e = 0; e < a.t->dim[1] * a.rows * a.cols; e++)
        y[e / a.cols] += a.x[e];
    drop(&op->a, a.x);
    store(s, &op->y, y);
}

static void reshape_run(struct segment *s, const struct run_op *op)
{
    struct operand a = operand_of(s, &op->a);
    float *y = room(s, &op->y);
    BUG_ON(!is_turned(&op->a, &op->y));
    for (int64_t h = 0; h < op->a.dim[1]; h++)
        for (int64_t i = 0; i < a.rows; i++)
            for (int64_t j = 0; j < a.cols; j++)
                y[(h * a.cols + j) * a.rows + i] = a.x[(h * a.rows + i) * a.cols + j];
    drop(&op->a, a.x);
    store(s, &op->y, y);
}

/* ---- forward ---- */

/* Computes o and lse of one query. P is rounded before the product with v. */
static void query_run(const struct operand x[3], float scale, int64_t heads, int64_t keys,
                      int64_t h, int64_t i, float *o, float *lse)
{
    int64_t d = x[0].cols;
    float *p = calloc((size_t)keys + 1, sizeof *p), top = -INFINITY, sum = 0;
    BUG_ON(!p || keys == 0);
    for (int64_t n = 0; n < keys; n++) {
        for (int64_t j = 0; j < d; j++)
            p[n] += value(&x[0], heads, h, i, j) * value(&x[1], heads, h, n, j);
        p[n] *= scale;
        top = fmaxf(top, p[n]);
    }
    for (int64_t n = 0; n < keys; n++)
        sum += p[n] = expf(p[n] - top);
    for (int64_t n = 0; n < keys; n++)
        for (int64_t j = 0; j < d; j++)
            o[j] += bf16_value(bf16_round(p[n])) * value(&x[2], heads, h, n, j);
    for (int64_t j = 0; j < d; j++)
        o[j] /= sum;
    *lse = top + logf(sum);
    free(p);
}

static void forward_run(struct segment *s, const struct run_op *op)
{
    struct operand x[3] = {operand_of(s, &op->a), operand_of(s, &op->b), operand_of(s, &op->t)};
    int64_t heads = op->y.dim[1], rows = computed(s, &op->y, 2);
    float *o = room(s, &op->y), *lse = room(s, &op->stats);
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < present(s, &op->y, 2); i++)
            query_run(x, s->r->number[op->scale.id], heads, present(s, &op->b, 2), h, i,
                      o + (h * rows + i) * x[0].cols, lse + h * rows + i);
    drop(&op->a, x[0].x), drop(&op->b, x[1].x), drop(&op->t, x[2].x);
    store(s, &op->y, o);
    store(s, &op->stats, lse);
}

static void op_run(struct segment *s, const struct run_op *op)
{
    switch (op->kind) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: pointwise_run(s, op); return;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: matmul_run(s, op); return;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: reduction_run(s, op); return;
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: reshape_run(s, op); return;
    default: forward_run(s, op);
    }
}

void run_all(void *run)
{
    const struct run *r = run;
    struct segment s = {.r = r};
    const struct run_tensor *q = r->graph->op[0].kind == CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR
                                     ? &r->graph->op[0].a : &r->graph->op[0].y;
    run_lengths_find(r->graph, &s.lengths);
    memset(r->workspace, 0x5a, (size_t)r->graph->workspace);
    for (s.at = 0; s.at < q->dim[0]; s.at++) {
        for (int i = 0; present(&s, q, 2) > 0 && i < r->graph->n; i++)
            op_run(&s, &r->graph->op[i]);
        for (int i = 0; i < RUN_IDS; i++) {
            free(s.kept[i]);
            s.kept[i] = NULL;
        }
        free(s.low);
        s.low = NULL;
    }
}
