/* ops_dump DIR: single operations of the trainer's table (trainer/ops/ops.h) on random numbers in
 * float64, one file a case, for a reference to make the same of. Each case runs on dense tensors,
 * and again ("-strided") on views whose rows stand apart, with NaN between them. */
#include "tests/lib/trainer_fixture.h"

#include "base/bf16.h"
#include "tests/peers/dump.h"
#include "trainer/data/objective.h"

enum { POOL = 64, APART = 3 };

struct job {
    struct bench b;
    struct dump d;
    int64_t apart;  /* elements between rows */
    double *pool[POOL];
    int n;
    uint64_t id;    /* of the next random tensor */
    const char *dir;
};

/* ---- tensors of a case ---- */

static struct tensor blank(struct job *j, int64_t rows, int64_t cols)
{
    if (j->n == POOL)
        dump_fail("too many tensors", "pool");
    struct tensor t = f64(new_nan(rows * (cols + j->apart)), rows, cols);
    t.ld = cols + j->apart;
    return j->pool[j->n++] = t.ptr, t;
}

static void store(struct job *j, const char *prefix, const char *name, struct tensor t)
{
    char full[DUMP_NAME_BYTES];
    double *x = new_nan(t.rows * t.cols);
    for (int64_t i = 0; i < t.rows; i++) {
        const double *row = tensor_at(&t, i, 0);
        memcpy(x + i * t.cols, row, (size_t)t.cols * sizeof *x);
        for (int64_t k = t.cols; k < t.ld; k++)
            if (!isnan(row[k]))
                dump_fail("written between rows", name);
    }
    snprintf(full, sizeof full, "%s/%s", prefix, name);
    dump_matrix(&j->d, full, x, t.rows, t.cols);
    free(x);
}

static struct tensor given(struct job *j, const char *name, int64_t rows, int64_t cols,
                           double scale)
{
    struct tensor t = blank(j, rows, cols);
    double *x = new_normal(rows * cols, ++j->id);
    for (int64_t i = 0; i < rows * cols; i++)
        *(double *)tensor_at(&t, i / cols, i % cols) = scale * x[i];
    free(x);
    store(j, "in", name, t);
    return t;
}

static void made(struct job *j, const char *name, struct tensor t)
{
    if (t.ptr)
        store(j, "out", name, t);
}

static void begin(struct job *j, const char *op)
{
    j->id = 0;
    dump_text(&j->d, "op", "%s", op);
}

static void end(struct job *j, const char *op, const char *name)
{
    char file[DUMP_NAME_BYTES];
    snprintf(file, sizeof file, "%s%s%s%s", op, *name ? "-" : "", name, j->apart ? "-strided" : "");
    dump_save(&j->d, j->dir, file);
    while (j->n > 0)
        free(j->pool[--j->n]);
}

/* ---- attention ---- */

enum { SEGMENTS = 3 };
static const struct attn_case {
    const char *name;
    int64_t heads, kv_heads, d, n;
    /* split: keys of the first of two parts; all 0: one pass */
    int32_t q[SEGMENTS], k[SEGMENTS], split[SEGMENTS];
    double sharp; /* factor of the logits */
} attn_cases[] = {
    {"one", 2, 2, 6, 1, {7}, {7}, {0}, 1},
    {"grouped-ragged", 6, 2, 8, 3, {5, 9, 1}, {5, 9, 1}, {0}, 1},
    {"one-kv-long", 4, 1, 20, 2, {200, 3}, {130, 250}, {0}, 1},
    {"cross-no-keys", 2, 2, 4, 3, {6, 5, 4}, {3, 1, 0}, {0}, 1},
    {"no-queries", 1, 1, 4, 2, {0, 4}, {3, 5}, {0}, 1},
    {"sharp", 4, 2, 8, 1, {20}, {130}, {0}, 12},
    /* the second part of segment 1 has no keys */
    {"merged", 4, 2, 8, 3, {130, 9, 5}, {140, 6, 7}, {50, 6, 3}, 1},
    {"merged-sharp", 2, 1, 8, 2, {9, 70}, {20, 90}, {3, 65}, 12},
};

struct attn_segments {
    int32_t q_start[SEGMENTS + 1], k_start[SEGMENTS], part_start[SEGMENTS], part_len[SEGMENTS];
};

