/* Computes self-attention inside frames (spatial) or along time at one place (temporal), over
 * context-parallel ranks.
 *
 * Every sample is n tokens in (t, h, w) order, of which rank p has a span. A reach cuts the sample
 * into K segments of equal length, whose tokens see one another and no others:
 *
 *     reach      segments K   tokens of a segment   token m of segment k
 *     spatial    t            h · w                 k · h w + m
 *     temporal   h · w        t                     m · h w + k
 *
 * Segment k of sample i goes to rank floor(k · cp / K) - i, modulo cp. The ranks take turns to be
 * the first, because otherwise images, which have one frame, would all go to rank 0. If cp divides
 * K there is no turn (- i) (layout_segment_turn): then frames are already where their tokens are.
 *
 * A segment goes to its rank as a whole, with all heads of the tensor-parallel rank. One all-to-all
 * of rows brings q, k and v, the attention is local, and another all-to-all brings its output back;
 * the gradients go the same way. Which rows go to which rank depends only on the extents of the
 * samples. So all ranks know it, and the index arrays are made with the micro-batch.
 *
 * Rows leave in the order of the rank they go to, then of sample, segment, and place in the
 * segment, and they come from each rank in that order. `send` lists this rank's tokens in the order
 * in which they leave. `come` says, for each row of its segments, which of the received rows (rank
 * by rank) it is. The same arrays bring rows back. With one rank nothing is sent: `send` alone
 * orders the tokens, and for spatial reach they are in order already.
 */
#include "base/num.h"
#include "trainer/dit/dit_priv.h"
#include "trainer/state/fault.h"

/* ---- which rank gets which segments ---- */

struct cut { int64_t tokens, segments, length, next_segment, next_token, turn; };

static struct cut cut_of(const struct dit *d, int64_t i, enum dit_reach reach)
{
    const struct ops_sample *s = &d->slot->host.samples[i];
    int64_t t = s->t / d->m->patch_t, frame = (s->h / d->m->patch_h) * (s->w / d->m->patch_w),
            cp = d->c.layout->cp;
    if (reach == DIT_SPATIAL)
        return (struct cut){t * frame, t, frame, frame, 1, layout_segment_turn(t, cp, i)};
    return (struct cut){t * frame, frame, t, 1, frame, layout_segment_turn(frame, cp, i)};
}

struct range { int64_t first, end; };

/* Returns the segments that go to rank r. */
static struct range dealt(const struct dit *d, const struct cut *c, int64_t r)
{
    int64_t cp = d->c.layout->cp, place = (r + c->turn) % cp;
    return (struct range){num_ceil_div(place * c->segments, cp),
                          num_ceil_div((place + 1) * c->segments, cp)};
}

/* Returns the rank whose span has a token: the last p with tokens · p / cp <= token. */
static int64_t holder(const struct dit *d, const struct cut *c, int64_t token)
{
    return ((token + 1) * d->c.layout->cp - 1) / c->tokens;
}

/* Lists those of this rank's tokens that are in segments of rank r, in the order in which they
 * leave, from row `at` on. Returns the next row. */
static int64_t send_to(struct dit *d, enum dit_reach reach, int64_t r, int64_t at)
{
    int32_t *send = d->slot->host.deal[reach].send;
    int64_t cp = d->c.layout->cp, me = d->place.cp;
    for (int64_t i = 0; i < d->slot->now.n; i++) {
        struct cut c = cut_of(d, i, reach);
        int64_t first = layout_span_first(c.tokens, cp, me),
                end = layout_span_first(c.tokens, cp, me + 1);
        struct range theirs = dealt(d, &c, r);
        for (int64_t k = theirs.first; k < theirs.end; k++)
            for (int64_t m = 0; m < c.length; m++) {
                int64_t token = k * c.next_segment + m * c.next_token;
                if (token >= first && token < end)
                    send[at++] = (int32_t)(d->slot->host.q_start[i] + token - first);
            }
    }
    return at;
}

static void deal_send(struct dit *d, enum dit_reach reach)
{
    struct dit_deal_index *x = &d->slot->host.deal[reach];
    for (int64_t r = 0, at = 0; r < d->c.layout->cp; r++) {
        x->send_at[r] = at;
        at = send_to(d, reach, r, at);
        x->send_n[r] = at - x->send_at[r];
    }
}

/* Records where this rank's segments lie. */
static void deal_segments(struct dit *d, enum dit_reach reach)
{
    struct dit_deal_index *x = &d->slot->host.deal[reach];
    struct dit_deal_extent e = {0};
    x->start[0] = 0;
    for (int64_t i = 0; i < d->slot->now.n; i++) {
        struct cut c = cut_of(d, i, reach);
        struct range own = dealt(d, &c, d->place.cp);
        for (int64_t k = own.first; k < own.end; k++) {
            x->len[e.segments] = (int32_t)c.length;
            x->start[++e.segments] = (int32_t)(e.rows += c.length);
        }
        e.longest = own.first < own.end ? num_max_i64(e.longest, c.length) : e.longest;
    }
    d->slot->now.deal[reach] = e;
}

