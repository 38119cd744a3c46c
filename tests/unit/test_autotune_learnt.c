/* Of what earlier tunings measured, the newest measurements count, and a new tuning begins from them
 * with more doubt than they leave. */
#include "tests/lib/test_profiles.h"

#include <math.h>

#include "autotune/learnt.h"
#include "base/events.h"
#include "base/evlog.h"
#include "tests/lib/scratch.h"

static const struct price_bill priced = {.term = {[PRICE_GEMM] = 1, [PRICE_ELEMENTWISE] = 1}};

/* Writes the log of a tuning of n trials, which all took so long. Each was priced at 2 s. */
static void tuning_write(const char *id, int n, double measured_s)
{
    char events[512];
    const struct evlog_ids ids = {id, 0, "tune", NULL};
    struct evlog_event e;
    struct evlog *log;
    struct err err;
    snprintf(events, sizeof events, "%s/tunes/%s/events", scratch, id);
    assert_ok(file_mkdirs(events, &err), &err);
    assert_ok(evlog_open(events, &ids, &log, &err), &err);
    event_begin(log, &e, tune_started);
    event_text(&e, tune_started, learns, "key");
    assert_ok(evlog_commit(log, &e, true, &err), &err);
    for (int i = 0; i < n; i++) {
        event_begin(log, &e, trial_predicted);
        learnt_terms_write(EVENT_FIELD(trial_predicted, priced, TREE), priced.term, &e.out);
        assert_ok(evlog_commit(log, &e, false, &err), &err);
        event_begin(log, &e, trial_ended);
        event_text(&e, trial_ended, state, "ok");
        event_num(&e, trial_ended, measured_step_s, measured_s);
        assert_ok(evlog_commit(log, &e, false, &err), &err);
    }
    evlog_close(log);
}

static struct fit *learnt(const char *own, const char *key)
{
    static struct fit fit;
    struct err err;
    assert_ok(learnt_read(scratch, own, key, &fit, &err), &err);
    return &fit;
}

/* As many trials as are read took 6 s in a newer tuning, and 2 s in an older one, whose folder has
 * the name that comes first. */
static void newest_count(void **state)
{
    (void)state;
    tuning_write("a", LEARNT_MOST, 2);
    tuning_write("b", LEARNT_MOST, 6);
    const struct fit *fit = learnt("own", "key");
    assert_int_equal(fit->n, LEARNT_MOST);
    assert_close(fit_step(fit, &priced, NULL, NULL), 6, 0.01, "the newer one");
    assert_close(fit_step(learnt("b", "key"), &priced, NULL, NULL), 2, 0.01, "of others alone");
    assert_int_equal(learnt("own", "another key")->n, 0);
}

/* A new tuning begins at the scales that were learnt. Of each, the variance is larger by that of
 * 0.3 standard deviations before any trial. */
static void begins_with_doubt(void **state)
{
    static struct fit none, earlier, begun;
    double was, is;
    (void)state;
    fit_init(&none), fit_init(&earlier), fit_init(&begun);
    fit_begin(&begun, &earlier);
    assert_memory_equal(&begun, &none, sizeof none);
    for (int i = 0; i < 20; i++)
        fit_add(&earlier, &priced, 6);
    fit_begin(&begun, &earlier);
    assert_close(fit_step(&begun, &priced, NULL, &is), fit_step(&earlier, &priced, NULL, &was),
                 1e-12, "the scales");
    assert_true(is > was && begun.n == 0);
    for (int k = 0; k < FIT_SCALES; k++)
        assert_close(begun.cov[k][k] - earlier.cov[k][k], 0.3 * 0.3 * none.cov[k][k], 1e-9,
                     "doubt");
    fit_add(&begun, &priced, 3); /* one measurement moves it towards another model's truth */
    double moved = fit_step(&begun, &priced, NULL, NULL);
    assert_true(moved < 3.5);
    fit_add(&earlier, &priced, 3);
    assert_true(fit_step(&earlier, &priced, NULL, NULL) > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(newest_count, scratch_setup, scratch_teardown),
        cmocka_unit_test(begins_with_doubt)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
