/* The FLOPs of products and of attention, the bytes of elementwise work, and the numbers of inputs,
 * that the account (profiles/work.h) counts for a rank's step are those that its operations are
 * given: on every stage, with recomputation, and under layouts of every kind.
 *
 * FLOPs and numbers are equal, and bytes differ by at most a hundredth. The account leaves out the arrays that
 * say where tokens lie, the null token, and sums of copied k/v heads. Neither side counts what a
 * fused operation reads and writes beside its tensors' rows: modulations, statistics, gains.
 *
 *     mpirun -n 8 test_trainer_counted
 *
 * On fewer ranks the layouts of more ranks are left out. */
#include "tests/lib/trainer_layouts.h"

#include "profiles/speed.h"
#include "tests/lib/optim_step.h"
#include "trainer/watch/meter.h"
#include "trainer/watch/meter_class.h"

/* ---- what operations are given ---- */

enum { PRODUCTS, FORWARD, BACKWARD, BYTES, INPUTS, COUNTED = INPUTS + WORK_INPUTS };
static const char *const names[COUNTED] = {"FLOPs of products", "FLOPs of attention forward",
                                           "FLOPs of attention backward", "elementwise bytes",
                                           "numbers of samples", "cosines and sines",
                                           "numbers of patches", "numbers of losses"};
static const double allowed[COUNTED] = {1e-12, 1e-12, 1e-12, 0.01, 1e-12, 1e-12, 1e-12, 1e-12};
static double seen[COUNTED];
static double repeated; /* FLOPs of a step's recomputation on all ranks, by the account */
static struct ops plain;
static struct dev plain_dev;

/* Counts bytes that an operation of a kind reads and writes. */
static void moved(int kind, double bytes)
{
    seen[BYTES] += meter_class_of(kind) == METER_CLASS_ELEMENTWISE ? bytes : 0;
}

/* Returns the bytes of a tensor; 0: it is absent. */
static double of(struct tensor t)
{
    return t.ptr ? (double)(t.rows * t.cols * dtype_bytes(t.dtype)) : 0;
}

static void count_gemm(const struct ops_gemm *a)
{
    double k = (double)(a->ta ? a->a.rows : a->a.cols);
    seen[PRODUCTS] += 2 * (double)(a->c.rows * a->c.cols) * k;
}

static double attended(const struct ops_attn *a)
{
    double pairs = 0;
    for (int64_t i = 0; i < a->n; i++)
        pairs += (double)(a->host.q_start[i + 1] - a->host.q_start[i]) * a->host.k_len[i];
    return 4 * pairs * (double)(a->heads * a->head_dim);
}

static void count_attn_fwd(const struct ops_attn *a) { seen[FORWARD] += attended(a); }
static void count_attn_bwd(const struct ops_attn *a) { seen[BACKWARD] += attended(a); }

/* Counts the bytes of an operation's tensors of token rows, each as often as it is read or
 * written. */
#define MOVES(name, args, bytes) \
    static void count_##name(const struct args *a) { moved(METER_OP_##name, bytes); }
MOVES(lse_merge, ops_lse_merge, 2 * of(a->o) + of(a->o_part))
MOVES(adaln_fwd, ops_adaln, of(a->x) + of(a->branch) + of(a->x_out) + of(a->y))
MOVES(adaln_bwd, ops_adaln,
      of(a->x_out) + of(a->dy) + (a->dy.ptr ? 2 : 1) * of(a->dx) + of(a->dbranch) +
          (a->dgate.ptr ? of(a->branch) : 0))
MOVES(headnorm_fwd, ops_headnorm, of(a->src) + of(a->dst) + of(a->cos) + of(a->sin))
MOVES(headnorm_bwd, ops_headnorm, of(a->src) + of(a->ddst) + of(a->dsrc) + of(a->cos) + of(a->sin))
MOVES(act_fwd, ops_act, of(a->x) + of(a->y))
MOVES(act_bwd, ops_act, of(a->x) + of(a->dy) + of(a->dx) + of(a->y))
MOVES(colsum, ops_colsum, of(a->x))
MOVES(copy, ops_copy, of(a->src) + of(a->dst))
MOVES(axpy, ops_axpy, of(a->x) + 2 * of(a->y))
MOVES(permute, ops_permute, of(a->src) + of(a->dst))
MOVES(table_fwd, ops_table, 2 * of(a->x))
MOVES(table_bwd, ops_table, of(a->dx))

