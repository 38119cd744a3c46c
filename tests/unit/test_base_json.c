/* JSON: what the scanner refuses and where, tables of fields, the writer read back. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/json.h"

static int parse(const char *text, struct json_doc *doc, struct err *err)
{
    return json_parse(text, strlen(text), "t.json", doc, err);
}

static void assert_says(const struct err *err, const char *wanted)
{
    if (strstr(err->text, wanted) == NULL)
        fail_msg("'%s' does not say '%s'", err->text, wanted);
}

/* ---- text ---- */

static const struct {
    const char *text;
} good[] = {
    {"{}"},
    {" [1, -0, 0.5, 1e3, 1E-3, 1.25e+2]\n"},
    {"[9e99, 1e308, 1e-400, 1e0000099, -17976931348623157e292]"},
    {"\"\""},
    {"null"},
    {"true"},
    {"[false]"},
    {"-0.0"},
    {"\"\\u00e9 \\ud83d\\ude00 \\\\ \\/ \\b\\f\\n\\r\\t\""},
    {"\"h\xc3\xa9 \xf0\x9f\x98\x80 \xed\x9f\xbf \xf4\x8f\xbf\xbf\""},
    {"{\"a\": {\"a\": 1}, \"b\": [{\"a\": 2}]}"},
    {"\t{\r\n\"\": []}"},
    {"1.7976931348623157e308"},
};

static const struct {
    const char *text;
    const char *says;
} bad[] = {
    {"", "t.json:1:1: expected a value"},
    {"{\"a\": 1", "t.json:1:8: expected ',' or '}'"},
    {"{\n  \"a\" 1}", "t.json:2:7: expected ':' after a key, found '1'"},
    {"{\"h\xc3\xa9\": x}", "t.json:1:8: expected a value"}, /* columns count characters */
    {"{a: 1}", "1:2: expected a key in double quotes, found 'a'"},
    {"{\"a\": 1,}", "1:9: expected a key"},
    {"[1,]", "1:4: expected a value"},
    {"[1 2]", "1:4: expected ',' or ']'"},
    {"{} {}", "1:4: expected nothing after the value"},
    {"{}x", "1:3: expected nothing"},
    {"01", "1:1: a number with leading zeros"},
    {"-012", "1:2: a number with leading zeros"},
    {"+1", "found '+'"},
    {"0x10", "expected nothing after the value, found 'x'"},
    {".5", "found '.'"},
    {"1.", "expected a digit"},
    {"1e", "expected a digit"},
    {"-", "expected a digit"},
    {"NaN", "expected a value"},
    {"Infinity", "expected a value"},
    {"nul", "expected a value"},
    {"[1e999]", "1:2: the number is too large"},
    {"-1e309", "the number is too large"},
    {"17976931348623159e+292", "the number is too large"},
    {"1e0000309", "the number is too large"},
    {"0.1234567890123456789012345678901234567890123456789012345678901234", "more than 63"},
    {"\"abc", "1:5: expected the closing"},
    {"\"a\nb\"", "1:3: a raw control character"},
    {"\"\\x41\"", "after a backslash"},
    {"\"\\u12g4\"", "four hex digits"},
    {"\"\\u0000\"", "\\u0000"},
    {"\"\\ud800\"", "surrogate"},
    {"\"\\udc00\"", "surrogate"},
    {"\"\\ud800\\u0041\"", "surrogate"},
    {"\"\xff\"", "1:2: bytes that are not valid UTF-8"},
    {"\"\xc3\"", "UTF-8"},
    {"\"\xc0\x80\"", "UTF-8"},         /* overlong NUL */
    {"\"\xed\xa0\x80\"", "UTF-8"},     /* surrogate */
    {"\"\xf4\x90\x80\x80\"", "UTF-8"}, /* past U+10FFFF */
    {"\"\xe2\x82\"", "UTF-8"},
    {"\xef\xbb\xbf{}", "found byte 0xef"},
    {"{\"a\": 1, \"a\": 2}", "t.json: a is given twice"},
    {"{\"a\": 1, \"\\u0061\": 2}", "a is given twice"},
    {"{\"s\": [0, {\"x\": {\"k\": 1, \"j\": 0, \"k\": 1}}]}", "s[1].x.k is given twice"},
    {"{\"m\": 1, \"b\": 2, \"q\": 3, \"h\": 4, \"e\": 5, \"t\": 6, \"a\": 7, \"b\": 8}",
     "t.json: b is given twice"},
};

