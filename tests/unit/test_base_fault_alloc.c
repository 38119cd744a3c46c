/* Out of memory: the n-th allocation fails, for every n, and nothing is lost, leaked or half done.
 *
 * A scenario runs with allocation n failing, n = 1, 2, … until it succeeds untouched. Each failure
 * must come back as ERR_NOMEM (with a sentence), every block that was got must be freed, and
 * out-parameters must stand as they were.
 */
// LINK: -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc -Wl,--wrap=strdup -Wl,--wrap=free
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/opt.h"
#include "base/settings.h"
#include "base/str.h"

void *__real_malloc(size_t n);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t count, size_t n);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);
void __wrap_free(void *p);

static bool counting;
static long calls, fail_at, live;

static bool fails(void)
{
    return counting && ++calls == fail_at;
}

void *__wrap_malloc(size_t n)
{
    void *p = fails() ? NULL : __real_malloc(n);
    live += counting && p != NULL;
    return p;
}

void *__wrap_calloc(size_t count, size_t n)
{
    void *p = __wrap_malloc(count * n);
    return p != NULL ? memset(p, 0, count * n) : NULL;
}

void *__wrap_realloc(void *p, size_t n)
{
    if (p == NULL)
        return __wrap_malloc(n);
    return fails() ? NULL : __real_realloc(p, n);
}

char *__wrap_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *p = __wrap_malloc(n);
    return p != NULL ? memcpy(p, s, n) : NULL;
}

void __wrap_free(void *p)
{
    live -= counting && p != NULL;
    __real_free(p);
}

/* ---- scenarios: 0 or ERR_NOMEM; all they got is freed on return ---- */

static int run_str(struct err *err)
{
    struct str s = STR_INIT;
    for (int i = 0; i < 200; i++)
        str_addf(&s, "%04d ", i);
    str_add(&s, "end");
    int rc = str_check(&s, err);
    assert_int_equal(s.p[s.len], '\0');
    if (rc == 0)
        assert_int_equal(s.len, 1003);
    else
        assert_int_equal(s.len % 5, 0); /* whole pieces only */
    str_release(&s);
    return rc;
}

static int run_arena(struct err *err)
{
    struct arena a;
    arena_init(&a, 256);
    int rc = 0;
    for (int i = 0; i < 20 && rc == 0; i++) {
        size_t before = a.used_bytes;
        void *p = i % 2 ? (void *)arena_printf(&a, "%0100d", i)
                        : arena_alloc(&a, i == 10 ? 4000 : 100, 64);
        if (p == NULL) {
            rc = err_set(err, ERR_NOMEM, "arena");
            assert_int_equal(a.used_bytes, before);
            assert_non_null(arena_alloc(&a, 100, 0)); /* works again when there is memory again */
        }
    }
    arena_release(&a);
    return rc;
}

struct thing {
    const char *name;
    int64_t n;
};

static int run_json(struct err *err)
{
    static const struct json_field fields[] = {
        {"name", JSON_TEXT, offsetof(struct thing, name)},
        {"n", JSON_INT, offsetof(struct thing, n)},
        {"list", JSON_ANY, 0, .optional = true},
    };
    static const char text[] = "{\"name\": \"a\", \"n\": 3, \"list\": [{\"x\": 1, \"y\": \"z\"}]}";
    struct json_doc doc = {0};
    struct arena arena = {0};
    struct thing t = {0};
    int rc = json_parse(text, sizeof text - 1, "t.json", &doc, err);
    if (rc == 0)
        rc = json_read(&doc, doc.root, "", fields, ARRAY_LEN(fields), &arena, &t, err);
    else
        assert_true(doc.name == NULL && doc.root == NULL);
    if (rc == 0)
        assert_true(t.n == 3 && strcmp(t.name, "a") == 0);
    arena_release(&arena);
    json_release(&doc);
    return rc;
}

/* A refused file: the sentence may be lost to ERR_NOMEM, the refusal may not. */
static int run_json_refused(struct err *err)
{
    static const struct json_field fields[] = {{"name", JSON_TEXT, offsetof(struct thing, name)}};
    struct json_doc doc = {0};
    struct thing t = {0};
    int rc = json_parse("{\"nmae\": 1}", 11, "t.json", &doc, err);
    if (rc == 0)
        rc = json_read(&doc, doc.root, "", fields, 1, NULL, &t, err);
    json_release(&doc);
    assert_true(rc == ERR_NOMEM || rc == ERR_INPUT);
    return rc == ERR_INPUT ? 0 : rc;
}

static int run_settings_and_opt(struct err *err)
{
    static const struct opt opts[] = {
        {"steps", 'n', OPT_INT, "N", "steps", .fallback = "1", .flags = OPT_SETTING},
        {"set", 's', OPT_TEXT, "K=V", "set", .flags = OPT_SETTING},
        {"out", 'o', OPT_TEXT, "DIR", "out", .fallback = "here"},
    };
    static const struct opt_cmd cmd = {"x", "y", "", opts, ARRAY_LEN(opts), 0, -1, NULL};
    static const char *const known[] = {"steps", "set", NULL};
    static const char *const env[] = {"REEL_SET=a,b,c", "REEL_SITE_CONFIG=/nonexistent", NULL};
    char words[] = "x\0--steps=3\0operand", *argv[] = {words, words + 2, words + 12, NULL};
    struct settings *settings = NULL;
    struct opt_values *v = NULL;
    struct str text = STR_INIT;
    bool help;
    int rc = settings_load(known, env, &settings, err);
    if (rc == 0)
        rc = opt_parse(&cmd, 3, argv, settings, &v, &help, err);
    if (rc == 0) {
        opt_help(&cmd, "reel", &text);
        opt_json(v, &text);
        rc = str_check(&text, err);
    }
    if (rc == 0)
        assert_int_equal(opt_int(v, "steps"), 3);
    str_release(&text);
    opt_free(v);
    settings_free(settings);
    return rc;
}

static const struct {
    const char *name;
    int (*run)(struct err *err);
    long at_least; /* allocations the scenario makes: a sweep that meets none proves nothing */
} scenarios[] = {
    {"str", run_str, 4},
    {"arena", run_arena, 5},
    {"json", run_json, 8},
    {"json refused", run_json_refused, 4},
    {"settings and opt", run_settings_and_opt, 5},
};

static void test_nth_allocation(void **state)
{
    (void)state;
    cJSON_Hooks hooks = {__wrap_malloc, __wrap_free};
    cJSON_InitHooks(&hooks);
    for (size_t i = 0; i < ARRAY_LEN(scenarios); i++) {
        int rc = ERR_NOMEM;
        for (fail_at = 1; rc < 0; fail_at++) {
            struct err err = {0};
            calls = live = 0;
            counting = true;
            rc = scenarios[i].run(&err);
            counting = false;
            if (rc < 0 && (rc != ERR_NOMEM || err.code != ERR_NOMEM || err.text[0] == '\0'))
                fail_msg("%s, allocation %ld: %d '%s'", scenarios[i].name, fail_at, rc, err.text);
            if (live != 0)
                fail_msg("%s, allocation %ld: %ld blocks not freed", scenarios[i].name, fail_at,
                         live);
            if (rc == 0 && calls >= fail_at)
                fail_msg("%s, allocation %ld failed and nobody noticed", scenarios[i].name,
                         fail_at);
        }
        assert_true(calls >= scenarios[i].at_least);
    }
    cJSON_InitHooks(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nth_allocation)};
    return cmocka_run_group_tests_name("base_fault_alloc", tests, NULL, NULL);
}
