// LINK: -Wl,--wrap=clock_wall_s,--wrap=clock_mono_s,--wrap=clock_boot_id,--wrap=clock_host
/* `test_launcher_report --write DIR` fills DIR as a REEL_HOME with the fixture's logs: for looking
 * at a page. */
#include "tests/lib/events_fixture.h"

#include "db/ingest.h"
#include "launcher/report/chart.h"
#include "launcher/report/report.h"
#include "launcher/report/report_plan.h"

static char *home;
static struct store *db;

static int setup(void **state)
{
    (void)state;
    home = fx_dir();
    fx_reset();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    store_close(db);
    db = NULL;
    return file_remove_tree(home, NULL);
}

static void ingest(void)
{
    char path[400];
    struct err err = {0};
    bool stale;
    snprintf(path, sizeof path, "%s/reel.db", home);
    store_close(db);
    db = NULL;
    if (ingest_open(path, (const char *const[]){home}, 1, 0, &db, &stale, &err) < 0)
        fail_msg("%s", err.text);
}

/* Returns new. */
static char *page(const char *run, const char *tune, bool json)
{
    struct report_scope scope;
    struct report_numbers n;
    struct str out = STR_INIT;
    struct err err = {0};
    if (report_scope_find(db, run, tune, NULL, &scope, &err) < 0 ||
        report_numbers_read(db, &scope, &n, &err) < 0 ||
        (json ? report_json : report_html)(db, &scope, &n, &out, &err) < 0)
        fail_msg("%s", err.text);
    return str_detach(&out);
}

static int64_t ask(const char *sql)
{
    int64_t n = -1;
    struct err err = {0};
    if (store_ask_int(db, sql, &n, &err) < 0)
        fail_msg("%s", err.text);
    return n;
}

static int64_t count(const char *text, const char *needle)
{
    int64_t n = 0;
    for (const char *p = text; (p = strstr(p, needle)); p += strlen(needle))
        n++;
    return n;
}

/* Sum of data-rows over the marks that begin so, between two places of the page. */
static int64_t rows_of(const char *text, const char *until, const char *mark)
{
    int64_t n = 0;
    for (const char *p = text; (p = strstr(p, mark)) && (!until || p < until); p++) {
        const char *rows = strstr(p, "data-rows=\"");
        assert_non_null(rows);
        assert_true(rows < strchr(p, '>'));
        n += atoll(rows + 11);
    }
    return n;
}

/* Every mark is a row of its view, and every row of a view a mark. */
static void marks_match(const char *text)
{
    const char *mfu = strstr(text, "<h2>Model-FLOPs"), *loss = strstr(text, "<h2>Loss"),
               *time = strstr(text, "<h2>Where the time");
    assert_true(mfu && loss && time);
    assert_int_equal(rows_of(mfu, loss, "<path class=\"step\""),
                     ask("SELECT count(mfu) FROM v_step WHERE NOT replayed"));
    assert_int_equal(rows_of(mfu, loss, "<path class=\"replay\""),
                     ask("SELECT count(mfu) FROM v_step WHERE replayed"));
    assert_int_equal(rows_of(loss, time, "<path class=\"step\""),
                     ask("SELECT count(loss) FROM v_step WHERE NOT replayed"));
    assert_int_equal(rows_of(loss, time, "<path class=\"replay\""),
                     ask("SELECT count(loss) FROM v_step WHERE replayed"));
    assert_int_equal(rows_of(time, NULL, "<rect class=\"span "),
                     ask("SELECT count(*) FROM v_time"));
    assert_int_equal(rows_of(time, NULL, "<path class=\"trial"),
                     ask("SELECT count(*) FROM v_trial WHERE predicted_step_s IS NOT NULL AND "
                         "measured_step_s IS NOT NULL"));
    assert_int_equal(count(time, "class=\"bar "), ask("SELECT count(DISTINCT cause) FROM v_time"));
    assert_int_equal(count(text, "class=\"attempt-row\""), ask("SELECT count(*) FROM v_attempt"));
    assert_int_equal(count(text, "<tr class=\"trial-row"), ask("SELECT count(*) FROM v_trial"));
}

