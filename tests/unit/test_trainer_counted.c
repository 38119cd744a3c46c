/* The FLOPs of products and of attention that the account (profiles/work.h) counts for a rank's step
 * are those that its operations are given: on every stage, with recomputation, and under layouts of
 * every kind.
 *
 *     mpirun -n 8 test_trainer_counted
 *
 * On fewer ranks the layouts of more ranks are left out. */
#include "tests/lib/trainer_layouts.h"

#include "profiles/speed.h"

/* ---- what operations are given ---- */

enum { PRODUCTS, FORWARD, BACKWARD, COUNTED };
static const char *const names[COUNTED] = {"products", "attention forward", "attention backward"};
static double seen[COUNTED];
static double repeated; /* FLOPs of a step's recomputation on all ranks, by the account */
static struct ops plain;

static void counted_gemm(struct ops *o, struct dev_stream *s, const struct ops_gemm *a)
{
    double k = (double)(a->ta ? a->a.rows : a->a.cols);
    seen[PRODUCTS] += 2 * (double)(a->c.rows * a->c.cols) * k;
    plain.gemm(o, s, a);
}

static double attended(const struct ops_attn *a)
{
    double pairs = 0;
    for (int64_t i = 0; i < a->n; i++)
        pairs += (double)(a->host.q_start[i + 1] - a->host.q_start[i]) * a->host.k_len[i];
    return 4 * pairs * (double)(a->heads * a->head_dim);
}

static void counted_attn_fwd(struct ops *o, struct dev_stream *s, const struct ops_attn *a)
{
    seen[FORWARD] += attended(a);
    plain.attn_fwd(o, s, a);
}

static void counted_attn_bwd(struct ops *o, struct dev_stream *s, const struct ops_attn *a)
{
    seen[BACKWARD] += attended(a);
    plain.attn_bwd(o, s, a);
}

/* Counts all later calls of the bench, which is closed with its rig. */
static void counting_begin(const struct bench *b)
{
    plain = *b->ops;
    b->ops->gemm = counted_gemm;
    b->ops->attn_fwd = counted_attn_fwd;
    b->ops->attn_bwd = counted_attn_bwd;
}

/* ---- what the account says ---- */

static void part_add(const struct work *w, int id, double times, double out[COUNTED])
{
    struct speed_sums s = speed_sums(w, (enum work_part_id)id);
    out[PRODUCTS] += times * s.gemm_flops;
    out[FORWARD] += times * s.attn_flops[0];
    out[BACKWARD] += times * s.attn_flops[1];
}

/* Adds up what a stage computes in a step. */
static void account_sum(const struct work *w, const struct layout *l, int64_t stage,
                        double out[COUNTED])
{
    double m = w->micro_batches;
    struct work_stage s;
    work_stage(w, l, stage, &s);
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

/* Opens the network and its pipeline again, for larger samples than the rig's own. */
static void network_widen(struct rig *r)
{
    struct err err = {0};
    const struct layout *l = &r->layout;
    pipe_close(&r->pipe);
    dit_free(r->dit);
    r->config.max_tokens = SAMPLES * seq_tokens(extent);
    r->config.max_text_tokens = SAMPLES * CAPTION;
    must(dit_new(&r->config, r->b.ops, r->b.stream, &r->units, &r->dit, &err), &err);
    must(pipe_open(&r->pipe, r->dit, l, r->sh.place, r->grid.pp, r->b.dev, r->b.stream, SAMPLES,
                   &err),
         &err);
}

/* Computes the gradients of a step. */
static void step_count(struct rig *r, struct comm *part)
{
    counting_begin(&r->b);
    memset(seen, 0, sizeof seen);
    gradients(r, part);
}

/* ---- comparing ---- */

/* Writes the first difference. */
static void numbers_compare(const double want[COUNTED], char text[256])
{
    for (int c = 0; c < COUNTED && !*text; c++)
        if (!(fabs(seen[c] - want[c]) <= 1e-12 * want[c]))
            snprintf(text, 256, "%.17g FLOPs of %s; the account says %.17g", seen[c], names[c],
                     want[c]);
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
                             .gbs = SAMPLES, .act = r->b.ops->act};
    work_build(&spec, &r->layout, &w);
    repeated = w.micro_batches * speed_again(&w, &r->layout);
    account_sum(&w, &r->layout, r->sh.place.pp, want);
    numbers_compare(want, text);
}