static struct ops_attn attn_args(struct job *j, const struct attn_case *c, struct attn_segments *g)
{
    int64_t keys = 0, wq = c->heads * c->d, wk = c->kv_heads * c->d;
    g->q_start[0] = 0;
    for (int i = 0; i < c->n; i++) {
        g->q_start[i + 1] = g->q_start[i] + c->q[i];
        g->k_start[i] = (int32_t)keys;
        g->part_start[i] = g->k_start[i] + c->split[i];
        g->part_len[i] = c->k[i] - c->split[i];
        keys += c->k[i];
    }
    int64_t s = g->q_start[c->n];
    return (struct ops_attn){.q = given(j, "q", s, wq, c->sharp), .k = given(j, "k", keys, wk, 1),
                             .v = given(j, "v", keys, wk, 1), .o = blank(j, s, wq),
                             .lse = blank(j, s, c->heads), .n = c->n, .q_start = g->q_start,
                             .k_start = g->k_start, .k_len = c->k,
                             .host = {g->q_start, g->k_start, c->k, NULL}, .max_q = s, .max_k = keys,
                             .heads = c->heads, .kv_heads = c->kv_heads, .head_dim = c->d,
                             .scale = 1 / sqrt((double)c->d), .d_o = given(j, "d_o", s, wq, 1),
                             .dq = blank(j, s, wq), .dk = blank(j, keys, wk),
                             .dv = blank(j, keys, wk), .delta = blank(j, s, c->heads)};
}

/* As the ring does: each part's forward, the merge, each part's backward with the merged o and
 * lse. */
static void attn_two_parts(struct job *j, const struct attn_case *c, const struct attn_segments *g,
                           const struct ops_attn *whole)
{
    struct ops *o = j->b.ops;
    struct ops_attn first = *whole, second = *whole;
    first.k_len = first.host.k_len = c->split;
    second.k_start = second.host.k_start = g->part_start;
    second.k_len = second.host.k_len = g->part_len;
    second.o = blank(j, whole->o.rows, whole->o.cols);
    second.lse = blank(j, whole->lse.rows, whole->lse.cols);
    o->attn_fwd(o, j->b.stream, &first);
    o->attn_fwd(o, j->b.stream, &second);
    o->lse_merge(o, j->b.stream,
                 &(struct ops_lse_merge){first.o, first.lse, second.o, second.lse, c->heads, c->d});
    second.o = first.o;
    second.lse = first.lse;
    o->attn_bwd(o, j->b.stream, &first);
    second.accumulate_dq = true;
    o->attn_bwd(o, j->b.stream, &second);
}

static void attn(struct job *j, const struct attn_case *c)
{
    struct attn_segments g;
    begin(j, "attn");
    struct ops_attn a = attn_args(j, c, &g);
    if (c->split[0]) {
        attn_two_parts(j, c, &g, &a);
    } else {
        j->b.ops->attn_fwd(j->b.ops, j->b.stream, &a);
        j->b.ops->attn_bwd(j->b.ops, j->b.stream, &a);
    }
    dump_text(&j->d, "heads", "%" PRId64, c->heads);
    dump_text(&j->d, "kv_heads", "%" PRId64, c->kv_heads);
    dump_i32(&j->d, "in/q_len", c->q, c->n);
    dump_i32(&j->d, "in/k_len", c->k, c->n);
    dump_number(&j->d, "in/scale", a.scale);
    made(j, "o", a.o), made(j, "lse", a.lse), made(j, "dq", a.dq), made(j, "dk", a.dk),
        made(j, "dv", a.dv);
    end(j, "attn", c->name);
}

/* ---- AdaLN ---- */

static const struct adaln_case {
    const char *name;
    int64_t s, d, n;
    int32_t len[3]; /* tokens of each sample */
    bool branch, gate, mod, y, rms;
} adaln_cases[] = {
    {"all", 150, 37, 3, {70, 1, 79}, true, true, true, true},
    {"no-branch", 9, 16, 2, {4, 5}, false, false, true, true},
    {"no-modulation", 9, 33, 2, {3, 6}, true, false, false, true},
    {"no-gate", 9, 33, 2, {3, 6}, true, false, true, true},
    {"no-norm", 70, 20, 2, {66, 4}, true, true, false, false},
    {"norm", 5, 48, 1, {5}, false, false, false, true},
    {"rms", 150, 37, 3, {70, 1, 79}, true, true, true, true, true},
    {"rms-no-modulation", 9, 33, 2, {3, 6}, true, false, false, true, true},
    {"rms-norm", 5, 48, 1, {5}, false, false, false, true, true},
};

