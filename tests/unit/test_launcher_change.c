/* An edited run file under the name of a run that is there: key by key, what may change waits for
 * the next attempt and is told with both values, and what may not is refused with both values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "launcher/state/attempt.h"
#include "launcher/state/next.h"
#include "launcher/submit/change.h"
#include "tests/lib/scratch.h"

/* Every value that is changed below is said in the file. */
static const char base[] =
    "{\"schema\": \"reel.run/1\", \"name\": \"r\", \"model\": \"dit-tiny\", \"stages\": ["
    "{\"data\": \"synthetic:1x4x4\", \"gbs\": 2, \"steps\": 5}, "
    "{\"data\": \"/set\", \"data_fingerprint\": \"0000000000000000000000000000000a\", "
    "\"gbs\": 4, \"steps\": 7}], "
    "\"objective\": {\"text_dropout\": 0.5}, "
    "\"adamw\": {\"lr\": 0.25, \"beta2\": 0.75}, "
    "\"schedule\": {\"kind\": \"cosine\", \"warmup_steps\": 1}, "
    "\"random\": {\"seed\": \"17\"}, \"numerics\": {\"dtype\": \"f32\"}, "
    "\"data\": {\"verify\": \"first\"}, "
    "\"validation\": {\"data\": \"/held\", "
    "\"data_fingerprint\": \"0000000000000000000000000000000c\", \"every_steps\": 3, "
    "\"samples\": 8, \"bins\": 2}, "
    "\"checkpoint\": {\"every_steps\": 2, \"keep\": 3}, "
    "\"budget\": {\"crash_without_progress\": 6}, "
    "\"resources\": {\"nodes\": 1, \"ranks_per_node\": 1, \"priority\": 9}, "
    "\"init\": {\"from\": \"/weights\", \"source_hash\": \"0000000000000000000000000000000e\", "
    "\"partial\": false}}";

static struct launch l;
static const struct attempt_ending untold = {.why = SCHED_END_UNKNOWN};
static const struct sched_self self;

/* ---- the run ---- */

/* Puts `to` in the place of `from`, which stands there once. */
static void replace(struct str *text, const char *from, const char *to)
{
    struct str out = STR_INIT;
    const char *at = strstr(text->p, from);
    if (!at || strstr(at + 1, from))
        fail_msg("'%s' does not stand once in %s", from, text->p);
    str_addf(&out, "%.*s%s%s", (int)(at - text->p), text->p, to, at + strlen(from));
    str_release(text);
    *text = out;
}

static struct str base_text(void)
{
    struct str text = STR_INIT;
    str_add(&text, base);
    return text;
}

static struct run run_of(const struct str *text)
{
    struct run run;
    struct err err = {0};
    if (run_parse(text->p, text->len, "run.json", &run, &err) < 0)
        fail_msg("%s", err.text);
    return run;
}

static struct plan plan_of(const char *layout)
{
    struct plan p = {.layout = layout_default(), .seq = {1, 4, 4}, .gbs = 2, .dtype = DTYPE_F32,
                     .device = "cpu", .model = "dit-tiny"};
    assert_int_equal(layout_parse(layout, &p.layout, NULL), 0);
    return p;
}

/* A plan whose layout was measured. */
static struct plan plan_measured(const char *layout)
{
    struct plan p = plan_of(layout);
    p.peak_flops = 1e9;
    return p;
}

/* Makes a run that has had one attempt, which ended in this way. */
static void make(const struct str *text, const struct plan *plan, enum attempt_cause cause)
{
    struct run run = run_of(text);
    struct run_state s;
    struct attempt a;
    struct evlog_event e;
    struct err err = {0};
    bool existed;
    if (launch_create(in_scratch("home"), "/bin", &run, plan, NULL, &l, &existed, &err) < 0)
        fail_msg("%s", err.text);
    run_release(&run);
    run_state_init(&s);
    assert_int_equal(run_state_load(l.run_dir, &s, NULL), 0);
    attempt_init(&a, l.run_dir, &self);
    assert_int_equal(attempt_lock(&a, NULL), 0);
    assert_int_equal(attempt_claim(&a, &s, &untold, NULL), 0);
    if (cause == CAUSE_DONE) {
        evlog_begin(a.log, &e, "train_ended");
        json_put_text(&e.out, "reason", "done");
        json_put_int(&e.out, "next_step", 12);
        attempt_event(&a, &e);
    }
    attempt_end(&a, cause, 0, 0, "");
    attempt_release(&a);
    run_state_release(&s);
}

