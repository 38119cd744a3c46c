#include "tests/lib/comm_trial.h"

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
    for (int64_t i = 0; i < n; i++)
        put(p, i, gap, t);
    return p;
}

char *element(const struct trial *t, char *buf, int64_t i)
{
    return buf + i * dtype_bytes(t->op.dtype);
}

double sent_number(const struct trial *t, int from, int to, int64_t i)
{
    return rough(t->seed + 13 * (unsigned)to, from, i);
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
    for (int64_t i = 0; i < t->counts[r]; i++)
        put(t->send, i, rough(t->seed, t->c->world_ranks[r], i), t->op.dtype);
}

void make_reduction(struct trial *t, int64_t most)
{
    make_parts(t, most);
    for (int64_t at = 0; at < ROUGH_PERIOD; at++)
        t->sums[at] = rank_order_sum(t, at);
    bool all = t->op.kind == COMM_ALL_REDUCE;
    t->send = filled(t->send_total, t->op.dtype);
    for (int64_t i = 0; i < t->send_total; i++)
        put(t->send, i, rough(t->seed, t->c->world_ranks[t->c->rank], i), t->op.dtype);
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
    for (int r = 0; r < c->size; r++)
        for (int64_t i = 0; i < t->counts[r]; i++)
            put(t->send, t->at[r] + i, sent_number(t, c->rank, r, i), t->op.dtype);
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
        for (int64_t i = 0; i < n && k < 3; i++)
            put(t->send, sends + i, sent_number(t, from, to, i + k), t->op.dtype);
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
        for (int64_t i = 0; i < t->op.n && c->rank == t->op.root; i++)
            put(t->recv, i, rough(seed, 0, i), dtype);
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
    for (int r = 0; r < c->size && t->op.kind == COMM_ALL_GATHER; r++)
        for (int64_t i = 0; i < t->counts[r]; i++)
            f(t, t->recv, t->at[r] + i, rough(t->seed, c->world_ranks[r], i),
              r == c->rank && t->in_place);
    for (int64_t i = 0;
         i < t->recv_total && (t->op.kind == COMM_REDUCE_SCATTER || t->op.kind == COMM_ALL_REDUCE);
         i++)
        f(t, t->recv, i, t->sums[(first + i + t->seed) % ROUGH_PERIOD], false);
    for (int r = 0; r < c->size && t->op.kind == COMM_ALL_TO_ALL; r++)
        for (int64_t i = 0; i < t->recv_counts[r]; i++)
            f(t, t->recv, t->recv_at[r] + i, sent_number(t, r, c->rank, i), false);
    for (int k = 3; k < 6 && t->op.kind == COMM_SEND_RECV; k++)
        for (int64_t i = 0; i < t->list[k].n; i++)
            f(t, t->list[k].buf, i, sent_number(t, t->list[k].peer, c->rank, i + k - 3), false);
    for (int64_t i = 0; i < t->recv_total && t->op.kind == COMM_BROADCAST; i++)
        f(t, t->recv, i, rough(t->seed, 0, i), c->rank == t->op.root);
}

void must_equal(struct trial *t, const void *buf, int64_t at, double want, bool own)
{
    double have = get(buf, at, t->op.dtype), expected = nearest(want, t->op.dtype);
    if (have != expected)
        fail_msg(
            "%s in %s, seed %u, %s, in place %d, rank %d of %d, element %lld%s: %.17g, want %.17g",
            comm_kind_names[t->op.kind], t->c->axis, t->seed, dtype_names[t->op.dtype], t->in_place,
            t->c->rank, t->c->size, (long long)at, own ? " (own)" : "", have, expected);
}

void must_be_nan(struct trial *t, const void *buf, int64_t at, double want, bool own)
{
    double have = get(buf, at, t->op.dtype);
    if (own ? isnan(have) : !isnan(have))
        fail_msg("%s, seed %u, in place %d, rank %d of %d, element %lld%s: %g before the wait "
                 "(after it %g)",
                 comm_kind_names[t->op.kind], t->seed, t->in_place, t->c->rank, t->c->size,
                 (long long)at, own ? " (own)" : "", have, want);
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
    /* The other parts are as they were before. */
    for (int64_t i = 0; t->op.kind == COMM_REDUCE_SCATTER && i < t->send_total; i++)
        if (!t->in_place || i < t->at[t->c->rank] || i >= t->at[t->c->rank] + t->counts[t->c->rank])
            must_equal(t, t->send, i, rough(t->seed, t->c->world_ranks[t->c->rank], i), true);
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