static struct ops_adaln adaln_args(struct job *j, const struct adaln_case *c, const int32_t *sample,
                                   const int32_t *start)
{
    struct ops_adaln a = {.sample = sample, .row_start = start, .host_row_start = start, .n = c->n,
                          .x = given(j, "x", c->s, c->d, 1),
                          .x_out = blank(j, c->s, c->d), .stats = blank(j, c->s, 2), .eps = 1e-6,
                          .rms = c->rms, .dx = given(j, "dx_out", c->s, c->d, 1)};
    if (c->branch) {
        a.branch = given(j, "branch", c->s, c->d, 1);
        a.dbranch = blank(j, c->s, c->d);
    }
    if (c->gate) {
        a.gate = given(j, "gate", c->n, c->d, 1);
        a.dgate = blank(j, c->n, c->d);
    }
    if (c->mod) {
        a.shift = given(j, "shift", c->n, c->d, 1);
        a.scale = given(j, "scale", c->n, c->d, 1);
        a.dshift = blank(j, c->n, c->d);
        a.dscale = blank(j, c->n, c->d);
    }
    if (c->y) {
        a.dy = given(j, "dy", c->s, c->d, 1);
        a.y = blank(j, c->s, c->d);
    }
    return a;
}

static void adaln(struct job *j, const struct adaln_case *c)
{
    int32_t sample[256], start[4] = {0};
    for (int m = 0; m < c->n; m++)
        start[m + 1] = start[m] + c->len[m];
    for (int32_t i = 0, m = 0, left = c->len[0]; i < c->s; i++, left--) {
        if (left == 0)
            left = c->len[++m];
        sample[i] = m;
    }
    begin(j, "adaln");
    struct ops_adaln a = adaln_args(j, c, sample, start);
    j->b.ops->adaln_fwd(j->b.ops, j->b.stream, &a);
    j->b.ops->adaln_bwd(j->b.ops, j->b.stream, &a);
    dump_i32(&j->d, "in/sample", sample, c->s);
    dump_number(&j->d, "in/eps", a.eps);
    dump_text(&j->d, "norm", c->rms ? "rms" : "layer");
    made(j, "x_out", a.x_out), made(j, "y", a.y), made(j, "dx", a.dx),
        made(j, "dbranch", a.dbranch);
    made(j, "dgate", a.dgate), made(j, "dshift", a.dshift), made(j, "dscale", a.dscale);
    end(j, "adaln", c->name);
}

/* ---- norms of heads, positions ---- */

static const struct head_case {
    const char *name;
    int64_t s, heads, d, pairs[3];
    double beta;
} head_cases[] = {
    {"turned", 130, 3, 10, {3, 1, 1}, 0},
    {"turned-wide", 7, 2, 64, {12, 10, 10}, 0.5},
    {"row", 5, 1, 37, {0}, 0},
};

static struct tensor turns(struct job *j, const struct head_case *c, struct tensor *sin_out)
{
    static const double fps[2] = {24, 30};
    int32_t pos[3 * 256], sample[256];
    for (int32_t i = 0; i < c->s; i++) {
        sample[i] = i >= c->s / 2;
        pos[3 * i] = i % 7;
        pos[3 * i + 1] = i / 3 % 5;
        pos[3 * i + 2] = i * 11 % 13;
    }
    struct tensor cos_out = blank(j, c->s, c->d / 2);
    *sin_out = blank(j, c->s, c->d / 2);
    j->b.ops->rope(j->b.ops, j->b.stream,
                   &(struct ops_rope){pos, sample, fps, c->pairs[0], c->pairs[1], c->pairs[2], 500,
                                      cos_out, *sin_out});
    dump_i32(&j->d, "in/pos", pos, 3 * c->s);
    dump_i32(&j->d, "in/sample", sample, c->s);
    dump_vector(&j->d, "in/fps", fps, 2);
    dump_number(&j->d, "in/theta", 500);
    for (int i = 0; i < 3; i++)
        dump_text(&j->d, (const char *[]){"pairs_t", "pairs_h", "pairs_w"}[i], "%" PRId64,
                  c->pairs[i]);
    made(j, "cos", cos_out), made(j, "sin", *sin_out);
    return cos_out;
}

