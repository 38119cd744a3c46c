/* Option tables: command lines that parse and that do not, layers, and what else is made from the
 * table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/opt.h"

static const char *const kinds[] = {"none", "full", "lora", NULL};
static const struct opt opts[] = {
    {"steps", 'n', OPT_INT, "N", "optimizer steps to run", .fallback = "100", .min = 1, .max = 1e12,
     .flags = OPT_SETTING},
    {"lr", 0, OPT_NUM, "X", "learning rate", .min = 0, .max = 1},
    {"json", 'j', OPT_BOOL, NULL, "print one JSON object"},
    {"color", 'c', OPT_BOOL, NULL, "use color", .fallback = "true", .flags = OPT_SETTING},
    {"out", 'o', OPT_TEXT, "DIR",
     "where the results go; a folder that exists is left as it is unless --force is given as well"},
    {"cache", 0, OPT_BYTES, "SIZE", "memory for the cache", .fallback = "64MiB", .min = 1024,
     .max = 1e12},
    {"deadline", 0, OPT_SECONDS, "TIME", "give up after this long"},
    {"adaln", 0, OPT_ENUM, "KIND", "modulation", .fallback = "full", .choices = kinds,
     .flags = OPT_SETTING},
    {"secret-door", 0, OPT_TEXT, "X", "for tests", .flags = OPT_HIDDEN},
};
static const struct opt_cmd cmd = {"tune",
                                   "find the fastest layout", "MODEL [FILE...]", opts,
                                   ARRAY_LEN(opts), 1, 3,
                                   "First paragraph, with text that is long enough that it has to "
                                   "be wrapped at eighty columns.\n\n"
                                   "  reel tune dit-s\n\nLast."};

/* Split at spaces into argv (at most 15 words); '~' stands for an empty word. */
static int words(char *line, char *argv[16])
{
    int n = 0;
    char *rest = NULL;
    static char name[] = "tune", empty[] = "";
    argv[n++] = name;
    for (char *w = strtok_r(line, " ", &rest); w != NULL && n < 15; w = strtok_r(NULL, " ", &rest))
        argv[n++] = strcmp(w, "~") == 0 ? empty : w;
    argv[n] = NULL;
    return n;
}

static int parse(const char *line, const struct settings *settings, struct opt_values **v,
                 bool *help, struct err *err)
{
    char copy[512];
    char *argv[16];
    snprintf(copy, sizeof copy, "%s", line);
    return opt_parse(&cmd, words(copy, argv), argv, settings, v, help, err);
}

static void add_all(const struct opt_values *v, struct str *s)
{
    const char *const *items;
    str_addf(s, "%lld %g %d%d %s %lld %g %s/%d", (long long)opt_int(v, "steps"), opt_num(v, "lr"),
             opt_bool(v, "json"), opt_bool(v, "color"),
             opt_text(v, "out") ? opt_text(v, "out") : "-", (long long)opt_int(v, "cache"),
             opt_num(v, "deadline"), opt_text(v, "adaln"), opt_enum(v, "adaln"));
    size_t n = opt_operands(v, &items);
    for (size_t i = 0; i < n; i++)
        str_addf(s, " [%s]", items[i]);
}

/* The value of this option came from there. */
static void from(const struct opt_values *v, const char *name, const char *origin)
{
    struct str s = STR_INIT;
    struct json_doc doc;
    opt_json(v, &s);
    assert_int_equal(json_parse(s.p, s.len, "options", &doc, NULL), 0);
    assert_string_equal(json_text(json_member(doc.root, name), "origin", ""), origin);
    json_release(&doc);
    str_release(&s);
}

static const struct {
    const char *line, *result;
} good[] = {
    {"m", "100 0 01 - 67108864 0 full/1 [m]"},
    {"--steps=7 m --json", "7 0 11 - 67108864 0 full/1 [m]"},
    {"m --steps 7 --no-color", "7 0 00 - 67108864 0 full/1 [m]"},
    {"-n7 -jo d m", "7 0 11 d 67108864 0 full/1 [m]"},
    {"-n 7 -jod m", "7 0 11 d 67108864 0 full/1 [m]"},
    {"-jcn 8 m", "8 0 11 - 67108864 0 full/1 [m]"},
    {"--lr=1e-3 --deadline 2h --cache=1K --adaln none m", "100 0.001 01 - 1024 7200 none/0 [m]"},
    {"--steps=2 -n 2 --json -j --no-color --no-color m", "2 0 10 - 67108864 0 full/1 [m]"},
    {"m -- --steps -x", "100 0 01 - 67108864 0 full/1 [m] [--steps] [-x]"},
    {"- ~", "100 0 01 - 67108864 0 full/1 [-] []"},
    {"--out=~ m", "100 0 01 ~ 67108864 0 full/1 [m]"},
    {"--out ~ m", "100 0 01  67108864 0 full/1 [m]"},
    {"--out -x m", "100 0 01 -x 67108864 0 full/1 [m]"},
    {"--out=--x m", "100 0 01 --x 67108864 0 full/1 [m]"},
    {"--secret-door=1 m", "100 0 01 - 67108864 0 full/1 [m]"},
};