/* Finds the sender of every row of this rank's segments, and counts the rows of each sender in
 * come_n. With `place` it also notes the place of each row among the received rows. */
static void come_walk(struct dit *d, enum dit_reach reach, bool place)
{
    struct dit_deal_index *x = &d->slot->host.deal[reach];
    for (int64_t r = 0; r < d->c.layout->cp; r++)
        x->come_n[r] = 0;
    for (int64_t i = 0, row = 0; i < d->slot->now.n; i++) {
        struct cut c = cut_of(d, i, reach);
        struct range own = dealt(d, &c, d->place.cp);
        for (int64_t k = own.first; k < own.end; k++)
            for (int64_t m = 0; m < c.length; m++, row++) {
                int64_t p = holder(d, &c, k * c.next_segment + m * c.next_token),
                        nth = x->come_n[p]++;
                if (place)
                    x->come[row] = (int32_t)(x->come_at[p] + nth);
            }
    }
}

static void deal_come(struct dit *d, enum dit_reach reach)
{
    struct dit_deal_index *x = &d->slot->host.deal[reach];
    come_walk(d, reach, false);
    for (int64_t p = 0, at = 0; p < d->c.layout->cp; at += x->come_n[p], p++)
        x->come_at[p] = at;
    come_walk(d, reach, true);
}

void dit_deal_segments(struct dit *d)
{
    for (enum dit_reach reach = DIT_SPATIAL; reach < DIT_FULL && d->slot->host.deal[reach].send;
         reach++)
        deal_segments(d, reach);
}

void dit_deal_rows(struct dit *d)
{
    for (enum dit_reach reach = DIT_SPATIAL; reach < DIT_FULL && d->slot->host.deal[reach].send;
         reach++) {
        deal_send(d, reach);
        deal_come(d, reach);
    }
}

/* ---- rows on their way ---- */

enum { DEALT = 3 };

/* Views columns that are moved together: with rows in the order of this rank's tokens, and with
 * rows in the order of its segments. */
struct dealt { struct tensor tokens, segments; };

static void permute(struct dit *d, struct tensor src, struct tensor dst, const int32_t *index,
                    bool back)
{
    d->o->permute(d->o, d->stream, &(struct ops_permute){src, dst, index, back});
}

/* Exchanges the rows in DIT_CP_PACK for those in DIT_CP_UNPACK. A row has w elements. */
static void rows_exchange(struct dit *d, enum dit_reach reach, int64_t w, bool in, const char *what,
                          int fault)
{
    const struct dit_deal_index *x = &d->slot->host.deal[reach];
    int64_t cp = d->c.layout->cp, *counts[4];
    const int64_t *rows[4] = {in ? x->send_n : x->come_n, in ? x->send_at : x->come_at,
                              in ? x->come_n : x->send_n, in ? x->come_at : x->send_at};
    struct tensor from = dit_cp_block(d, DIT_CP_PACK, 0, 0, w),
                  to = dit_cp_block(d, DIT_CP_UNPACK, 0, 0, w);
    for (int k = 0; k < 4; k++) {
        counts[k] = d->cp_counts + k * cp;
        for (int64_t r = 0; r < cp; r++)
            counts[k][r] = rows[k][r] * w;
    }
    if (fault_active == fault) {
        int64_t n = (in ? d->slot->now.deal[reach].rows : d->slot->now.s) * w;
        d->dev->fill(d->dev, to.ptr, 0, n * dtype_bytes(to.dtype), d->stream);
        return;
    }
    dit_comm(d, d->c.grid->cp, &(struct comm_op){
        .kind = COMM_ALL_TO_ALL, .what = what, .dtype = d->o->act,
        .send = from.ptr, .recv = to.ptr,
        .counts = counts[0], .at = counts[1], .recv_counts = counts[2], .recv_at = counts[3]
    });
}