/* Count the numbers of inputs that an operation makes. */
#define MAKES(name, args, input, numbers) \
    static void count_##name(const struct args *a) { seen[INPUTS + (input)] += numbers; }
MAKES(rope, ops_rope, INPUT_ANGLES,
      (double)(a->cos.rows * a->cos.cols + a->sin.rows * a->sin.cols))
MAKES(patchify, ops_latents, INPUT_PATCHES, (double)(a->tokens.rows * a->tokens.cols))
MAKES(loss, ops_latents, INPUT_LOSS, (double)(a->tokens.rows * a->tokens.cols))
MAKES(normal, ops_normal, INPUT_SAMPLES, (double)(a->cells * a->channels))

/* These belong to other classes, whose bytes are not counted. */
#define OTHER(name, args) \
    static void count_##name(const struct args *a) { (void)a; moved(METER_OP_##name, NAN); }
OTHER(unpatchify, ops_latents) OTHER(draw, ops_draw) OTHER(sinusoid, ops_sinusoid)
OTHER(adamw, ops_adamw) OTHER(sumsq, ops_sumsq)
OTHER(finite, ops_finite)

#define COUNTING(name, args) \
    static void counting_##name(struct ops *o, struct dev_stream *s, const struct args *a) \
    { \
        count_##name(a); \
        plain.name(o, s, a); \
    }
OPS_LIST(COUNTING)

static void counting_copy_bytes(struct dev *d, void *dst, const void *src, int64_t bytes,
                                enum dev_copy kind, struct dev_stream *s)
{
    moved(METER_DEV_COPY, 2 * (double)bytes);
    plain_dev.copy(d, dst, src, bytes, kind, s);
}

static void counting_fill(struct dev *d, void *dst, uint8_t byte, int64_t bytes,
                          struct dev_stream *s)
{
    moved(METER_DEV_FILL, (double)bytes);
    plain_dev.fill(d, dst, byte, bytes, s);
}

/* Counts all later calls of the bench, which is closed with its rig. */
static void counting_begin(const struct bench *b)
{
    plain = *b->ops;
    plain_dev = *b->dev;
#define REPLACE(name, args) b->ops->name = counting_##name;
    OPS_LIST(REPLACE)
    b->dev->copy = counting_copy_bytes;
    b->dev->fill = counting_fill;
}

/* ---- what the account says ---- */

static void part_add(const struct work *w, int id, double times, double out[COUNTED])
{
    struct speed_sums s = speed_sums(w, (enum work_part_id)id);
    out[PRODUCTS] += times * s.gemm_flops;
    out[FORWARD] += times * s.attn_flops[0];
    out[BACKWARD] += times * s.attn_flops[1];
    out[BYTES] += times * s.bytes;
    for (int i = 0; i < WORK_INPUTS; i++)
        out[INPUTS + i] += times * s.inputs[i];
}

/* Adds up what a stage computes in a step. */
static void account_sum(const struct work *w, const struct layout *l, int64_t stage,
                        double out[COUNTED])
{
    double m = w->micro_batches;
    struct work_stage s;
    struct work_moved state;
    work_stage(w, l, stage, &s);
    work_moved(w, l, &s, &state);
    out[BYTES] += m * (state.cleared + state.each) + state.packed;
    for (int back = 0; back < 2; back++) {
        part_add(w, WORK_LAYER_FORWARD + back, m * s.layers, out);
        part_add(w, WORK_EACH_FORWARD + back, m * s.each, out);
        part_add(w, WORK_FIRST_FORWARD + back, s.first ? m : 0, out);
        part_add(w, WORK_LAST_FORWARD + back, s.last ? m : 0, out);
    }
    part_add(w, WORK_LAYER_SELECTIVE, m * fmax(0, s.selective - s.there), out);
    part_add(w, WORK_LAYER_FULL, m * fmax(0, s.full - s.there), out);
}

/* ---- a step ---- */

