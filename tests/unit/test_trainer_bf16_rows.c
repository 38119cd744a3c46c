/* The bf16 table beside f32's and f64's (trainer_trio.h says to what each operation is held):
 * norms, activations, latents, sums, optimizer. What f32 may lose is counted in roundings of
 * numbers no larger than the products of the inputs' largest. */
#include "tests/unit/trainer_trio.h"

enum { LONG = 4133 }; /* a row of more than one piece, odd */

static double most_at(const struct trio *x, int64_t col)
{
    double most = 0;
    for (int64_t i = 0; i < x->t[0].rows; i++)
        most = fmax(most, fabs(trio_get(&x->t[0], i, col)));
    return most;
}

/* ---- AdaLN ---- */

struct adaln_case {
    const char *name;
    int64_t s, d, n;
    int32_t first[3]; /* first token of each sample */
    bool branch, gate, mod, y, rms;
};
static const struct adaln_case adaln_cases[] = {
    {"all, three samples", 150, 37, 3, {0, 70, 71}, true, true, true, true, false},
    {"no branch", 9, 16, 2, {0, 4}, false, false, true, true, false},
    {"no modulation", 9, 33, 1, {0}, true, false, false, true, false},
    {"gate alone", 70, 20, 2, {0, 66}, true, true, false, false, false},
    {"rms, all", 150, 101, 3, {0, 70, 71}, true, true, true, true, true},
    {"rms alone", 5, 48, 1, {0}, false, false, false, true, true},
};

struct adaln_run {
    const struct adaln_case *c;
    int32_t sample[256], start[4]; /* where each sample's tokens start, and where the last ends */
    struct trio x, branch, x_out, y, gate, shift, scale, stats, dy, dx, dbranch, dgate, dshift,
        dscale;
};

static void adaln_setup(struct adaln_run *r, const struct adaln_case *c)
{
    struct trio none = trio_none();
    *r = (struct adaln_run){.c = c, .x = act_random(c->s, c->d, 3), .x_out = act_new(c->s, c->d),
                            .stats = stat_new(c->s, 2), .dx = act_random(c->s, c->d, 1),
                            .branch = none, .gate = none, .shift = none, .scale = none, .y = none,
                            .dy = none, .dbranch = none, .dgate = none, .dshift = none,
                            .dscale = none};
    for (int64_t i = 0, m = 0; i < c->s; i++) {
        m += m + 1 < c->n && i == c->first[m + 1];
        r->sample[i] = (int32_t)m;
    }
    memcpy(r->start, c->first, sizeof c->first);
    r->start[c->n] = (int32_t)c->s;
    if (c->branch)
        r->branch = act_random(c->s, c->d, 4), r->dbranch = act_new(c->s, c->d);
    if (c->gate)
        r->gate = act_random(c->n, c->d, 5), r->dgate = stat_new(c->n, c->d);
    if (c->mod)
        r->shift = act_random(c->n, c->d, 6), r->scale = act_random(c->n, c->d, 7),
        r->dshift = stat_new(c->n, c->d), r->dscale = stat_new(c->n, c->d);
    if (c->y)
        r->y = act_new(c->s, c->d), r->dy = act_random(c->s, c->d, 2);
}

static void adaln_release(struct adaln_run *r)
{
    struct trio *all[] = {&r->x,       &r->branch, &r->x_out,  &r->y,     &r->gate,
                          &r->shift,   &r->scale,  &r->stats,  &r->dy,    &r->dx,
                          &r->dbranch, &r->dgate,  &r->dshift, &r->dscale};
    for (int i = 0; i < LEN(all); i++)
        trio_free(all[i]);
}

static struct ops_adaln adaln_of(const struct adaln_run *r, int k)
{
    return (struct ops_adaln){.sample = r->sample, .row_start = r->start,
                              .host_row_start = r->start, .n = r->c->n, .x = r->x.t[k],
                              .branch = r->branch.t[k], .x_out = r->x_out.t[k], .y = r->y.t[k],
                              .gate = r->gate.t[k], .shift = r->shift.t[k], .scale = r->scale.t[k],
                              .stats = r->stats.t[k], .eps = 1e-6, .rms = r->c->rms,
                              .dy = r->dy.t[k], .dx = r->dx.t[k], .dbranch = r->dbranch.t[k],
                              .dgate = r->dgate.t[k], .dshift = r->dshift.t[k],
                              .dscale = r->dscale.t[k]};
}

