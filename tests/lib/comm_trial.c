#include "tests/lib/comm_trial.h"

#include "base/num.h"

unsigned mixed(unsigned a, unsigned b)
{
    uint32_t x = (a * 2654435761u) ^ (b * 0x9e3779b9u + 0x85ebca6bu);
    x ^= x >> 15, x *= 0x2c1b3c6du, x ^= x >> 12, x *= 0x297a2d39u, x ^= x >> 15;
    return x;
}

/* Returns a rank's numbers for seed 0. */
static const double *rough_row(int rank)
{
    static const double sizes[] = {1e16, 1, -1e16, 3, 1e-9, -7e15};
    static double rows[RANKS][ROUGH_PERIOD];
    for (int k = 0; k < RANKS && rows[RANKS - 1][0] == 0; k++)
        for (int i = ROUGH_PERIOD - 1; i >= 0; i--)
            rows[k][i] = sizes[(k * 5 + i) % 6] * (1 + 0.125 * (double)(i % 11)) + k;
    return rows[rank];
}

struct rough_run rough_from(unsigned seed, int rank, int64_t first, int64_t n)
{
    return (struct rough_run){rough_row(rank), (first + seed) % ROUGH_PERIOD, n};
}

double rough_at(const struct rough_run *r, int64_t i)
{
    return r->row[(r->first + i) % ROUGH_PERIOD];
}

double rough(unsigned seed, int rank, int64_t i)
{
    return rough_row(rank)[(i + seed) % ROUGH_PERIOD];
}

double get(const void *buf, int64_t i, enum dtype t)
{
    return t == DTYPE_F64   ? ((const double *)buf)[i]
           : t == DTYPE_F32 ? (double)((const float *)buf)[i]
                            : (double)bf16_value(((const uint16_t *)buf)[i]);
}

double nearest(double v, enum dtype t)
{
    double f = (double)(float)v;
    if (t != DTYPE_BF16)
        return t == DTYPE_F64 ? v : f;
    double c = f * (double)((1LL << (53 - 8)) + 1);
    return c - (c - f);
}

void put(void *buf, int64_t i, double v, enum dtype t)
{
    float f = (float)nearest(v, t);
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (t == DTYPE_F64)
        ((double *)buf)[i] = v;
    else if (t == DTYPE_F32)
        ((float *)buf)[i] = f;
    else
        ((uint16_t *)buf)[i] = (uint16_t)(bits >> 16);
}

/* Copies the first `known` bytes again and again, until all n are filled. */
static void repeat(char *p, int64_t known, int64_t n)
{
    for (int64_t more; known < n; known += more) {
        more = num_min_i64(known, n - known);
        memcpy(p + known, p, (size_t)more);
    }
}

/* Writes a span of numbers to element `at` and the elements after it. */
static void put_run(void *buf, int64_t at, const struct rough_run *r, enum dtype t)
{
    int64_t e = dtype_bytes(t), period = num_min_i64(ROUGH_PERIOD, r->n);
    char *to = (char *)buf + at * e;
    for (int64_t i = 0; i < period; i++)
        put(to, i, rough_at(r, i), t);
    repeat(to, period * e, r->n * e);
}

/* Computes the expected sum of element `at` of a period. */
static double rank_order_sum(const struct trial *t, int64_t at)
{
    double d = rough_row(t->c->world_ranks[0])[at];
    float f = (float)nearest(d, t->op.dtype);
    for (int r = 1; r < t->c->size; r++) {
        double next = rough_row(t->c->world_ranks[r])[at];
        d += next;
        f += (float)nearest(next, t->op.dtype);
    }
    return t->op.dtype == DTYPE_F64 ? d : nearest((double)f, t->op.dtype);
}

int64_t pair_count(unsigned seed, int from, int to, int64_t most)
{
    unsigned x = mixed(seed, (unsigned)(from * 64 + to));
    return x % 4 == 0 ? 0 : (int64_t)(x / 4) % (most + 1);
}

int64_t lay_out(const int64_t *counts, int64_t *at, int size)
{
    int64_t n = 1;
    for (int r = 0; r < size; r++)
        at[r] = n, n += counts[r] + 1;
    return n;
}

