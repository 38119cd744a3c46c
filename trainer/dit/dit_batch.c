/* Brings a micro-batch to the device.
 *
 * Tokens: samples follow one another, each in (t, h, w) order. A context-parallel rank has a span
 * of each sample. With sequence parallelism, a tensor-parallel rank has, in the residual stream, a
 * span of these packed rows.
 *
 * Latents: whole samples are stored flat, sample i's [C, t, h, w] from element cell · C on, where
 * cell is the number of latent cells of the samples before it.
 *
 * Text rows: first comes one null token for each sample without a caption (dropped by its random
 * choice, or empty), then the captions of the others. So the rows whose gradient goes to
 * `text_null` are one range, and no two samples share a row.
 *
 * Values arrive in the caller's type and are converted on the device through one staging buffer;
 * the stream's order makes its reuse safe. Where device memory is not host memory, values and index
 * arrays are first copied to pinned memory. Then the caller's memory and the arrays can be reused,
 * and the device fetches the copies in stream order.
 */
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "trainer/dit/dit_priv.h"

/* Takes the next `bytes` of a block. With block NULL it only counts them. */
static void *take(void *block, int64_t *used, int64_t bytes)
{
    void *at = block ? (char *)block + *used : NULL;
    *used += num_round_up(bytes, 64);
    return at;
}

static void bind_deal(struct dit_deal_index *x, void *block, int64_t *used,
                      const struct dit_index_most *most)
{
    int64_t dealt = most->dealt, **rows[] = {&x->send_n, &x->send_at, &x->come_n, &x->come_at};
    *x = (struct dit_deal_index){.send = NULL};
    if (dealt == 0)
        return;
    x->send = take(block, used, most->tokens * 4);
    x->come = take(block, used, dealt * 4);
    x->start = take(block, used, (dealt + 1) * 4);
    x->len = take(block, used, dealt * 4);
    for (int i = 0; i < 4; i++)
        *rows[i] = take(block, used, most->cp * 8);
}

int64_t dit_index_bind(struct dit_index *x, void *block, const struct dit_index_most *most)
{
    int64_t used = 0, n = most->samples;
    x->samples = take(block, &used, n * (int64_t)sizeof *x->samples);
    x->fps = take(block, &used, n * 8);
    x->c_noise = take(block, &used, n * 8);
    x->sample = take(block, &used, most->tokens * 4);
    x->pos = take(block, &used, most->tokens * 12);
    x->q_start = take(block, &used, (n + 1) * 4);
    x->row_start = take(block, &used, (n + 1) * 4);
    x->u_start = take(block, &used, (n + 1) * 4);
    x->ring_start = take(block, &used, most->ring * n * 4);
    x->ring_len = take(block, &used, most->ring * n * 4);
    x->tokens = take(block, &used, n * 4);
    x->k_start = take(block, &used, n * 4);
    x->k_len = take(block, &used, n * 4);
    for (int i = 0; i < DIT_DEALS; i++)
        bind_deal(&x->deal[i], block, &used, most);
    return used;
}

/* ---- checks and layout ---- */

static int check_sample(const struct dit *d, const struct dit_view *v, int64_t i, struct err *err)
{
    const struct model *m = d->m;
    struct seq seq;
    int rc;
    if ((rc = seq_from_latent(m, v->t, v->h, v->w, &seq, err)) < 0)
        return err_context(err, "micro-batch sample %lld", (long long)i);
    if (model_self_attentions(m) > 1 && d->c.max_segment > 0 &&
        seq_longest_segment(seq) > d->c.max_segment)
        return err_set(err, ERR_INPUT,
                       "micro-batch sample %lld: a frame or a place over time has %lld tokens: "
                       "memory is planned for %lld",
                       (long long)i, (long long)seq_longest_segment(seq),
                       (long long)d->c.max_segment);
    if (v->text_len < 0 || (v->text_len > 0 && !v->text))
        return err_set(err, ERR_INPUT,
                       "micro-batch sample %lld: text_len %d with %s text: give its embedding or "
                       "length 0",
                       (long long)i, v->text_len, v->text ? "a" : "no");
    if (!(v->fps > 0) || !isfinite(v->fps))
        return err_set(err, ERR_INPUT,
                       "micro-batch sample %lld: fps is %g: give the clip's frame rate, 30 for an "
                       "image",
                       (long long)i, v->fps);
    return 0;
}