static void test_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct json_doc doc = {0};
        struct err err = {0};
        if (parse(good[i].text, &doc, &err) < 0)
            fail_msg("%s: %s", good[i].text, err.text);
        json_release(&doc);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct json_doc doc = {.name = NULL};
        struct err err = {0};
        if (parse(bad[i].text, &doc, &err) != ERR_INPUT)
            fail_msg("taken: %s (%s)", bad[i].text, err.text);
        assert_says(&err, bad[i].says);
        assert_null(doc.root);
        assert_int_equal(parse(bad[i].text, &doc, NULL), ERR_INPUT);
    }
}

static void test_embedded_nul(void **state)
{
    (void)state;
    static const char inside[] = "{\"a\": \"b\0c\"}", behind[] = "{}\0";
    struct json_doc doc = {0};
    struct err err = {0};
    assert_int_equal(json_parse(inside, sizeof inside - 1, "t.json", &doc, &err), ERR_INPUT);
    assert_says(&err, "control character");
    assert_int_equal(json_parse(behind, sizeof behind - 1, "t.json", &doc, &err), ERR_INPUT);
    assert_says(&err, "1:3: expected nothing after the value, found byte 0x00");
}

static void test_depth(void **state)
{
    (void)state;
    for (int depth = LIMIT_JSON_DEPTH; depth <= LIMIT_JSON_DEPTH + 1; depth++) {
        struct str s = STR_INIT;
        for (int i = 0; i < depth; i++)
            str_addc(&s, '[');
        for (int i = 0; i < depth; i++)
            str_addc(&s, ']');
        struct json_doc doc = {0};
        struct err err = {0};
        int rc = parse(s.p, &doc, &err);
        assert_int_equal(rc, depth <= LIMIT_JSON_DEPTH ? 0 : ERR_LIMIT);
        if (rc < 0)
            assert_says(&err, "1:65: nested deeper than 64 levels");
        json_release(&doc);
        str_release(&s);
    }
    struct json_doc doc = {0};
    assert_int_equal(json_parse("{}", (size_t)LIMIT_JSON_BYTES + 1, "t.json", &doc, NULL),
                     ERR_LIMIT);
}

/* Every prefix of a good text is refused and read within its bounds (ASan watches: the copy ends
 * with the prefix). */
static void test_prefixes(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\": [1.5e+3, -2, true, null, \"\\ud83d\\ude00\xe2\x82\xac\"], \"b\": {\"c\": false}}";
    for (size_t n = 0; n < sizeof text - 1; n++) {
        char *copy = malloc(n + 1);
        assert_non_null(copy);
        char *exact = realloc(copy, n ? n : 1);
        memcpy(exact, text, n);
        struct json_doc doc = {0};
        assert_int_equal(json_parse(exact, n, "t.json", &doc, NULL), ERR_INPUT);
        free(exact);
    }
}

/* ---- tables ---- */

struct thing {
    int64_t n, wide;
    double x;
    bool on;
    const char *name;
    int kind;
    uint64_t seed;
};

static const char *const kinds[] = {"none", "full", "lora_fused", NULL};
static const struct json_field fields[] = {
    {"n", JSON_INT, offsetof(struct thing, n), .min = 1, .max = 1024},
    {"wide", JSON_INT, offsetof(struct thing, wide), .optional = true},
    {"x", JSON_NUM, offsetof(struct thing, x), .optional = true, .min = -0.5, .max = 0.5},
    {"on", JSON_BOOL, offsetof(struct thing, on), .optional = true},
    {"name", JSON_TEXT, offsetof(struct thing, name), .optional = true},
    {"kind", JSON_ENUM, offsetof(struct thing, kind), .optional = true, .names = kinds},
    {"seed", JSON_U64TEXT, offsetof(struct thing, seed), .optional = true},
    {"stages", JSON_ANY, 0, .optional = true},
};