static void head_norm(struct job *j, const struct head_case *c)
{
    begin(j, "headnorm");
    struct ops_headnorm a = {.src = given(j, "src", c->s, c->heads * c->d, 1),
                             .dst = blank(j, c->s, c->heads * c->d), .heads = c->heads,
                             .head_dim = c->d, .gain = given(j, "gain", 1, c->d, 1),
                             .rstd = blank(j, c->s, c->heads), .eps = 1e-6,
                             .ddst = given(j, "ddst", c->s, c->heads * c->d, 1),
                             .dsrc = blank(j, c->s, c->heads * c->d),
                             .dgain = given(j, "dgain", 1, c->d, 1), .beta = c->beta};
    if (c->pairs[0])
        a.cos = turns(j, c, &a.sin);
    j->b.ops->headnorm_fwd(j->b.ops, j->b.stream, &a);
    j->b.ops->headnorm_bwd(j->b.ops, j->b.stream, &a);
    dump_text(&j->d, "heads", "%" PRId64, c->heads);
    dump_number(&j->d, "in/eps", a.eps);
    dump_number(&j->d, "in/beta", c->beta);
    made(j, "dst", a.dst), made(j, "dsrc", a.dsrc), made(j, "dgain", a.dgain);
    end(j, "headnorm", c->name);
}

/* ---- activations, products, sums ---- */

static const char *const act_names[] = {[OPS_ACT_NONE] = "none",
                                        [OPS_ACT_SILU] = "silu", [OPS_ACT_GELU_ERF] = "gelu",
                                        [OPS_ACT_GELU_TANH] = "gelu-tanh",
                                        [OPS_ACT_SWIGLU] = "swiglu"};

/* scale 400: past both ends of what exp can hold */
static void act(struct job *j, enum ops_act_kind kind, double scale)
{
    enum { ROWS = 5, F = 40 };
    int64_t wide = kind == OPS_ACT_SWIGLU ? 2 * F : F;
    char name[DUMP_NAME_BYTES];
    begin(j, "act");
    struct ops_act a = {.kind = kind, .x = given(j, "x", ROWS, wide, scale), .y = blank(j, ROWS, F),
                        .dy = given(j, "dy", ROWS, F, 1),
                        .dx = blank(j, ROWS, wide)};
    j->b.ops->act_fwd(j->b.ops, j->b.stream, &a);
    j->b.ops->act_bwd(j->b.ops, j->b.stream, &a);
    dump_text(&j->d, "act", "%s", act_names[kind]);
    made(j, "y", a.y), made(j, "dx", a.dx);
    snprintf(name, sizeof name, "%s-%g", act_names[kind], scale);
    end(j, "act", name);
}

static const struct gemm_case {
    const char *name;
    int64_t m, n, k;
    bool ta, tb;
    double alpha, beta;
    enum ops_act_kind act;
    bool aux;
} gemm_cases[] = {
    {"linear", 70, 33, 150, false, true, 1, 0, OPS_ACT_NONE, false},
    {"dx", 7, 130, 33, false, false, 1, 1, OPS_ACT_NONE, false},
    {"dw", 33, 17, 129, true, false, -0.5, 0.25, OPS_ACT_NONE, false},
    {"both", 5, 6, 7, true, true, 2, 0, OPS_ACT_NONE, false},
    {"silu", 20, 9, 31, false, true, 1, 0, OPS_ACT_SILU, true},
    {"gelu", 20, 9, 31, false, true, 0.5, 0, OPS_ACT_GELU_ERF, true},
    {"gelu-tanh", 20, 9, 31, false, true, 1, 0, OPS_ACT_GELU_TANH, false},
};

static void gemm(struct job *j, const struct gemm_case *c)
{
    begin(j, "gemm");
    struct ops_gemm g = {.a = c->ta ? given(j, "a", c->k, c->m, 1) : given(j, "a", c->m, c->k, 1),
                         .b = c->tb ? given(j, "b", c->n, c->k, 1) : given(j, "b", c->k, c->n, 1),
                         .c = c->beta != 0 ? given(j, "c", c->m, c->n, 1) : blank(j, c->m, c->n),
                         .ta = c->ta, .tb = c->tb, .alpha = c->alpha, .beta = c->beta,
                         .act = c->act};
    if (c->aux)
        g.aux = blank(j, c->m, c->n);
    j->b.ops->gemm(j->b.ops, j->b.stream, &g);
    dump_text(&j->d, "ta", "%d", c->ta);
    dump_text(&j->d, "tb", "%d", c->tb);
    dump_text(&j->d, "act", "%s", act_names[c->act]);
    dump_number(&j->d, "in/alpha", c->alpha);
    dump_number(&j->d, "in/beta", c->beta);
    made(j, "c", g.c), made(j, "aux", g.aux);
    end(j, "gemm", c->name);
}