/* Returns the first token, in a sample of `tokens` tokens, of the span of group `r` of the ring. */
static int64_t ring_first(const struct dit *d, int64_t tokens, int64_t r)
{
    return layout_span_first(tokens, d->c.layout->cp, r * (d->c.layout->cp / d->ring));
}

/* Notes where the keys of sample i lie among the keys of each group of the ring: after those of
 * earlier samples. */
static void add_ring(struct dit *d, int64_t tokens, int64_t i)
{
    int64_t n = d->c.max_samples;
    for (int64_t r = 0; r < d->ring; r++) {
        int32_t *start = d->slot->host.ring_start + r * n, *len = d->slot->host.ring_len + r * n;
        start[i] = i ? start[i - 1] + len[i - 1] : 0;
        len[i] = (int32_t)(ring_first(d, tokens, r + 1) - ring_first(d, tokens, r));
        d->slot->now.max_u = num_max_i64(d->slot->now.max_u, len[i]);
    }
    int64_t own = d->ring_rank * n + i;
    d->slot->host.tokens[i] = (int32_t)tokens;
    d->slot->host.u_start[i] = d->slot->host.ring_start[own];
    d->slot->host.u_start[i + 1] = d->slot->host.ring_start[own] + d->slot->host.ring_len[own];
    d->slot->now.u = d->slot->host.u_start[i + 1];
}

/* Adds this rank's span of a sample. */
static void add_span(struct dit *d, const struct dit_view *v, int64_t i)
{
    struct dit_extent *e = &d->slot->now;
    struct ops_sample *s = &d->slot->host.samples[i];
    int64_t tokens = (int64_t)v->t * v->h * v->w / model_patch_cells(d->m),
            cp = d->c.layout->cp, end = layout_span_first(tokens, cp, d->place.cp + 1);
    *s = (struct ops_sample){
        .first = layout_span_first(tokens, cp, d->place.cp), .cell = e->cells,
        .t = v->t, .h = v->h, .w = v->w
    };
    d->slot->host.q_start[i] = (int32_t)e->s;
    e->s += end - s->first;
    d->slot->host.q_start[i + 1] = (int32_t)e->s;
    e->cells += (int64_t)v->t * v->h * v->w;
    e->max_q = num_max_i64(e->max_q, end - s->first);
    d->slot->host.fps[i] = v->fps;
    add_ring(d, tokens, i);
}

/* Notes for each token of a span its sample and its position. */
static void add_tokens(struct dit *d, const struct dit_view *v, int64_t i)
{
    int64_t cp = d->c.layout->cp, nh = v->h / d->m->patch_h, nw = v->w / d->m->patch_w,
            k = layout_span_first(v->t / d->m->patch_t * nh * nw, cp, d->place.cp);
    for (int64_t at = d->slot->host.q_start[i]; at < d->slot->host.q_start[i + 1]; at++, k++) {
        d->slot->host.sample[at] = (int32_t)i;
        memcpy(d->slot->host.pos + 3 * at,
               (int32_t[3]){(int32_t)(k / nw / nh), (int32_t)(k / nw % nh), (int32_t)(k % nw)}, 12);
    }
}

void dit_parts(struct dit *d)
{
    int64_t parts = d->c.layout->sp ? d->c.layout->tp : 1, D = d->m->hidden;
    for (int64_t r = 0; r < parts; r++) {
        d->part_at[r] = layout_span_first(d->slot->now.s, parts, r) * D;
        d->part_n[r] = layout_span_first(d->slot->now.s, parts, r + 1) * D - d->part_at[r];
    }
}