static const struct {
    const char *text;
    const char *says; /* NULL: good */
} things[] = {
    {"{\"n\": 1024, \"x\": -0.5, \"on\": true, \"name\": \"a\", \"kind\": \"full\", \"seed\": "
     "\"0xffffffffffffffff\"}", NULL},
    {"{\"n\": 1, \"stages\": [{\"any\": 1}]}", NULL},
    {"{\"n\": 1e2}", NULL},
    {"{\"n\": 0}", "t.json: n is 0: give an integer from 1 to 1024"},
    {"{\"n\": 1025}", "n is 1025"},
    {"{\"n\": 1.5}", "n is 1.5: give an integer"},
    {"{\"n\": \"12\"}", "n is \"12\": give an integer"},
    {"{\"n\": null}", "n is null: give an integer"},
    {"{\"n\": [1]}", "n is an array"},
    /* a double holds neither, so none of its digits is shown */
    {"{\"n\": 9007199254740992}", "t.json: n is a number beyond 2^53 - 1, where JSON loses digits: "
                                  "give an integer from 1 to 1024"},
    {"{\"n\": -9007199254740993}", "n is a number beyond 2^53 - 1, where JSON loses digits: give"},
    {"{\"n\": 1, \"wide\": 9007199254740993}",
     "wide is a number beyond 2^53 - 1, where JSON loses digits: write it as a text, in quotes"},
    {"{\"x\": 0}", "t.json: n is missing: give an integer from 1 to 1024"},
    {"{\"n\": 1, \"x\": 0.50001}", "x is 0.50001: give a number from -0.5 to 0.5"},
    {"{\"n\": 1, \"x\": \"0\"}", "x is \"0\": give a number"},
    {"{\"n\": 1, \"on\": 1}", "on is 1: give true or false"},
    {"{\"n\": 1, \"name\": {}}", "name is an object: give a text"},
    {"{\"n\": 1, \"kind\": \"lora_fsed\"}",
     "kind is \"lora_fsed\": give one of none, full, lora_fused (did you mean lora_fused?)"},
    {"{\"n\": 1, \"kind\": 1}", "kind is 1: give one of"},
    {"{\"n\": 1, \"seed\": 7}", "seed is 7: give a whole number below 2^64 written as a text"},
    {"{\"n\": 1, \"seed\": \"-7\"}", "seed is \"-7\""},
    {"{\"n\": 1, \"seed\": \"18446744073709551616\"}", "seed is"},
    {"{\"n\": 1, \"nmae\": \"a\"}", "nmae is not a known key: did you mean 'name'?"},
    {"{\"n\": 1, \"elephant\": 2}", "elephant is not a known key: known here are n, wide, x, on"},
    {"[]", "the top level is an array: give an object"},
};

static void test_tables(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(things); i++) {
        struct json_doc doc = {0};
        struct err err = {0};
        struct arena arena;
        arena_init(&arena, 0);
        assert_int_equal(parse(things[i].text, &doc, &err), 0);
        struct thing t = {.n = -7, .x = 9, .name = "before", .kind = -3, .seed = 5}, before = t;
        int rc = json_read(&doc, doc.root, "", fields, ARRAY_LEN(fields), &arena, &t, &err);
        if ((rc == 0) != (things[i].says == NULL))
            fail_msg("%s: %d %s", things[i].text, rc, err.text);
        if (rc < 0) {
            assert_int_equal(rc, ERR_INPUT);
            assert_says(&err, things[i].says);
            assert_memory_equal(&t, &before, sizeof t); /* nothing is stored by a failed read */
        }
        arena_release(&arena);
        json_release(&doc);
    }
}

static void test_table_values(void **state)
{
    (void)state;
    struct json_doc doc = {0};
    struct arena arena;
    arena_init(&arena, 0);
    assert_int_equal(parse(things[0].text, &doc, NULL), 0);
    struct thing t = {0}, borrowed = {0};
    assert_int_equal(json_read(&doc, doc.root, "", fields, ARRAY_LEN(fields), &arena, &t, NULL), 0);
    assert_int_equal(
        json_read(&doc, doc.root, "", fields, ARRAY_LEN(fields), NULL, &borrowed, NULL), 0);
    assert_ptr_equal(borrowed.name, json_text(doc.root, "name", NULL));
    json_release(&doc);
    assert_int_equal(t.n, 1024);
    assert_true(t.x == -0.5 && t.on);
    assert_string_equal(t.name, "a"); /* lives in the arena, not in the released tree */
    assert_int_equal(t.kind, 1);
    assert_true(t.seed == UINT64_MAX);
    arena_release(&arena);
}

