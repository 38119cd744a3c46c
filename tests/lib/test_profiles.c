#include "tests/lib/test_profiles.h"

void assert_says(const struct err *err, const char *wanted)
{
    if (!strstr(err->text, wanted))
        fail_msg("'%s' does not say '%s'", err->text, wanted);
}

void assert_fails(int rc, int code, const struct err *err, const char *wanted)
{
    if (rc != code)
        fail_msg("result %s instead of %s, for '%s': %s", err_name(rc), err_name(code), wanted,
                 rc < 0 ? err->text : "");
    assert_says(err, wanted);
}

void assert_ok(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s", err->text);
}

void assert_close(double got, double want, double tolerance, const char *what)
{
    double off = want != 0 ? got / want - 1 : got;
    if (!(off <= tolerance && off >= -tolerance))
        fail_msg("%s: got %.17g, want %.17g: off by %.3g, allowed %.3g", what, got, want, off,
                 tolerance);
}