char *filled(int64_t n, enum dtype t)
{
    char *p = malloc((size_t)(n * 8));
    if (n > 0)
        put(p, 0, gap, t);
    repeat(p, dtype_bytes(t), n * dtype_bytes(t));
    return p;
}

char *element(const struct trial *t, char *buf, int64_t i)
{
    return buf + i * dtype_bytes(t->op.dtype);
}

struct rough_run sent_run(const struct trial *t, int from, int to, int64_t first, int64_t n)
{
    return rough_from(t->seed + 13 * (unsigned)to, from, first, n);
}

void make_parts(struct trial *t, int64_t most)
{
    struct comm *c = t->c;
    bool same = t->seed % 3 == 0; /* equal parts, whose size n gives */
    for (int r = 0; r < c->size; r++) {
        t->counts[r] = same ? (int64_t)(mixed(t->seed, 5) % (unsigned)(most + 1))
                            : pair_count(t->seed, r, r, most);
        t->at[r] = same ? t->counts[0] * r : 0;
    }
    t->send_total = t->recv_total = same ? t->counts[0] * c->size
                                         : lay_out(t->counts, t->at, c->size);
    t->op.n = same ? t->counts[0] : 0;
    t->op.counts = same ? NULL : t->counts;
    t->op.at = same ? NULL : t->at;
}

void make_all_gather(struct trial *t, int64_t most)
{
    int r = t->c->rank;
    make_parts(t, most);
    t->recv = filled(t->recv_total, t->op.dtype);
    t->send = t->in_place ? element(t, t->recv, t->at[r]) : filled(t->counts[r], t->op.dtype);
    struct rough_run own = rough_from(t->seed, t->c->world_ranks[r], 0, t->counts[r]);
    put_run(t->send, 0, &own, t->op.dtype);
}

/* Returns the numbers that this rank contributes to a reduction. */
static struct rough_run summands(const struct trial *t)
{
    return rough_from(t->seed, t->c->world_ranks[t->c->rank], 0, t->send_total);
}

void make_reduction(struct trial *t, int64_t most)
{
    make_parts(t, most);
    for (int64_t at = 0; at < ROUGH_PERIOD; at++)
        t->sums[at] = rank_order_sum(t, at);
    bool all = t->op.kind == COMM_ALL_REDUCE;
    t->send = filled(t->send_total, t->op.dtype);
    struct rough_run own = summands(t);
    put_run(t->send, 0, &own, t->op.dtype);
    t->in_place |= all;
    t->recv_total = all ? t->send_total : t->counts[t->c->rank];
    t->recv = all           ? t->send
              : t->in_place ? element(t, t->send, t->at[t->c->rank])
                            : filled(t->recv_total, t->op.dtype);
    if (all)
        t->op.n = t->send_total, t->op.counts = t->op.at = NULL;
}

void make_all_to_all(struct trial *t, int64_t most)
{
    struct comm *c = t->c;
    t->in_place = false;
    for (int r = 0; r < c->size; r++)
        t->counts[r] = pair_count(t->seed, c->rank, r, most),
        t->recv_counts[r] = pair_count(t->seed, r, c->rank, most);
    t->send = filled(t->send_total = lay_out(t->counts, t->at, c->size), t->op.dtype);
    t->recv = filled(t->recv_total = lay_out(t->recv_counts, t->recv_at, c->size), t->op.dtype);
    for (int r = 0; r < c->size; r++) {
        struct rough_run sent = sent_run(t, c->rank, r, 0, t->counts[r]);
        put_run(t->send, t->at[r], &sent, t->op.dtype);
    }
    t->op.counts = t->counts, t->op.at = t->at, t->op.recv_counts = t->recv_counts,
    t->op.recv_at = t->recv_at;
}