static void test_places(void **state)
{
    (void)state;
    struct json_doc doc = {0};
    struct err err = {0};
    struct thing t = {0};
    assert_int_equal(parse("{\"stages\": [{\"n\": 2}, {\"n\": 0}, 5]}", &doc, NULL), 0);
    const cJSON *stages = json_member(doc.root, "stages");
    assert_int_equal(json_read(&doc, cJSON_GetArrayItem(stages, 0), "stages[0]", fields,
                               ARRAY_LEN(fields), NULL, &t, &err),
                     0);
    json_read(&doc, cJSON_GetArrayItem(stages, 1), "stages[1]", fields, ARRAY_LEN(fields), NULL, &t,
              &err);
    assert_string_equal(err.text, "t.json: stages[1].n is 0: give an integer from 1 to 1024");
    json_read(&doc, cJSON_GetArrayItem(stages, 2), "stages[2]", fields, ARRAY_LEN(fields), NULL, &t,
              &err);
    assert_string_equal(err.text, "t.json: stages[2] is 5: give an object");
    json_read(&doc, json_member(doc.root, "optimizer"), "optimizer", fields, ARRAY_LEN(fields),
              NULL, &t, &err);
    assert_string_equal(err.text, "t.json: optimizer is missing: give an object");
    json_release(&doc);
}

static void test_schema(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } table[] = {
        {"{\"schema\": \"reel.plan/1\"}", NULL},
        {"{\"schema\": \"reel.plan/2\"}",
         "schema is 'reel.plan/2': give a file of schema 'reel.plan/1'"},
        {"{\"schema\": 1}", "no text 'schema'"},
        {"{}", "no text 'schema'"},
        {"[]", "not an object"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct json_doc doc = {0};
        struct err err = {0};
        assert_int_equal(parse(table[i].text, &doc, NULL), 0);
        assert_int_equal(json_check_schema(&doc, "reel.plan/1", &err),
                         table[i].says ? ERR_INPUT : 0);
        if (table[i].says != NULL)
            assert_says(&err, table[i].says);
        json_release(&doc);
    }
}

static void test_load(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    char path[256];
    snprintf(path, sizeof path, "%s/reel-json-XXXXXX", tmp != NULL ? tmp : "/tmp");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "{\"a\": \n!}", 9), 9);
    close(fd);
    struct json_doc doc = {0};
    struct err err = {0};
    assert_int_equal(json_load(path, &doc, &err), ERR_INPUT);
    assert_true(str_starts(err.text, path));
    assert_says(&err, ":2:1: expected a value");
    unlink(path);
    assert_true(json_load(path, &doc, &err) < 0);
    assert_says(&err, path);
}

/* ---- writing ---- */

static void test_numbers_read_back(void **state)
{
    (void)state;
    static const struct {
        double v;
        const char *text;
    } table[] = {
        {0, "0"},
        {-0.0, "-0"},
        {0.1, "0.1"},
        {1.0 / 3, "0.3333333333333333"},
        {1e22, "1e+22"},
        {100000, "100000"},
        {0.1 + 0.2, "0.30000000000000004"},
        {5e-324, NULL},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {NAN, "null"},
        {INFINITY, "null"},
        {-INFINITY, "null"},
    };
    char buf[JSON_NUM_BYTES];
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        json_format_num(table[i].v, buf);
        if (table[i].text != NULL)
            assert_string_equal(buf, table[i].text);
        if (isfinite(table[i].v))
            assert_true(strtod(buf, NULL) == table[i].v);
    }
    uint64_t bits = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17;
        double v;
        memcpy(&v, &bits, sizeof v);
        if (isfinite(v))
            assert_true(strtod(json_format_num(v, buf), NULL) == v);
    }
}

static void write_sample(struct str *s, int indent)
{
    struct json_out o;
    json_out_init(&o, s, indent);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "t", "a\"\\\b\f\n\r\t\x01\x7f\xc3\xa9/");
    json_put_text(&o, "bad", "x\xffy\xe2\x82");
    json_put_text(&o, "none", NULL);
    json_put_int(&o, "i", -9007199254740991);
    json_put_int(&o, "big", INT64_MAX);
    json_put_u64text(&o, "u", UINT64_MAX);
    json_put_num(&o, "inf", INFINITY);
    json_put_bool(&o, "yes", true);
    json_arr_begin(&o, "a");
    json_put_int(&o, NULL, 1);
    json_arr_begin(&o, NULL);
    json_arr_end(&o);
    json_obj_begin(&o, NULL);
    json_obj_end(&o);
    json_put_null(&o, NULL);
    json_arr_end(&o);
    json_obj_end(&o);
}

