/* Files of a run and of its home: the n-th allocation, read, write, sync, rename or mkdir fails,
 * and what stood stands. */
// LINK: -Wl,--wrap=run_config_hash
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/state/home.h"
#include "launcher/state/state.h"
#include "launcher/submit/launch.h"
#include "profiles/plan.h"
#include "tests/lib/fault.h"
#include "tests/lib/scratch.h"

static const char run_text[] =
    "{\"schema\": \"reel.run/1\", \"name\": \"one\", \"model\": \"dit-tiny\", "
    "\"stages\": [{\"data\": \"synthetic:1x8x8\", \"gbs\": 2, \"steps\": 40}]}";
static struct run run;
static struct plan plan;

static void must(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s", err->text);
}

static int setup(void **state)
{
    struct err err = {0};
    int rc = scratch_setup(state);
    must(run_parse(run_text, sizeof run_text - 1, "run.json", &run, &err), &err);
    plan = (struct plan){.layout = layout_default(), .seq = {1, 4, 4}, .gbs = 2, .dtype = run.dtype,
                         .device = "cpu", .model = "dit-tiny"};
    must(run_save(&run, in_scratch("run.json"), &err), &err);
    must(plan_save(&plan, in_scratch("plan.json"), &err), &err);
    return rc;
}

static int teardown(void **state)
{
    run_release(&run);
    return scratch_teardown(state);
}

/* The one place here that ends the program for want of memory, and says so where it does. */
struct hash128 __real_run_config_hash(const struct run *r);
struct hash128 __wrap_run_config_hash(const struct run *r);
struct hash128 __wrap_run_config_hash(const struct run *r)
{
    enum fault_kind armed = fault.kind;
    fault.kind = FAULT_NONE;
    struct hash128 h = __real_run_config_hash(r);
    fault.kind = armed;
    return h;
}

/* ---- scenes: what is done; then how things must stand, whatever became of it ---- */

static int do_run_load(struct err *err)
{
    struct run got = {0};
    int rc = run_load(in_scratch("run.json"), &got, err);
    if (rc == 0) {
        assert_string_equal(got.name, "one");
        run_release(&got);
    } else {
        assert_null(got.stages[0].data); /* as it was */
    }
    return rc;
}

static int do_plan_load(struct err *err)
{
    struct plan got = {0};
    int rc = plan_load(in_scratch("plan.json"), &got, err);
    assert_int_equal(got.gbs, rc == 0 ? 2 : 0);
    return rc;
}

static int do_model_load(struct err *err)
{
    struct model got = {0};
    int rc = model_load(in_scratch("model.json"), &got, err);
    assert_int_equal(got.layers > 0, rc == 0);
    return rc;
}

static int do_plan_save(struct err *err)
{
    struct plan other = plan;
    other.gbs = 4;
    return plan_save(&other, in_scratch("plan.json"), err);
}

/* The old plan or the new one, whole, and no temporary file. */
static void after_plan_save(int rc)
{
    struct plan got;
    struct err err = {0};
    must(plan_load(in_scratch("plan.json"), &got, &err), &err);
    assert_true(got.gbs == 4 || (rc < 0 && got.gbs == 2));
    assert_int_equal(count_entries(scratch), 3);
    must(plan_save(&plan, in_scratch("plan.json"), &err), &err);
}

static int do_run_save(struct err *err)
{
    return run_save(&run, in_scratch("run.json"), err);
}

static void after_run_save(int rc)
{
    struct err err = {0};
    (void)rc;
    must(do_run_load(&err), &err);
    assert_int_equal(count_entries(scratch), 3);
}

static int do_create(struct err *err)
{
    struct launch l;
    bool existed;
    return launch_create(in_scratch("home"), "/bin", &run, &plan, "{}\n", &l, &existed, err);
}

/* A run that stands is whole and has its name; one that could not be made left nothing that looks
 * like a run. */
static void after_create(int rc)
{
    char **ids = NULL, id[ID_TEXT_BYTES], path[LIMIT_PATH_BYTES + 32];
    size_t n = 0;
    struct err err = {0};
    struct run_state s;
    must(home_runs_list(in_scratch("home"), &ids, &n, &err), &err);
    assert_true(n == 1 || (rc < 0 && n == 0));
    if (n == 1) {
        must(home_run_find(in_scratch("home"), "one", id, &err), &err);
        assert_string_equal(id, ids[0]);
        home_run_dir(in_scratch("home"), id, path);
        run_state_init(&s);
        must(run_state_load(path, &s, &err), &err);
        assert_string_equal(s.name, "one");
        run_state_release(&s);
        assert_int_equal(count_entries(path), 4); /* run.json, plan.json, settings.json, events */
    }
    home_runs_free(ids, n);
    must(do_create(&err), &err); /* the next try makes it, or finds it */
    assert_int_equal(file_remove_tree(in_scratch("home"), NULL), 0);
}

