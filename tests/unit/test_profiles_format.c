/* Formats of files: each field has its sentence, and each example is read by its format's reader. */
#include "tests/lib/test_profiles.h"

#include "profiles/adapter.h"
#include "profiles/constants.h"
#include "profiles/format.h"
#include "profiles/hw.h"
#include "profiles/model.h"
#include "profiles/plan.h"
#include "profiles/run.h"
#include "profiles/stack.h"
#include "tests/lib/scratch.h"

/* Each field of each format has its sentence, for the pages that are made of the tables. */
static void sentences(void **state)
{
    (void)state;
    for (size_t i = 0; formats[i]; i++) {
        struct format_part parts[FORMAT_PARTS];
        size_t n = formats[i]->parts(parts);
        assert_true(n >= 1 && n <= FORMAT_PARTS);
        for (size_t k = 0; k < n; k++)
            for (size_t f = 0; f < parts[k].n_fields; f++) {
                const char *help = parts[k].fields[f].help;
                if (!help || !*help || help[strlen(help) - 1] == '.')
                    fail_msg("%s: %s.%s: '%s'", formats[i]->name, parts[k].path,
                             parts[k].fields[f].name, help);
            }
    }
}

/* Reads one of a format by its name or path. */
static int run_read(const char *path, struct err *err)
{
    struct run r;
    int rc = run_load(path, &r, err);
    if (rc == 0)
        run_release(&r);
    return rc;
}

static int plan_read_it(const char *path, struct err *err)
{
    static struct plan p;
    return plan_load(path, &p, err);
}

static int model_read_it(const char *path, struct err *err)
{
    struct model m;
    return model_load(path, &m, err);
}

static int device_read_it(const char *path, struct err *err)
{
    struct device d;
    return device_load(path, &d, err);
}

static int cluster_read_it(const char *path, struct err *err)
{
    struct cluster c;
    return cluster_load(path, &c, err);
}

static int stack_read_it(const char *path, struct err *err)
{
    struct stack k;
    return stack_load(path, &k, err);
}

static int adapter_read_it(const char *path, struct err *err)
{
    struct adapter *a;
    int rc = adapter_load(path, &a, err);
    if (rc == 0)
        adapter_free(a);
    return rc;
}

static int constants_read_it(const char *path, struct err *err)
{
    static struct constants c;
    return constants_load(path, &c, err);
}

/* The example of each format is one. */
static void examples(void **state)
{
    static const struct {
        const char *name;
        int (*read)(const char *path, struct err *err);
    } readers[] = {
        {"run", run_read},           {"plan", plan_read_it},       {"model", model_read_it},
        {"device", device_read_it},  {"cluster", cluster_read_it}, {"stack", stack_read_it},
        {"adapter", adapter_read_it}, {"constants", constants_read_it},
    };
    struct err err;
    (void)state;
    for (size_t i = 0; formats[i]; i++) {
        const char *path = in_scratch("example.json"), *text = formats[i]->example;
        size_t k = 0;
        while (k < ARRAY_LEN(readers) && strcmp(readers[k].name, formats[i]->name) != 0)
            k++;
        if (k == ARRAY_LEN(readers))
            fail_msg("nothing reads the example of '%s'", formats[i]->name);
        assert_ok(file_publish(path, text, strlen(text), &err), &err);
        assert_ok(readers[k].read(path, &err), &err);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentences),
        cmocka_unit_test_setup_teardown(examples, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests_name("profiles_format", tests, NULL, NULL);
}