static void test_writer(void **state)
{
    (void)state;
    struct str s = STR_INIT, again = STR_INIT;
    write_sample(&s, 0);
    assert_string_equal(
        s.p, "{\"t\": \"a\\\"\\\\\\b\\f\\n\\r\\t\\u0001\x7f\xc3\xa9/\", \"bad\": "
        "\"x\xef\xbf\xbdy\xef\xbf\xbd\xef\xbf\xbd\", "
        "\"none\": null, \"i\": -9007199254740991, \"big\": \"9223372036854775807\", "
        "\"u\": \"18446744073709551615\", \"inf\": null, \"yes\": true, \"a\": [1, [], {}, null]}");
    str_clear(&s);
    write_sample(&s, 2);
    struct json_doc doc = {0};
    struct err err = {0};
    if (parse(s.p, &doc, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(json_int(doc.root, "i", 0), -9007199254740991);
    assert_true(json_int(doc.root, "big", 0) == INT64_MAX);
    assert_int_equal(json_int(doc.root, "t", 42), 42);
    assert_true(json_num(doc.root, "missing", 2.5) == 2.5);
    assert_string_equal(json_text(doc.root, "t", ""), "a\"\\\b\f\n\r\t\x01\x7f\xc3\xa9/");
    struct json_out o; /* the tree written again is the same text */
    json_out_init(&o, &again, 2);
    json_put_tree(&o, NULL, doc.root);
    assert_string_equal(again.p, s.p);
    assert_non_null(strstr(s.p, "{\n  \"t\": "));
    assert_non_null(strstr(s.p, "\n  \"a\": [\n    1,\n    [],\n    {},\n    null\n  ]\n}"));
    json_release(&doc);
    str_release(&s);
    str_release(&again);
}

/* ---- misuse of the writer is a bug: it aborts ---- */

static void end_wrong(struct json_out *o)
{
    json_obj_begin(o, NULL);
    json_arr_end(o);
}

static void end_too_often(struct json_out *o)
{
    json_obj_begin(o, NULL);
    json_obj_end(o);
    json_obj_end(o);
}

static void key_missing(struct json_out *o)
{
    json_obj_begin(o, NULL);
    json_put_int(o, NULL, 1);
}

static void key_in_array(struct json_out *o)
{
    json_arr_begin(o, NULL);
    json_put_int(o, "k", 1);
}

static void two_roots(struct json_out *o)
{
    json_put_int(o, NULL, 1);
    json_put_int(o, NULL, 2);
}

static void too_deep(struct json_out *o)
{
    for (int i = 0; i <= LIMIT_JSON_DEPTH; i++)
        json_arr_begin(o, NULL);
}

static void no_misuse(struct json_out *o)
{
    for (int i = 0; i < LIMIT_JSON_DEPTH; i++)
        json_arr_begin(o, NULL);
}

static const struct { void (*write)(struct json_out *); bool aborts; } misuses[] = {
    {end_wrong, true},    {end_too_often, true}, {key_missing, true}, {key_in_array, true},
    {two_roots, true},    {too_deep, true},      {no_misuse, false},
};

static void test_misuse_aborts(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(misuses); i++) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0) {
            struct str s = STR_INIT;
            struct json_out o;
            close(STDERR_FILENO);
            signal(SIGABRT, SIG_DFL);
            json_out_init(&o, &s, 0);
            misuses[i].write(&o);
            _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (misuses[i].aborts ? !(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) : status != 0)
            fail_msg("misuse %zu: status 0x%x", i, (unsigned)status);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),         cmocka_unit_test(test_embedded_nul),
        cmocka_unit_test(test_depth),        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_tables),       cmocka_unit_test(test_table_values),
        cmocka_unit_test(test_places),       cmocka_unit_test(test_schema),
        cmocka_unit_test(test_load),         cmocka_unit_test(test_numbers_read_back),
        cmocka_unit_test(test_writer),       cmocka_unit_test(test_misuse_aborts),
    };
    return cmocka_run_group_tests_name("base_json", tests, NULL, NULL);
}
