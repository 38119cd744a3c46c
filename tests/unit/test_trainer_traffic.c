/* What a step sends is what profiles/traffic.h says: under layouts of every kind, per operation, to
 * the byte and on every rank; and it is what MPI was given: MPI_Isend, the one call by which the
 * trainer's data leaves a process, is counted on its way.
 *
 *     mpirun -n 8 test_trainer_traffic                 the layouts below
 *     LAYOUTS=covering mpirun -n 8 …                   a covering set for every model: minutes
 *
 * Beside the formulas' operations MPI carries what the groups they are taken over from count as
 * well: the loss and the norm (scalars of the whole), and the comparison of the order of
 * operations. */
#include "tests/lib/trainer_layouts.h"

#include <mpi.h>

#include "profiles/traffic.h"
#include "tests/lib/optim_step.h"

/* ---- what MPI is given ---- */

static int64_t given_bytes;

int MPI_Isend(const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    int bytes;
    PMPI_Type_size(type, &bytes);
    given_bytes += (int64_t)count * bytes;
    return PMPI_Isend(buf, count, type, to, tag, comm, request);
}

/* ---- what the groups were asked for ---- */

struct measured { char group[16]; enum comm_kind kind; char what[80]; int64_t ops, bytes; };
static struct measured seen[64];
static int n_seen;
static bool tracing;

static bool in_grid(const struct comm *c)
{
    for (int g = 0; traffic_group_names[g]; g++)
        if (strcmp(traffic_group_names[g], c->axis) == 0)
            return true;
    return false;
}

static void trace(void *ctx, const struct comm *c, const struct comm_op *op,
                  const struct comm_times *t)
{
    struct measured *m = seen;
    (void)ctx;
    if (!tracing || c->size == 1 || !in_grid(c))
        return;
    while (m < seen + n_seen && !(strcmp(m->group, c->axis) == 0 && m->kind == op->kind &&
                                  strcmp(m->what, op->what) == 0))
        m++;
    if (m == seen + n_seen) {
        assert_true(n_seen++ < LEN(seen));
        *m = (struct measured){.kind = op->kind};
        snprintf(m->group, sizeof m->group, "%s", c->axis);
        snprintf(m->what, sizeof m->what, "%s", op->what);
    }
    m->ops++;
    m->bytes += t->sent_bytes;
}

static int64_t sent_by_groups(const struct rig *r, const struct comm *part)
{
    const struct comm_grid *g = &r->grid;
    const struct comm *all[] = {part,  g->tp,  g->cp,   g->dp,    g->pp,
                                g->kv, g->a2a, g->ring, g->shard, g->replica};
    int64_t sum = 0;
    for (int i = 0; i < LEN(all); i++)
        sum += all[i]->sent_bytes;
    return sum;
}

/* ---- what the formulas say ---- */

static void formulas(const struct rig *r, struct traffic_list *out)
{
    struct traffic_micro micros[SAMPLES];
    struct seq samples[SAMPLES];
    const struct layout *l = &r->layout;
    struct err err = {0};
    for (int i = 0; i < SAMPLES; i++)
        must(seq_from_latent(&r->m, shapes[i].t, shapes[i].h, shapes[i].w, &samples[i], &err),
             &err);
    struct traffic_spec spec = {
        .model = &r->m, .params = &r->list, .shards = &r->sh, .layout = l, .act = r->b.ops->act,
        .stat = r->b.ops->stat, .residual_wide = r->config.residual_wide, .micros = micros,
        .n_micros = layout_micro_batches(l, SAMPLES, l->zero >= 2 ? 0 : r->sh.place.dp)};
    for (int64_t i = 0; i < spec.n_micros; i++)
        micros[i] = (struct traffic_micro){
            layout_micro_batch_samples(l, SAMPLES, r->sh.place.dp, i),
            samples + layout_replica_first(l, SAMPLES, r->sh.place.dp) + i * l->mbs};
    must(traffic_step(&spec, out, &err), &err);
}

