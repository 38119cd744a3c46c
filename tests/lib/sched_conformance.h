/* sched_conformance: tests what every implementation of launcher/sched must do, by sched.h only.
 *
 * A test program fills in a struct conform and calls conform_write_program in the setup of its
 * cmocka group of CONFORM_TESTS, and lets main() call conform_program() first: jobs of the suite
 * run the test program itself when they have to use the interface from inside (a job that requeues
 * itself).
 *
 *     int main(int argc, char **argv)
 *     {
 *         if (conform_program(argc, argv, &rc)) return rc;
 *         const struct CMUnitTest tests[] = {CONFORM_TESTS};
 *         return cmocka_run_group_tests_name("sched conformance (local)", tests, setup, teardown);
 *     }
 *
 * Independent jobs are submitted together and then collected. States are waited for with a long
 * patience; no test asserts how long something took. Scripts wait for files, not for time, where
 * the order matters. */
#ifndef TESTS_SCHED_CONFORMANCE_H
#define TESTS_SCHED_CONFORMANCE_H

#include "tests/lib/sched_helpers.h"

/* Writes `program` into the scratch folder. It runs this test program and tells it where the
 * scheduler is. */
void conform_write_program(void);

/* Runs what a job of these tests runs: it requeues the job that it is in, and ends with a code that
 * is not 0. Returns true when argv was for us. */
bool conform_program(int argc, char **argv, int *rc);

/* ---- the tests, of which some read what the jobs of `cases` left ---- */

void conform_test_describe(void **state);
void conform_test_refusals(void **state);
void conform_test_cases(void **state);
void conform_test_token(void **state);
void conform_test_log_over_restarts(void **state);
void conform_test_environment(void **state);
void conform_test_folder(void **state);
void conform_test_unknown_and_ended(void **state);
void conform_test_order(void **state);
void conform_test_after(void **state);
void conform_test_preempt(void **state);
void conform_test_steps(void **state);
void conform_test_step_limits(void **state);

/* A program runs all of them in this order, or one of them alone. Jobs that a failed test left are
 * cancelled. */
#define CONFORM_TEST(name) cmocka_unit_test_teardown(conform_test_##name, conform_cancel_all)
#define CONFORM_TESTS                                                                              \
    CONFORM_TEST(describe), CONFORM_TEST(refusals), CONFORM_TEST(cases), CONFORM_TEST(token),      \
        CONFORM_TEST(log_over_restarts), CONFORM_TEST(environment), CONFORM_TEST(folder),          \
        CONFORM_TEST(unknown_and_ended), CONFORM_TEST(order), CONFORM_TEST(after),                 \
        CONFORM_TEST(preempt), CONFORM_TEST(steps), CONFORM_TEST(step_limits)

#endif