static void sums(struct job *j)
{
    struct ops_health h = {0};
    begin(j, "sums");
    struct tensor x = given(j, "x", 300, 37, 1), total = given(j, "total", 1, 37, 1);
    j->b.ops->colsum(j->b.ops, j->b.stream, &(struct ops_colsum){x, total, 0.5});
    j->b.ops->sumsq(j->b.ops, j->b.stream,
                    &(struct ops_sumsq){tensor_of(total.ptr, DTYPE_F64, 1, 37), &h, false});
    dump_number(&j->d, "in/beta", 0.5);
    made(j, "total", total);
    dump_number(&j->d, "out/sumsq", h.sumsq);
    dump_number(&j->d, "out/nonfinite", (double)h.nonfinite);
    end(j, "sums", "");
}

static void sinusoid(struct job *j, int64_t width, const char *name)
{
    static const double values[3] = {-1.7, 0.25, 30};
    begin(j, "sinusoid");
    struct tensor out = blank(j, 3, width);
    j->b.ops->sinusoid(j->b.ops, j->b.stream, &(struct ops_sinusoid){values, out});
    dump_vector(&j->d, "in/values", values, 3);
    dump_text(&j->d, "width", "%" PRId64, width);
    made(j, "out", out);
    end(j, "sinusoid", name);
}

/* ---- rows by index ---- */

static void permute(struct job *j)
{
    enum { ROWS = 11, D = 6 };
    static const int32_t index[ROWS] = {3, 0, 10, 7, 1, 2, 9, 4, 8, 6, 5};
    begin(j, "permute");
    struct ops_permute there = {
        .src = given(j, "src", ROWS, D, 1), .dst = blank(j, ROWS, D), .index = index};
    struct ops_permute back = {.src = given(j, "ddst", ROWS, D, 1), .dst = blank(j, ROWS, D),
                               .index = index, .back = true};
    j->b.ops->permute(j->b.ops, j->b.stream, &there);
    j->b.ops->permute(j->b.ops, j->b.stream, &back);
    dump_i32(&j->d, "in/index", index, ROWS);
    made(j, "dst", there.dst), made(j, "dsrc", back.dst);
    end(j, "permute", "");
}

/* Of places of three axes, that of the middle one; rows 2 and 6 of the table are nobody's. */
static void table(struct job *j, const char *name, double beta)
{
    enum { S = 40, D = 9, ROWS = 7 };
    int32_t pos[3 * S], index[S];
    for (int32_t i = 0; i < S; i++) {
        index[i] = (const int32_t[]){5, 0, 1, 3, 4}[i * 7 / 3 % 5];
        pos[3 * i] = 6 - index[i];
        pos[3 * i + 1] = index[i];
        pos[3 * i + 2] = 2;
    }
    begin(j, "table");
    struct ops_table a = {.index = pos + 1, .stride = 3, .x = given(j, "x", S, D, 1),
                          .table = given(j, "table", ROWS, D, 1), .dx = given(j, "dx", S, D, 1),
                          .dtable = beta != 0 ? given(j, "dtable", ROWS, D, 1) : blank(j, ROWS, D),
                          .beta = beta};
    j->b.ops->table_fwd(j->b.ops, j->b.stream, &a);
    j->b.ops->table_bwd(j->b.ops, j->b.stream, &a);
    dump_i32(&j->d, "in/index", index, S);
    dump_number(&j->d, "in/beta", beta);
    made(j, "x", a.x), made(j, "dtable", a.dtable);
    end(j, "table", name);
}

/* ---- copies ---- */

static void axpy(struct job *j)
{
    begin(j, "axpy");
    struct ops_axpy a = {
        .x = given(j, "x", 13, 7, 1), .y = given(j, "y", 13, 7, 1), .alpha = -0.375};
    j->b.ops->axpy(j->b.ops, j->b.stream, &a);
    dump_number(&j->d, "in/alpha", a.alpha);
    made(j, "y", a.y);
    end(j, "axpy", "");
}

/* Half-way between two numbers of bf16, or just beside, up to ten powers of two from 1, of both
 * signs. */