static void test_marks_are_the_rows(void **state)
{
    (void)state;
    fx_home(home);
    ingest();
    char *text = page("demo", NULL, false);
    marks_match(text);
    assert_int_equal(count(text, "class=\"event\""), 2 * 2); /* two interruptions on two charts */
    assert_int_equal(count(text, "attempt 1: preempt"), 2);
    assert_int_equal(count(text, "attempt 2: crash"), 2);
    assert_int_equal(count(text, "class=\"trial winner\""), 1);
    assert_int_equal(count(text, "class=\"source-row\""), 3);
    assert_non_null(strstr(text, "forest &lt;night&gt; &amp; fog.mp4"));
    assert_non_null(strstr(text, "restarts: 1 crash, 1 preempt"));
    assert_non_null(strstr(text, "measured FMA rate x 2 cores"));
    assert_null(strstr(text, "<script"));
    assert_null(strstr(text, "http"));
    assert_null(strstr(text, "nan"));
    free(text);
}

/* A run too long for a dot a step: marks stand for several rows, and none is lost. */
static void test_many_steps_are_binned(void **state)
{
    char events[512];
    (void)state;
    snprintf(events, sizeof events, "%s/runs/" FX_RUN "/events", home);
    struct evlog *log = fx_open(events, FX_RUN, 1, "rank0");
    fx_train_started(log, 0, 4001);
    for (int s = 0; s < 4001; s++) {
        fx_step(log, s, 0.5, fx_loss(s));
        fx_pass(0.01);
    }
    evlog_close(log);
    log = fx_open(events, FX_RUN, 2, "rank0");
    fx_train_started(log, 3990, 4001);
    for (int s = 3990; s < 4001; s++)
        fx_step(log, s, 0.5, fx_loss(s));
    evlog_close(log);
    ingest();
    char *text = page(FX_RUN, NULL, false);
    marks_match(text);
    assert_true(count(text, "<path class=\"step\"") < 2 * 1600 &&
                count(text, "<path class=\"step\"") > 1000);
    assert_true(count(text, "class=\"span ") < 1600);
    assert_non_null(strstr(text, "mean of up to 3 neighbouring steps"));
    free(text);
}

/* Writes attempts of four steps of 10 s, each of which begins from step 0 again. */
static void attempts_write(int n)
{
    char events[512];
    snprintf(events, sizeof events, "%s/runs/" FX_RUN "/events", home);
    for (int attempt = 1; attempt <= n; attempt++) {
        struct evlog *log = fx_open(events, FX_RUN, attempt, "rank0");
        fx_train_started(log, 0, 100);
        for (int s = 0; s < 4; s++)
            fx_step(log, s, 10, fx_loss(s));
        evlog_close(log);
    }
}

/* Attempts that end at one step have one line and one label, which names them all. */
static void test_ends_at_one_step(void **state)
{
    (void)state;
    attempts_write(7);
    ingest();
    char *text = page(FX_RUN, NULL, false);
    assert_int_equal(count(text, "class=\"event\""), 2); /* on two charts */
    assert_int_equal(count(text, ">attempts 1 to 6: lost<"), 2);
    assert_int_equal(rows_of(text, NULL, "<line class=\"event\""), 2 * 6);
    free(text);
}

/* The labels above the strip of time end before the next begins, and before the picture does. */
static void test_labels_of_attempts(void **state)
{
    (void)state;
    attempts_write(12);
    ingest();
    char *text = page(FX_RUN, NULL, false), *p = strstr(text, "Where the time");
    double end = 0;
    int n = 0;
    while ((p = strstr(p, "<text class=\"note\" x=\""))) {
        double x = strtod(p + strlen("<text class=\"note\" x=\""), NULL);
        const char *label = strchr(p, '>') + 1;
        assert_true(x >= end);
        end = x + 7.5 * (double)strcspn(label, "<"); /* as DejaVu Sans Bold has it */
        assert_true(end <= 860);
        n++;
        p++;
    }
    assert_true(n >= 6);
    free(text);
}