enum { FRAMES = 12, HIGH = 3, WIDE = 4, CELLS = FRAMES * HIGH * WIDE * 4, CAPTION = 8 };
static const struct seq extent = {FRAMES, HIGH, WIDE};

/* Gives all samples of the batch one shape, which up to four cp ranks and eight tp ranks divide. */
static void samples_alike(struct rig *r)
{
    static float latent[CHANNELS * CELLS], text[CAPTION * TEXT_WIDTH];
    for (int i = 0; i < SAMPLES; i++) {
        struct batch_sample *s = &r->data.samples[i];
        s->latent = latent, s->cond = NULL, s->text = text;
        s->t = FRAMES, s->h = 2 * HIGH, s->w = 2 * WIDE;
        s->text_len = CAPTION, s->drop_text = false;
    }
}

/* Opens the network and its pipeline again, for a micro-batch of larger samples than the rig's
 * own. */
static void network_widen(struct rig *r)
{
    struct err err = {0};
    const struct layout *l = &r->layout;
    pipe_close(&r->pipe);
    dit_free(r->dit);
    r->config.max_tokens = l->mbs * seq_tokens(extent);
    r->config.max_text_tokens = l->mbs * CAPTION;
    must(dit_new(&r->config, r->b.ops, r->b.stream, &r->units, &r->dit, &err), &err);
    must(pipe_open(&r->pipe, r->dit, l, r->sh.place, r->grid.pp, r->b.dev, r->b.stream, SAMPLES,
                   &err),
         &err);
}

/* Makes a step. */
static void step_count(struct rig *r, struct comm *part)
{
    struct optim_result done;
    struct err err = {0};
    counting_begin(&r->b);
    memset(seen, 0, sizeof seen);
    r->units.sums = &r->optim.sums;
    gradients(r, part);
    must(optim_step(&r->optim, 0, INFINITY, &done, &err), &err);
}

/* ---- comparing ---- */

/* Writes the first difference. */
static void numbers_compare(const double want[COUNTED], char text[256])
{
    for (int c = 0; c < COUNTED && !*text; c++)
        if (!(fabs(seen[c] - want[c]) <= allowed[c] * want[c]))
            snprintf(text, 256, "%.17g %s; the account says %.17g", seen[c], names[c], want[c]);
}

static struct model model_wide(int model)
{
    struct model m = model_of(&models[model]);
    if (m.pos_t)
        m.pos_t = FRAMES, m.pos_h = HIGH, m.pos_w = WIDE;
    return m;
}

/* Compares what a rank's operations were given with the account of its stage. */
static void rank_compare(const struct rig *r, char text[256])
{
    struct work_weights weights;
    struct stack stack;
    struct work w;
    double want[COUNTED] = {0};
    struct err err = {0};
    must(stack_load("reel", &stack, &err), &err);
    must(work_weights(&r->m, &weights, &err), &err);
    struct work_spec spec = {.model = &r->m, .weights = &weights, .stack = &stack, .seq = extent,
                             .gbs = SAMPLES, .act = r->b.ops->act,
                             .residual_wide = r->config.residual_wide};
    work_build(&spec, &r->layout, &w);
    repeated = w.micro_batches * speed_again(&w, &r->layout);
    account_sum(&w, &r->layout, r->sh.place.pp, want);
    numbers_compare(want, text);
}

static void layout_count(struct comm *part, int model, enum dtype dtype, const struct layout *l)
{
    char text[256] = "";
    struct model m = model_wide(model);
    struct run run;
    struct rig r;
    run_init_for(&run, &models[model], false);
    rig_open_run(&r, part, &m, l, models[model].objective, dtype, &run);
    network_widen(&r);
    samples_alike(&r);
    step_count(&r, part);
    rank_compare(&r, text);
    if (part_differs(part, text))
        fail_msg("%s, %s, rank %d: %s", models[model].name, layout_text(l), part->rank,
                 *text ? text : "(see another rank)");
    rig_close(&r);
    run_release(&run);
}

static void layout_run(int model, enum dtype dtype, const struct layout *l)
{
    struct comm *part;
    if (layout_part(l, &part))
        layout_count(part, model, dtype, l);
    comm_close(part);
}