static const struct traffic *formula_of(const struct traffic_list *list, const struct measured *m)
{
    for (int64_t i = 0; i < list->n; i++) {
        const struct traffic *t = &list->items[i];
        if (strcmp(traffic_group_names[t->group], m->group) == 0 &&
            strcmp(traffic_kind_names[t->kind], comm_kind_names[m->kind]) == 0 &&
            strcmp(t->what, m->what) == 0)
            return t;
    }
    return NULL;
}

/* The first difference, or an empty text. */
static void compare(const struct traffic_list *list, char text[256])
{
    int found = 0;
    *text = 0;
    for (int i = 0; i < n_seen && !*text; i++) {
        const struct measured *m = &seen[i];
        const struct traffic *t = formula_of(list, m);
        found += t != NULL;
        if (!t || t->ops != m->ops || t->bytes != m->bytes)
            snprintf(
                text, 256,
                "%s '%s' in group %s: %lld operations, %lld bytes; the formula says %lld, %lld",
                comm_kind_names[m->kind], m->what, m->group, (long long)m->ops, (long long)m->bytes,
                (long long)(t ? t->ops : 0), (long long)(t ? t->bytes : 0));
    }
    if (!*text && found != list->n)
        snprintf(text, 256, "the formulas know %lld operations, %d were seen", (long long)list->n,
                 found);
}

/* ---- a step ---- */

static void step_measured(struct rig *r, struct comm *part, int s, char text[256])
{
    struct traffic_list list;
    struct optim_result done;
    struct err err = {0};
    int64_t given = given_bytes, sent = sent_by_groups(r, part);
    n_seen = 0;
    tracing = true;
    r->units.sums = &r->optim.sums;
    gradients(r, part);
    must(optim_step(&r->optim, s, INFINITY, &done, &err), &err);
    units_forget(&r->units);
    tracing = false;
    must(comm_order_check(part, &err), &err);
    formulas(r, &list);
    compare(&list, text);
    given = given_bytes - given, sent = sent_by_groups(r, part) - sent;
    if (!*text && given != sent)
        snprintf(text, 256, "MPI was given %lld bytes, the groups counted %lld", (long long)given,
                 (long long)sent);
}

struct number_format { enum dtype dtype; enum run_residual residual; };

static void layout_check_traffic(struct comm *part, int model, const struct layout *l,
                                 struct number_format f)
{
    char text[256] = "";
    struct model m = model_of(&models[model]);
    struct run run;
    struct rig r;
    run_init_for(&run, &models[model], false);
    run.residual = f.residual;
    rig_open_run(&r, part, &m, l, models[model].objective, f.dtype, &run);
    for (int s = 0; s < 2 && !*text; s++) /* all steps are alike */
        step_measured(&r, part, s, text);
    if (part_differs(part, text))
        fail_msg("%s, %s, rank %d: %s", models[model].name, layout_text(l), part->rank,
                 *text ? text : "(see another rank)");
    rig_close(&r);
    run_release(&run);
}

/* ---- layouts ---- */

