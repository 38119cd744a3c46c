/* The recorder's buffers: they are as many as the pool has, each is given again when it came back,
 * and what found none is counted. CUPTI is this file's own: it holds buffers back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/shim/cupti.h"
#include "trainer/cupti/recorder.h"

enum { POOL = 64, MORE = 3 };
static struct {
    CUpti_BuffersCallbackRequestFunc request;
    CUpti_BuffersCallbackCompleteFunc complete;
    uint8_t *held[POOL]; /* each has one record */
    size_t size;
    int n;
    size_t dropped; /* that it tells of */
    uint64_t now;
} cupti;

/* ---- CUPTI ---- */

CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle *out, CUpti_CallbackFunc callback, void *ctx,
                              CUpti_SubscriberParams *params)
{
    (void)callback, (void)ctx, (void)params;
    *out = (CUpti_SubscriberHandle)(void *)&cupti;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber)
{
    (void)subscriber;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete)
{
    cupti.request = request, cupti.complete = complete;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) { return (void)kind, CUPTI_SUCCESS; }
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) { return (void)kind, CUPTI_SUCCESS; }
CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record)
{
    assert_int_equal(valid, sizeof(CUpti_ActivityKernel10));
    if (*record)
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)(void *)buffer;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *n)
{
    (void)context, (void)stream;
    *n = cupti.dropped;
    return CUPTI_SUCCESS;
}
CUptiResult cuptiGetTimestamp(uint64_t *ns) { return *ns = cupti.now++, CUPTI_SUCCESS; }
CUptiResult cuptiGetResultString(CUptiResult e, const char **text)
{
    return (void)e, *text = "no", CUPTI_SUCCESS;
}

/* Asks for a buffer, puts a kernel into it and keeps it. Returns whether there was one. */
static bool fill(void)
{
    uint8_t *buffer = (uint8_t *)&cupti;
    size_t most;
    CUpti_ActivityKernel10 k = {.kind = CUPTI_ACTIVITY_KIND_KERNEL, .start = cupti.now++,
                                .end = cupti.now++, .name = "gemm"};
    cupti.request(&buffer, &cupti.size, &most);
    if (!buffer) {
        assert_int_equal(cupti.size, 0);
        return false;
    }
    assert_true(cupti.size >= sizeof k && (uintptr_t)buffer % 8 == 0 && cupti.n < POOL);
    for (int i = 0; i < cupti.n; i++) /* it overlaps with none of the others */
        assert_true(labs(buffer - cupti.held[i]) >= (long)cupti.size);
    memset(buffer, 0xff, cupti.size);
    memcpy(buffer, &k, sizeof k);
    cupti.held[cupti.n++] = buffer;
    return true;
}

static void give_back(void)
{
    cupti.complete(NULL, 0, cupti.held[--cupti.n], cupti.size, sizeof(CUpti_ActivityKernel10));
}

CUptiResult cuptiActivityFlushAll(uint32_t flag)
{
    assert_int_equal(flag, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    while (cupti.n)
        give_back();
    return CUPTI_SUCCESS;
}

/* ---- tests ---- */

static struct activity_result end(void)
{
    struct activity_result r = {0};
    struct activity_facts facts = {.steps = 1};
    struct err err = {0};
    if (recorder_end(&facts, NULL, &r, &err) < 0)
        fail_msg("%s", err.text);
    return r;
}

static void begin(void)
{
    struct err err = {0};
    if (recorder_begin(&err) < 0)
        fail_msg("%s", err.text);
}

static void buffers_are_bounded(void **state)
{
    (void)state;
    begin();
    for (int i = 0; i < POOL; i++)
        assert_true(fill());
    for (int i = 0; i < MORE; i++)
        assert_false(fill());
    uint8_t *last = cupti.held[POOL - 1];
    give_back();
    assert_true(fill() && cupti.held[POOL - 1] == last);
    assert_false(fill());
    struct activity_result r = end();
    assert_int_equal(r.activities, POOL + 1);
    assert_int_equal(r.dropped, MORE + 1);
}

/* CUPTI's own count of drops goes before ours; a new recording begins at none. */
static void drops_are_counted(void **state)
{
    (void)state;
    begin();
    assert_true(fill());
    assert_int_equal(end().dropped, 0);
    begin();
    while (fill())
        ;
    cupti.dropped = 7;
    assert_int_equal(end().dropped, 7);
    cupti.dropped = 0;
}

/* A buffer that comes back behind the end is not read, and free for the next recording. */
static void late_buffers_are_left(void **state)
{
    (void)state;
    begin();
    assert_true(fill());
    uint8_t *late = cupti.held[0];
    cupti.n = 0;
    assert_true(fill());
    assert_int_equal(end().activities, 1);
    cupti.held[cupti.n++] = late;
    give_back();
    begin();
    for (int i = 0; i < POOL; i++)
        assert_true(fill());
    assert_int_equal(end().activities, POOL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(buffers_are_bounded),
                                       cmocka_unit_test(drops_are_counted),
                                       cmocka_unit_test(late_buffers_are_left)};
    return cmocka_run_group_tests_name("trainer_cupti_recorder", tests, NULL, NULL);
}