static void make_base(void)
{
    struct str text = base_text();
    struct plan plan = plan_of("");
    make(&text, &plan, CAUSE_PREEMPT);
    str_release(&text);
}

/* ---- asking ---- */

static const char *const no_options[] = {NULL};
static struct change_told told;
static struct err said;

/* Gives the run the file `text`, which says of its data what `bound` says, and this plan. Fills in
 * told or said. */
static int give_bound(const struct str *text, const struct str *bound, const struct plan *plan,
                      struct change_ask ask)
{
    struct json_doc file = {0};
    struct run run = run_of(bound);
    assert_int_equal(json_parse(text->p, text->len, "run.json", &file, NULL), 0);
    ask.run = &run;
    ask.plan = plan;
    ask.file = file.root;
    ask.options = ask.options ? ask.options : no_options;
    str_release(&told.lines);
    told = (struct change_told){0};
    said = (struct err){0};
    int rc = change_apply(&l, &ask, &told, &said);
    json_release(&file);
    run_release(&run);
    return rc;
}

static int give(const struct str *text, const struct plan *plan, struct change_ask ask)
{
    return give_bound(text, text, plan, ask);
}

/* Gives it the base file with this edit, and the plan that is made when none is given. */
static int edit(const char *from, const char *to, struct change_ask ask)
{
    struct str text = base_text();
    struct plan plan = plan_of("");
    replace(&text, from, to);
    int rc = give(&text, &plan, ask);
    str_release(&text);
    return rc;
}

static const char *lines(void)
{
    return told.lines.len ? told.lines.p : "";
}

static struct str run_text(const struct run *run)
{
    struct str out = STR_INIT;
    struct json_out o;
    json_out_init(&o, &out, 0);
    run_write(run, &o);
    return out;
}

/* The next attempt has what the base file with this edit says. */
static void waits_for(const char *from, const char *to)
{
    struct next n = {0};
    struct str text = base_text();
    replace(&text, from, to);
    struct run wanted = run_of(&text);
    struct str a = run_text(&wanted), b = STR_INIT;
    assert_int_equal(next_load(l.run_dir, &n, NULL), 0);
    assert_true(n.waits);
    b = run_text(&n.run);
    assert_string_equal(b.p, a.p);
    str_release(&a), str_release(&b), str_release(&text);
    run_release(&wanted);
    next_release(&n);
}

static void nothing_waits(void)
{
    struct next n = {0};
    assert_int_equal(next_load(l.run_dir, &n, NULL), 0);
    assert_false(n.waits);
    next_release(&n);
}

static void assert_refused(int rc, const char *says)
{
    assert_int_equal(rc, ERR_INPUT);
    if (!strstr(said.text, says))
        fail_msg("'%s' is not said, but: %s", says, said.text);
    nothing_waits();
}

static void assert_told(int rc, int64_t n, const char *says)
{
    if (rc < 0)
        fail_msg("%s: wanted was %s", said.text, says);
    assert_string_equal(lines(), says);
    assert_int_equal(told.n, n);
    assert_int_equal(told.attempt, 2);
}

/* ---- tests ---- */

#define FINGERPRINT(digit) "0000000000000000000000000000000" digit

