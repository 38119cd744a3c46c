/* Runs the operations' cases (tests/gpu/cases.h) on the GPU of this machine, or on the library that
 * REEL_CUDA_LIBRARY names, and compares them with the tables of the CPU.
 *
 *     check list              prints the operations, one a line
 *     check device            opens the device, and prints its name and the bytes of its memory:
 *                             free, taken by operations, all
 *     check op NAME           runs all cases of an operation, each twice, in f64, f32 and bf16; those
 *                             of attention in bf16 without cuDNN, too
 *
 * It prints one JSON object a line to stdout, and differences to stderr. Exit status: 0, or 1 when
 * something differs, 2 for usage, 4 when there is no device. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/cases.h"
#include "trainer/ops/compute.h"

enum { TIMES = 2 };
static const struct { enum dtype dtype; const char *name, *attn; } kinds[] = {
    {DTYPE_F64, "f64", NULL}, {DTYPE_F32, "f32", NULL}, {DTYPE_BF16, "bf16", NULL},
    {DTYPE_BF16, "bf16, plain", "plain"}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Holds the tables on which a case runs: the tested one, and the CPU's for f64 and for the same
 * type. */
struct tables { struct compute gpu, oracle, cpu; };

/* Adds up what the cases of an operation gave in one type. */
struct tally {
    int cases, wrong;
    double worst; /* the largest relative L2 distance of an output from f64 */
    const char *worst_case;
};

static int tables_open(struct tables *t, enum dtype dtype, struct err *err)
{
    struct compute_conf conf = {.poison = true, .dtype = dtype};
    int rc;
    if ((rc = compute_open(&t->cpu, &conf, err)) < 0)
        return rc;
    conf.device = COMPUTE_CUDA;
    if ((rc = compute_open(&t->gpu, &conf, err)) < 0)
        return rc;
    return compute_open(&t->oracle, &(struct compute_conf){.poison = true, .dtype = DTYPE_F64},
                        err);
}

static void tables_close(struct tables *t)
{
    compute_close(&t->gpu), compute_close(&t->cpu), compute_close(&t->oracle);
}

/* Tells whether a call failed, and prints its error. */
static int told(int rc, const char *what, const struct err *err)
{
    if (rc < 0)
        fprintf(stderr, "check: %s: %s\n", what, err->text);
    return rc < 0;
}

static void worst_keep(struct tally *n, const struct case_result *got,
                       const struct case_result *want)
{
    for (int k = 0; k < got->n; k++) {
        double l2 = case_distance(&got->out[k], &want->out[k]).l2;
        if (l2 > n->worst)
            n->worst = l2, n->worst_case = got->c->name;
    }
}

/* Runs a case in which the GPU's library may sum dq in any order. Tells whether it is wrong. */
static bool free_wrong(const struct tables *t, const struct op_case *c,
                       const struct case_result *want, const struct case_result *beside)
{
    struct case_result got = {0};
    struct err err = {0};
    t->gpu.ops->deterministic = false;
    bool wrong = told(case_run(t->gpu.ops, t->gpu.stream, c, case_types_of(t->gpu.ops), &got, &err),
                      "in any order", &err) ||
                 told(case_near(&got, want, beside, &err), "in any order", &err);
    t->gpu.ops->deterministic = true;
    case_release(&got);
    return wrong;
}

/* Runs a case once on each table of the CPU and twice on the GPU, which must give the same bits
 * both times. Tells whether it is wrong. */
static bool case_wrong(const struct tables *t, const struct op_case *c, struct tally *n)
{
    struct case_types as = case_types_of(t->gpu.ops);
    struct case_result want = {0}, beside = {0}, got[TIMES] = {0};
    struct err err = {0};
    bool wrong = told(case_run(t->oracle.ops, t->oracle.stream, c, as, &want, &err), "f64", &err) ||
                 told(case_run(t->cpu.ops, t->cpu.stream, c, as, &beside, &err), "the CPU", &err);
    for (int k = 0; !wrong && k < TIMES; k++)
        wrong = told(case_run(t->gpu.ops, t->gpu.stream, c, as, &got[k], &err), "the GPU", &err);
    if (!wrong) {
        worst_keep(n, &got[0], &want);
        wrong = told(case_near(&got[0], &want, &beside, &err), t->gpu.ops->name, &err);
        wrong |= told(case_same(&got[1], &got[0], &err), "the second time", &err);
        wrong |= t->gpu.ops->narrow_attn && strcmp(c->op, "attn_bwd") == 0 &&
                 free_wrong(t, c, &want, &beside);
    }
    for (int k = 0; k < TIMES; k++)
        case_release(&got[k]);
    case_release(&want), case_release(&beside);
    return wrong;
}

static void tally_print(const struct tally *n, const char *op, const char *type)
{
    printf("{\"op\": \"%s\", \"dtype\": \"%s\", \"cases\": %d, \"wrong\": %d, \"worst_l2\": ", op,
           type, n->cases, n->wrong);
    printf(isfinite(n->worst) ? "%.3g" : "null", n->worst);
    printf(", \"worst_case\": \"%s\"}\n", n->worst_case ? n->worst_case : "");
    fflush(stdout);
}

static int op_check(const char *op)
{
    int wrong = 0;
    if (!case_count_of(op))
        return fprintf(stderr, "check: '%s' is no operation: see `check list`\n", op), 2;
    for (int k = 0; k < KINDS && (!kinds[k].attn || strncmp(op, "attn", 4) == 0); k++) {
        struct tables t = {0};
        struct tally n = {0};
        struct err err = {0};
        if (kinds[k].attn)
            setenv("REEL_ATTN", kinds[k].attn, true);
        if (told(tables_open(&t, kinds[k].dtype, &err), "the tables", &err)) {
            tables_close(&t);
            return 4;
        }
        t.gpu.ops->deterministic = true;
        for (int i = 0; i < case_count(); i++) {
            const struct op_case c = case_at(i);
            if (strcmp(c.op, op) == 0)
                n.cases++, n.wrong += case_wrong(&t, &c, &n);
        }
        tally_print(&n, op, kinds[k].name);
        wrong += n.wrong;
        tables_close(&t);
    }
    return wrong > 0;
}

static int ops_list(void)
{
    const char *last = "";
    for (int i = 0; i < case_count(); i++) {
        const struct op_case c = case_at(i);
        if (strcmp(c.op, last) != 0)
            puts(last = c.op);
    }
    return 0;
}

static int device_tell(void)
{
    struct compute c = {0};
    struct err err = {0};
    int64_t left = 0, total = 0;
    int status = 4;
    if (told(compute_open(&c, &(struct compute_conf){.device = COMPUTE_CUDA, .dtype = DTYPE_F32},
                          &err), "the device", &err))
        goto out;
    if (told(c.dev->memory(c.dev, &left, &total, &err), "its memory", &err))
        goto out;
    printf("{\"device\": \"%s\", \"free_bytes\": %ld, \"taken_bytes\": %ld, "
           "\"total_bytes\": %ld}\n",
           c.dev->name, (long)left, (long)c.dev->alloc_bytes, (long)total);
    status = 0;
out:
    compute_close(&c);
    return status;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "list") == 0)
        return ops_list();
    if (argc == 2 && strcmp(argv[1], "device") == 0)
        return device_tell();
    if (argc == 3 && strcmp(argv[1], "op") == 0)
        return op_check(argv[2]);
    fputs("usage: check list | device | op NAME\n", stderr);
    return 2;
}