/* The sum rounded twice; the norm, of x_out as it is stored, by a mean of D numbers, a variance of
 * D squares and five roundings more. */
static void check_adaln_fwd(struct tables *t, struct adaln_run *r)
{
    double d = (double)r->c->d, gate = r->c->gate ? trio_most(&r->gate) : 1,
           scale = r->c->mod ? 1 + trio_most(&r->scale) : 1;
    struct trio first = r->y, again = act_new(r->c->s, r->c->d);
    EACH(t, adaln_fwd, adaln_of(r, K));
    trio_near("x_out", &r->x_out,
              2 * F32 * (trio_most(&r->x) + (r->c->branch ? gate * trio_most(&r->branch) : 0)));
    trio_same("x_out", &r->x_out);
    trio_spread(&r->x_out, 2);
    if (!r->c->y) {
        trio_free(&again);
        return;
    }
    for (int k = 0; k < TRIO; k++) { /* as recomputation does: the same bits */
        struct ops_adaln a = adaln_of(r, k);
        a.x = r->x_out.t[k], a.x_out = a.branch = a.gate = tensor_none(), a.y = again.t[k];
        t->b[k].ops->adaln_fwd(t->b[k].ops, t->b[k].stream, &a);
    }
    assert_memory_equal(first.t[2].ptr, again.t[2].ptr, (size_t)(r->c->s * again.t[2].ld) * 2);
    double x = trio_most(&r->x_out), rstd = most_at(&r->stats, 1);
    trio_check("y", &again,
               F32 *
                   ((d + 12) * scale * 2 * x * rstd + (r->c->mod ? 2 * trio_most(&r->shift) : 0)));
    trio_check("stats", &r->stats, F32 * (d + 6) * fmax(x, rstd));
    trio_spread(&r->stats, 1);
    trio_free(&again);
}

/* With g = dy (1 + scale) and h = (x - mean) rstd, dx is a sum of dx, rstd g, rstd mean(g) and rstd
 * h mean(g h). */
static void check_adaln_bwd(struct tables *t, struct adaln_run *r)
{
    double d = (double)r->c->d, s = (double)r->c->s, gate = r->c->gate ? trio_most(&r->gate) : 1;
    double dy = 0, g = 0, h = 0, rstd = 0, branch = r->c->branch ? trio_most(&r->branch) : 0;
    if (r->c->y) {
        dy = trio_most(&r->dy), g = dy * (r->c->mod ? 1 + trio_most(&r->scale) : 1),
        rstd = most_at(&r->stats, 1);
        h = 2 * trio_most(&r->x_out) * rstd;
    }
    double size = trio_most(&r->dx) + rstd * g * (2 + h * h), lost = (d + 12) * F32 * size;
    EACH(t, adaln_bwd, adaln_of(r, K));
    trio_check("dx", &r->dx, lost);
    if (r->c->branch)
        trio_check("dbranch", &r->dbranch, gate * (lost + F32 * size));
    if (r->c->gate)
        trio_check("dgate", &r->dgate, s * branch * (lost + (s + 3) * F32 * size));
    if (r->c->mod) {
        trio_check("dshift", &r->dshift, (s + 2) * F32 * s * dy);
        trio_check("dscale", &r->dscale, (s + 6) * F32 * s * dy * h);
    }
}

static void test_adaln(void **state)
{
    struct tables t = tables_open();
    (void)state;
    for (int i = 0; i < LEN(adaln_cases); i++) {
        struct adaln_run r;
        adaln_setup(&r, &adaln_cases[i]);
        check_adaln_fwd(&t, &r);
        check_adaln_bwd(&t, &r);
        adaln_release(&r);
    }
    tables_close(&t);
}

/* ---- head norm and positions ---- */

