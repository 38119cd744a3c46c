/* test_profiles: includes cmocka and checks errors, for the tests of profiles/. */
#ifndef TESTS_TEST_PROFILES_H
#define TESTS_TEST_PROFILES_H

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

void assert_says(const struct err *err, const char *wanted);
void assert_fails(int rc, int code, const struct err *err, const char *wanted);
void assert_ok(int rc, const struct err *err);

/* Fails unless |got / want - 1| <= tolerance, or |got| <= tolerance if want is 0. */
void assert_close(double got, double want, double tolerance, const char *what);

#endif