static void may_change(void **state)
{
    static const struct {
        const char *from, *to;
        int64_t n;
        const char *says;
    } table[] = {
        {"\"keep\": 3", "\"keep\": 4", 1, "checkpoint.keep 3 -> 4"},
        {"\"crash_without_progress\": 6", "\"crash_without_progress\": 5", 1,
         "budget.crash_without_progress 6 -> 5"},
        {"\"bins\": 2", "\"bins\": 5", 1, "validation.bins 2 -> 5"},
        {"\"priority\": 9", "\"priority\": 8", 1, "resources.priority 9 -> 8"},
        {"\"priority\": 9", "\"priority\": 9, \"qos\": \"high\"", 1,
         "resources.qos nothing -> high"},
        {"\"verify\": \"first\"", "\"verify\": \"always\"", 1, "data.verify first -> always"},
        {"\"data\": \"/set\"", "\"data\": \"/moved\"", 1, "stages[1].data /set -> /moved"},
        {"\"data\": \"/held\"", "\"data\": \"/moved\"", 1, "validation.data /held -> /moved"},
        {"/held\", \"data_fingerprint\": \"" FINGERPRINT("c"),
         "/other\", \"data_fingerprint\": \"" FINGERPRINT("d"), 2,
         "validation.data /held -> /other\n"
         "validation.data_fingerprint " FINGERPRINT("c") " -> " FINGERPRINT("d")},
        {"\"from\": \"/weights\"", "\"from\": \"/moved\"", 1, "init.from /weights -> /moved"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        scratch_teardown(state);
        scratch_setup(state);
        make_base();
        assert_told(edit(table[i].from, table[i].to, (struct change_ask){.dry = true}), table[i].n,
                    table[i].says);
        nothing_waits();
        assert_told(edit(table[i].from, table[i].to, (struct change_ask){0}), table[i].n,
                    table[i].says);
        waits_for(table[i].from, table[i].to);
    }
}

static void may_not_change(void **state)
{
    static const struct { const char *from, *to, *says; } table[] = {
        {"\"model\": \"dit-tiny\"", "\"model\": \"dit-s\"", "model.name dit-tiny -> dit-s;"},
        {"synthetic:1x4x4", "synthetic:1x4x8",
         "stages[0].data synthetic:1x4x4 -> synthetic:1x4x8:"},
        {"/set\", \"data_fingerprint\": \"" FINGERPRINT("a"),
         "/set\", \"data_fingerprint\": \"" FINGERPRINT("b"),
         "stages[1].data_fingerprint " FINGERPRINT("a") " -> " FINGERPRINT("b") ":"},
        {"/set\", \"data_fingerprint\": \"" FINGERPRINT("a"),
         "/other\", \"data_fingerprint\": \"" FINGERPRINT("b"),
         "stages[1].data /set -> /other; stages[1].data_fingerprint " FINGERPRINT("a") " -> "
         FINGERPRINT("b") ":"},
        {"\"gbs\": 4", "\"gbs\": 8", "stages[1].gbs 4 -> 8:"},
        {"\"steps\": 5", "\"steps\": 6", "stages[0].steps 5 -> 6:"},
        {"\"steps\": 7", "\"steps\": 6", "stages[1].steps 7 -> 6:"},
        {"\"gbs\": 4", "\"gbs\": 4, \"pack_tokens\": 64", "stages[1].pack_tokens 0 -> 64:"},
        {"\"text_dropout\": 0.5", "\"text_dropout\": 0.25",
         "objective.text_dropout 0.5 -> 0.25:"},
        {"\"beta2\": 0.75", "\"beta2\": 0.5", "adamw.beta2 0.75 -> 0.5:"},
        {"\"seed\": \"17\"", "\"seed\": \"18\"", "random.seed 17 -> 18:"},
        {"\"dtype\": \"f32\"", "\"dtype\": \"bf16\"", "numerics.dtype f32 -> bf16:"},
        {"\"data_fingerprint\": \"" FINGERPRINT("c"), "\"data_fingerprint\": \"" FINGERPRINT("d"),
         "validation.data_fingerprint " FINGERPRINT("c") " -> " FINGERPRINT("d") ":"},
        {"\"source_hash\": \"" FINGERPRINT("e"), "\"source_hash\": \"" FINGERPRINT("f"),
         "init.source_hash " FINGERPRINT("e") " -> " FINGERPRINT("f") ":"},
        {"/weights\", \"source_hash\": \"" FINGERPRINT("e"),
         "/other\", \"source_hash\": \"" FINGERPRINT("f"),
         "init.from /weights -> /other; init.source_hash " FINGERPRINT("e") " -> "
         FINGERPRINT("f") ":"},
        {"\"partial\": false", "\"partial\": true", "init.partial false -> true:"},
    };
    (void)state;
    make_base();
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        static const struct change_ask every = {.extend = true, .rate = true};
        assert_refused(edit(table[i].from, table[i].to, (struct change_ask){0}), table[i].says);
        assert_refused(edit(table[i].from, table[i].to, every), table[i].says);
    }
}