void make_messages(struct trial *t, int64_t most)
{
    struct comm *c = t->c;
    int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    const int peers[6] = {next, next, before, before, before, next};
    int64_t sends = 0, recvs = 0;
    t->in_place = false;
    t->send = filled(3 * most, t->op.dtype), t->recv = filled(3 * most, t->op.dtype);
    for (int k = 0; k < 6; k++) {
        int from = k < 3 ? c->rank : peers[k], to = k < 3 ? peers[k] : c->rank;
        int64_t n = pair_count(t->seed + (unsigned)k % 3, from, to, most);
        t->list[k] = (struct comm_message){
            element(t, k < 3 ? t->send : t->recv, k < 3 ? sends : recvs), n, peers[k], k < 3};
        struct rough_run sent = sent_run(t, from, to, k, k < 3 ? n : 0);
        put_run(t->send, sends, &sent, t->op.dtype);
        *(k < 3 ? &sends : &recvs) += n;
    }
    t->send_total = sends, t->recv_total = recvs;
    t->op.messages = t->list, t->op.n_messages = 6;
}

void trial_make(struct trial *t, struct comm *c, enum comm_kind kind, unsigned seed,
                enum dtype dtype, bool in_place, int64_t most)
{
    *t = (struct trial){.c = c, .seed = seed, .in_place = in_place,
                        .op = {.kind = kind, .what = "a trial", .dtype = dtype}};
    BUG_ON(c->size > RANKS);
    if (kind == COMM_ALL_GATHER)
        make_all_gather(t, most);
    else if (kind == COMM_REDUCE_SCATTER || kind == COMM_ALL_REDUCE)
        make_reduction(t, most);
    else if (kind == COMM_ALL_TO_ALL)
        make_all_to_all(t, most);
    else if (kind == COMM_SEND_RECV)
        make_messages(t, most);
    else if (kind == COMM_BROADCAST) {
        t->in_place = false;
        t->op.root = (int)(seed % (unsigned)c->size);
        t->op.n = t->recv_total = (int64_t)(mixed(seed, 3) % (unsigned)(most + 1));
        t->recv = filled(t->recv_total, dtype);
        struct rough_run sent = rough_from(seed, 0, 0, c->rank == t->op.root ? t->op.n : 0);
        put_run(t->recv, 0, &sent, dtype);
    }
    t->op.send = t->send, t->op.recv = t->recv;
}

void trial_release(struct trial *t)
{
    bool gather = t->op.kind == COMM_ALL_GATHER;
    free(gather ? t->recv : t->send);
    if (!t->in_place)
        free(gather ? t->send : t->recv);
}

void trial_each(struct trial *t, trial_fn *f)
{
    struct comm *c = t->c;
    int64_t first = t->op.kind == COMM_REDUCE_SCATTER ? t->at[c->rank] : 0;
    for (int r = 0; r < c->size && t->op.kind == COMM_ALL_GATHER; r++) {
        struct rough_run part = rough_from(t->seed, c->world_ranks[r], 0, t->counts[r]);
        f(t, t->recv, t->at[r], &part, r == c->rank && t->in_place);
    }
    if (t->op.kind == COMM_REDUCE_SCATTER || t->op.kind == COMM_ALL_REDUCE)
        f(t, t->recv, 0,
          &(struct rough_run){t->sums, (first + t->seed) % ROUGH_PERIOD, t->recv_total}, false);
    for (int r = 0; r < c->size && t->op.kind == COMM_ALL_TO_ALL; r++) {
        struct rough_run part = sent_run(t, r, c->rank, 0, t->recv_counts[r]);
        f(t, t->recv, t->recv_at[r], &part, false);
    }
    for (int k = 3; k < 6 && t->op.kind == COMM_SEND_RECV; k++) {
        struct rough_run part = sent_run(t, t->list[k].peer, c->rank, k - 3, t->list[k].n);
        f(t, t->list[k].buf, 0, &part, false);
    }
    struct rough_run all = rough_from(t->seed, 0, 0, t->recv_total);
    if (t->op.kind == COMM_BROADCAST)
        f(t, t->recv, 0, &all, c->rank == t->op.root);
}

/* Tells whether a buffer has the bytes of a run. It compares the first period with the run, and
 * each later byte with the byte one period before it. */