/* Finds the span of the packed tokens that this rank has in the residual stream, and the part of
 * each sample in it. */
static void cut_rows(struct dit *d)
{
    struct dit_extent *e = &d->slot->now;
    int64_t own = d->c.layout->sp ? d->place.tp : 0;
    dit_parts(d);
    e->r_first = d->part_at[own] / d->m->hidden;
    e->r = d->part_n[own] / d->m->hidden;
    d->slot->host.row_start[0] = 0;
    for (int64_t i = 0; i < e->n; i++) {
        struct ops_sample *s = &d->slot->host.samples[i];
        int64_t from = num_max_i64(d->slot->host.q_start[i], e->r_first),
                to = num_min_i64(d->slot->host.q_start[i + 1], e->r_first + e->r);
        s->first += from - d->slot->host.q_start[i];
        s->token = from - e->r_first;
        s->n_tokens = num_max_i64(0, to - from);
        d->slot->host.row_start[i + 1] =
            d->slot->host.row_start[i] + (int32_t)s->n_tokens;
        if (s->n_tokens == 0)
            s->first = s->token = 0;
    }
}

static bool is_null(const struct dit *d, const struct dit_view *v)
{
    return model_has_cross(d->m) && (v->null_text || v->text_len == 0);
}

static void add_text(struct dit *d, const struct dit_view *v, int64_t i)
{
    struct dit_extent *e = &d->slot->now;
    d->slot->host.k_start[i] = (int32_t)e->text;
    d->slot->host.k_len[i] = is_null(d, v) ? 1 : v->text_len;
    e->text += d->slot->host.k_len[i];
    e->max_k = num_max_i64(e->max_k, d->slot->host.k_len[i]);
}

static int check_bounds(const struct dit *d, const struct dit_view *v, int64_t n, struct err *err)
{
    int64_t tokens = 0, text = 0;
    if (n > d->c.max_samples)
        return err_set(err, ERR_INPUT, "micro-batch of %lld samples: memory is planned for %lld",
                       (long long)n, (long long)d->c.max_samples);
    for (int64_t i = 0; i < n; i++) {
        int rc;
        if ((rc = check_sample(d, &v[i], i, err)) < 0)
            return rc;
        tokens += (int64_t)v[i].t * v[i].h * v[i].w / model_patch_cells(d->m);
        text += is_null(d, &v[i]) ? 0 : v[i].text_len;
        if (tokens > d->c.max_tokens || (model_has_cross(d->m) && text > d->c.max_text_tokens))
            return err_set(err, ERR_INPUT,
                           "micro-batch: %lld tokens and %lld caption tokens with sample %lld: "
                           "memory is planned for %lld and %lld",
                           (long long)tokens, (long long)text, (long long)i,
                           (long long)d->c.max_tokens, (long long)d->c.max_text_tokens);
    }
    return 0;
}

/* Computes the extents of the whole micro-batch, and the segments of all attentions. */
static void lay_segments(struct dit *d, const struct dit_view *v, int64_t n)
{
    d->slot->now = (struct dit_extent){.n = n};
    d->slot->host.q_start[0] = d->slot->host.u_start[0] = 0;
    for (int64_t i = 0; i < n; i++)
        add_span(d, &v[i], i);
    cut_rows(d);
    dit_deal_segments(d);
    for (int pass = 0; pass < 2 && model_has_cross(d->m); pass++) {
        for (int64_t i = 0; i < n; i++)
            if (is_null(d, &v[i]) == (pass == 0))
                add_text(d, &v[i], i);
        if (pass == 0)
            d->slot->now.null_rows = d->slot->now.text;
    }
}

/* Fills the index arrays of the whole micro-batch. */
static void lay_out(struct dit *d, const struct dit_view *v, int64_t n)
{
    lay_segments(d, v, n);
    for (int64_t i = 0; i < n; i++)
        add_tokens(d, &v[i], i);
    dit_deal_rows(d);
}