static struct tensor near_halves(struct job *j, int64_t rows, int64_t cols)
{
    struct tensor x = given(j, "any", rows, cols, 1), halves = blank(j, rows, cols);
    for (int64_t i = 0; i < rows * cols; i++) {
        double half = 1 + (double)(2 * (i % 128) + 1) / 256,
               beside = ldexp((double)(i % 3 - 1), -40),
               any = *(double *)tensor_at(&x, i / cols, i % cols);
        *(double *)tensor_at(&halves, i / cols, i % cols) =
            i % 4 == 3 ? any : copysign(ldexp(half + beside, (int)(i % 21) - 10), any);
    }
    store(j, "in", "x", halves);
    return halves;
}

/* To a type and back; and one row to all rows. */
static void copy(struct job *j, const char *name, enum dtype dtype)
{
    enum { ROWS = 20, D = 31 };
    static char memory[ROWS * D * sizeof(double)];
    begin(j, "copy");
    struct tensor x = near_halves(j, ROWS, D), small = tensor_of(memory, dtype, ROWS, D),
                  back = blank(j, ROWS, D), rows = blank(j, ROWS, D);
    j->b.ops->copy(j->b.ops, j->b.stream, &(struct ops_copy){x, small});
    j->b.ops->copy(j->b.ops, j->b.stream, &(struct ops_copy){small, back});
    j->b.ops->copy(j->b.ops, j->b.stream, &(struct ops_copy){tensor_rows(small, 3, 1), rows});
    dump_text(&j->d, "type", "%s", name);
    made(j, "back", back), made(j, "rows", rows);
    end(j, "copy", name);
}

/* ---- latents ---- */

enum { LATENT_CHANNELS = 3, LATENT_COND = 2, LATENT_SAMPLES = 2 };
static const struct ops_sample latent_samples[LATENT_SAMPLES] = {
    {.n_tokens = 8, .cell = 0, .t = 2, .h = 4, .w = 8, .in_data = 0.5, .in_noise = 1.25,
     .out_data = -0.3, .out_noise = 0.8, .weight = 1.5},
    {.n_tokens = 4, .cell = 64, .t = 4, .h = 2, .w = 4, .in_data = 2, .in_noise = 0.1,
     .out_data = 1, .out_noise = -1, .weight = 0.25},
};

/* `run`: eighths run[0] .. run[1]-1 of each sample's tokens, as a context-parallel rank has
 * them. */
static void latents(struct job *j, const char *file, const int64_t run[2])
{
    enum { CELLS = 96, P = 8 };
    struct ops_sample samples[LATENT_SAMPLES];
    int64_t tokens = 0;
    for (int i = 0; i < LATENT_SAMPLES; i++) {
        samples[i] = latent_samples[i];
        samples[i].valid_t = samples[i].t, samples[i].valid_h = samples[i].h,
        samples[i].valid_w = samples[i].w;
        samples[i].inv_norm = 0.01;
        samples[i].token = tokens;
        samples[i].first = run[0] * latent_samples[i].n_tokens / 8;
        samples[i].n_tokens = run[1] * latent_samples[i].n_tokens / 8 - samples[i].first;
        tokens += samples[i].n_tokens;
    }
    double loss[LATENT_SAMPLES];
    struct ops *o = j->b.ops;
    begin(j, "latents");
    struct ops_latents a = {.samples = samples, .n = LATENT_SAMPLES, .channels = LATENT_CHANNELS,
                            .cond_channels = LATENT_COND, .cells = CELLS,
                            .patch_t = 2, .patch_h = 2, .patch_w = 2,
                            .latent = given(j, "latent", 1, CELLS * LATENT_CHANNELS, 1),
                            .noise = given(j, "noise", 1, CELLS * LATENT_CHANNELS, 1),
                            .cond = given(j, "cond", 1, CELLS * LATENT_COND, 1),
                            .tokens = blank(j, tokens, (LATENT_CHANNELS + LATENT_COND) * P),
                            .loss = loss};
    o->patchify(o, j->b.stream, &a);
    made(j, "patches", a.tokens);
    a.tokens = given(j, "prediction", tokens, LATENT_CHANNELS * P, 1);
    a.out = blank(j, 1, CELLS * LATENT_CHANNELS);
    /* cells of other ranks' tokens stay */
    memset(a.out.ptr, 0, CELLS * LATENT_CHANNELS * sizeof(double));
    o->unpatchify(o, j->b.stream, &a);
    made(j, "unpatched", a.out);
    a.dtokens = blank(j, tokens, LATENT_CHANNELS * P);
    o->loss(o, j->b.stream, &a);
    made(j, "dprediction", a.dtokens);
    dump_vector(&j->d, "out/loss", loss, LATENT_SAMPLES);
    dump_number(&j->d, "in/inv_norm", samples[0].inv_norm);
    for (int i = 0; i < LATENT_SAMPLES; i++) {
        const struct ops_sample *s = &samples[i];
        char name[DUMP_NAME_BYTES];
        snprintf(name, sizeof name, "in/sample/%d", i);
        dump_vector(&j->d, name,
                    (double[]){s->t, s->h, s->w, (double)s->first, (double)s->n_tokens, s->in_data,
                               s->in_noise, s->out_data, s->out_noise, s->weight},
                    10);
    }
    end(j, "latents", file);
}