static const struct { const char *line, *says; } bad[] = {
    {"", "tune: 0 operands given, 1 needed: tune MODEL [FILE...]"},
    {"a b c d", "tune: 'd' is one operand too many"},
    {"m --stpes=1", "tune: unknown option --stpes: did you mean --steps?"},
    {"m --no-colour", "unknown option --no-colour: did you mean --no-color?"},
    {"m --elephant", "unknown option --elephant: --help lists the options"},
    /* hidden ones are not suggested */
    {"m --secret-dor", "unknown option --secret-dor: --help lists"},
    {"m --no-steps", "unknown option --no-steps"},
    {"m --step=1", "did you mean --steps?"}, /* no abbreviations */
    {"m -x", "unknown option -x"},
    {"m -jx", "unknown option -x"},
    {"m --steps", "--steps needs a value: give --steps=N"},
    {"m --out --json", "--out needs a value: give --out=DIR"},
    {"m -n", "-n needs a value"},
    {"m --json=yes", "--json takes no value: give --json or --no-json"},
    {"m --no-json=yes", "--no-json takes no value"},
    {"m --steps=abc", "--steps is 'abc': give a whole number"},
    {"m --steps=", "--steps is '': give a whole number"},
    {"m --steps=0", "--steps is 0: give a value from 1 to 1000000000000"},
    {"m -n0", "-n is 0: give a value from 1"},
    {"m --lr=1.01", "--lr is 1.01: give a value from 0 to 1"},
    {"m --lr=nan", "--lr is 'nan': give a number"},
    {"m --cache=1", "--cache is 1: give a value from 1024"},
    {"m --cache=1Q", "--cache is '1Q': give a size"},
    {"m --deadline=soon", "--deadline is 'soon': give a duration"},
    {"m --adaln=ful", "--adaln is 'ful': did you mean full? (one of none, full, lora)"},
    {"m --adaln=elephant", "--adaln is 'elephant': give one of none, full, lora"},
    {"m --steps=1 --steps 2", "tune: --steps is given twice, as '1' and as '2': give it once"},
    {"m --steps=1 -n2", "tune: -n is given twice, as '1' and as '2'"},
    {"m --adaln=full --adaln=none", "--adaln is given twice, as 'full' and as 'none'"},
    {"m -j --no-json", "tune: --json and --no-json are both given: give one of them"},
    {"m --", NULL}, /* fine: ends the table of bad ones with a good one that could be mistaken */
};

static void test_lines(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct opt_values *v = NULL;
        struct err err = {0};
        struct str s = STR_INIT;
        bool help = true;
        if (parse(good[i].line, NULL, &v, &help, &err) < 0)
            fail_msg("%s: %s", good[i].line, err.text);
        assert_false(help);
        add_all(v, &s);
        assert_string_equal(s.p, good[i].result);
        str_release(&s);
        opt_free(v);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct opt_values *v = NULL;
        struct err err = {0};
        bool help;
        int rc = parse(bad[i].line, NULL, &v, &help, &err);
        assert_int_equal(rc, bad[i].says != NULL ? ERR_USAGE : 0);
        if (rc < 0) {
            assert_null(v);
            assert_int_equal(err.code, rc);
            if (strstr(err.text, bad[i].says) == NULL)
                fail_msg("'%s' does not say '%s'", err.text, bad[i].says);
            assert_int_equal(parse(bad[i].line, NULL, &v, &help, NULL), rc);
        }
        opt_free(v);
    }
}

/* A command before another program's: its own options are read, the others are handed on in their
 * order. */