static void layout_count(struct comm *part, int model, const struct layout *l)
{
    char text[256] = "";
    struct model m = model_wide(model);
    struct run run;
    struct rig r;
    run_init_for(&run, &models[model], false);
    rig_open_run(&r, part, &m, l, models[model].objective, DTYPE_F32, &run);
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

static void layout_run(int model, const struct layout *l)
{
    struct comm *part;
    if (layout_part(l, &part))
        layout_count(part, model, l);
    comm_close(part);
}

static const struct { int model; const char *layout; } cases[] = {
    {FULL, "mbs=2"},
    {FULL, "mbs=2,recompute=full"},
    {STDIT, "mbs=4,recompute=selective"},
    {MOVIEGEN, "mbs=4,recompute=full,recompute_layers=1"},
    {MOVIEGEN, "tp=2,sp=1,mbs=2,dp=2,recompute=selective"},
    {STDIT, "tp=2,sp=1,cp=2"},
    {FULL, "tp=4,dp=2,zero=1"},
    {FULL, "cp=4,cp_kind=2d,pp=2"},
    {SEPARATE, "cp=2,cp_kind=a2a,pp=2,vpp=2,recompute=full"},
    {MOVIEGEN, "cp=2,dp=2,zero=3,fsdp=2"},
    {FUSED, "tp=2,sp=1,dp=2,zero=2,recompute=full"},
    {SINGLE, "pp=4,dp=2,zero=3,recompute=selective"},
    {BARE, "pp=2,vpp=2,dp=4,zero=2"},
    {STDIT, "cp=3,dp=2,zero=2"},
    {FULL, "mbs=4,recompute=full"},
};

static void account_counts_flops(void **state)
{
    (void)state;
    for (int i = 0; i < LEN(cases); i++) {
        struct layout l;
        struct err err = {0};
        must(layout_parse(cases[i].layout, &l, &err), &err);
        if (layout_world(&l) <= world->size)
            layout_run(cases[i].model, &l);
    }
}

/* Returns the FLOPs of products and forward attention that one rank's step is seen to compute. */
static double seen_by_one(int model, const char *layout)
{
    struct layout l;
    struct err err = {0};
    must(layout_parse(layout, &l, &err), &err);
    layout_run(model, &l);
    return seen[PRODUCTS] + seen[FORWARD];
}

static void recomputation_is_counted(void **state)
{
    (void)state;
    static const struct { int model; const char *layout; } again[] = {
        {FULL, "mbs=2,recompute=selective"}, {MOVIEGEN, "mbs=4,recompute=selective"},
        {STDIT, "mbs=2,recompute=full"}, {FULL, "mbs=2,recompute=full"}};
    for (int i = 0; i < LEN(again); i++) {
        double less = seen_by_one(again[i].model, again[i].model == MOVIEGEN ? "mbs=4" : "mbs=2"),
               more = seen_by_one(again[i].model, again[i].layout) - less;
        if (world->rank == 0 && !(more > 0 && fabs(more - repeated) <= 1e-12 * less))
            fail_msg("%s: %.17g FLOPs more than without; the account says %.17g",
                     again[i].layout, more, repeated);
    }
}

int main(int argc, char **argv)
{
    layouts_open(&argc, &argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(account_counts_flops),
                                       cmocka_unit_test(recomputation_is_counted)};
    return layouts_close(cmocka_run_group_tests(tests, NULL, NULL));
}