/* What is missing is a sentence, never a broken chart. */
static void test_partial_data(void **state)
{
    static const struct {
        const char *what, *says, *says_too;
    } rows[] = {
        {"only submitted", "No step was recorded", "No attempt has started"},
        {"started", "No step was recorded", "No trial is recorded"},
        {"one step", "class=\"step\"", "No trial is recorded"},
        {"no peak", "No MFU: the peak of this device is not known", "class=\"step\""},
        {"no loss", "No step had a finite loss", "class=\"step\""},
        {"a bad loss", "1 of 3 executions had no finite loss", "class=\"step\""},
        {"equal losses", "class=\"step\"", "class=\"step\""},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char events[512];
        file_remove_tree(home, NULL);
        snprintf(events, sizeof events, "%s/runs/" FX_RUN "/events", home);
        struct evlog *log = fx_open(events, FX_RUN, 0, "submit-1");
        fx_event(log, "submit_intent", "sched", 't', "local", NULL);
        evlog_close(log);
        if (i > 0) {
            log = fx_open(events, FX_RUN, 1, "rank0");
            fx_train_started(log, 0, 10);
            for (int s = 0; s < (i == 1 ? 0 : i == 2 ? 1 : 3); s++) {
                if (strcmp(rows[i].what, "no peak") == 0)
                    fx_event(log, "step", "step", 'i', s, "step_s", 'n', 1.0, "loss", 'n', 0.5,
                             NULL);
                else
                    fx_step(log, s, 1.0, i == 4 || (i == 5 && s == 1) ? (double)NAN : 0.5);
            }
            evlog_close(log);
        }
        ingest();
        char *text = page(FX_RUN, NULL, false), *json = page(FX_RUN, NULL, true);
        if (!strstr(text, rows[i].says) || !strstr(text, rows[i].says_too))
            fail_msg("%s: the page does not say '%s' or '%s'", rows[i].what, rows[i].says,
                     rows[i].says_too);
        assert_null(strstr(text, "nan"));
        assert_null(strstr(text, "inf\""));
        struct json_doc doc = {0};
        assert_int_equal(json_parse(json, strlen(json), "report", &doc, NULL), 0);
        json_release(&doc);
        free(text);
        free(json);
    }
}