static void test_pass(void **state)
{
    static const struct opt few[] = {{"out", 'o', OPT_TEXT, "DIR", "where the results go"},
                                     {"json", 0, OPT_BOOL, NULL, "print JSON"}};
    static const struct opt_cmd pass = {"tune",         "hand on", "ARGS...", few,
                                        ARRAY_LEN(few), 0,         -1,        .pass = true};
    static const struct {
        const char *line, *result;
    } table[] = {
        {"", "- 0"},
        {"a --size 3x4 -o d b", "d 0 [a] [--size] [3x4] [b]"},
        {"-- a -od --size=3", "d 0 [a] [--size=3]"},
        {"--out=d -q --no-json --no-color", "d 0 [-q] [--no-color]"},
        {"-- -- a -o d", "- 0 [--] [a] [-o] [d]"},
        {"a -- --json", "- 0 [a] [--] [--json]"},
        {"--json --help -h", "- 1 [--help] [-h]"},
        {"- -j", "- 0 [-] [-j]"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct opt_values *v = NULL;
        struct err err = {0};
        struct str s = STR_INIT;
        char copy[64], *argv[16];
        const char *const *items;
        bool help;
        snprintf(copy, sizeof copy, "%s", table[i].line);
        assert_int_equal(opt_parse(&pass, words(copy, argv), argv, NULL, &v, &help, &err), 0);
        assert_false(help);
        str_addf(&s, "%s %d", opt_text(v, "out") ? opt_text(v, "out") : "-", opt_bool(v, "json"));
        for (size_t k = 0, n = opt_operands(v, &items); k < n; k++)
            str_addf(&s, " [%s]", items[k]);
        assert_string_equal(s.p, table[i].result);
        str_release(&s);
        opt_free(v);
    }
}

static void test_help_flag(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        bool help;
    } table[] = {
        {"--help", true}, {"-h", true},           {"m --elephant --help", true},
        {"m", false},     {"m -- --help", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct opt_values *v = (struct opt_values *)&table; /* overwritten in any case */
        bool help = !table[i].help;
        assert_int_equal(parse(table[i].line, NULL, &v, &help, NULL), 0);
        assert_int_equal(help, table[i].help);
        assert_int_equal(v == NULL, table[i].help);
        opt_free(v);
    }
}

static const char *const known[] = {"steps", "color", "adaln", "json", NULL};

static void test_layers(void **state)
{
    (void)state;
    const char *const env[] = {"REEL_STEPS=9",
                               "REEL_COLOR=off", "REEL_JSON=true",
                               "REEL_ADALN=lora", "REEL_SITE_CONFIG=/nonexistent",
                               NULL};
    struct settings *settings = NULL;
    struct opt_values *v = NULL;
    struct err err = {0};
    bool help;
    assert_int_equal(settings_load(known, env, &settings, NULL), 0);
    if (parse("m", settings, &v, &help, &err) < 0)
        fail_msg("%s", err.text);
    struct str s = STR_INIT;
    add_all(v, &s);
    /* json is no setting */
    assert_string_equal(s.p, "9 0 00 - 67108864 0 lora/2 [m]");
    from(v, "steps", "env REEL_STEPS");
    from(v, "adaln", "env REEL_ADALN");
    from(v, "cache", "default");
    assert_true(opt_given(v, "steps") && !opt_given(v, "cache") && !opt_given(v, "json"));
    opt_free(v);
    str_clear(&s);
    assert_int_equal(parse("--steps=2 --color --adaln=none m", settings, &v, &help, NULL), 0);
    add_all(v, &s);
    assert_string_equal(s.p, "2 0 01 - 67108864 0 none/0 [m]");
    from(v, "adaln", "flag");
    settings_free(settings); /* the values do not lean on it */
    assert_string_equal(opt_text(v, "adaln"), "none");
    opt_free(v);
    str_release(&s);
}

static void test_bad_settings(void **state)
{
    (void)state;
    static const struct { const char *env, *says; } table[] = {
        {"REEL_STEPS=many", "env REEL_STEPS: setting 'steps' is 'many': give a whole number"},
        {"REEL_STEPS=0", "setting 'steps' is 0: give a value from 1"},
        {"REEL_COLOR=maybe", "setting 'color' is 'maybe': give true or false"},
        {"REEL_ADALN=fulll", "did you mean full?"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const char *const env[] = {table[i].env, "REEL_SITE_CONFIG=/nonexistent", NULL};
        struct settings *settings = NULL;
        struct opt_values *v = NULL;
        struct err err = {0};
        bool help;
        assert_int_equal(settings_load(known, env, &settings, NULL), 0);
        assert_int_equal(parse("m", settings, &v, &help, &err), ERR_INPUT);
        if (strstr(err.text, table[i].says) == NULL)
            fail_msg("'%s' does not say '%s'", err.text, table[i].says);
        /* flags stand above */
        assert_int_equal(parse("m --steps=1 --no-color --adaln=full", settings, &v, &help, NULL),
                         0);
        opt_free(v);
        settings_free(settings);
    }
}

static void test_required(void **state)
{
    (void)state;
    static const struct opt table[] = {
        {"model", 0, OPT_TEXT, "FILE", "the model", .flags = OPT_REQUIRED}};
    static const struct opt_cmd one = {"x", "y", "", table, 1, 0, -1, NULL};
    char line[] = "--model=a b c";
    char *argv[16];
    int argc = words(line, argv);
    struct opt_values *v = NULL;
    struct err err = {0};
    bool help;
    assert_int_equal(opt_parse(&one, 1, argv, NULL, &v, &help, &err), ERR_USAGE);
    assert_string_equal(err.text, "x: --model is required: give --model=FILE");
    assert_int_equal(opt_parse(&one, argc, argv, NULL, &v, &help, &err), 0);
    opt_free(v);
}

static const char help_wanted[] =
    "Usage: reel tune [OPTION...] MODEL [FILE...]\n\nfind the fastest layout\n\n"
    "First paragraph, with text that is long enough that it has to be wrapped at\neighty "
    "columns.\n\n"
    "  reel tune dit-s\n\nLast.\n\nOptions:\n"
    "  -n, --steps=N           optimizer steps to run (from 1 to 1000000000000;\n"
    "                          default 100; setting)\n"
    "      --lr=X              learning rate (from 0 to 1)\n"
    "  -j, --json              print one JSON object\n"
    "  -c, --color             use color (default true; setting)\n"
    "  -o, --out=DIR           where the results go; a folder that exists is left as\n"
    "                          it is unless --force is given as well\n"
    "      --cache=SIZE        memory for the cache (from 1024 to 1000000000000;\n"
    "                          default 64MiB)\n"
    "      --deadline=TIME     give up after this long\n"
    "      --adaln=KIND        modulation (one of none, full, lora; default full;\n"
    "                          setting)\n"
    "  -h, --help              show this help\n";

static void test_help_text(void **state)
{
    (void)state;
    struct str s = STR_INIT;
    opt_help(&cmd, "reel", &s);
    if (!str_starts(s.p, help_wanted))
        assert_string_equal(s.p, help_wanted);
    size_t width = 0;
    for (const char *p = s.p; *p != '\0'; p++) {
        width = *p == '\n' ? 0 : width + 1;
        assert_true(width <= 80);
    }
    str_release(&s);
}

static void test_man_and_completion(void **state)
{
    (void)state;
    static const struct opt table[] = {
        {"dry-run", 0, OPT_BOOL, NULL, ".dots and \\backslashes and -dashes"},
        {"to", 't', OPT_TEXT, "A-B", "it's\n.a request"},
        {"hide", 0, OPT_BOOL, NULL, "hidden", .flags = OPT_HIDDEN},
    };
    static const struct opt_cmd two = {"x", "y", "", table, 3, 0, 0, NULL};
    static const struct opt_note notes[] = {{"reel x --to", "of both", NULL},
                                            {"reel xx", "of another", "xx ax"},
                                            {"reel x", "of x", "xx x"},
                                            {NULL, NULL, NULL}};
    struct str s = STR_INIT;
    opt_man(&two, &(struct opt_page){.program = "reel", .examples = notes, .files = notes}, &s);
    static const char man[] =
        ".TH \"REEL-X\" 1 \"\" \"reel\"\n.SH NAME\nreel\\-x \\- y\n.SH SYNOPSIS\nreel x "
        "[OPTION...]\n"
        ".SH OPTIONS\n"
        ".TP\n\\fB\\-\\-dry\\-run\\fR\n\\&.dots and \\ebackslashes and \\-dashes\n"
        ".TP\n\\fB\\-t\\fR, \\fB\\-\\-to\\fR=\\fIA\\-B\\fR\nit's\n\\&.a request\n"
        ".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nshow the help text\n";
    if (!str_starts(s.p, man))
        assert_string_equal(s.p, man);
    assert_null(strstr(s.p, "hide"));
    assert_non_null(strstr(
        s.p, ".SH EXAMPLES\n.TP\n.B reel x \\-\\-to\nof both\n.TP\n.B reel x\nof x\n.SH FILES\n"));
    assert_non_null(strstr(s.p, "\n.SH ENVIRONMENT\nNone.\n.SH EXIT STATUS\n0 done"));
    str_clear(&s);
    opt_help_examples(&two, &(struct opt_page){.program = "reel", .examples = notes}, &s);
    assert_string_equal(s.p, "\nExamples:\n  reel x --to\n      of both\n  reel x\n      of x\n");
    str_clear(&s);
    opt_man(&(struct opt_cmd){"tool", "y", "FILE", table, 3, 1, 1, "What it\nis."},
            &(struct opt_page){.program = "tool"}, &s);
    assert_non_null(strstr(s.p, ".SH NAME\ntool \\- y\n.SH SYNOPSIS\ntool [OPTION...] FILE\n.SH "
                                "DESCRIPTION\nWhat it\nis.\n.SH OPTIONS\n"));
    str_clear(&s);
    opt_complete(&two, &s);
    assert_string_equal(s.p, "--dry-run\t.dots and \\backslashes and -dashes\n--to\tit's\n.a "
                             "request\n--help\tshow the help text\n");
    str_release(&s);
}

static void test_json(void **state)
{
    (void)state;
    struct opt_values *v = NULL;
    bool help;
    struct str s = STR_INIT;
    assert_int_equal(parse("--lr=0.1 m", NULL, &v, &help, NULL), 0);
    opt_json(v, &s);
    assert_string_equal(s.p, "{\"steps\": {\"value\": 100, \"origin\": \"default\"}, \"lr\": "
                             "{\"value\": 0.1, \"origin\": \"flag\"}, "
                             "\"json\": {\"value\": false, \"origin\": \"default\"}, \"color\": "
                             "{\"value\": true, \"origin\": \"default\"}, "
                             "\"out\": {\"value\": null, \"origin\": \"default\"}, \"cache\": "
                             "{\"value\": 67108864, \"origin\": \"default\"}, "
                             "\"deadline\": {\"value\": null, \"origin\": \"default\"}, \"adaln\": "
                             "{\"value\": \"full\", \"origin\": \"default\"}, "
                             "\"secret-door\": {\"value\": null, \"origin\": \"default\"}}");
    opt_free(v);
    str_release(&s);
}

static const struct {
    struct opt o;
    const char *says;
} mistakes[] = {
    {{"Steps", 0, OPT_INT, "N", "h"}, "lower case"},
    {{"a", 0, OPT_INT, "N", "h"}, "the name is taken"},
    {{"help", 0, OPT_BOOL, NULL, "h"}, "the name is taken"},
    {{"b", 'a', OPT_INT, "N", "h"}, "the letter is taken"},
    {{"b", 0, OPT_BOOL, "N", "h"}, "booleans have no arg"},
    {{"b", 0, OPT_INT, NULL, "h"}, "booleans have no arg"},
    {{"b", 0, OPT_ENUM, "N", "h"}, "enums have choices"},
    {{"b", 0, OPT_TEXT, "N", "h", .max = 3}, "bounds on something"},
    {{"b", 0, OPT_TEXT, "N", "h."}, "full stop"},
    {{"b", 0, OPT_TEXT, "N", "h", .fallback = "x", .flags = OPT_REQUIRED}, "required"},
    {{"b", 0, OPT_INT, "N", "h", .fallback = "x"}, "b is 'x': give a whole number"},
    {{"b", 0, OPT_INT, "N", "h", .fallback = "9", .min = 1, .max = 3},
     "b is 9: give a value from 1 to 3"},
};

static void test_table_check(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(opt_check(&cmd, &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(mistakes); i++) {
        struct opt table[2] = {{"a", 'a', OPT_INT, "N", "h"}, mistakes[i].o};
        struct opt_cmd one = {"x", "y", "", table, 2, 0, 0, NULL};
        assert_true(opt_check(&one, &err) < 0);
        if (strstr(err.text, mistakes[i].says) == NULL)
            fail_msg("'%s' does not say '%s'", err.text, mistakes[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines), cmocka_unit_test(test_pass), cmocka_unit_test(test_help_flag),
        cmocka_unit_test(test_layers), cmocka_unit_test(test_required),
        cmocka_unit_test(test_bad_settings), cmocka_unit_test(test_help_text),
        cmocka_unit_test(test_json), cmocka_unit_test(test_man_and_completion),
        cmocka_unit_test(test_table_check),
    };
    return cmocka_run_group_tests_name("base_opt", tests, NULL, NULL);
}