/* Moves this rank's tokens into whole segments (in), or back. */
static void regroup(struct dit *d, enum dit_reach reach, const struct dealt *s, int n, bool in,
                    const char *what, int fault)
{
    const struct dit_deal_index *x = &d->slot->device.deal[reach];
    int64_t w = 0, own = d->slot->now.s, dealt = d->slot->now.deal[reach].rows;
    for (int j = 0; j < n; j++)
        w += s[j].tokens.cols;
    if (d->c.layout->cp == 1) {
        for (int j = 0; j < n; j++)
            permute(d, in ? s[j].tokens : s[j].segments, in ? s[j].segments : s[j].tokens, x->send,
                    !in);
        return;
    }
    struct tensor out = dit_cp_block(d, DIT_CP_PACK, 0, in ? own : dealt, w),
                  back = dit_cp_block(d, DIT_CP_UNPACK, 0, in ? dealt : own, w);
    for (int64_t j = 0, at = 0; j < n; at += s[j].tokens.cols, j++)
        permute(d, in ? s[j].tokens : s[j].segments, tensor_cols(out, at, s[j].tokens.cols),
                in ? x->send : x->come, !in);
    rows_exchange(d, reach, w, in, what, fault);
    for (int64_t j = 0, at = 0; j < n; at += s[j].tokens.cols, j++)
        permute(d, tensor_cols(back, at, s[j].tokens.cols), in ? s[j].segments : s[j].tokens,
                in ? x->come : x->send, !in);
}

/* ---- the attention ---- */

/* Says whether tokens must move for a reach. The tokens of a frame are neighbours already. */
static bool moves(const struct dit *d, enum dit_reach reach)
{
    return d->c.layout->cp > 1 || reach != DIT_SPATIAL;
}

static struct ops_attn attention_of(const struct dit *d, int64_t layer, int64_t self)
{
    enum dit_reach reach = dit_self_reach(d, self);
    const struct dit_deal_extent *e = &d->slot->now.deal[reach];
    struct ops_attn a = dit_attn(d);
    dit_attention_tensors(d, &a, layer, self, moves(d, reach), e->rows);
    a.n = e->segments;
    a.q_start = a.k_start = d->slot->device.deal[reach].start;
    a.k_len = d->slot->device.deal[reach].len;
    a.host.q_start = a.host.k_start = d->slot->host.deal[reach].start;
    a.host.k_len = d->slot->host.deal[reach].len;
    a.max_q = a.max_k = e->longest;
    return a;
}

int dit_segments_plan(struct dit *d, int64_t layer, int64_t self, bool backward, struct err *err)
{
    struct ops_attn a = attention_of(d, layer, self);
    return d->o->attn_plan(d->o, &a, backward, err);
}

static void bring_qkv(struct dit *d, int64_t layer, int64_t self, const struct ops_attn *a)
{
    struct tensor qk = dit_tokens(d, DIT_QK, 0),
                  qkv = dit_copy(d, DIT_QKV, layer, self, d->slot->now.s);
    struct dealt s[DEALT] = {{tensor_cols(qk, 0, d->q_width), a->q},
                              {tensor_cols(qk, d->q_width, d->kv_width), a->k},
                              {tensor_cols(qkv, d->q_width + d->kv_width, d->kv_width), a->v}};
    regroup(d, dit_self_reach(d, self), s, DEALT, true, "q, k, v by segments",
            FAULT_POINT_SEGMENTS_IN);
}

void dit_segments_fwd(struct dit *d, int64_t layer, int64_t self)
{
    enum dit_reach reach = dit_self_reach(d, self);
    struct ops_attn a = attention_of(d, layer, self);
    struct dealt out = {dit_copy(d, DIT_ATTN, layer, self, d->slot->now.s), a.o};
    if (moves(d, reach))
        bring_qkv(d, layer, self, &a);
    d->o->attn_fwd(d->o, d->stream, &a);
    if (moves(d, reach))
        regroup(d, reach, &out, 1, false, "attention of segments by tokens",
                FAULT_POINT_SEGMENTS_OUT);
}

void dit_segments_bwd(struct dit *d, int64_t layer, int64_t self)
{
    enum dit_reach reach = dit_self_reach(d, self);
    struct ops_attn a = attention_of(d, layer, self);
    struct tensor dqkv = dit_tokens(d, DIT_DQKV, 0);
    struct dealt in[2] = {{dit_copy(d, DIT_ATTN, layer, self, d->slot->now.s), a.o},
                          {dit_tokens(d, DIT_DATTN, 0), a.d_o}};
    struct dealt out[DEALT] = {{tensor_cols(dqkv, 0, d->q_width), a.dq},
                                {tensor_cols(dqkv, d->q_width, d->kv_width), a.dk},
                                {tensor_cols(dqkv, d->q_width + d->kv_width, d->kv_width), a.dv}};
    if (moves(d, reach)) {
        bring_qkv(d, layer, self, &a);
        regroup(d, reach, in, 2, true, "attention and its gradient by segments",
                FAULT_POINT_SEGMENTS_D_IN);
    }
    d->o->attn_bwd(d->o, d->stream, &a);
    if (moves(d, reach))
        regroup(d, reach, out, DEALT, false, "gradients of q, k, v of segments by tokens",
                FAULT_POINT_SEGMENTS_D_OUT);
}