static void check_headnorm(struct tables *t, int64_t s, int64_t heads, int64_t d, bool positions)
{
    struct trio src = act_random(s, heads * d, 1), dst = act_new(s, heads * d),
                gain = act_random(1, d, 2), rstd = stat_new(s, heads);
    struct trio dsrc = act_random(s, heads * d, 3), dgain = stat_random(1, d, 4),
                c = stat_new(s, d / 2), sn = stat_new(s, d / 2);
    struct ops_headnorm a[TRIO];
    for (int k = 0; k < TRIO; k++) {
        for (int64_t i = 0; i < s * (d / 2); i++) {
            double angle = 0.1 * (double)i;
            trio_put(&c.t[k], i / (d / 2), i % (d / 2), (double)(float)cos(angle));
            trio_put(&sn.t[k], i / (d / 2), i % (d / 2), (double)(float)sin(angle));
        }
        a[k] = (struct ops_headnorm){.src = src.t[k], .dst = dst.t[k], .heads = heads,
                                     .head_dim = d, .gain = gain.t[k], .rstd = rstd.t[k],
                                     .eps = 1e-6, .ddst = dsrc.t[k], .dsrc = dsrc.t[k],
                                     .dgain = dgain.t[k], .beta = 0.5,
                                     .cos = positions ? c.t[k] : tensor_none(),
                                     .sin = positions ? sn.t[k] : tensor_none()};
    }
    double n = (double)d, rows = (double)(s * heads), dy = 2 * trio_most(&dsrc),
           was = trio_most(&dgain);
    EACH(t, headnorm_fwd, a[K]);
    double x = trio_most(&src), r = trio_most(&rstd), g = trio_most(&gain),
           size = r * dy * g * (1 + x * r * x * r);
    trio_check("rstd", &rstd, (n + 6) * F32 * r);
    trio_check("normed", &dst, (n + 12) * F32 * 2 * x * r * g);
    trio_spread(&rstd, 1);
    EACH(t, headnorm_bwd, a[K]); /* in place */
    trio_check("dsrc", &dsrc, (n + 16) * F32 * size);
    trio_check("dgain", &dgain, (rows + 8) * F32 * (rows * dy * x * r + was));
    trio_free(&src), trio_free(&dst), trio_free(&gain), trio_free(&rstd), trio_free(&dsrc),
        trio_free(&dgain), trio_free(&c), trio_free(&sn);
}

static void test_headnorm(void **state)
{
    struct tables t = tables_open();
    (void)state;
    check_headnorm(&t, 130, 3, 10, true);
    check_headnorm(&t, 7, 2, 64, true);
    check_headnorm(&t, 5, 1, 37, false); /* a row norm */
    tables_close(&t);
}

static void test_positions(void **state)
{
    const int32_t pos[9] = {0, 0, 0, 2, 1, 3, 5, 4, 7}, sample[3] = {0, 0, 1};
    const double fps[2] = {24, 12}, values[2] = {-1.5, 0.25};
    struct tables t = tables_open();
    struct trio c = stat_new(3, 6), s = stat_new(3, 6), wave = act_new(2, 5);
    (void)state;
    EACH(&t, rope, (struct ops_rope){pos, sample, fps, 2, 2, 2, 10000, c.t[K], s.t[K]});
    EACH(&t, sinusoid, (struct ops_sinusoid){values, wave.t[K]});
    trio_check("cos", &c, F32), trio_check("sin", &s, F32), trio_check("sinusoid", &wave, F32);
    trio_free(&c), trio_free(&s), trio_free(&wave);
    tables_close(&t);
}

/* ---- activations ---- */

/* What f32's own functions lose stands in test_trainer_ops: 4e-7 (1 + |x|) of the value, 1.5e-6 of
 * the slope, which is below 1.13. */
static void check_activation(struct tables *t, enum ops_act_kind kind, int64_t f)
{
    bool gated = kind == OPS_ACT_SWIGLU;
    int64_t wide = gated ? 2 * f : f;
    struct trio x = act_random(3, wide, 2), y = act_new(3, f), again = act_new(3, f),
                dy = act_random(3, f, 1), dx = act_new(3, wide);
    double up = gated ? trio_most(&x) : 1, d = trio_most(&dy),
           of_value = kind == OPS_ACT_NONE ? 0 : 4e-7 * (1 + trio_most(&x));
    double of_slope = kind == OPS_ACT_NONE ? 0 : 1.5e-6;
    EACH(t, act_fwd, (struct ops_act){.kind = kind, .x = x.t[K], .y = y.t[K]});
    EACH(
        t, act_bwd,
        (struct ops_act){.kind = kind, .x = x.t[K], .y = again.t[K], .dy = dy.t[K], .dx = dx.t[K]});
    trio_check("act", &y, up * of_value + 2 * F32 * up * trio_most(&y));
    trio_check("slope", &dx,
               d * fmax(up * (of_slope + 3 * 1.13 * F32), gated ? of_value + 2 * F32 * up : 0));
    assert_memory_equal(y.t[2].ptr, again.t[2].ptr, (size_t)(3 * y.t[2].ld) * 2);
    if (!gated) { /* in place */
        EACH(t, act_bwd, (struct ops_act){.kind = kind, .x = x.t[K], .dy = dy.t[K], .dx = dy.t[K]});
        assert_memory_equal(dy.t[2].ptr, dx.t[2].ptr, (size_t)(3 * y.t[2].ld) * 2);
    }
    trio_free(&x), trio_free(&y), trio_free(&again), trio_free(&dy), trio_free(&dx);
}

