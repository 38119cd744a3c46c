/* Every operation's cases (tests/gpu/cases.h) on the CUDA backend, its kernels run by the shim.
 * They are held to the CPU's table for f64, and bf16 to the CPU's for bf16 as well. Whatever order
 * the shim runs threads in, the bits are the same. Each day half of the cases are tried, each in one of
 * the three types and in two orders; and half of attention's in bf16 as well.
 *
 *     test_trainer_cuda_cases [OPERATION...]   these alone
 *     test_trainer_cuda_cases OPERATION/CASE   or single cases of them, in all types
 *     ORDERS=all test_trainer_cuda_cases       in four orders, in all types
 *     ORDERS=one test_trainer_cuda_cases       in one order */
// SLOW
#include <time.h>

#include "tests/gpu/cases.h"
#include "tests/lib/trainer_cuda.h"

enum { TYPES = 3, ORDERS = 4, FEW_ORDERS = 2 };
static const enum dtype types[TYPES] = {DTYPE_F64, DTYPE_F32, DTYPE_BF16};
/* of threads, by REEL_SHIM_SEED */
static const char *const orders[ORDERS] = {"0", "5", "17", "4242"};

static char *const *chosen; /* by the command line, NULL behind the last */

/* Tells whether an argument is OPERATION/CASE of this case. */
static bool is_its(const char *argument, const struct op_case *c)
{
    size_t n = strlen(c->op);
    return strncmp(argument, c->op, n) == 0 && argument[n] == '/' &&
           strcmp(argument + n + 1, c->name) == 0;
}

static bool is_alone(const struct op_case *c)
{
    for (char *const *name = chosen; *name; name++)
        if (is_its(*name, c))
            return true;
    return false;
}

static bool is_chosen(const struct op_case *c)
{
    bool is_named = !*chosen || is_alone(c);
    for (char *const *name = chosen; *name; name++)
        is_named = is_named || strcmp(c->op, *name) == 0;
    return is_named;
}

/* Returns the first argument that names no case, or NULL. */
static const char *unknown(void)
{
    for (char *const *name = chosen; *name; name++) {
        bool known = case_count_of(*name) > 0;
        for (int i = 0; i < case_count() && !known; i++) {
            const struct op_case c = case_at(i);
            known = is_its(*name, &c);
        }
        if (!known)
            return *name;
    }
    return NULL;
}

static struct bench near_open(enum dtype dtype)
{
    struct bench b = {0};
    struct err err = {0};
    if (dev_cpu_open(true, &b.dev, &err) < 0 ||
        b.dev->stream_new(b.dev, "compute", DEV_PRIORITY_NORMAL, &b.stream, &err) < 0 ||
        ops_cpu_open(b.dev, dtype, OPS_BLAS_OWN, &b.ops, &err) < 0)
        fail_msg("%s", err.text);
    return b;
}

static struct case_result run(const struct bench *b, const struct op_case *c, const struct ops *as)
{
    struct case_result r = {0};
    struct err err = {0};
    if (case_run(b->ops, b->stream, c, case_types_of(as), &r, &err) < 0)
        fail_msg("%s: %s", b->ops->name, err.text);
    return r;
}

/* Tells of every difference, before the test fails. */
static int told(int rc, const struct ops *o, const char *order, const struct err *err)
{
    if (rc < 0)
        print_error("%s, threads in order %s: %s\n", o->name, order, err->text);
    return rc < 0;
}

/* Returns how many comparisons of a case, in its first `n` orders, fail. */
static int check(const struct op_case *c, const struct bench *b, const struct bench *oracle,
                 const struct bench *cpu, int n)
{
    struct case_result want = run(oracle, c, b->ops), beside = run(cpu, c, b->ops), got[ORDERS];
    int wrong = 0;
    for (int k = 0; k < n; k++) {
        struct err err = {0};
        setenv("REEL_SHIM_SEED", orders[k], true);
        got[k] = run(b, c, b->ops);
        wrong += told(case_near(&got[k], &want, &beside, &err), b->ops, orders[k], &err);
        wrong += k && told(case_same(&got[k], &got[0], &err), b->ops, orders[k], &err);
    }
    for (int k = 0; k < n; k++)
        case_release(&got[k]);
    case_release(&want), case_release(&beside);
    return wrong;
}

static int orders_wished(void)
{
    const char *wish = getenv("ORDERS");
    return wish && strcmp(wish, "all") == 0 ? ORDERS : wish && strcmp(wish, "one") == 0 ? 1 : FEW_ORDERS;
}

/* Says whether case i is tried today in this type. Of the whole table a day has half of the cases, so
 * that in six days each meets each type; of the operations that begin with `only`, half in theirs.
 * DRAW=K is day K's choice. */
static bool is_due(int i, int type, const char *only)
{
    const char *draw = getenv("DRAW");
    int64_t day = draw ? atoi(draw) : time(NULL) / (24 * 3600);
    return *only ? (i + day) % 2 == 0 : (i + day) % (2 * TYPES) == type;
}

/* `only`: the beginning of the operations' names. */
static void check_table(enum dtype dtype, bool deterministic, const char *only)
{
    struct bench oracle = near_open(DTYPE_F64), cpu = near_open(dtype), b = cuda_bench(dtype);
    int wrong = 0, type = 0, n = orders_wished();
    while (types[type] != dtype)
        type++;
    b.ops->deterministic = deterministic;
    for (int i = 0; i < case_count(); i++) {
        const struct op_case c = case_at(i);
        if (n != ORDERS && !is_alone(&c) && !is_due(i, type, only))
            continue;
        if (is_chosen(&c) && strncmp(c.op, only, strlen(only)) == 0)
            wrong += check(&c, &b, &oracle, &cpu, n);
    }
    bench_close(&b), bench_close(&cpu), bench_close(&oracle);
    assert_int_equal(wrong, 0);
}

static void test_cases(void **state)
{
    (void)state;
    for (int k = 0; k < TYPES; k++)
        check_table(types[k], false, "");
}

static void test_deterministic(void **state)
{
    (void)state;
    check_table(DTYPE_BF16, true, "attn_bwd");
}

/* Our own attention, without cuDNN's stand-in. */
static void test_plain(void **state)
{
    (void)state;
    setenv("REEL_ATTN", "plain", true);
    check_table(DTYPE_BF16, false, "attn");
    unsetenv("REEL_ATTN");
}

int main(int argc, char **argv)
{
    (void)argc;
    chosen = argv + 1;
    if (unknown()) {
        printf("Bail out! no operation or case is named '%s'\n", unknown());
        return 2;
    }
    cuda_library(argv[0]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases),
                                        cmocka_unit_test(test_deterministic),
                                        cmocka_unit_test(test_plain)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