static bool same_bytes(const char *have, const struct rough_run *want, enum dtype t)
{
    char period[ROUGH_PERIOD * 8];
    struct rough_run first = {want->row, want->first, num_min_i64(ROUGH_PERIOD, want->n)};
    size_t e = (size_t)dtype_bytes(t), n = (size_t)first.n * e, all = (size_t)want->n * e;
    put_run(period, 0, &first, t);
    return memcmp(have, period, n) == 0 && memcmp(have + n, have, all - n) == 0;
}

void must_equal(struct trial *t, const void *buf, int64_t at, const struct rough_run *want,
                bool own)
{
    enum dtype type = t->op.dtype;
    if (same_bytes((const char *)buf + at * dtype_bytes(type), want, type))
        return;
    for (int64_t i = 0; i < want->n; i++) {
        double have = get(buf, at + i, type), expected = nearest(rough_at(want, i), type);
        if (have != expected)
            fail_msg("%s in %s, seed %u, %s, in place %d, rank %d of %d, element %lld%s: %.17g, "
                     "want %.17g",
                     comm_kind_names[t->op.kind], t->c->axis, t->seed, dtype_names[type],
                     t->in_place, t->c->rank, t->c->size, (long long)(at + i), own ? " (own)" : "",
                     have, expected);
    }
}

void must_be_nan(struct trial *t, const void *buf, int64_t at, const struct rough_run *want,
                 bool own)
{
    for (int64_t i = 0; i < want->n; i++) {
        double have = get(buf, at + i, t->op.dtype);
        if (own ? isnan(have) : !isnan(have))
            fail_msg("%s, seed %u, in place %d, rank %d of %d, element %lld%s: %g before the wait "
                     "(after it %g)",
                     comm_kind_names[t->op.kind], t->seed, t->in_place, t->c->rank, t->c->size,
                     (long long)(at + i), own ? " (own)" : "", have, rough_at(want, i));
    }
}

void gaps_stand(const struct trial *t, const char *buf, const int64_t *counts,
                const int64_t *at, double want)
{
    for (int r = 0; r < t->c->size; r++)
        if (get(buf, at[r] + counts[r], t->op.dtype) != want)
            fail_msg("%s, seed %u: the gap behind part %d was written", comm_kind_names[t->op.kind],
                     t->seed, r);
}

void trial_verify(struct trial *t)
{
    trial_each(t, must_equal);
    if (t->op.kind == COMM_ALL_GATHER && t->op.counts)
        gaps_stand(t, t->recv, t->counts, t->at, gap);
    if (t->op.kind == COMM_ALL_TO_ALL)
        gaps_stand(t, t->recv, t->recv_counts, t->recv_at, gap);
    /* The other parts must be as they were before. */
    int64_t own = t->at[t->c->rank], behind = own + t->counts[t->c->rank];
    struct rough_run all = summands(t), before = all, rest = all;
    before.n = own;
    rest.n -= behind, rest.first += behind;
    if (t->op.kind == COMM_REDUCE_SCATTER && t->in_place) {
        must_equal(t, t->send, 0, &before, true);
        must_equal(t, t->send, behind, &rest, true);
    } else if (t->op.kind == COMM_REDUCE_SCATTER) {
        must_equal(t, t->send, 0, &all, true);
    }
}

int64_t trial_sent_bytes(const struct trial *t)
{
    int64_t n = 0, size = t->c->size, rank = t->c->rank, total = t->send_total;
    int64_t own = total / size + (rank < total % size);
    if (t->op.kind == COMM_ALL_GATHER)
        n = (size - 1) * t->counts[rank];
    for (int r = 0; r < size; r++)
        n += r != rank && (t->op.kind == COMM_REDUCE_SCATTER || t->op.kind == COMM_ALL_TO_ALL)
                 ? t->counts[r]
                 : 0;
    if (t->op.kind == COMM_ALL_REDUCE)
        n = total - own + (size - 1) * own;
    for (int k = 0; k < 3 && t->op.kind == COMM_SEND_RECV; k++)
        n += t->list[k].peer != rank ? t->list[k].n : 0;
    if (t->op.kind == COMM_BROADCAST && rank == t->op.root)
        n = (size - 1) * t->op.n;
    return n * dtype_bytes(t->op.dtype);
}