static void test_activations(void **state)
{
    struct tables t = tables_open();
    (void)state;
    for (enum ops_act_kind kind = OPS_ACT_NONE; kind <= OPS_ACT_SWIGLU; kind++) {
        check_activation(&t, kind, 43);
        check_activation(&t, kind, LONG);
    }
    tables_close(&t);
}

/* ---- latents, loss, noise ---- */

/* Of two samples, the second with padding; numbers of latents and noise are bf16's but for what f32
 * makes of the rest. */
static void test_latents(void **state)
{
    struct ops_sample samples[2] = {
        {.token = 0, .n_tokens = 6, .cell = 0, .t = 2, .h = 2, .w = 6, .valid_t = 2, .valid_h = 2,
         .valid_w = 6, .ordinal = 11, .in_data = 0.5, .in_noise = 1.25, .out_data = -0.3,
         .out_noise = 0.8, .weight = 1.5, .inv_norm = 0.01},
        {.token = 6, .n_tokens = 2, .cell = 24, .t = 1, .h = 4, .w = 2, .valid_t = 1, .valid_h = 3,
         .valid_w = 1, .ordinal = 12, .in_data = 2, .in_noise = 0.1, .out_data = 1, .out_noise = -1,
         .weight = 0.25, .inv_norm = 0.01},
    };
    struct tables t = tables_open();
    struct trio latent = stat_random(1, 96, 1), noise = stat_random(1, 96, 2),
                cond = stat_random(1, 64, 3), tokens = act_new(8, 20);
    struct trio pred = act_random(8, 12, 4), dpred = act_new(8, 12), out = stat_new(1, 96),
                drawn = stat_new(1, 96);
    double loss[TRIO][2];
    struct ops_latents a[TRIO], in[TRIO];
    (void)state;
    for (int k = 0; k < TRIO; k++) {
        a[k] = (struct ops_latents){.samples = samples, .n = 2, .channels = 3, .cells = 32, .patch_t = 1,
                                    .patch_h = 2, .patch_w = 2, .latent = latent.t[k],
                                    .noise = noise.t[k], .tokens = pred.t[k], .out = out.t[k],
                                    .dtokens = dpred.t[k],
                                    .loss = loss[k]};
        in[k] = a[k];
        in[k].cond_channels = 2, in[k].cond = cond.t[k], in[k].tokens = tokens.t[k];
    }
    EACH(&t, patchify, in[K]);
    EACH(&t, unpatchify, a[K]);
    EACH(&t, loss, a[K]);
    double size = trio_most(&latent) + trio_most(&noise), e = trio_most(&pred) + size;
    trio_check("patches", &tokens, 2 * 4 * F32 * size); /* factors of up to 2 */
    trio_check("back", &out, 0);
    trio_check("d prediction", &dpred, 2 * 1.5 * 0.01 * 6 * F32 * e);
    for (int i = 0; i < 2; i++) {
        double n = (double)samples[i].n_tokens * 12;
        assert_true(loss[2][i] == loss[1][i] &&
                    fabs(loss[2][i] - loss[0][i]) <= n * 2 * e * 5 * F32 * e);
    }
    EACH(&t, normal, (struct ops_normal){samples, 2, 3, 32, 99, PHILOX_NOISE, drawn.t[K]});
    trio_check("normals", &drawn, F32 * trio_most(&drawn));
    trio_free(&latent), trio_free(&noise), trio_free(&cond), trio_free(&tokens), trio_free(&pred),
        trio_free(&dpred), trio_free(&out);
    trio_free(&drawn);
    tables_close(&t);
}

