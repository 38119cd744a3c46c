#include "trainer/comm/comm.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/num.h"
#include "trainer/comm/comm_plane.h"
#include "trainer/comm/comm_priv.h"

const char *const comm_kind_names[] = {
    "all-gather", "reduce-scatter", "all-reduce", "all-to-all",
    "send-recv", "broadcast", "barrier", NULL
};

#ifdef __OPTIMIZE__
enum { CHECK_AT_FIRST = 0 };
#else
enum { CHECK_AT_FIRST = 1 };
#endif

/* ---- groups ---- */

static int int_order(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* Returns a hash of the sorted world ranks and the axis, which is the same on all ranks of the
 * group. `sorted` is room for `size` ints to work in. */
static uint64_t group_id(const struct comm *c, int *sorted)
{
    memcpy(sorted, c->world_ranks, (size_t)c->size * sizeof *sorted);
    qsort(sorted, (size_t)c->size, sizeof *sorted, int_order);
    uint64_t parts[] = {hash_64(sorted, (size_t)c->size * sizeof *sorted),
                        hash_64(c->axis, strlen(c->axis))};
    return hash_64(parts, sizeof parts);
}

/* Allocates the arrays of a group from its arena. Returns false when out of memory. */
static bool group_fill(struct comm *c, const int *world_ranks)
{
    size_t n = (size_t)c->size;
    int *ranks = arena_array(&c->arena, 2 * n, sizeof *ranks);
    int64_t *ranges = arena_array(&c->arena, 5 * (COMM_WORKS + 1) * n, sizeof *ranges);
    c->scalars = arena_array(&c->arena, n * COMM_SCALARS, sizeof *c->scalars);
    c->works = arena_array(&c->arena, COMM_WORKS + 1, sizeof *c->works);
    c->stages = arena_array(&c->arena, COMM_WORKS + 1, sizeof *c->stages);
    if (!ranks || !ranges || !c->scalars || !c->works || !c->stages)
        return false;
    for (int r = 0; r < c->size; r++)
        ranks[r] = world_ranks ? world_ranks[r] : r;
    c->world_ranks = ranks;
    c->id = group_id(c, ranks + n);
    for (int i = 0; i <= COMM_WORKS; i++, ranges += 5 * n) {
        struct comm_work *w = &c->works[i];
        w->c = c;
        w->send_n = ranges, w->send_at = ranges + n,
        w->recv_n = ranges + 2 * n, w->recv_at = ranges + 3 * n;
        w->real_at = ranges + 4 * n;
    }
    return true;
}

int comm_new(struct comm *parent, const struct comm_backend *backend, const char *axis, int rank,
             int size, const int *world_ranks, struct comm **out, struct err *err)
{
    struct comm *c = calloc(1, sizeof *c);
    struct comm_world *world = parent ? parent->world : calloc(1, sizeof *world);
    if (c && world) {
        *c = (struct comm){
            .name = backend->name, .axis = axis,
            .rank = rank, .size = size,
            .parent = parent, .conf = &world->conf, .dev = parent ? parent->dev : NULL,
            .backend = backend, .world = world
        };
        arena_init(&c->arena, 0);
        if (!parent)
            *world = (struct comm_world){
                .conf = {.check = CHECK_AT_FIRST},
                .rank = rank, .size = size, .groups = 1
            };
        if (group_fill(c, world_ranks)) {
            *out = c;
            return 0;
        }
        arena_release(&c->arena);
    }
    if (!parent)
        free(world);
    free(c);
    return err_set(err, ERR_NOMEM, "out of memory opening group %s of %d ranks", axis, size);
}

void comm_free(struct comm *c)
{
    if (!c->parent) {
        comm_order_free(c->world->order);
        free(c->world);
    }
    arena_release(&c->arena);
    free(c);
}

void comm_break(struct comm *c)
{
    for (; c; c = c->parent)
        c->broken = true;
}

int comm_bind(struct comm *c, struct dev *dev, const struct coll_ops *coll, struct err *err)
{
    comm_stages_free(c);
    comm_plane_free(c->world->plane);
    c->world->plane = NULL;
    c->dev = dev;
    return coll && c->size > 1 ? comm_plane_new(c, dev, coll, &c->world->plane, err) : 0;
}

/* Waits until all ranks of the group are there. The error names those that do not come. */
static int all_there(struct comm *c, const char *what, struct err *err)
{
    return comm_do(c, &(struct comm_op){.kind = COMM_BARRIER, .what = what, .dtype = DTYPE_BYTE},
                   NULL, err);
}

/* Holds what one rank contributes when a group is split; c->scalars holds the contributions of all
 * ranks. `groups` is the rank's comm_world.groups. */
struct member { double color, key, groups; };
enum { MEMBER_SCALARS = sizeof(struct member) / sizeof(double) };

/* Gathers the contributions of the ranks of c. Nothing is allocated here, so that no rank can fail
 * before it takes part. */
static int members_gather(struct comm *c, const char *axis, struct member own, struct err *err)
{
    struct comm_op gather = {
        .kind = COMM_ALL_GATHER, .what = axis,
        .send = &own, .recv = c->scalars, .n = MEMBER_SCALARS, .dtype = DTYPE_F64
    };
    int rc;
    if ((rc = comm_do_quietly(c, &gather, true, err)) < 0)
        return rc;
    const struct member *all = (const struct member *)c->scalars;
    for (int r = 0; r < c->size; r++)
        c->world->groups = num_max_i64(c->world->groups, (int64_t)all[r].groups + 1);
    return 0;
}

/* Writes the ranks of c that have this color, by rising key, then by rank. Returns how many there
 * are. */
static int members_list(const struct comm *c, double color, int *ranks)
{
    const struct member *all = (const struct member *)c->scalars;
    int n = 0;
    for (int r = 0; r < c->size; r++) {
        if (all[r].color != color)
            continue;
        int at = n++;
        for (; at > 0 && all[ranks[at - 1]].key > all[r].key; at--)
            ranks[at] = ranks[at - 1];
        ranks[at] = r;
    }
    return n;
}

int comm_split(struct comm *c, const char *axis, int color, int key, struct comm **out,
               struct err *err)
{
    int rc, rank = 0;
    if ((rc = members_gather(c, axis, (struct member){color, key, (double)c->world->groups},
                             err)) < 0)
        return rc;
    int *ranks = calloc((size_t)c->size, sizeof *ranks);
    if (!ranks)
        return err_set(err, ERR_NOMEM, "out of memory opening group %s", axis);
    int size = members_list(c, color, ranks);
    for (int r = 0; r < size; r++) {
        rank = ranks[r] == c->rank ? r : rank;
        ranks[r] = c->world_ranks[ranks[r]];
    }
    /* The number is new to all ranks of c, so groups that share two ranks have different
     * numbers. */
    rc = c->backend->split(c, axis, rank, size, ranks, c->world->groups - 1, out, err);
    free(ranks);
    return rc;
}

void comm_give_up(struct comm *world, const struct err *why)
{
    comm_plane_fail(world->world->plane, why);
    comm_break(world);
}

void comm_abort(struct comm *c, int exit_code)
{
    c->backend->abort(c, exit_code);
}

void comm_close(struct comm *c)
{
    struct err err;
    if (!c)
        return;
    if (!c->parent && !c->broken)
        all_there(c, "end", &err); /* if it fails, c is broken and its backend does not wait */
    comm_plane_leave(c);
    c->backend->close(c);
    comm_stages_free(c);
    comm_free(c);
}

int comm_reserve(struct comm *c, int works, int64_t bytes, struct err *err)
{
    BUG_ON(works < 0 || works > COMM_WORKS || bytes < 0);
    return comm_plane_has(c) ? comm_plane_reserve(c, bytes, err)
                             : c->backend->reserve(c, works, bytes, err);
}

/* ---- operations ---- */

static int64_t largest(const int64_t *n, int size)
{
    int64_t most = 0;
    for (int r = 0; r < size; r++)
        most = num_max_i64(most, n[r]);
    return most;
}

static int counts_check(const struct comm_work *w, struct err *err)
{
    struct comm *c = w->c;
    int64_t most = num_max_i64(largest(w->send_n, c->size), largest(w->recv_n, c->size));
    for (int i = 0; i < w->op.n_messages; i++)
        most = num_max_i64(most, w->messages[i].n);
    if (most <= c->backend->count_max)
        return 0;
    return err_set(err, ERR_LIMIT, "%s '%s' of %lld elements a rank: MPI counts end at %lld",
                   comm_kind_names[w->op.kind], w->op.what, (long long)most,
                   (long long)c->backend->count_max);
}

static bool is_scalars(const struct comm_work *w)
{
    return w == &w->c->works[COMM_WORKS];
}

/* Takes a free comm_work. One is reserved for scalars, so that they can be exchanged at any
 * time. */
static struct comm_work *work_take(struct comm *c, bool scalars)
{
    struct comm_work *w = &c->works[COMM_WORKS];
    for (int i = 0; i < COMM_WORKS && !scalars; i++)
        if (!(w = &c->works[i])->taken)
            break;
    BUG_ON(w->taken); /* COMM_WORKS are in flight already */
    w->taken = true;
    w->done = false;
    return w;
}

/* Plans a comm_work. In check mode it also records the operation. For staged buffers, and in check
 * mode for all that the backend carries, it replaces the caller's buffers by copies. After a
 * failure here nothing is in flight. */
static int work_prepare(struct comm_work *w, const struct comm_op *op, bool ordered,
                        struct err *err)
{
    bool check = w->c->conf->check;
    int rc;
    comm_work_plan(w, op);
    if (!w->link && (rc = counts_check(w, err)) < 0)
        return rc;
    if (check && ordered && w->c->size > 1 && (rc = comm_order_add(w->c, w, op, err)) < 0)
        return rc;
    return (check && !w->link) || w->staged ? comm_work_cover(w, err) : 0;
}

/* Says whether an operation on a stream's memory goes through pinned host memory. A group of one
 * rank needs that only for messages to itself, and in check mode. */
static bool is_staged(const struct comm *c, const struct comm_op *op, const struct dev_stream *s)
{
    return s && c->dev && !c->dev->host_memory &&
           (c->size > 1 || op->kind == COMM_SEND_RECV || c->conf->check);
}

/* Prepares a comm_work whose buffers a stream writes. Afterwards the backend can read what is to be
 * sent. */
static int work_stage(struct comm_work *w, const struct comm_op *op, struct dev_stream *s,
                      bool ordered, struct err *err)
{
    struct dev *dev = w->c->dev;
    int rc;
    if (!s || !dev || w->link)
        return work_prepare(w, op, ordered, err);
    if (is_staged(w->c, op, s)) {
        w->staged = s;
        if ((rc = work_prepare(w, op, ordered, err)) < 0)
            return rc;
        return dev->stream_sync(dev, s, err);
    }
    if (dev->host_memory && (rc = dev->stream_sync(dev, s, err)) < 0)
        return rc;
    return work_prepare(w, op, ordered, err);
}

static int broken_error(const struct comm *c, const struct comm_op *op, struct err *err)
{
    if (c->world->failure.code)
        return err_set(err, c->world->failure.code, "%s", c->world->failure.text);
    return err_set(err, ERR_TEMP,
                   "%s '%s' in group %s: an earlier operation failed: the ranks no longer agree "
                   "and must be ended",
                   comm_kind_names[op->kind], op->what, c->axis);
}

static void waited_add(struct comm *c, double seconds)
{
    c->wait_s += seconds;
    c->world->wait_s += seconds;
}

double comm_waited_s(const struct comm *c)
{
    return c->world->wait_s;
}

static void host_traced(const struct comm *c, bool enters)
{
    if (c->conf->trace_host)
        c->conf->trace_host(c->conf->trace_ctx, enters);
}

static int work_begin(struct comm *c, const struct comm_op *op, struct dev_stream *s, bool scalars,
                      bool ordered, struct comm_work **out, struct err *err)
{
    double started = clock_mono_s();
    if (c->broken)
        return broken_error(c, op, err);
    int rc;
    struct comm_work *w = work_take(c, scalars);
    w->start_s = started;
    w->link = comm_plane_link(c, op, s);
    if ((rc = work_stage(w, op, s, ordered, err)) < 0) {
        comm_work_uncover(w, false, NULL);
        w->taken = false;
        return rc;
    }
    /* Staging waits for what the device queued earlier, not for another rank. */
    double computed_s = w->staged ? clock_mono_s() - started : 0;
    w->sent_bytes = comm_work_sent_bytes(w);
    c->sent_bytes += w->sent_bytes;
    c->ops++;
    if (!w->link)
        comm_work_own(w, s);
    rc = w->link ? comm_plane_start(w, s, err) : c->backend->start(c, w, err);
    w->started_s = clock_mono_s();
    waited_add(c, w->started_s - started - computed_s);
    if (rc < 0)
        return rc;
    *out = w;
    return 0;
}

static int work_start(struct comm *c, const struct comm_op *op, struct dev_stream *s, bool scalars,
                      bool ordered, struct comm_work **out, struct err *err)
{
    host_traced(c, true);
    int rc = work_begin(c, op, s, scalars, ordered, out, err);
    host_traced(c, false);
    return rc;
}

int comm_start(struct comm *c, const struct comm_op *op, struct dev_stream *s,
               struct comm_work **out, struct err *err)
{
    return work_start(c, op, s, false, true, out, err);
}

static double latency_of(const struct comm_work *w)
{
    const struct comm_conf *conf = w->c->conf;
    bool another = conf->latency_what && strcmp(conf->latency_what, w->op.what) != 0;
    return is_scalars(w) || w->link || another ? 0 : conf->latency_s;
}

static int work_end(struct comm *c, struct comm_work *w, struct dev_stream *s, struct err *err)
{
    BUG_ON(w->c != c || !w->taken || ((w->staged || w->link) && !s));
    if (c->broken && !w->done)
        return broken_error(c, &w->op, err);
    double entered = clock_mono_s(), until = w->start_s + latency_of(w);
    int rc = w->link ? comm_plane_wait(w, s) : w->done ? 0 : c->backend->wait(c, w, err);
    double there = clock_mono_s(), now = there;
    if (rc == 0 && until > there) {
        clock_sleep_s(until - there);
        now = clock_mono_s();
    }
    waited_add(c, now - entered);
    if (rc < 0)
        return rc;
    comm_work_uncover(w, true, s);
    w->taken = false;
    if (c->conf->trace)
        c->conf->trace(c->conf->trace_ctx, c, &w->op, &(struct comm_times){
            w->start_s, w->started_s, entered, now, now - there, w->sent_bytes
        });
    return 0;
}

int comm_wait(struct comm *c, struct comm_work *w, struct dev_stream *s, struct err *err)
{
    if (!w)
        return 0;
    host_traced(c, true);
    int rc = work_end(c, w, s, err);
    host_traced(c, false);
    return rc;
}

int comm_do(struct comm *c, const struct comm_op *op, struct dev_stream *s, struct err *err)
{
    struct comm_work *w;
    int rc;
    if ((rc = comm_start(c, op, s, &w, err)) < 0)
        return rc;
    return comm_wait(c, w, s, err);
}

int comm_do_quietly(struct comm *c, const struct comm_op *op, bool ordered, struct err *err)
{
    struct comm_work *w;
    int rc;
    if ((rc = work_start(c, op, NULL, true, ordered, &w, err)) < 0)
        return rc;
    return comm_wait(c, w, NULL, err);
}

bool comm_busy(const struct comm *c)
{
    return c->world->flight;
}

void comm_progress(struct comm *c)
{
    if (c->world->flight)
        c->backend->progress(c);
}

int comm_barrier(struct comm *c, struct err *err)
{
    return all_there(c, "barrier", err);
}

int comm_broadcast_bytes(struct comm *c, void *buf, int64_t bytes, int root, struct err *err)
{
    struct comm_op op = {
        .kind = COMM_BROADCAST, .what = "bytes",
        .recv = buf, .n = bytes, .root = root, .dtype = DTYPE_BYTE
    };
    return comm_do(c, &op, NULL, err);
}

/* ---- scalars and agreement ---- */

/* Combines n values of every rank in rank order, by sum or maximum. */
static int fold_scalars(struct comm *c, double *values, int n, bool max, struct err *err)
{
    double mine[COMM_SCALARS];
    BUG_ON(n > COMM_SCALARS);
    if (c->size == 1)
        return 0;
    memcpy(mine, values, (size_t)n * sizeof *mine);
    struct comm_op op = {
        .kind = COMM_ALL_GATHER, .what = max ? "maximum" : "sum",
        .send = mine, .recv = c->scalars, .n = n, .dtype = DTYPE_F64
    };
    int rc;
    if ((rc = comm_do_quietly(c, &op, true, err)) < 0)
        return rc;
    for (int k = 0; k < n; k++) {
        values[k] = c->scalars[k];
        for (int r = 1; r < c->size; r++) {
            double v = c->scalars[r * n + k];
            values[k] = max ? (v > values[k] ? v : values[k]) : values[k] + v;
        }
    }
    return 0;
}

int comm_sum(struct comm *c, double *values, int n, struct err *err)
{
    return fold_scalars(c, values, n, false, err);
}

int comm_max(struct comm *c, double *values, int n, struct err *err)
{
    return fold_scalars(c, values, n, true, err);
}

int comm_agree(struct comm *c, int status, struct err *err)
{
    struct err told = {0};
    /* A failed rank offers -rank, the others -size: the maximum names the lowest failing rank. */
    double first[1] = {status < 0 ? -c->rank : -c->size};
    if (c->size == 1 || (c->broken && status < 0))
        return status;
    int rc = comm_max(c, first, 1, err);
    int rank = (int)-first[0];
    if (rc < 0 || rank == c->size)
        return rc;
    if (rank == c->rank)
        told = *err, told.code = status;
    struct comm_op op = {
        .kind = COMM_BROADCAST, .what = "a failure",
        .recv = &told, .n = (int64_t)sizeof told, .root = rank, .dtype = DTYPE_BYTE
    };
    if ((rc = comm_do_quietly(c, &op, true, err)) < 0)
        return rc;
    rank = c->world_ranks[rank];
    if (rank == 0 || strncmp(told.text, "rank ", 5) == 0) /* which another group has named */
        return err_set(err, told.code, "%s", told.text);
    return err_set(err, told.code, "rank %d: %s", rank, told.text);
}