static const struct { int model; const char *layout; } cases[] = {
    {FULL, "mbs=2,recompute=full"}, /* alone: nothing */
    {FULL, "tp=2,sp=1,mbs=4"}, /* rows enough for slices of a branch's sum */
    {MOVIEGEN, "tp=2,mbs=4,recompute=selective"},
    {FULL, "tp=2,sp=1,dp=2"},
    {FULL, "tp=4,dp=2,zero=1"},
    {FULL, "tp=2,sp=1,cp=2,dp=2,zero=3,recompute=selective"},
    {FULL, "cp=3,dp=2,zero=1,fsdp=2"},
    {FULL, "cp=8,cp_kind=2d"},
    {FULL, "pp=4,dp=2,recompute=full"},
    {FULL, "dp=4,zero=3,fsdp=2"},
    {FULL, "cp=2,dp=2,zero=3,fsdp=4,mbs=2"},
    {FULL, "cp=2,dp=3,zero=2"},
    {SEPARATE, "tp=8"},
    {SEPARATE, "tp=2,cp=4,cp_kind=a2a"},
    {SEPARATE, "tp=4,sp=1,pp=2,vpp=2"},
    {SEPARATE, "pp=2,vpp=2,dp=3,zero=3"},
    {FUSED, "tp=2,cp=2,cp_kind=a2a,dp=2,recompute=full,recompute_layers=1"},
    {FUSED, "dp=3,zero=2,mbs=2"},
    {SINGLE, "tp=2,sp=1,pp=2,dp=2,zero=2,recompute=full,recompute_layers=1"},
    {BARE, "tp=2,pp=2,dp=2,zero=3"},
    {STDIT, "tp=2,sp=1,cp=4"},
    {STDIT, "cp=3,dp=2,zero=2,recompute=full"},
    {STDIT, "cp=2,cp_kind=a2a,pp=2,dp=2,zero=1"},
    {STDIT, "cp=4,cp_kind=2d,pp=2,vpp=2,recompute=selective"},
    {MOVIEGEN, "tp=2,sp=1,dp=3,recompute=full"},
    {MOVIEGEN, "tp=4,cp=2,zero=3,fsdp=2"},
    {MOVIEGEN, "pp=5"},
    {GROUPS, "tp=2,sp=1,dp=2,zero=3"},
    {GROUPS, "cp=2,pp=2,vpp=2,dp=2,zero=1"},
    {FROZEN, "pp=2,dp=2,zero=2"},
    {FROZEN, "dp=4,zero=3,fsdp=2"},
    {LORA, "tp=2,cp=2,dp=2,zero=3,fsdp=2,recompute=full"},
    {LORA, "pp=2,vpp=2,dp=2,zero=3"},
    {LORA_FULL, "tp=2,pp=2,dp=2"},
    {LORA_FULL, "dp=3,zero=2,recompute=selective"},
};

static void layout_run(int model, const struct layout *l, struct number_format f)
{
    struct comm *part;
    bool in = layout_part(l, &part);
    if (world->rank == 0)
        print_message("# %s: %s\n", models[model].name, layout_text(l));
    if (in)
        layout_check_traffic(part, model, l, f);
    comm_close(part);
}

static void test_cases(void **state)
{
    /* with bf16 gradients are of f32 */
    static const struct number_format formats[] = {
        {DTYPE_F64, 0}, {DTYPE_F32, 0}, {DTYPE_BF16, RESIDUAL_SAME}, {DTYPE_BF16, RESIDUAL_F32}};
    (void)state;
    for (int i = 0; i < LEN(cases); i++) {
        struct layout l;
        struct err err = {0};
        must(layout_parse(cases[i].layout, &l, &err), &err);
        layout_run(cases[i].model, &l, formats[i % LEN(formats)]);
    }
}

static void test_covering(void **state)
{
    (void)state;
    for (int model = 0; model < LEN(models); model++) {
        struct model m = model_of(&models[model]);
        struct candidates all = legal(&m), some = covering(all, 3);
        for (int64_t i = 0; i < some.n; i++) {
            struct layout l = layout_of(some.v[i]);
            layout_run(model, &l, (struct number_format){DTYPE_F64, 0});
        }
        free(some.v);
        free(all.v);
    }
}

int main(int argc, char **argv)
{
    layouts_open(&argc, &argv);
    world->conf->trace = trace;
    const struct CMUnitTest few[] = {cmocka_unit_test(test_cases)},
                            many[] = {cmocka_unit_test(test_covering)};
    return layouts_close(getenv("LAYOUTS") ? cmocka_run_group_tests(many, NULL, NULL)
                                           : cmocka_run_group_tests(few, NULL, NULL));
}