/* ---- random numbers ---- */

static void draws(struct job *j)
{
    enum { N = 4, CELLS = 60, CHANNELS = 2 };
    static const uint64_t ordinal[N] = {0, 41, 42, 9000000001}; /* the last does not fit 32 bits */
    /* nor does the seed; exact as text */
    const uint64_t seed = 81985529216486895;
    struct ops_sample samples[N];
    double level[N], dropped[N];
    begin(j, "draws");
    dump_text(&j->d, "seed", "%" PRIu64, seed);
    for (int i = 0; i < N; i++) {
        char key[32];
        snprintf(key, sizeof key, "ordinal_%d", i);
        dump_text(&j->d, key, "%" PRIu64, ordinal[i]);
        samples[i] = (struct ops_sample){
            .ordinal = ordinal[i], .cell = i * CELLS, .t = 3, .h = 4, .w = 5};
        level[i] = objective_level_draw(
            seed, ordinal[i], &(struct run_level){.mean = -0.3, .std = 0.8, .shift = 1}, 1);
        dropped[i] = objective_text_dropped(seed, ordinal[i], 0.5);
    }
    struct tensor noise = blank(j, 1, N * CELLS * CHANNELS);
    j->b.ops->normal(j->b.ops, j->b.stream,
                     &(struct ops_normal){samples, N, CHANNELS, N * CELLS, seed,
                                          PHILOX_NOISE, noise});
    dump_vector(&j->d, "in/level_law", (double[]){-0.3, 0.8}, 2);
    dump_number(&j->d, "in/dropout", 0.5);
    made(j, "noise", noise);
    dump_vector(&j->d, "out/level", level, N);
    dump_vector(&j->d, "out/dropped", dropped, N);
    end(j, "draws", "");
}

/* ---- AdamW ---- */

enum { ADAMW_MOST = 1100, ADAMW_STEPS = 5 };
static const struct adamw_case {
    const char *name;
    int64_t n, counted;
    double eps, weight_decay, lr_scale;
    enum dtype moments;
    uint64_t first; /* of the rounding of bf16 moments */
} adamw_cases[] = {
    {"", 50, 43, 1e-8, 0.1, 1, DTYPE_F64, 0},
    {"no-decay-large-eps", 50, 50, 1e-2, 0, 0.5, DTYPE_F64, 0},
    {"bf16", 50, 50, 1e-8, 0.1, 1, DTYPE_BF16, 0},
    /* in the middle of a block past 32 bits */
    {"bf16-long", ADAMW_MOST, ADAMW_MOST - 7, 1e-8, 0.1, 0.5, DTYPE_BF16, 30000000002},
};
static const uint64_t adamw_seed = 81985529216486895; /* exact as text */

/* One of the moments: zero, in memory that is long enough. */
static struct tensor moment(double *memory, const struct adamw_case *c)
{
    memset(memory, 0, ADAMW_MOST * sizeof *memory);
    return tensor_of(memory, c->moments, 1, c->n);
}

static void made_moment(struct job *j, const char *name, struct tensor m)
{
    struct tensor wide = blank(j, 1, m.cols);
    for (int64_t i = 0; i < m.cols; i++)
        *(double *)tensor_at(&wide, 0, i) = m.dtype == DTYPE_BF16
                                                ? bf16_value(((const uint16_t *)m.ptr)[i])
                                                : ((const double *)m.ptr)[i];
    made(j, name, wide);
}

