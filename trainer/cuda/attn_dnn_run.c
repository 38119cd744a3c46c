#include "trainer/cuda/attn_dnn_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/num.h"
#include "trainer/cuda/attn_dnn_graph.h"

enum {
    OLDEST = 91800, /* 9.18: backward with lengths on sm_90 needs no zeroed memory */
    ROOM_ALIGN = 256,
    LATE_TOLD = 4,
    TENSOR_IDS = ATTN_ID_VIRTUAL,
};

/* Holds a class and its plan. plan.plan is NULL if the library has no engine for the class. */
struct kept {
    struct attn_class c;
    struct attn_plan plan;
    bool used;
};

struct attn_dnn {
    struct ops *ops;
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t device;
    int64_t first; /* index of the library's proposal that is tried first for a plan */
    struct kept kept[ATTN_PLANS];
    int n, oldest; /* entries of kept; the entry that a new class replaces when all are used */
    bool reserved; /* attn_dnn_reserve was called: all calls have been announced */
    int64_t dropped; /* number of plans that were replaced by those of new classes */
    char *room;
    int64_t room_bytes;
};

/* ---- plans ---- */

static bool is_of_memory(cudnnStatus_t st)
{
    return st == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ||
           st == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

/* Records a cuDNN error on the device, as the closest CUDA runtime error. */
static void keep_error(struct attn_dnn *d, cudnnStatus_t st)
{
    dev_cuda_fail(d->ops->dev,
                  is_of_memory(st) ? cudaErrorMemoryAllocation
                  : CUDNN_STATUS_CATEGORY(st) == CUDNN_STATUS_EXECUTION_FAILED
                      ? cudaErrorLaunchFailure : cudaErrorInvalidValue,
                  "attention by cuDNN");
}

/* Frees the workspace after waiting for the queued work. Graphs that use it are forgotten
 * (graphs.h). */
static void room_give(struct attn_dnn *d, cudaStream_t s)
{
    if (!d->room)
        return;
    dev_cuda_fail(d->ops->dev, cudaStreamSynchronize(s), "the workspace of attention");
    d->ops->dev->free(d->ops->dev, d->room);
    d->ops->workspace_bytes -= d->room_bytes;
    d->room = NULL, d->room_bytes = 0;
}

/* Returns an entry for a new class. If all are used, the class replaces the oldest one. No graph
 * may contain that one's plan, so the workspace is freed first, which drops all graphs. */
static struct kept *place_take(struct attn_dnn *d, cudaStream_t s)
{
    struct kept *k;
    if (d->n < ATTN_PLANS)
        return &d->kept[d->n++];
    d->dropped++;
    k = &d->kept[d->oldest];
    d->oldest = (d->oldest + 1) % ATTN_PLANS;
    room_give(d, s);
    attn_plan_free(&k->plan);
    return k;
}

/* Warns that our own slow kernels compute what cuDNN should have computed. */
static void lack_tell(const struct attn_dnn *d, const struct attn_class *c, const char *why)
{
    log_msg(LOG_WARN,
            "attention, %s, %lld segments of %lld queries and %lld keys, %lld heads of %lld: cuDNN "
            "has no engine from proposal %lld on%s (%s), so that slow kernels of our own "
            "compute it",
            c->backward ? "backward" : "forward", (long long)c->n, (long long)c->q,
            (long long)c->k, (long long)c->heads, (long long)c->d, (long long)d->first + 1,
            d->first > 0 ? ", as REEL_ATTN asks" : "", why);
}

/* Warns that a call came that was not announced. It does so only the first few times. */
static void late_tell(const struct attn_dnn *d, const struct attn_class *c)
{
    if (d->ops->attn_plans.late > LATE_TOLD)
        return;
    log_msg(LOG_WARN,
            "attention, %s, %lld segments of %lld queries and %lld keys was not among what this "
            "run was seen to need: its plan is made in mid-run, which takes a moment",
            c->backward ? "backward" : "forward", (long long)c->n, (long long)c->q,
            (long long)c->k);
}

/* Makes the plan of a class. Returns the library's status if the machine failed. */
static cudnnStatus_t plan_make(struct attn_dnn *d, struct kept *k, const struct attn_class *c)
{
    char why[ATTN_WHY];
    *k = (struct kept){.c = *c};
    cudnnStatus_t st = attn_plan_make(c, d->device, d->first, &k->plan, why);
    if (attn_plan_failed(st))
        return st;
    if (st != CUDNN_STATUS_SUCCESS)
        lack_tell(d, c, why);
    else if (d->reserved)
        d->ops->attn_plans.late++, late_tell(d, c);
    else
        d->ops->attn_plans.made++;
    return CUDNN_STATUS_SUCCESS;
}

/* Returns the entry of a class, which has no plan if the library has no engine for it. */
static struct kept *plan_of(struct attn_dnn *d, cudaStream_t s, const struct attn_class *c,
                            cudnnStatus_t *st)
{
    struct kept *k = d->kept;
    *st = CUDNN_STATUS_SUCCESS;
    while (k < d->kept + d->n && memcmp(&k->c, c, sizeof *c) != 0)
        k++;
    if (k == d->kept + d->n) {
        k = place_take(d, s);
        *st = plan_make(d, k, c);
    }
    return k;
}

/* ---- memory ---- */

/* Holds the offsets in bytes of a call's parts in the workspace `room`; `end` is their total. */
struct parts { int64_t library, offset, q_len, k_len, left, dq_sum, dq, dk, dv, end; };

static int64_t part_take(int64_t *end, int64_t bytes)
{
    int64_t at = *end;
    *end = (at + bytes + ROOM_ALIGN - 1) / ROOM_ALIGN * ROOM_ALIGN;
    return at;
}

/* Holds the first row and the number of rows over all segments, of queries and of keys. */
struct rows { int64_t q, n_q, k, n_k; };

static struct rows rows_of(const struct ops_attn *a)
{
    struct rows r = {.q = a->host.q_start[0], .k = INT32_MAX};
    int64_t end = 0;
    r.n_q = a->host.q_start[a->n] - r.q;
    for (int64_t i = 0; i < a->n; i++) {
        int64_t start = a->host.k_start[i], len = a->host.k_len[i];
        if (len == 0)
            continue;
        r.k = start < r.k ? start : r.k;
        end = start + len > end ? start + len : end;
    }
    r.n_k = end - r.k;
    return r;
}

static struct parts parts_of(const struct ops_attn *a, const struct attn_class *c,
                             const struct attn_plan *plan, const struct rows *r)
{
    struct parts p = {0};
    int64_t row = c->heads * c->d * 4, lens = c->packed ? c->n * 4 : 0;
    p.library = part_take(&p.end, plan->workspace_bytes);
    p.offset = part_take(&p.end, c->packed ? ATTN_TENSORS * attn_offset_step(c->n) * 8 : 0);
    p.q_len = part_take(&p.end, lens);
    p.k_len = part_take(&p.end, lens);
    p.left = part_take(&p.end, c->packed || c->backward ? c->n * 4 : 0);
    if (attn_class_has(c, ATTN_DQ_SUM))
        p.dq_sum = part_take(&p.end, c->packed && !attn_class_sum_is_packed(c)
                                         ? c->n * c->q * row : r->n_q * row);
    if (c->backward && attn_dnn_dq_by_way(a))
        p.dq = part_take(&p.end, r->n_q * row);
    if (c->backward && attn_dnn_dkv_by_way(a)) {
        p.dk = part_take(&p.end, r->n_k * row);
        p.dv = part_take(&p.end, r->n_k * row);
    }
    return p;
}

/* Ensures that the workspace has at least this many bytes. Its contents may be lost. */
static int room_take(struct attn_dnn *d, cudaStream_t s, int64_t bytes, struct err *err)
{
    struct dev *dev = d->ops->dev;
    int rc;
    if (bytes <= d->room_bytes)
        return 0;
    room_give(d, s);
    if ((rc = dev->alloc(dev, "attention by cuDNN", bytes, (void **)&d->room, err)) < 0)
        return rc;
    d->room_bytes = bytes;
    d->ops->workspace_bytes += bytes;
    return 0;
}

/* Warns that a call needs more workspace than allowed. */
static void room_lack_tell(const struct attn_class *c, int64_t bytes)
{
    log_msg(LOG_WARN,
            "attention, %s, %lld segments of %lld queries and %lld keys: cuDNN wants %lld bytes "
            "for it, and may have %lld, so that slow kernels of our own compute it",
            c->backward ? "backward" : "forward", (long long)c->n, (long long)c->q,
            (long long)c->k, (long long)bytes, (long long)ATTN_WORKSPACE_MOST);
}

/* ---- a call ---- */

struct call {
    const struct ops_attn *a;
    const struct attn_class *c;
    const struct attn_plan *plan;
    struct rows rows;
    struct parts at;
    char *room;
};

/* Returns the address that the plan gets for a tensor: in packed form row 0, to which offsets are
 * relative, else the first row of the first segment. */
static void *start_of(const struct call *c, enum attn_tensor t)
{
    const struct ops_attn *a = c->a;
    const struct tensor *tensors[ATTN_TENSORS] = {&a->q, &a->k, &a->v, &a->o, &a->lse, &a->d_o,
                                                  &a->dq, &a->dk, &a->dv, &a->delta};
    if (t == ATTN_DQ_SUM)
        return c->room + c->at.dq_sum;
    if (t == ATTN_DQ && attn_dnn_dq_by_way(a))
        return c->room + c->at.dq;
    if ((t == ATTN_DK || t == ATTN_DV) && attn_dnn_dkv_by_way(a))
        return c->room + (t == ATTN_DK ? c->at.dk : c->at.dv);
    if (c->c->packed)
        return tensors[t]->ptr;
    return tensor_at(tensors[t], attn_dnn_is_of_keys((int)t) ? c->rows.k : c->rows.q, 0);
}

/* Returns the row number at the address that start_of returns, for the offsets of packed form. */
static int64_t first_of(const struct call *c, enum attn_tensor t)
{
    if (t == ATTN_DQ_SUM || (t == ATTN_DQ && attn_dnn_dq_by_way(c->a)))
        return c->rows.q;
    return (t == ATTN_DK || t == ATTN_DV) && attn_dnn_dkv_by_way(c->a) ? c->rows.k : 0;
}

static int32_t *left_of(const struct call *c)
{
    return (int32_t *)(void *)(c->room + c->at.left);
}

/* Queues the search for segments whose backward our own kernels must compute because of lse. */
static cudaError_t look_queue(const struct call *c, cudaStream_t s)
{
    struct attn_look l = {.q_start = c->a->q_start, .n = c->a->n, .longest = c->c->q,
                          .lse = c->a->lse, .beyond = left_of(c)};
    cudaError_t e = cudaMemsetAsync(l.beyond, 0, (size_t)c->c->n * sizeof *l.beyond, s);
    kernel_attn_look(s, &l);
    return e;
}

static void lay_queue(const struct call *c, cudaStream_t s)
{
    const struct ops_attn *a = c->a;
    struct attn_lay l = {
        .q_start = a->q_start, .k_start = a->k_start, .k_len = a->k_len,
        .given = a->n, .n = c->c->n, .looked = c->c->backward,
        .offset = (int64_t *)(void *)(c->room + c->at.offset),
        .step = attn_offset_step(c->c->n),
        .q_len = (int32_t *)(void *)(c->room + c->at.q_len),
        .k_len_out = (int32_t *)(void *)(c->room + c->at.k_len),
        .left = left_of(c)};
    for (int t = 0; t < ATTN_TENSORS; t++) {
        l.ld[t] = c->c->ld[t];
        l.first[t] = first_of(c, (enum attn_tensor)t);
    }
    kernel_attn_lay(s, &l);
}

/* Holds the variant pack of a call: ids of tensors, and their addresses. */
struct pack { int64_t ids[TENSOR_IDS]; void *at[TENSOR_IDS]; int64_t n; };

static void pack_add(struct pack *p, int64_t id, void *at)
{
    p->ids[p->n] = id;
    p->at[p->n++] = at;
}

static struct pack pack_of(const struct call *c, float numbers[3])
{
    struct pack p = {.n = 0};
    for (int t = 0; t < ATTN_TENSORS; t++) {
        if (!attn_class_has(c->c, (enum attn_tensor)t))
            continue;
        pack_add(&p, ATTN_ID_TENSOR + t, start_of(c, (enum attn_tensor)t));
        if (c->c->packed && (t != ATTN_DQ_SUM || attn_class_sum_is_packed(c->c)))
            pack_add(&p, ATTN_ID_OFFSET + t,
                     c->room + c->at.offset + t * attn_offset_step(c->c->n) * 8);
    }
    pack_add(&p, ATTN_ID_SCALE, &numbers[0]);
    if (c->c->backward)
        pack_add(&p, ATTN_ID_ONE, &numbers[1]);
    if (c->c->backward && c->c->packed)
        pack_add(&p, ATTN_ID_NOTHING, &numbers[2]);
    if (c->c->packed) {
        pack_add(&p, ATTN_ID_Q_LEN, c->room + c->at.q_len);
        pack_add(&p, ATTN_ID_K_LEN, c->room + c->at.k_len);
    }
    return p;
}

static void home_queue(const struct call *c, cudaStream_t s, const int32_t *left)
{
    const struct ops_attn *a = c->a;
    struct attn_home q = {.start = a->q_start, .left = left, .n = a->n, .longest = c->c->q,
                          .to = a->dq, .from = (const float *)(const void *)(c->room + c->at.dq),
                          .first = c->rows.q, .heads = a->heads, .group = 1, .d = a->head_dim,
                          .add = true};
    struct attn_home k = {.start = a->k_start, .len = a->k_len, .left = left, .n = a->n,
                          .longest = c->c->k, .to = a->dk,
                          .from = (const float *)(const void *)(c->room + c->at.dk),
                          .first = c->rows.k, .heads = a->kv_heads,
                          .group = a->heads / a->kv_heads, .d = a->head_dim,
                          .add = a->accumulate_dkv};
    if (attn_dnn_dq_by_way(a))
        kernel_attn_home(s, &q);
    if (!attn_dnn_dkv_by_way(a))
        return;
    kernel_attn_home(s, &k);
    k.to = a->dv, k.from = (const float *)(const void *)(c->room + c->at.dv);
    kernel_attn_home(s, &k);
}

/* Finds the plan of a call and lays out its workspace, or returns why cuDNN does not compute it. */
static enum ops_attn_own call_plan(struct attn_dnn *d, cudaStream_t s, bool backward,
                                   struct call *c, struct attn_class *class, struct kept **out,
                                   cudnnStatus_t *st)
{
    enum ops_attn_own why = attn_dnn_takes(c->a, backward, d->ops->deterministic, class);
    *st = CUDNN_STATUS_SUCCESS;
    if (why != OPS_ATTN_TAKEN)
        return why;
    struct kept *k = plan_of(d, s, class, st);
    if (!k->plan.plan)
        return OPS_ATTN_ENGINE;
    c->c = class;
    c->plan = &k->plan;
    c->rows = rows_of(c->a);
    c->at = parts_of(c->a, class, c->plan, &c->rows);
    *out = k;
    return c->at.end > ATTN_WORKSPACE_MOST ? OPS_ATTN_ROOM : OPS_ATTN_TAKEN;
}

int attn_dnn_plan(struct attn_dnn *d, const struct ops_attn *a, bool backward, struct err *err)
{
    struct ops_attn_plans *p = &d->ops->attn_plans;
    struct attn_class class;
    struct call c = {.a = a};
    cudnnStatus_t st;
    struct kept *k = NULL;
    enum ops_attn_own why = call_plan(d, NULL, backward, &c, &class, &k, &st);
    if (st != CUDNN_STATUS_SUCCESS)
        return err_set(err, is_of_memory(st) ? ERR_NOMEM : ERR_ENV,
                       "GPU (%s): cuDNN %zu makes no plan of attention: %s; see that the driver "
                       "and the library are of one CUDA, or set REEL_ATTN=plain",
                       dev_cuda_name(d->ops->dev), cudnnGetVersion(), cudnnGetErrorString(st));
    if (why == OPS_ATTN_TAKEN)
        p->bytes = c.at.end > p->bytes ? c.at.end : p->bytes;
    else if (why == OPS_ATTN_ROOM)
        room_lack_tell(&class, c.at.end);
    return 0;
}

int attn_dnn_reserve(struct attn_dnn *d, cudaStream_t s, struct err *err)
{
    if (d->dropped > 0)
        log_msg(LOG_WARN,
                "attention is of %lld classes of calls, and cuDNN's plans are kept for %d: they "
                "will be made again and again, about a second each; give samples fewer shapes",
                (long long)d->ops->attn_plans.made, ATTN_PLANS);
    d->reserved = true;
    return room_take(d, s, d->ops->attn_plans.bytes, err);
}

/* Ensures that a call has its workspace. Returns false after an error of the device. */
static bool call_room(struct attn_dnn *d, cudaStream_t s, struct call *c)
{
    struct err none = {0};
    if (room_take(d, s, c->at.end, &none) < 0) {
        dev_cuda_fail(d->ops->dev, cudaErrorMemoryAllocation, "the workspace of attention");
        return false;
    }
    c->room = d->room;
    return true;
}

static void call_queue(struct attn_dnn *d, cudaStream_t s, const struct call *c)
{
    float numbers[3] = {(float)c->a->scale, 1, -INFINITY};
    struct pack pack = pack_of(c, numbers);
    cudnnStatus_t st;
    if (c->c->backward)
        dev_cuda_fail(d->ops->dev, look_queue(c, s), "what attention looks at");
    if (c->c->packed)
        lay_queue(c, s);
    st = attn_plan_queue(d->handle, s, c->plan, pack.n, pack.ids, pack.at, c->room);
    if (st != CUDNN_STATUS_SUCCESS)
        keep_error(d, st);
    if (c->c->backward)
        home_queue(c, s, left_of(c));
}

bool attn_dnn_queue(struct attn_dnn *d, cudaStream_t s, const struct ops_attn *a, bool backward,
                    const int32_t **left)
{
    struct attn_class class;
    struct call c = {.a = a};
    struct kept *k = NULL;
    cudnnStatus_t st;
    *left = NULL;
    if (!d)
        return false;
    enum ops_attn_own why = call_plan(d, s, backward, &c, &class, &k, &st);
    if (st != CUDNN_STATUS_SUCCESS)
        keep_error(d, st);
    if (why != OPS_ATTN_TAKEN) {
        d->ops->attn_plans.own[why]++;
        return false;
    }
    if (!call_room(d, s, &c))
        return false;
    d->ops->attn_plans.used += !k->used;
    k->used = true;
    call_queue(d, s, &c);
    if (attn_dnn_leaves(a, &class))
        *left = left_of(&c);
    return true;
}

/* ---- opening and closing ---- */

static int version_check(struct err *err)
{
    size_t v = cudnnGetVersion();
    if (v >= OLDEST && v / 10000 == CUDNN_MAJOR)
        return 0;
    return err_set(err, ERR_ENV,
                   "cuDNN: the library is of version %zu.%zu.%zu, and this build is for %d.%d and "
                   "later of %d: put a newer libcudnn.so.%d first in LD_LIBRARY_PATH, or set "
                   "REEL_ATTN=plain",
                   v / 10000, v % 10000 / 100, v % 100, OLDEST / 10000, OLDEST % 10000 / 100,
                   CUDNN_MAJOR, CUDNN_MAJOR);
}

static int library_open(struct attn_dnn *d, struct err *err)
{
    cudnnStatus_t st = cudnnCreate(&d->handle);
    if (st == CUDNN_STATUS_SUCCESS)
        st = attn_device_make(d->handle, &d->device);
    if (st == CUDNN_STATUS_SUCCESS)
        return 0;
    return err_set(err, ERR_ENV,
                   "GPU (%s): cuDNN %zu does not open: %s; see that the driver and the library are "
                   "of one CUDA, or set REEL_ATTN=plain",
                   dev_cuda_name(d->ops->dev), cudnnGetVersion(), cudnnGetErrorString(st));
}

/* Parses REEL_ATTN's syntax. Writes the index of the proposal to try first, or -1 for "plain". */
static int wish_read(const char *wish, int64_t *first, struct err *err)
{
    *first = 0;
    if (!*wish)
        return 0;
    if (strcmp(wish, "plain") == 0) {
        *first = -1;
        return 0;
    }
    if (num_parse_i64(wish, "REEL_ATTN", first, NULL) < 0 || *first < 1)
        return err_set(err, ERR_USAGE, "REEL_ATTN is '%s': give plain, or 2 for the second engine "
                       "that cuDNN proposes and so on, or leave it unset", wish);
    --*first;
    return 0;
}

int attn_dnn_open(struct ops *ops, const char *wish, struct attn_dnn **out, struct err *err)
{
    struct attn_dnn *d = NULL;
    int64_t first;
    int rc;
    *out = NULL;
    if ((rc = wish_read(wish, &first, err)) < 0 || ops->act != DTYPE_BF16 || first < 0)
        return rc;
    if ((rc = version_check(err)) < 0)
        return rc;
    if (!(d = calloc(1, sizeof *d)))
        return err_set(err, ERR_NOMEM, "cuDNN: no memory for its plans");
    d->ops = ops;
    d->first = first;
    if ((rc = library_open(d, err)) < 0)
        goto out;
    *out = d;
    d = NULL; /* the caller owns it now */
out:
    attn_dnn_close(d);
    return rc;
}

void attn_dnn_close(struct attn_dnn *d)
{
    if (!d)
        return;
    for (int i = 0; i < d->n; i++)
        attn_plan_free(&d->kept[i].plan);
    d->ops->dev->free(d->ops->dev, d->room);
    if (d->device)
        cudnnBackendDestroyDescriptor(d->device);
    if (d->handle)
        cudnnDestroy(d->handle);
    free(d);
}
