/* What the tests of profiles/ share: cmocka's includes, and looking for a piece of an error
 * sentence. */
#ifndef TESTS_UNIT_TEST_PROFILES_H
#define TESTS_UNIT_TEST_PROFILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

static inline void assert_says(const struct err *err, const char *wanted)
{
    if (!strstr(err->text, wanted))
        fail_msg("'%s' does not say '%s'", err->text, wanted);
}

static inline void assert_fails(int rc, int code, const struct err *err, const char *wanted)
{
    if (rc != code)
        fail_msg("result %s instead of %s, for '%s': %s", err_name(rc), err_name(code), wanted,
                 rc < 0 ? err->text : "");
    assert_says(err, wanted);
}

static inline void assert_ok(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s", err->text);
}

/* Fails unless |got / want - 1| <= tolerance. */
static inline void assert_close(double got, double want, double tolerance, const char *what)
{
    double off = want != 0 ? got / want - 1 : got;
    if (!(off <= tolerance && off >= -tolerance))
        fail_msg("%s: got %.17g, want %.17g: off by %.3g, allowed %.3g", what, got, want, off,
                 tolerance);
}

#endif