/* ---- upload ---- */

static struct dit_staging *staging_of(struct dit *d) { return &d->staging[d->staged % 2]; }

/* Waits until the pinned memory that this micro-batch will use, last used two micro-batches ago,
 * has been copied to the device. */
static void staging_begin(struct dit *d)
{
    struct dit_staging *st = staging_of(d);
    BUG_ON(!d->dev->host_memory && !st->ptr);
    if (d->staged >= 2)
        d->dev->event_sync(d->dev, st->copied);
    st->taken = 0;
}

static void staging_end(struct dit *d)
{
    struct dit_staging *st = staging_of(d);
    if (!st->ptr)
        return;
    d->dev->event_record(d->dev, st->copied, d->stream);
    d->staged++;
}

/* Queues a copy to the device. If `staged`, the host may change the source as soon as this returns;
 * else it must wait for the copy first. */
static void send(struct dit *d, void *to, const void *src, int64_t bytes, bool staged)
{
    struct dit_staging *st = staging_of(d);
    if (staged && st->ptr) {
        BUG_ON(st->taken + bytes > dit_staging_bytes(d));
        src = memcpy(st->ptr + st->taken, src, (size_t)bytes);
        st->taken += bytes;
    }
    d->dev->copy(d->dev, to, src, bytes, DEV_H2D, d->stream);
}

/* Copies `n` values of type `from`, on the host, to element `at` of a flat or row-dense buffer. */
static void upload(struct dit *d, const void *src, enum dtype from, enum dit_buffer id, int64_t at,
                   int64_t n, bool staged)
{
    const struct buffer *b = &d->memory.items[id];
    struct tensor to = tensor_of((char *)dit_buffer(d, id, 0, 0).ptr + at * dtype_bytes(b->dtype),
                                 b->dtype, 1, n);
    if (from == b->dtype) {
        send(d, to.ptr, src, n * dtype_bytes(from), staged);
        return;
    }
    struct tensor stage =
        tensor_of((char *)d->arena + d->memory.items[DIT_STAGE].offset, from, 1, n);
    send(d, stage.ptr, src, n * dtype_bytes(from), staged);
    d->o->copy(d->o, d->stream, &(struct ops_copy){stage, to});
}

static void upload_sample(struct dit *d, const struct dit_view *v, int64_t i, bool staged)
{
    const struct model *m = d->m;
    int64_t cells = (int64_t)v->t * v->h * v->w,
            at = d->slot->host.samples[i].cell * m->cond_channels;
    if (m->cond_channels > 0 && v->cond)
        upload(d, v->cond, DTYPE_F32, DIT_COND_LATENT, at, cells * m->cond_channels, staged);
    else if (m->cond_channels > 0)
        d->dev->fill(d->dev, (char *)dit_buffer(d, DIT_COND_LATENT, 0, 0).ptr +
                                 at * dtype_bytes(d->o->stat), 0,
                     cells * m->cond_channels * dtype_bytes(d->o->stat), d->stream);
    if (model_has_cross(m) && !is_null(d, v))
        upload(d, v->text, DTYPE_F32, DIT_TEXT, d->slot->host.k_start[i] * m->text_width,
               v->text_len * m->text_width, staged);
}

static struct ops_latents latents(const struct dit *d)
{
    const struct model *m = d->m;
    struct ops_latents a = {
        .samples = d->slot->device.samples, .n = d->slot->now.n,
        .channels = m->latent_channels, .cond_channels = m->cond_channels,
        .cells = d->slot->now.cells,
        .patch_t = m->patch_t, .patch_h = m->patch_h, .patch_w = m->patch_w,
        .latent = dit_buffer(d, DIT_LATENT, 0, 1), .noise = dit_buffer(d, DIT_NOISE, 0, 1)
    };
    if (m->cond_channels > 0)
        a.cond = dit_buffer(d, DIT_COND_LATENT, 0, 1);
    return a;
}