/* ---- sums, rows by index ---- */

static void test_colsum(void **state)
{
    enum { R = 150 };
    struct tables t = tables_open();
    (void)state;
    for (enum dtype d = DTYPE_F32; d <= DTYPE_BF16; d++) {
        struct trio x = trio_random(d, R, LONG, 1), out = stat_random(1, LONG, 2);
        double was = trio_most(&out);
        EACH(&t, colsum, (struct ops_colsum){x.t[K], out.t[K], 0.5});
        trio_check("column sums", &out, F32 * (64 + 3 + 2) * (R * trio_most(&x) + was));
        trio_free(&x), trio_free(&out);
    }
    tables_close(&t);
}

/* Squares of these numbers are exact in f64, whatever type holds them, and lanes are summed in one
 * order: the same bits. What is not finite is counted, in registers and behind them. */
static void test_sumsq(void **state)
{
    enum { R = 3 };
    struct tables t = tables_open();
    (void)state;
    for (int64_t cols = 1; cols <= LONG; cols += cols < 40          ? 1
                                                 : LONG - cols > 41 ? LONG - cols - 1
                                                                    : 1) {
        struct trio x = act_random(R, cols, 5);
        double plain = 0;
        for (int k = 0; k < TRIO; k++) {
            trio_put(&x.t[k], 0, cols / 2, INFINITY), trio_put(&x.t[k], 1, 0, NAN),
                trio_put(&x.t[k], 2, cols - 1, -INFINITY);
            struct ops_health h = {0.25, 2};
            t.b[k].ops->sumsq(t.b[k].ops, t.b[k].stream, &(struct ops_sumsq){x.t[k], &h, true});
            double sum = 0;
            for (int64_t i = 0; i < R * cols; i++) {
                double v = trio_get(&x.t[k], i / cols, i % cols);
                sum += isfinite(v) ? v * v : 0;
            }
            plain = k == 0 ? h.sumsq : plain;
            if (h.nonfinite != 5 || h.sumsq != plain ||
                !(fabs(h.sumsq - 0.25 - sum) <= (double)(R * cols) * 0x1p-52 * (sum + 0.25)))
                fail_msg("table %d, %ld columns: %.17g, want %.17g; %ld not finite", k, (long)cols,
                         h.sumsq, sum + 0.25, (long)h.nonfinite);
        }
        trio_free(&x);
    }
    tables_close(&t);
}

static void test_rows_by_index(void **state)
{
    enum { S = 40, R = 6, D = 37 };
    static int32_t index[2 * S], order[S];
    struct tables t = tables_open();
    struct trio x = act_random(S, D, 1), table = act_random(R, D, 2), dx = act_random(S, D, 3),
                dtable = stat_random(R, D, 4), moved = act_new(S, D);
    (void)state;
    for (int i = 0; i < S; i++)
        index[2 * i] = (i * 7 + i / 5) % R, order[i] = i * 7 % S;
    EACH(&t, permute, (struct ops_permute){x.t[K], moved.t[K], order, false});
    for (int i = 0; i < S; i++)
        for (int j = 0; j < D; j++)
            assert_true(trio_get(&moved.t[2], i, j) == trio_get(&x.t[2], order[i], j));
    EACH(&t, table_fwd,
         (struct ops_table){.index = index, .stride = 2, .x = x.t[K], .table = table.t[K]});
    trio_check("rows added", &x, F32 * (trio_most(&x) + trio_most(&table)));
    double was = trio_most(&dtable);
    EACH(&t, table_bwd,
         (struct ops_table){
             .index = index, .stride = 2, .dx = dx.t[K], .dtable = dtable.t[K], .beta = 0.5});
    trio_check("gradient of a table", &dtable, F32 * (S + 2) * (S * trio_most(&dx) + was));
    trio_free(&x), trio_free(&table), trio_free(&dx), trio_free(&dtable), trio_free(&moved);
    tables_close(&t);
}

/* ---- optimizer ---- */

struct adam { struct trio grad, master, m, v, ema, weight; };

static struct ops_adamw adamw_of(const struct adam *p, const struct ops_step *step, int k)
{
    return (struct ops_adamw){.step = step, .grad = p->grad.t[k], .master = p->master.t[k],
                              .m = p->m.t[k], .v = p->v.t[k], .ema = p->ema.t[k],
                              .weight = p->weight.t[k], .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8,
                              .weight_decay = 0.1, .lr_scale = 2, .ema_decay = 0.95, .seed = 5};
}

