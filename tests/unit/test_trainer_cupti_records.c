/* What was recorded of a GPU: which operation and layer queued an activity, and that what finds no
 * room is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "trainer/cupti/records.h"

static int setup(void **state)
{
    struct records *r = malloc(sizeof *r);
    *state = r;
    return r ? records_open(r, NULL) : -1;
}

static int teardown(void **state)
{
    records_close(*state);
    free(*state);
    return 0;
}

/* Queues a kernel by a call at a moment of a thread; it runs much later. */
static void kernel(struct records *r, const char *name, uint32_t call, uint32_t thread, uint64_t at)
{
    records_call(r, call, thread, at);
    records_activity(r, RECORD_KERNEL, name, 10000 + at, 10001 + at, call);
}

static const struct record_activity *find(const struct records *r, uint32_t call)
{
    for (int64_t i = 0; i < r->n_activities; i++)
        if (r->activities[i].call == call)
            return &r->activities[i];
    fail_msg("call %u has no activity", call);
    return NULL;
}

static void assert_ranges(const struct records *r, uint32_t call, const char *range,
                         const char *layer, enum kernel_class class)
{
    const struct record_activity *a = find(r, call);
    assert_string_equal(r->names[a->range].text, range);
    assert_string_equal(r->names[a->layer].text, layer);
    assert_string_equal(kernel_class_names[a->class], kernel_class_names[class]);
}

/* Marks lie in each other, threads have their own, and the order of records says nothing. */
static void ranges(void **state)
{
    struct records *r = *state;
    kernel(r, "first", 9, 1, 5);
    records_range_begin(r, 1, 1, "step 4", 10);
    records_range_begin(r, 2, 1, "layer 0", 20);
    records_range_begin(r, 3, 1, "gemm", 30);
    kernel(r, "some_kernel", 12, 2, 32); /* of a thread without ranges */
    kernel(r, "some_kernel", 11, 1, 31);
    records_range_end(r, 3, 40);
    kernel(r, "some_kernel", 10, 1, 45);
    records_range_end(r, 2, 50);
    records_range_begin(r, 4, 1, "adamw", 60);
    kernel(r, "nvjet_tst_64x8", 14, 1, 61);
    records_range_end(r, 4, 70);
    records_range_begin(r, 5, 2, "sumsq", 60);
    kernel(r, "ncclDevKernel_AllReduce", 15, 2, 62);
    records_range_end(r, 1, 80);
    records_activity(r, RECORD_KERNEL, "nobody's", 7, 8, 99);
    records_activity(r, RECORD_COPY, "copy", 7, 8, 98);
    records_activity(r, RECORD_PEER_COPY, "copy", 7, 8, 97);
    records_join(r);
    assert_ranges(r, 9, "", "", KERNEL_OTHER);
    assert_ranges(r, 10, "layer 0", "layer 0", KERNEL_OTHER);
    assert_ranges(r, 11, "gemm", "layer 0", KERNEL_GEMM);
    assert_ranges(r, 12, "", "", KERNEL_OTHER);
    assert_ranges(r, 14, "adamw", "", KERNEL_OPTIMIZER);
    assert_ranges(r, 15, "sumsq", "", KERNEL_COMMUNICATION);
    assert_ranges(r, 99, "", "", KERNEL_OTHER);
    assert_ranges(r, 98, "", "", KERNEL_COPY);
    assert_ranges(r, 97, "", "", KERNEL_COMMUNICATION);
}

/* Steps are what ranges say, or all that was recorded. */
static void steps(void **state)
{
    struct records *r = *state;
    struct records_steps s = records_steps(r);
    assert_int_equal(s.n, 0);
    records_activity(r, RECORD_KERNEL, "a", 700, 900, 1);
    records_activity(r, RECORD_KERNEL, "b", 400, 500, 2);
    s = records_steps(r);
    assert_true(s.n == 1 && s.from_ns == 400 && s.to_ns == 900 && !s.named);
    records_range_begin(r, 1, 1, "step 7", 100);
    s = records_steps(r);
    assert_true(s.n == 1 && !s.named); /* it is not over */
    records_range_end(r, 1, 200);
    records_range_begin(r, 1, 1, "step 8", 210); /* ids come again */
    records_range_end(r, 1, 300);
    s = records_steps(r);
    assert_true(s.n == 2 && s.from_ns == 100 && s.to_ns == 300 && s.named);
}

static void full(void **state)
{
    struct records *r = *state;
    char name[32];
    for (int64_t i = 0; i < RECORDS_ACTIVITIES + 3; i++)
        records_activity(r, RECORD_KERNEL, "gemm", (uint64_t)i, (uint64_t)i + 1, 0);
    assert_int_equal(r->dropped, 3);
    for (int64_t i = 0; i < RECORDS_CALLS + 2; i++)
        records_call(r, (uint32_t)i, 1, (uint64_t)i);
    assert_int_equal(r->dropped, 5);
    for (int i = 0; i < RECORDS_NAMES + 9; i++) {
        snprintf(name, sizeof name, "range %d", i);
        records_range_begin(r, (uint32_t)i, 1, name, 0);
        records_range_end(r, (uint32_t)i, 1);
    }
    assert_int_equal(r->n_names, RECORDS_NAMES);
    assert_int_equal(r->n_activities, RECORDS_ACTIVITIES);
    assert_string_equal(r->names[r->ranges[RECORDS_NAMES + 8].name].text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ranges, setup, teardown),
        cmocka_unit_test_setup_teardown(steps, setup, teardown),
        cmocka_unit_test_setup_teardown(full, setup, teardown),
    };
    return cmocka_run_group_tests_name("trainer_cupti_records", tests, NULL, NULL);
}