static void test_json_tells_the_same(void **state)
{
    struct json_doc doc = {0};
    struct err err = {0};
    (void)state;
    fx_home(home);
    ingest();
    char *text = page("demo", NULL, true);
    if (json_parse(text, strlen(text), "report", &doc, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(json_int(doc.root, "steps", -1), FX_TOTAL);
    assert_int_equal(json_int(doc.root, "executions", -1), FX_EXECUTED);
    assert_int_equal(json_int(doc.root, "replayed", -1), FX_REPLAYED);
    assert_int_equal(cJSON_GetArraySize(json_member(doc.root, "trial_list")), FX_TRIALS);
    assert_int_equal(cJSON_GetArraySize(json_member(doc.root, "attempt_list")), 3);
    double sum = 0, mfu = json_num(doc.root, "mfu", 0);
    const cJSON *row;
    cJSON_ArrayForEach(row, json_member(doc.root, "time")) sum += json_num(row, "seconds", NAN);
    assert_true(fabs(sum - json_num(doc.root, "wall_s", 0)) < 1e-6);
    assert_true(fabs(json_num(doc.root, "goodput", 0) - json_num(doc.root, "train_s", 0) / sum) <
                1e-12);
    /* the mean is over time: all model FLOPs of first executions over all their time and peak */
    assert_true(fabs(mfu - FX_TOTAL * FX_STEP_FLOPS /
                               (json_num(doc.root, "train_s", 0) * FX_PEAK)) < 1e-12);
    assert_true(fabs(json_num(doc.root, "model_flops", 0) / (FX_TOTAL * FX_STEP_FLOPS) - 1) <
                1e-12);
    json_release(&doc);
    free(text);
}

static void test_a_tuning_alone(void **state)
{
    (void)state;
    fx_tune(home);
    ingest();
    char *text = page(NULL, "feedface", false);
    assert_null(strstr(text, "<h2>Loss"));
    assert_int_equal(count(text, "<tr class=\"trial-row"), FX_TRIALS);
    assert_int_equal(rows_of(text, NULL, "<path class=\"trial"), FX_MEASURED);
    assert_non_null(strstr(text, "3 of 8 trials were not measured"));
    /* The longest step takes 3.61 s. An interval to 5.2 s ends where it does, on an axis of 400 px
     * to 8 s; one to 40 s at the axis' end, in an arrow. */
    const char *chart = strstr(text, "predicted step, s"), *end = strstr(chart, "</svg>");
    assert_int_equal(count(chart, "<line class=\"interval\"") - count(end, "<line class=\"interval\""),
                     FX_MEASURED);
    assert_non_null(strstr(chart, "x2=\"324.0\""));
    assert_int_equal(count(text, "class=\"cut\""), 1);
    assert_non_null(strstr(text, "<path class=\"cut\" d=\"M464.0 "));
    assert_non_null(strstr(text, "<title>to 40 s</title>"));
    assert_non_null(strstr(text, "; 2 of 3 layouts whose intervals meet the best's were measured"));
    free(text);
}

static void test_scope(void **state)
{
    static const struct {
        const char *run, *tune;
        int rc;
        const char *says;
    } rows[] = {
        {"demo", NULL, 0, ""},
        {FX_RUN, NULL, 0, ""},
        {"0123", NULL, ERR_INPUT, "fits 2"},
        {"012345678", NULL, 0, ""},
        {"012", NULL, ERR_NOT_FOUND, "lists what it holds"},
        {"nobody", NULL, ERR_NOT_FOUND, "nobody"},
        {"twin", NULL, ERR_INPUT, "fits 2"},
        {"demo", "feed", 0, ""},
        {"demo", "dead", ERR_NOT_FOUND, "tuning 'dead'"},
    };
    (void)state;
    fx_home(home);
    for (int i = 0; i < 3; i++) {
        char events[512], run[40];
        snprintf(run, sizeof run, "%s",
                 i == 0   ? "0123ffffffffffffffffffffffffffff"
                 : i == 1 ? "aaaa"
                          : "bbbb");
        snprintf(events, sizeof events, "%s/runs/%s/events", home, run);
        struct evlog *log = fx_open(events, run, 0, "submit-1");
        fx_event(log, "run_created", "name", 't', i ? "twin" : "other", "model", 't', "dit-s",
                 NULL);
        evlog_close(log);
    }
    ingest();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct report_scope s = {.run = "untouched"};
        struct err err = {0};
        assert_int_equal(report_scope_find(db, rows[i].run, rows[i].tune, NULL, &s, &err),
                         rows[i].rc);
        if (!strstr(err.text, rows[i].says))
            fail_msg("'%s' does not say '%s'", err.text, rows[i].says);
        assert_string_equal(s.run, rows[i].rc ? "untouched" : FX_RUN);
        if (rows[i].rc == 0)
            assert_string_equal(s.tune, FX_TUNE);
    }
    struct report_scope s;
    assert_int_equal(report_scope_find(db, "other", NULL, NULL, &s, NULL), 0);
    assert_string_equal(s.tune, ""); /* no tuning of its model */
}

static void test_axes(void **state)
{
    static const struct {
        double lo, hi;
        int n;
    } rows[] = {{0, 58.3, 5}, {0.21, 1.34, 5}, {0, 1e-6, 4},       {5, 5, 4},
                {0, 0, 5},    {-3, 3, 6},      {1e9, 1.00001e9, 5}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct chart_axis a = chart_axis_round(rows[i].lo, rows[i].hi, rows[i].n);
        assert_true(a.lo <= rows[i].lo && a.hi >= rows[i].hi && a.hi > a.lo);
        assert_true(fabs(remainder(a.lo, a.step)) < 1e-9 * a.step &&
                    fabs(remainder(a.hi, a.step)) < 1e-9 * a.step);
        assert_true((a.hi - a.lo) / a.step >= 2 && (a.hi - a.lo) / a.step <= 2.5 * rows[i].n);
    }
}

/* A tick's label is not cut off where the picture ends. */
static void test_last_tick(void **state)
{
    struct str out = STR_INIT;
    struct chart c = {.out = &out, .x_title = "x", .y_title = "y", .label = "l", .y_scale = 1,
                      .x = chart_axis_count(0, 1000000, 8), .y = chart_axis_round(0, 1, 5)};
    (void)state;
    chart_begin(&c);
    const char *label = strstr(out.p, ">1000000</text>");
    assert_non_null(label);
    const char *tag = label;
    while (*tag != '<')
        tag--;
    assert_ptr_equal(strstr(tag, "text-anchor=\"end\">"), label - strlen("text-anchor=\"end\""));
    assert_true(strtod(strstr(tag, "x=\"") + 3, NULL) <= 860);
    str_release(&out);
}

/* Lines of events at one place stay dashed: all begin with the same dash of 4 px and gap of 3,
 * with a label or without. */
static void test_events_stay_dashed(void **state)
{
    struct str out = STR_INIT;
    struct chart c = {.out = &out, .x_title = "x", .y_title = "y", .label = "l", .y_scale = 1,
                      .x = chart_axis_count(0, 100, 8), .y = chart_axis_round(0, 1, 5)};
    int n = 0, first = 0;
    (void)state;
    chart_begin(&c);
    for (int i = 0; i < CHART_LABEL_ROWS + 2; i++)
        chart_event(&c, 50, "a label", "");
    for (char *p = out.p; (p = strstr(p, "class=\"event\"")); p++, n++) {
        int y = atoi(strstr(p, "y1=\"") + 4);
        if (n == 0)
            first = y;
        assert_int_equal((y - first) % 7, 0);
    }
    assert_int_equal(n, CHART_LABEL_ROWS + 2);
    assert_int_equal(count(out.p, ">a label<"), CHART_LABEL_ROWS);
    str_release(&out);
}

/* ---- plans ---- */

static struct report_plans *plans_of(const char *text)
{
    struct report_plans *plans = NULL;
    struct err err = {0};
    char path[400];
    snprintf(path, sizeof path, "%s/plans.json", home);
    if (file_publish(path, text, strlen(text), &err) < 0 ||
        report_plans_load(path, &plans, &err) < 0)
        fail_msg("%s", err.text);
    return plans;
}

#define PLANNED(layout, bytes)                                                                     \
    "{\"layout\": \"" layout "\", \"step_s\": 2, \"lo_s\": 1.8, \"hi_s\": 2.4, "                       \
    "\"tokens_per_s_gpu\": 100, \"mfu\": 0.4, \"bytes\": " bytes ", \"p_fits\": 0.9, \"terms\": "      \
    "[{\"name\": \"tp\", \"seconds\": 0.5, \"hidden_s\": 0}, {\"name\": \"gemm\", \"seconds\": 1.5, "   \
    "\"hidden_s\": 0}], \"memory\": []}"

/* Plans alone need no database: a row, a bar and a mark for each layout, and what they are of. */
static void test_plans_alone(void **state)
{
    struct report_numbers n;
    struct str out = STR_INIT;
    struct err err = {0};
    (void)state;
    struct report_plans *plans = plans_of(
        "{\"schema\": \"reel.plans/1\", \"model\": \"a<b\", \"cluster\": \"c\", \"gpus\": 8, "
        "\"constants\": \"k\", \"limit_bytes\": 4000, \"searched\": 9, \"fit\": 3, \"seconds\": 1, "
        "\"layouts\": [" PLANNED("tp=8", "3000") ", " PLANNED("dp=8", "2000") "], \"excluded\": []}");
    struct report_scope scope = {.run = "", .plans = plans};
    assert_int_equal(report_numbers_read(NULL, &scope, &n, &err), 0);
    assert_int_equal(report_html(NULL, &scope, &n, &out, &err), 0);
    assert_int_equal(count(out.p, "<tr class=\"plan-row"), 2);
    assert_int_equal(count(out.p, "class=\"between\""), 2);
    assert_int_equal(count(out.p, "class=\"term\""), 4);
    assert_int_equal(count(out.p, "class=\"room\""), 2);
    assert_int_equal(count(out.p, "class=\"measured\"") + count(out.p, "measured s"), 0);
    assert_non_null(strstr(out.p, "a&lt;b on 8 ranks of c by the constants k"));
    assert_non_null(strstr(out.p, "From the left: gemm, tp."));
    assert_int_equal(count(out.p, "Nine of ten steps"), 2); /* above the table, and below the bars */
    assert_null(strstr(out.p, "what was measured"));
    assert_null(strstr(out.p, "nan"));
    str_release(&out);
    report_plans_free(plans);
}

/* The median step of a run with a planned layout stands beside the prediction. A plan that has no
 * interval is shown without one, and no word of the page speaks of it. */
static void test_plan_of_a_run(void **state)
{
    struct report_scope scope;
    struct report_numbers n;
    struct str out = STR_INIT;
    struct err err = {0};
    char text[512];
    (void)state;
    fx_home(home);
    ingest();
    assert_int_equal(report_scope_find(db, "demo", NULL, NULL, &scope, &err), 0);
    assert_int_equal(report_numbers_read(db, &scope, &n, &err), 0);
    snprintf(text, sizeof text,
             "{\"schema\": \"reel.plan/1\", \"layout\": \"%s\", \"model\": \"dit-tiny\", \"seq\": "
             "{\"t\": 2, \"h\": 8, \"w\": 8}, \"gbs\": 4, \"dtype\": \"f32\", \"predicted\": "
             "{\"step_s\": 1, \"at\": 1, \"bytes\": 9}, \"terms\": [{\"name\": \"gemm\", "
             "\"seconds\": 1}]}", n.layout);
    struct report_plans *plans = plans_of(text);
    scope.plans = plans;
    assert_int_equal(report_html(db, &scope, &n, &out, &err), 0);
    assert_int_equal(count(out.p, "<tr class=\"plan-row"), 1);
    assert_int_equal(count(out.p, "<th class=\"n\">measured s</th>"), 2); /* the trials', too */
    assert_non_null(strstr(out.p, "An upright line is what was measured. From the left: gemm."));
    assert_int_equal(count(out.p, "Nine of ten steps") + count(out.p, "<th class=\"n\">from</th>"), 0);
    str_release(&out);
    report_plans_free(plans);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--write") == 0) {
        fx_home(argv[2]);
        return 0;
    }
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_marks_are_the_rows),  T(test_many_steps_are_binned), T(test_partial_data),
        T(test_json_tells_the_same), T(test_a_tuning_alone),        T(test_scope),
        T(test_ends_at_one_step),    T(test_labels_of_attempts),    cmocka_unit_test(test_axes),
        cmocka_unit_test(test_last_tick),
        cmocka_unit_test(test_events_stay_dashed),
        T(test_plans_alone), T(test_plan_of_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