static const struct { int model; enum dtype dtype; const char *layout; } cases[] = {
    {FULL, DTYPE_F32, "mbs=2"},
    {FULL, DTYPE_F32, "mbs=2,recompute=full"},
    {STDIT, DTYPE_F32, "mbs=4,recompute=selective"},
    {MOVIEGEN, DTYPE_F32, "mbs=4,recompute=full,recompute_layers=1"},
    {MOVIEGEN, DTYPE_BF16, "tp=2,sp=1,mbs=2,dp=2,recompute=selective"},
    {STDIT, DTYPE_F32, "tp=2,sp=1,cp=2"},
    {FULL, DTYPE_F32, "tp=4,dp=2,zero=1"},
    {FULL, DTYPE_BF16, "cp=4,cp_kind=2d,pp=2"},
    {SEPARATE, DTYPE_F32, "cp=2,cp_kind=a2a,pp=2,vpp=2,recompute=full"},
    {MOVIEGEN, DTYPE_F32, "cp=2,dp=2,zero=3,fsdp=2"},
    {FUSED, DTYPE_F32, "tp=2,sp=1,dp=2,zero=2,recompute=full"},
    {SINGLE, DTYPE_BF16, "pp=4,dp=2,zero=3,recompute=selective"},
    {BARE, DTYPE_F32, "pp=2,vpp=2,dp=4,zero=2"},
    {STDIT, DTYPE_BF16, "cp=3,dp=2,zero=2"},
    {FULL, DTYPE_F32, "mbs=4,recompute=full"},
};

static void account_counts_what_is_done(void **state)
{
    (void)state;
    for (int i = 0; i < LEN(cases); i++) {
        struct layout l;
        struct err err = {0};
        must(layout_parse(cases[i].layout, &l, &err), &err);
        if (layout_world(&l) <= world->size)
            layout_run(cases[i].model, cases[i].dtype, &l);
    }
}

/* Returns the FLOPs of products and forward attention that a step is seen to compute on all ranks of
 * a replica. */
static double seen_by_all(int model, const char *layout)
{
    struct layout l;
    struct err err = {0};
    must(layout_parse(layout, &l, &err), &err);
    memset(seen, 0, sizeof seen); /* of ranks that have no part in it */
    layout_run(model, DTYPE_F32, &l);
    double all = seen[PRODUCTS] + seen[FORWARD];
    must(comm_sum(world, &all, 1, &err), &err);
    return all / (double)l.dp;
}

static void recomputation_is_counted(void **state)
{
    (void)state;
    static const struct { int model, ranks; const char *none, *some; } again[] = {
        {FULL, 1, "mbs=2", "mbs=2,recompute=selective"},
        {MOVIEGEN, 1, "mbs=4", "mbs=4,recompute=selective"},
        {STDIT, 1, "mbs=2", "mbs=2,recompute=full"},
        {FULL, 1, "mbs=2", "mbs=2,recompute=full"},
        {MOVIEGEN, 4, "tp=2,sp=1,mbs=2,dp=2", "tp=2,sp=1,mbs=2,dp=2,recompute=selective"},
        {STDIT, 4, "tp=2,sp=1,cp=2", "tp=2,sp=1,cp=2,recompute=full"},
        {FULL, 8, "cp=4,cp_kind=2d,pp=2", "cp=4,cp_kind=2d,pp=2,recompute=full"},
        {SEPARATE, 4, "cp=2,cp_kind=a2a,pp=2,vpp=2", "cp=2,cp_kind=a2a,pp=2,vpp=2,recompute=full"}};
    for (int i = 0; i < LEN(again); i++) {
        if (again[i].ranks > world->size)
            continue;
        double less = seen_by_all(again[i].model, again[i].none),
               more = seen_by_all(again[i].model, again[i].some) - less;
        if (world->rank == 0 && !(more > 0 && fabs(more - repeated) <= 1e-12 * less))
            fail_msg("%s: %.17g FLOPs more than without; the account says %.17g", again[i].some,
                     more, repeated);
    }
}

int main(int argc, char **argv)
{
    layouts_open(&argc, &argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(account_counts_what_is_done),
                                       cmocka_unit_test(recomputation_is_counted)};
    return layouts_close(cmocka_run_group_tests(tests, NULL, NULL));
}