/* A file that names other data to validate on, and no fingerprint, says which that is by naming
 * it. */
static void data_says_its_fingerprint(void **state)
{
    struct str text = base_text(), bound = base_text();
    struct plan plan = plan_of("");
    (void)state;
    make_base();
    replace(&text, "/held\", \"data_fingerprint\": \"" FINGERPRINT("c"), "/other");
    replace(&bound, "/held\", \"data_fingerprint\": \"" FINGERPRINT("c"),
            "/other\", \"data_fingerprint\": \"" FINGERPRINT("d"));
    assert_told(give_bound(&text, &bound, &plan, (struct change_ask){0}), 2,
                "validation.data /held -> /other\n"
                "validation.data_fingerprint " FINGERPRINT("c") " -> " FINGERPRINT("d"));
    str_release(&text), str_release(&bound);
}

/* Weights of which nobody knows the hash may be others in another place. */
static void unknown_weights_stay(void **state)
{
    static const char hash[] = ", \"source_hash\": \"" FINGERPRINT("e") "\"";
    struct str text = base_text();
    struct plan plan = plan_of("");
    (void)state;
    replace(&text, hash, "");
    make(&text, &plan, CAUSE_PREEMPT);
    replace(&text, "/weights", "/moved");
    assert_refused(give(&text, &plan, (struct change_ask){0}), "init.from /weights -> /moved:");
    str_release(&text);
}

