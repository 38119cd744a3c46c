/* Settings: which layer wins, where a value came from, and what is refused in a file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/settings.h"
#include "base/str.h"

static const char *const known[] = {"steps", "min-gain", "partition", "db", NULL};

/* A folder with a user and a site file, and the environment that leads to them. */
struct place {
    char dir[256], user[320], site[320], env_home[320], env_site[340];
};

static int set_up(void **state)
{
    static struct place p;
    const char *tmp = getenv("TMPDIR");
    snprintf(p.dir, sizeof p.dir, "%s/reel-settings-XXXXXX", tmp ? tmp : "/tmp");
    if (mkdtemp(p.dir) == NULL)
        return -1;
    snprintf(p.user, sizeof p.user, "%s/home/.config/reel", p.dir);
    if (file_mkdirs(p.user, NULL) < 0)
        return -1;
    snprintf(p.user, sizeof p.user, "%s/home/.config/reel/config", p.dir);
    snprintf(p.site, sizeof p.site, "%s/site.conf", p.dir);
    snprintf(p.env_home, sizeof p.env_home, "HOME=%s/home", p.dir);
    snprintf(p.env_site, sizeof p.env_site, "REEL_SITE_CONFIG=%s", p.site);
    *state = &p;
    return 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;
    return file_remove_tree(p->dir, NULL);
}

static void put(const char *path, const char *text)
{
    assert_int_equal(file_publish(path, text, strlen(text), NULL), 0);
}

static void expect(const struct settings *s, const char *key, const char *value, const char *origin)
{
    const char *from = NULL, *got = settings_get(s, key, &from);
    assert_non_null(got);
    assert_string_equal(got, value);
    assert_string_equal(from, origin);
}

static void test_layers(void **state)
{
    const struct place *p = *state;
    const char *const env[] = {
        p->env_home, p->env_site, "REEL_MIN_GAIN=0.03", "REEL_HOME=/x", "REEL_STEPS=",
        "PATH=/bin", NULL};
    char user[400], site[400];
    put(p->user, "# comment\n\n  steps =  20  # a few\nmin-gain=0.5\n\tdb = /a b/#1.db\r\n");
    put(p->site, "steps = 30\npartition = low");
    snprintf(user, sizeof user, "%s:3", p->user);
    struct settings *s = NULL;
    struct err err = {0};
    if (settings_load(known, env, &s, &err) < 0)
        fail_msg("%s", err.text);
    expect(s, "steps", "20", user); /* an empty REEL_STEPS is none */
    expect(s, "min-gain", "0.03", "env REEL_MIN_GAIN");
    snprintf(site, sizeof site, "%s:2", p->site);
    expect(s, "partition", "low", site);
    snprintf(user, sizeof user, "%s:5", p->user);
    expect(s, "db", "/a b/#1.db", user);
    settings_free(s);
    settings_free(NULL);
}

static void test_xdg_wins(void **state)
{
    const struct place *p = *state;
    char xdg[400], path[400];
    snprintf(path, sizeof path, "%s/xdg/reel", p->dir);
    assert_int_equal(file_mkdirs(path, NULL), 0);
    snprintf(path, sizeof path, "%s/xdg/reel/config", p->dir);
    snprintf(xdg, sizeof xdg, "XDG_CONFIG_HOME=%s/xdg", p->dir);
    put(path, "steps=1\n");
    put(p->user, "steps=2\n");
    unlink(p->site);
    const char *const env[] = {p->env_home, p->env_site, xdg, NULL};
    struct settings *s = NULL;
    assert_int_equal(settings_load(known, env, &s, NULL), 0);
    assert_string_equal(settings_get(s, "steps", NULL), "1");
    assert_null(settings_get(s, "db", NULL));
    settings_free(s);
}

static void test_nothing(void **state)
{
    const struct place *p = *state;
    const char *const env[] = {"REEL_SITE_CONFIG=/nonexistent/config", NULL};
    struct settings *s = NULL;
    (void)p;
    assert_int_equal(settings_load(known, env, &s, NULL), 0);
    assert_null(settings_get(s, "steps", NULL));
    settings_free(s);
}

static const struct { const char *text, *says; } bad[] = {
    {"steps = 1\nstpes = 2\n", ":2: 'stpes' is not a setting: did you mean 'steps'?"},
    {"elephant = 2\n", ":1: 'elephant' is not a setting: `reel config` lists them"},
    {"steps 1\n", ":1: 'steps 1' is not a setting: write `key = value`"},
    {"= 1\n", "write `key = value`"},
    {"\n\nsteps =   # none\n", ":3: 'steps' has no value"},
    {"steps = 1\ndb = x\nsteps = 2\n", ":3: 'steps' was set before at "},
    {"Steps = 1\n", "did you mean 'steps'?"},
};

static void test_bad_files(void **state)
{
    const struct place *p = *state;
    const char *const env[] = {p->env_home, p->env_site, NULL};
    unlink(p->site);
    for (int layer = 0; layer < 2; layer++) {
        const char *path = layer == 0 ? p->user : p->site;
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            struct settings *s = NULL;
            struct err err = {0};
            put(path, bad[i].text);
            assert_int_equal(settings_load(known, env, &s, &err), ERR_INPUT);
            assert_null(s);
            if (!str_starts(err.text, path) || strstr(err.text, bad[i].says) == NULL)
                fail_msg("'%s' does not say '%s'", err.text, bad[i].says);
        }
        unlink(path);
    }
    assert_int_equal(file_publish(p->user, "steps = 1\0\n", 11, NULL), 0);
    struct err err = {0};
    struct settings *s = NULL;
    assert_int_equal(settings_load(known, env, &s, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "zero byte"));
    unlink(p->user);
    assert_int_equal(file_mkdirs(p->user, NULL), 0); /* a folder where a file should be */
    assert_true(settings_load(known, env, &s, &err) < 0);
    assert_non_null(strstr(err.text, p->user));
    assert_int_equal(rmdir(p->user), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers), cmocka_unit_test(test_xdg_wins),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_bad_files),
    };
    return cmocka_run_group_tests_name("base_settings", tests, set_up, tear_down);
}