/* Computes cosines and sines of the rotary position angles. */
static void angles(struct dit *d)
{
    int64_t half = d->head_dim / 2, side = d->head_dim / 6;
    d->o->rope(d->o, d->stream, &(struct ops_rope){
        d->slot->device.pos, d->slot->device.sample, d->slot->device.fps,
        half - 2 * side, side, side, d->m->rope_theta,
        dit_buffer(d, DIT_COS, 0, d->slot->now.s), dit_buffer(d, DIT_SIN, 0, d->slot->now.s)
    });
}

/* Uploads and computes all inputs but the latents, which are there already: patches and positions
 * come last. With `noised`, noise is added and batches are staged, as in training. */
static void finish(struct dit *d, const struct dit_view *v, bool noised)
{
    const struct model *m = d->m;
    int64_t bytes = buffer_stride_bytes(&d->memory.items[DIT_BUFFERS]);
    struct ops_latents patches = latents(d);
    patches.tokens = dit_rows(d, DIT_PATCHES, 0);
    send(d, d->slot->device_block, d->slot->host_block, bytes, noised);
    for (int64_t i = 0; i < d->slot->now.n; i++)
        upload_sample(d, &v[i], i, noised);
    dit_use(d, PARAM_LAYER_COND, PARAM_LAYER_EMBED);
    if (d->slot->now.null_rows > 0)
        d->o->copy(d->o, d->stream, &(struct ops_copy){
            dit_weight(d, d->p.text_null), dit_buffer(d, DIT_TEXT, 0, d->slot->now.null_rows)
        });
    d->o->layer = PARAM_LAYER_EMBED;
    if (noised)
        d->o->normal(d->o, d->stream, &(struct ops_normal){
            d->slot->device.samples, d->slot->now.n, m->latent_channels, d->slot->now.cells,
            d->c.seed, PHILOX_NOISE, dit_buffer(d, DIT_NOISE, 0, 1)
        });
    d->o->patchify(d->o, d->stream, &patches);
    if (!model_has_tables(m))
        angles(d);
}

/* ---- micro-batches of training, and of evaluation ---- */

/* Fills in sample i's random choices and factors. f, unless NULL, gets the factors of its loss. */
static void draw(struct dit *d, const struct batch_sample *b, double inv_norm, int64_t i,
                 struct dit_factors *f)
{
    const struct objective_row *row = &objective_rows[d->c.objective];
    struct ops_sample *s = &d->slot->host.samples[i];
    struct objective_coef k;
    row->coef(b->level, &k);
    s->ordinal = b->ordinal;
    s->in_data = k.c_in * k.alpha * row->data_scale;
    s->in_noise = k.c_in * k.sigma;
    s->out_data = k.p * row->data_scale;
    s->out_noise = k.q;
    s->weight = b->loss_weight * k.w;
    s->inv_norm = inv_norm;
    s->valid_t = b->valid_t ? b->valid_t : b->t;
    s->valid_h = b->valid_h ? b->valid_h : b->h;
    s->valid_w = b->valid_w ? b->valid_w : b->w;
    d->slot->host.c_noise[i] = k.c_noise;
    if (f)
        f[i] = (struct dit_factors){
            .loss = s->weight, .loss_x0 = b->loss_weight * k.c_out * k.c_out, .w = k.w,
            .elements = (double)s->valid_t * s->valid_h * s->valid_w *
                        (double)d->m->latent_channels};
}

/* Gives the current micro-batch a place for its losses. Called in the chunk that has the head. */
static void losses_take(struct dit *d)
{
    struct dit_losses *l = &d->losses;
    d->slot->loss = l->device + l->n * d->c.max_samples;
    l->samples[l->n++] = d->slot->now.n;
}