/* More steps of the last stage, a stage behind it and another rate need a word each. */
static void may_with_a_word(void **state)
{
    static const struct {
        const char *from, *to;
        struct change_ask with, without;
        const char *says, *word;
    } table[] = {
        {"\"steps\": 7", "\"steps\": 8", {.extend = true}, {.rate = true},
         "stages[1].steps 7 -> 8", "give --extend"},
        {"\"steps\": 7}",
         "\"steps\": 7}, {\"data\": \"synthetic:1x4x4\", \"gbs\": 2, \"steps\": 1}",
         {.extend = true}, {.rate = true}, "stages[2] nothing -> {", "give --extend"},
        {"\"lr\": 0.25", "\"lr\": 0.5", {.rate = true}, {.extend = true}, "adamw.lr 0.25 -> 0.5",
         "give --change lr"},
        {"\"kind\": \"cosine\"", "\"kind\": \"linear\"", {.rate = true}, {.extend = true},
         "schedule.kind cosine -> linear", "give --change lr"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        scratch_teardown(state);
        scratch_setup(state);
        make_base();
        assert_refused(edit(table[i].from, table[i].to, table[i].without), table[i].says);
        assert_non_null(strstr(said.text, table[i].word));
        assert_int_equal(edit(table[i].from, table[i].to, table[i].with), 0);
        assert_non_null(strstr(lines(), table[i].says));
        waits_for(table[i].from, table[i].to);
    }
}

/* A value that was changed once stays when the file leaves it out, unless an option says it. */
static void left_out_stays(void **state)
{
    static const char *const priority[] = {"resources.priority", NULL};
    (void)state;
    make_base();
    assert_int_equal(edit(", \"keep\": 3", "", (struct change_ask){0}), 0);
    assert_string_equal(lines(), "checkpoint.keep stays 3: neither file nor options name it");
    assert_int_equal(told.n, 0);
    nothing_waits();
    assert_int_equal(edit(", \"priority\": 9", "", (struct change_ask){0}), 0);
    assert_string_equal(lines(), "resources.priority stays 9: neither file nor options name it");
    nothing_waits();
    assert_told(edit(", \"priority\": 9", "", (struct change_ask){.options = priority}), 1,
                "resources.priority 9 -> 0");
    waits_for(", \"priority\": 9", ", \"priority\": 0");
}

/* A run that is done makes no other attempt, in which a change could hold. */
static void done_is_over(void **state)
{
    struct str text = base_text();
    struct plan plan = plan_of("");
    (void)state;
    make(&text, &plan, CAUSE_DONE);
    str_release(&text);
    assert_refused(edit("\"keep\": 3", "\"keep\": 4", (struct change_ask){0}),
                   "run 'r' is done and makes no other attempt, in which this could hold: "
                   "checkpoint.keep 3 -> 4:");
}

/* ---- plans ---- */

/* Gives the run the base file for so many ranks, and a plan. */
static int plan_give(struct plan plan, bool given, int ranks)
{
    char member[32];
    struct str text = base_text();
    snprintf(member, sizeof member, "\"ranks_per_node\": %d", ranks);
    replace(&text, "\"ranks_per_node\": 1", member);
    int rc = give(&text, &plan, (struct change_ask){.plan_given = given});
    str_release(&text);
    return rc;
}

static void layout_waits(const char *layout, double peak_flops)
{
    struct next n = {0};
    struct plan wanted = plan_of(layout);
    assert_int_equal(next_load(l.run_dir, &n, NULL), 0);
    assert_true(layout_equal(&n.plan.layout, &wanted.layout));
    assert_true(n.plan.peak_flops == peak_flops);
    assert_int_equal(n.run.resources.nodes * n.run.resources.ranks_per_node,
                     layout_world(&wanted.layout));
    next_release(&n);
}

static void make_measured(const char *layout, int ranks)
{
    char member[32];
    struct str text = base_text();
    struct plan plan = plan_measured(layout);
    snprintf(member, sizeof member, "\"ranks_per_node\": %d", ranks);
    replace(&text, "\"ranks_per_node\": 1", member);
    make(&text, &plan, CAUSE_PREEMPT);
    str_release(&text);
}

static void assert_plan_told(int rc, const char *from, const char *to)
{
    struct plan old = plan_of(from), new = plan_of(to);
    struct str line = STR_INIT;
    str_add(&line, "plan ");
    layout_format(&old.layout, &line);
    str_add(&line, " -> ");
    layout_format(&new.layout, &line);
    if (rc < 0)
        fail_msg("%s", said.text);
    if (!strstr(lines(), line.p))
        fail_msg("'%s' is not told, but: %s", line.p, lines());
    str_release(&line);
}

static void plan_that_is_given(void **state)
{
    (void)state;
    make_measured("recompute=full", 1);
    assert_int_equal(plan_give(plan_of("recompute=full"), true, 1), 0); /* by hand, the same */
    assert_string_equal(lines(), "");
    nothing_waits();
    assert_plan_told(plan_give(plan_of("mbs=2"), true, 1), "recompute=full", "mbs=2");
    layout_waits("mbs=2", 0);
    assert_plan_told(plan_give(plan_measured("dp=2"), true, 2), "mbs=2", "dp=2");
    assert_non_null(strstr(lines(), "resources.ranks_per_node 1 -> 2"));
    layout_waits("dp=2", 1e9);
}

static void plan_measured_anew(void **state)
{
    struct plan again = plan_measured("dp=2");
    (void)state;
    make_measured("dp=2", 2);
    again.peak_flops = 2e9;
    assert_int_equal(plan_give(again, true, 2), 0);
    assert_non_null(strstr(lines(), " -> the same layout, measured anew"));
    layout_waits("dp=2", 2e9);
}

/* A plan that was given once stays, and its number of ranks with it. A plain one is made anew. */
static void plan_that_is_not_given(void **state)
{
    (void)state;
    make_measured("dp=2,zero=1", 2);
    assert_int_equal(plan_give(plan_of(""), false, 1), 0);
    assert_string_equal(lines(), "");
    nothing_waits();
    scratch_teardown(state);
    scratch_setup(state);
    make_base();
    assert_plan_told(plan_give(plan_of("dp=2"), false, 2), "", "dp=2");
    layout_waits("dp=2", 0);
}

static void plan_that_does_not_fit(void **state)
{
    (void)state;
    make_base();
    assert_refused(plan_give(plan_of("dp=2"), true, 1),
                   "run 'r' gets 1 ranks and its plan is for 2: give a --layout or --plan");
    assert_refused(plan_give(plan_of("mbs=3"), true, 1), "mbs");
}

/* ---- plans of stages ---- */

/* Writes a plan into the scratch folder, and gives the run a file whose first stage names it. */
static int stage_plan_give(const char *name, struct plan plan)
{
    char member[600];
    if (plan_save(&plan, in_scratch(name), &said) < 0)
        fail_msg("%s", said.text);
    snprintf(member, sizeof member, "\"steps\": 5, \"plan\": \"%s\"", in_scratch(name));
    return edit("\"steps\": 5", member, (struct change_ask){0});
}

static void stage_layout_waits(const char *layout)
{
    struct next n = {0};
    struct plan p, wanted = plan_of(layout);
    assert_int_equal(next_load(l.run_dir, &n, NULL), 0);
    assert_true(str_starts(n.run.stages[0].plan, l.run_dir)); /* whatever becomes of the file */
    assert_null(n.run.stages[1].plan);
    assert_int_equal(plan_load(n.run.stages[0].plan, &p, NULL), 0);
    assert_true(layout_equal(&p.layout, &wanted.layout));
    next_release(&n);
}

static void stage_plan(void **state)
{
    char line[600];
    (void)state;
    make_base();
    assert_refused(stage_plan_give("odd", plan_of("mbs=3")), "stages[0].plan '");
    assert_refused(stage_plan_give("two", plan_of("dp=2")), "stages[0].plan '");
    snprintf(line, sizeof line, "stages[0].plan the run's -> %s", in_scratch("a"));
    assert_told(stage_plan_give("a", plan_of("mbs=2")), 1, line);
    stage_layout_waits("mbs=2");
    assert_told(stage_plan_give("b", plan_of("mbs=2")), 0, ""); /* the same in another place */
    stage_layout_waits("mbs=2");
    assert_int_equal(stage_plan_give("b", plan_of("recompute=full")), 0);
    assert_true(str_starts(lines(), "stages[0].plan ") && strstr(lines(), " -> "));
    assert_int_equal(told.n, 1);
    stage_layout_waits("recompute=full");
    assert_told(edit("\"keep\": 3", "\"keep\": 4", (struct change_ask){0}), 1, /* left out */
                "checkpoint.keep 3 -> 4");
    stage_layout_waits("recompute=full");
}

#define IN_SCRATCH(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
int main(void)
{
    const struct CMUnitTest all[] = {
        IN_SCRATCH(may_change), IN_SCRATCH(may_not_change), IN_SCRATCH(data_says_its_fingerprint),
        IN_SCRATCH(unknown_weights_stay), IN_SCRATCH(may_with_a_word), IN_SCRATCH(left_out_stays),
        IN_SCRATCH(done_is_over),
        IN_SCRATCH(plan_that_is_given), IN_SCRATCH(plan_measured_anew),
        IN_SCRATCH(plan_that_is_not_given), IN_SCRATCH(plan_that_does_not_fit),
        IN_SCRATCH(stage_plan),
    };
    return cmocka_run_group_tests_name("changes", all, NULL, NULL);
}