static void adamw_steps(struct job *j, const struct adamw_case *c, struct ops_adamw *a)
{
    double lr[ADAMW_STEPS], clip[ADAMW_STEPS];
    struct tensor grads = given(j, "grads", ADAMW_STEPS, c->n, 1);
    struct ops_step step = {0};
    a->step = &step;
    for (int t = 1; t <= ADAMW_STEPS; t++) {
        lr[t - 1] = 1e-2 / t;
        clip[t - 1] = t % 2 ? 1 : 0.3;
        step = (struct ops_step){.lr = lr[t - 1], .bias1 = 1 - pow(a->beta1, t),
                                 .bias2 = 1 - pow(a->beta2, t), .grad_scale = clip[t - 1], .update = (uint64_t)t};
        a->grad = tensor_rows(grads, t - 1, 1);
        j->b.ops->adamw(j->b.ops, j->b.stream, a);
    }
    dump_vector(&j->d, "in/lr", lr, ADAMW_STEPS);
    dump_vector(&j->d, "in/clip", clip, ADAMW_STEPS);
}

static void adamw(struct job *j, const struct adamw_case *c)
{
    static double memory[2][ADAMW_MOST];
    struct ops_change change = {0};
    struct ops_adamw_span span = {.n = c->n, .counted = c->counted, .first = c->first,
                                  .weight_decay = c->weight_decay, .lr_scale = c->lr_scale};
    begin(j, "adamw");
    struct ops_adamw a = {.spans = &span, .host_spans = &span, .n = 1,
                          .master = given(j, "master", 1, c->n, 1), .m = moment(memory[0], c),
                          .v = moment(memory[1], c), .seed = adamw_seed,
                          .ema = given(j, "ema", 1, c->n, 1), .weight = blank(j, 1, c->n),
                          .beta1 = 0.9, .beta2 = 0.99, .eps = c->eps,
                          .ema_decay = 0.95, .change = &change};
    adamw_steps(j, c, &a);
    dump_vector(&j->d, "in/settings",
                (double[]){a.beta1, a.beta2, c->eps, c->weight_decay, c->lr_scale, a.ema_decay}, 6);
    dump_text(&j->d, "counted", "%" PRId64, c->counted);
    dump_text(&j->d, "moments", c->moments == DTYPE_BF16 ? "bf16" : "f64");
    dump_text(&j->d, "seed", "%" PRIu64, adamw_seed);
    dump_text(&j->d, "first", "%" PRIu64, c->first);
    made(j, "master", a.master), made(j, "weight", a.weight), made(j, "ema", a.ema);
    made_moment(j, "m", a.m), made_moment(j, "v", a.v);
    dump_vector(&j->d, "out/change", (double[]){change.weight_sumsq, change.update_sumsq}, 2);
    end(j, "adamw", c->name);
}

/* ---- all ---- */

static void write_cases(struct job *j)
{
    for (int i = 0; i < LEN(attn_cases); i++)
        attn(j, &attn_cases[i]);
    for (int i = 0; i < LEN(adaln_cases); i++)
        adaln(j, &adaln_cases[i]);
    for (int i = 0; i < LEN(head_cases); i++)
        head_norm(j, &head_cases[i]);
    for (int i = 0; i < LEN(act_names); i++) {
        act(j, (enum ops_act_kind)i, 3);
        act(j, (enum ops_act_kind)i, 400);
    }
    for (int i = 0; i < LEN(gemm_cases); i++)
        gemm(j, &gemm_cases[i]);
    sums(j);
    sinusoid(j, 24, "even");
    sinusoid(j, 5, "odd");
    permute(j);
    table(j, "first", 0);
    table(j, "more", 0.5);
    axpy(j);
    copy(j, "f32", DTYPE_F32);
    copy(j, "bf16", DTYPE_BF16);
    latents(j, "whole", (const int64_t[]){0, 8});
    latents(j, "run", (const int64_t[]){2, 6});
    draws(j);
    for (int i = 0; i < LEN(adamw_cases); i++)
        adamw(j, &adamw_cases[i]);
}

int main(int argc, char **argv)
{
    static struct job j;
    if (argc != 2)
        dump_fail("usage", "ops_dump DIR");
    j.dir = argv[1];
    j.b = bench_open(DTYPE_F64);
    for (j.apart = 0; j.apart <= APART; j.apart += APART)
        write_cases(&j);
    bench_close(&j.b);
    return 0;
}