/* Views the samples of a batch, and checks that they fit. */
static int views_take(struct dit *d, const struct batch *b, struct err *err)
{
    for (int64_t i = 0; i < b->n && i < d->c.max_samples; i++) {
        const struct batch_sample *s = &b->samples[i];
        d->views[i] = (struct dit_view){s->cond, s->text, s->t, s->h, s->w,
                                        s->text_len, s->fps, s->drop_text};
    }
    return check_bounds(d, d->views, b->n, err);
}

int dit_lay_segments(struct dit *d, const struct batch *b, struct err *err)
{
    int rc = views_take(d, b, err);
    if (rc == 0)
        lay_segments(d, d->views, b->n);
    return rc;
}

int dit_stage(struct dit *d, const struct batch *b, double inv_norm, struct err *err)
{
    struct dit_view *v = d->views;
    bool last = d->slot->end == d->m->layers;
    struct dit_factors *f = last ? d->losses.factors + d->losses.n * d->c.max_samples : NULL;
    int64_t channels = d->m->latent_channels;
    BUG_ON(last && d->losses.n == d->c.most_micros);
    int rc;
    if ((rc = views_take(d, b, err)) < 0)
        return rc;
    lay_out(d, v, b->n);
    staging_begin(d);
    for (int64_t i = 0; i < b->n; i++) {
        const struct batch_sample *s = &b->samples[i];
        draw(d, s, inv_norm, i, f);
        upload(d, s->latent, DTYPE_F32, DIT_LATENT, d->slot->host.samples[i].cell * channels,
               (int64_t)s->t * s->h * s->w * channels, true);
    }
    finish(d, v, true);
    staging_end(d);
    if (last)
        losses_take(d);
    return 0;
}

int dit_stage_eval(struct dit *d, const struct dit_eval_sample *samples, int64_t n, struct err *err)
{
    struct dit_view *v = d->views;
    int64_t channels = d->m->latent_channels;
    for (int64_t i = 0; i < n && i < d->c.max_samples; i++) {
        const struct dit_eval_sample *s = &samples[i];
        v[i] = (struct dit_view){s->cond, s->text, s->t, s->h, s->w,
                                 s->text_len, s->fps, s->drop_text};
    }
    int rc;
    if ((rc = check_bounds(d, v, n, err)) < 0)
        return rc;
    lay_out(d, v, n);
    for (int64_t i = 0; i < n; i++) {
        const struct dit_eval_sample *s = &samples[i];
        struct objective_coef k;
        objective_rows[d->c.objective].coef(s->level, &k);
        d->slot->host.samples[i].in_data = k.c_in;
        d->slot->host.c_noise[i] = k.c_noise;
        upload(d, s->x_t, DTYPE_F64, DIT_LATENT, d->slot->host.samples[i].cell * channels,
               (int64_t)s->t * s->h * s->w * channels, false);
    }
    finish(d, v, false);
    return 0;
}

/* Copies the prediction to the caller's arrays, through the noise buffer (not needed for noise
 * here) and the staging buffer. */
void dit_fetch_eval(struct dit *d, const struct dit_eval_sample *samples, int64_t n)
{
    struct ops_latents a = latents(d);
    a.tokens = dit_rows(d, DIT_PRED, 0);
    a.out = dit_buffer(d, DIT_NOISE, 0, 1);
    d->o->unpatchify(d->o, d->stream, &a);
    for (int64_t i = 0; i < n; i++) {
        int64_t count = (int64_t)samples[i].t * samples[i].h * samples[i].w * d->m->latent_channels;
        struct tensor from =
            tensor_cols(a.out, d->slot->host.samples[i].cell * d->m->latent_channels, count);
        struct tensor stage = tensor_of((char *)d->arena + d->memory.items[DIT_STAGE].offset,
                                        DTYPE_F64, 1, count);
        d->o->copy(d->o, d->stream, &(struct ops_copy){from, stage});
        d->dev->copy(d->dev, samples[i].out, stage.ptr, count * 8, DEV_D2H, d->stream);
    }
}