static int do_state(struct err *err)
{
    char id[ID_TEXT_BYTES], path[LIMIT_PATH_BYTES];
    struct run_state s;
    run_state_init(&s);
    int rc = home_run_find(in_scratch("home"), "one", id, err);
    if (rc == 0) {
        home_run_dir(in_scratch("home"), id, path);
        rc = run_state_load(path, &s, err);
    }
    if (rc == 0)
        assert_string_equal(s.name, "one");
    run_state_release(&s);
    return rc;
}

static int do_list(struct err *err)
{
    char **ids = NULL;
    size_t n = 0;
    int rc = home_runs_list(in_scratch("home"), &ids, &n, err);
    if (rc == 0)
        assert_int_equal(n, 1);
    home_runs_free(ids, n);
    return rc;
}

static const struct scene {
    const char *name;
    int (*run)(struct err *err);
    void (*after)(int rc);
    unsigned kinds; /* a bit for each kind it must meet */
} scenes[] = {
    {"run_load", do_run_load, NULL, 1u << FAULT_ALLOC | 1u << FAULT_READ},
    {"plan_load", do_plan_load, NULL, 1u << FAULT_ALLOC | 1u << FAULT_READ},
    {"model_load", do_model_load, NULL, 1u << FAULT_ALLOC | 1u << FAULT_READ},
    {"plan_save", do_plan_save, after_plan_save,
     1u << FAULT_ALLOC | 1u << FAULT_WRITE | 1u << FAULT_SYNC | 1u << FAULT_RENAME},
    {"run_save", do_run_save, after_run_save,
     1u << FAULT_ALLOC | 1u << FAULT_WRITE | 1u << FAULT_SYNC | 1u << FAULT_RENAME},
    {"launch_create", do_create, after_create,
     1u << FAULT_ALLOC | 1u << FAULT_WRITE | 1u << FAULT_SYNC | 1u << FAULT_RENAME |
         1u << FAULT_MKDIR | 1u << FAULT_LINK},
    /* of the run the setup below makes */
    {"run_state_load", do_state, NULL, 1u << FAULT_ALLOC | 1u << FAULT_READ},
    {"home_runs_list", do_list, NULL, 1u << FAULT_ALLOC},
};

static bool fails_at(const struct scene *c, enum fault_kind kind, long n)
{
    struct err err = {0};
    int want = fault_code(kind);
    fault_arm(kind, n);
    int rc = c->run(&err);
    bool met = fault_disarm();
    if (rc != 0 && (rc != want || err.code != want || !err.text[0]))
        fail_msg("%s, %s %ld: %d (%d) '%s'", c->name, fault_names[kind], n, rc, err.code, err.text);
    if (met && rc == 0 && !c->after)
        fail_msg("%s, %s %ld failed and nobody noticed", c->name, fault_names[kind], n);
    if (c->after)
        c->after(rc);
    return met;
}

static void nth_call_fails(void **state)
{
    struct err err = {0};
    struct str text = STR_INIT;
    struct json_out o;
    cJSON_Hooks hooks = {__wrap_malloc, free};
    (void)state;
    cJSON_InitHooks(&hooks);
    json_out_init(&o, &text, 1);
    model_write(&run.model, &o, NULL);
    must(file_publish(in_scratch("model.json"), text.p, text.len, &err), &err);
    str_release(&text);
    for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
        if (scenes[i].run == do_state)
            must(do_create(&err), &err);
        for (enum fault_kind kind = FAULT_ALLOC; kind < FAULT_KINDS; kind++) {
            long n = 1, hits = 0;
            for (; fails_at(&scenes[i], kind, n); n += fault_step(1))
                hits++;
            if (!hits != !(scenes[i].kinds & 1u << kind))
                fail_msg("%s: met %ld of kind %s", scenes[i].name, hits, fault_names[kind]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nth_call_fails, setup, teardown)};
    return cmocka_run_group_tests_name("launcher_fault", tests, NULL, NULL);
}