/* 1 - beta of a beta that is rounded is relatively off by up to 2^-24 / (1 - beta): 10 roundings
 * for m, 100 for v, half of which reach its root. */
static void test_adamw(void **state)
{
    enum { N = LONG };
    struct tables t = tables_open();
    struct adam p = {stat_random(1, N, 1), stat_random(1, N, 2), stat_random(1, N, 3),
                     stat_random(1, N, 4), stat_random(1, N, 5), act_new(1, N)};
    struct ops_step step = {
        .lr = 1e-2, .bias1 = 1 - pow(0.9, 5), .bias2 = 1 - pow(0.99, 5), .grad_scale = 0.5, .update = 3};
    (void)state;
    for (int64_t j = 0; j < N; j++)
        trio_put(&p.v.t[2], 0, j, 0.25 + fabs(trio_get(&p.v.t[2], 0, j)));
    trio_put(&p.v.t[2], 0, 0, 0.25);
    for (int64_t j = 0; j < N; j++) /* numbers of bf16 again */
        trio_put(&p.v.t[2], 0, j, (double)bf16_value(bf16_round_double(trio_get(&p.v.t[2], 0, j))));
    trio_spread(&p.v, 2);
    EACH(&t, adamw, adamw_of(&p, &step, K));
    double g = trio_most(&p.grad), m = trio_most(&p.m) + g, v = trio_most(&p.v) + g * g,
           w = trio_most(&p.master);
    double up = m / step.bias1 / sqrt(0.2 / step.bias2),
           off = 2e-2 * F32 * (up * (14 + 55 * v / 0.2 + 8) + 0.4 * w) + 2 * F32 * w;
    trio_check("m", &p.m, 14 * F32 * m), trio_check("v", &p.v, 105 * F32 * v);
    trio_check("master", &p.master, off);
    trio_check("ema", &p.ema, off + 24 * F32 * (trio_most(&p.ema) + w));
    trio_check("weight", &p.weight, off);
    for (int64_t j = 0; j < N; j++) /* the compute weight is the master's rounding */
        assert_true(trio_get(&p.weight.t[2], 0, j) ==
                    (double)bf16_value(bf16_round_double(trio_get(&p.master.t[2], 0, j))));
    struct trio *all[] = {&p.grad, &p.master, &p.m, &p.v, &p.ema, &p.weight};
    for (int i = 0; i < LEN(all); i++)
        trio_free(all[i]);
    tables_close(&t);
}

/* Moments of bf16, rounded at random: f32's bits. */
static void test_adamw_moments(void **state)
{
    enum { N = 1001 };
    struct tables t = tables_open();
    struct adam p = {stat_random(1, N, 1), stat_random(1, N, 2), trio_none(),
                     trio_none(),          trio_none(),          act_new(1, N)};
    static uint16_t m[TRIO][N], v[TRIO][N];
    struct ops_step step = {.lr = 1e-2, .bias1 = 0.1, .bias2 = 0.01, .grad_scale = 1};
    (void)state;
    for (int k = 0; k < TRIO; k++) {
        p.m.t[k] = tensor_of(m[k], DTYPE_BF16, 1, N), p.v.t[k] = tensor_of(v[k], DTYPE_BF16, 1, N);
        struct ops_adamw a = adamw_of(&p, &step, k);
        t.b[k].ops->adamw(t.b[k].ops, t.b[k].stream, &a);
    }
    assert_memory_equal(m[1], m[2], sizeof m[1]), assert_memory_equal(v[1], v[2], sizeof v[1]);
    assert_true(m[2][0] != 0 && v[2][0] != 0);
    trio_same("master", &p.master), trio_same("weight", &p.weight);
    trio_free(&p.grad), trio_free(&p.master), trio_free(&p.weight);
    tables_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adaln),     cmocka_unit_test(test_headnorm),
        cmocka_unit_test(test_positions), cmocka_unit_test(test_activations),
        cmocka_unit_test(test_latents),   cmocka_unit_test(test_colsum),
        cmocka_unit_test(test_sumsq),     cmocka_unit_test(test_rows_by_index),
        cmocka_unit_test(test_adamw),     cmocka_unit_test(test_adamw_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
