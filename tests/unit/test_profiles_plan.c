/* Plans: round trip, what a hand-written one needs, what is refused. */
#include "tests/lib/test_profiles.h"

#include "profiles/plan.h"
#include "tests/lib/scratch.h"

#define NEEDED "{\"schema\": \"reel.plan/1\", \"layout\": {\"dp\": 2}, \"model\": \"dit-tiny\", " \
               "\"seq\": {\"t\": 5, \"h\": 8, \"w\": 8}, \"gbs\": 16, \"dtype\": \"f32\""

static int parse(const char *text, struct plan *p, struct err *err)
{
    return plan_parse(text, strlen(text), "plan.json", p, err);
}

static void hand_written(void **state)
{
    struct plan p;
    struct err err;
    (void)state;
    assert_ok(parse(NEEDED "}", &p, &err), &err);
    assert_int_equal(p.layout.dp, 2);
    assert_int_equal(p.layout.mbs, 1);
    assert_int_equal(seq_tokens(p.seq), 320);
    assert_true(p.n_terms == 0 && p.n_evidence == 0 && p.peak_flops == 0 && p.predicted_at == 0 &&
                p.model_hash.lo == 0);
}

static void refused(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"{\"schema\": \"reel.run/1\"}", "give a file of schema 'reel.plan/1'"},
        {"{\"schema\": \"reel.plan/1\"}", "layout is missing"},
        {NEEDED ", \"lay\": 1}", "lay is not a known key"},
        {NEEDED ", \"model_hash\": \"xyz\"}", "model_hash is 'xyz'"},
        {NEEDED ", \"predicted\": {\"step_s\": -1, \"at\": 0, \"bytes\": 0}}",
         "predicted.step_s is -1"},
        {NEEDED ", \"predicted\": {\"step_s\": 1}}", "predicted.at is missing"},
        {NEEDED ", \"terms\": 3}", "terms is no array"},
        {NEEDED ", \"terms\": [{\"name\": \"gemm\"}]}", "terms[0].seconds is missing"},
        {NEEDED ", \"terms\": [{\"name\": \"a name too long for the 31 bytes of a term\", "
                "\"seconds\": 0}]}",
         "terms[0].name has"},
        {NEEDED ", \"predicted\": {\"step_s\": 1, \"at\": 0, \"bytes\": 0}, \"terms\": [{\"name\": "
                "\"gemm\", \"seconds\": 0.9}]}",
         "the terms add up to 0.9 s, predicted.step_s is 1 s"},
        {NEEDED ", \"evidence\": [1]}", "evidence[0] is no text"},
        {NEEDED ", \"evidence\": "
                "[\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\","
                "\"1\",\"1\",\"1\",\"1\","
                "\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\","
                "\"1\",\"1\",\"1\"]}",
         "evidence is too long"},
        {"{\"schema\": \"reel.plan/1\", \"layout\": {\"tp\": 1048576, \"dp\": 2}, \"model\": "
         "\"m\", \"seq\": {\"t\": 1, \"h\": 1, "
         "\"w\": 1}, \"gbs\": 1, \"dtype\": \"f32\"}", "above 1048576 ranks"},
        {"{\"schema\": \"reel.plan/1\", \"layout\": {\"tq\": 1}, \"model\": \"m\", \"seq\": "
         "{\"t\": 1, \"h\": 1, \"w\": 1}, "
         "\"gbs\": 1, \"dtype\": \"f32\"}", "layout.tq is not a known key"},
        {"{\"schema\": \"reel.plan/1\", \"layout\": {}, \"model\": \"m\", \"seq\": {\"t\": 0, "
         "\"h\": 1, \"w\": 1}, "
         "\"gbs\": 1, \"dtype\": \"f32\"}", "seq.t is 0"},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct plan p;
        struct err err;
        assert_fails(parse(rows[i].text, &p, &err), ERR_INPUT, &err, rows[i].says);
        assert_says(&err, "plan.json");
    }
}

static struct plan full_plan(void)
{
    struct plan p = {.layout = layout_default(), .model = "dit-tiny", .seq = {5, 8, 8}, .gbs = 16,
                     .dtype = DTYPE_F64, .device = "cpu", .peak_flops = 2.68e11,
                     .peak_source = "measured FMA rate x 1 core", .predicted_step_s = 0.6,
                     .predicted_at = 1772366400.25, .predicted_bytes = 123456789,
                     .measured_step_s = 0.55, .n_terms = 3,
                     .terms = {{"gemm", 0.5}, {"attention", 0.2}, {"overlap", -0.1}},
                     .n_evidence = 2, .evidence = {"t-1", "t-2"}, .model_hash = {1, 2}};
    p.layout.dp = 2;
    p.layout.zero = 1;
    return p;
}

static void round_trip(void **state)
{
    struct plan p = full_plan(), back;
    struct err err;
    struct str a = STR_INIT, b = STR_INIT;
    struct json_out o;
    (void)state;
    assert_ok(plan_save(&p, in_scratch("plan.json"), &err), &err);
    assert_ok(plan_load(in_scratch("plan.json"), &back, &err), &err);
    assert_true(back.predicted_step_s == 0.6 && back.predicted_at == 1772366400.25 &&
                back.predicted_bytes == 123456789);
    assert_true(back.measured_step_s == 0.55 && back.n_terms == 3 && back.terms[2].seconds == -0.1);
    assert_true(back.layout.zero == 1 && back.dtype == DTYPE_F64 && back.model_hash.hi == 1 &&
                back.model_hash.lo == 2);
    assert_string_equal(back.evidence[1], "t-2");
    assert_string_equal(back.peak_source, p.peak_source);
    json_out_init(&o, &a, 0);
    plan_write(&p, &o);
    json_out_init(&o, &b, 0);
    plan_write(&back, &o);
    assert_string_equal(a.p, b.p);
    str_release(&a);
    str_release(&b);
}

static void save_refused(void **state)
{
    struct plan p = full_plan();
    struct err err;
    (void)state;
    p.terms[0].seconds = 0.4;
    assert_fails(plan_save(&p, in_scratch("plan.json"), &err), ERR_INPUT, &err,
                 "the terms add up to 0.5 s");
    assert_false(file_exists(in_scratch("plan.json")));
    p = full_plan();
    p.predicted_step_s = 0.0 / 0.0;
    assert_fails(plan_save(&p, in_scratch("plan.json"), &err), ERR_INPUT, &err, "the terms add up");
    p = full_plan(); /* what loading would refuse is not written */
    p.seq.t = SEQ_SIDE_MAX + 1;
    assert_fails(plan_save(&p, in_scratch("plan.json"), &err), ERR_INPUT, &err,
                 "seq.t is 1048577: give an integer from 1 to 1048576");
    assert_false(file_exists(in_scratch("plan.json")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hand_written),
        cmocka_unit_test(refused),
        cmocka_unit_test_setup_teardown(round_trip, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(save_refused, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests_name("profiles_plan", tests, NULL, NULL);
}
