/* The run as a fold: what follows from which events, in any order, twice, or in part. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/str.h"
#include "launcher/run/limit.h"
#include "launcher/state/attempt.h"
#include "launcher/state/gap.h"
#include "launcher/state/pace.h"
#include "launcher/state/state.h"
#include "tests/lib/histories.h"

/* Applies an event whose log says this before its own fields, its times later by later_s. */
static void apply_with(struct run_state *s, const struct ev *e, const char *common, double later_s)
{
    char text[700];
    struct json_doc doc;
    struct err err = {0};
    cJSON *field;
    snprintf(text, sizeof text, "{\"ev\":\"%s\",\"wall\":%.17g,\"run\":\"r\",\"attempt\":%d,%s%s}",
             e->kind, e->wall + later_s, e->attempt, common, e->fields);
    if (json_parse(text, strlen(text), e->kind, &doc, &err) < 0)
        fail_msg("%s", err.text);
    cJSON_ArrayForEach(field, doc.root)
        if (str_ends(field->string, "_at"))
            cJSON_SetNumberValue(field, field->valuedouble + later_s);
    assert_int_equal(run_state_apply(s, doc.root, &err), 0);
    run_state_settle(s);
    json_release(&doc);
}

/* Applies the history's event k, which has this number in its writer's log. */
static void apply_nth(struct run_state *s, const struct fold_case *c, size_t k)
{
    struct host_clocks clocks = clocks_of(c, k);
    char common[300];
    snprintf(common, sizeof common, "\"seq\":%zu,\"host\":\"%s\",\"boot\":\"%s\",\"mono\":%.17g,",
             k, clocks.host, clocks.boot, c->events[k].wall + clocks.mono_s);
    apply_with(s, &c->events[k], common, 1.8e9 + clocks.ahead_s);
}

static void apply(struct run_state *s, const struct ev *e)
{
    apply_with(s, e, "\"seq\":0,", 0);
}

static void expect(const struct fold_case *c, const struct run_state *s, const char *how)
{
    static const struct run_budget budget = {
        .crash = 3, .node_fail = 4, .preempt = 12, .time_limit = 2};
    enum run_next next = run_state_next(s, &budget, NULL);
    const char *word = run_state_word(s, &budget);
    if (next != c->next || strcmp(word, c->word) != 0 || s->max_step != c->max_step ||
        s->saved_step != c->saved || s->n_attempts != c->attempts ||
        run_state_without_progress(s) != c->without)
        fail_msg(
            "%s (%s): next %d word %s max_step %lld saved %lld attempts %lld without progress %lld",
            c->what, how, next, word, (long long)s->max_step, (long long)s->saved_step,
            (long long)s->n_attempts, (long long)run_state_without_progress(s));
}

static void folds(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_histories; i++) {
        size_t n = count_events(&histories[i]);
        struct run_state s;
        run_state_init(&s);
        for (size_t k = 0; k < n; k++)
            apply_nth(&s, &histories[i], k);
        expect(&histories[i], &s, "in order");
        for (size_t k = 0; k < n; k++)
            apply_nth(&s, &histories[i], k);
        expect(&histories[i], &s, "twice");
        run_state_release(&s);
        for (size_t k = n; k-- > 0;)
            apply_nth(&s, &histories[i], k);
        expect(&histories[i], &s, "backwards");
        run_state_release(&s);
    }
}

static void times_same(const struct fold_case *c, const struct run_state *a,
                       const struct run_state *b)
{
    for (int64_t i = 0; i < a->n_attempts; i++) {
        const struct run_attempt *x = &a->attempts[i], *y = &b->attempts[i];
        if (x->started_at != y->started_at || x->first_step_at != y->first_step_at ||
            x->signal_at != y->signal_at || x->ended_at != y->ended_at ||
            strcmp(x->signal, y->signal) != 0)
            fail_msg("%s: attempt %lld has other times in another order", c->what,
                     (long long)x->number);
    }
    assert_true(a->created_at == b->created_at && a->submitted_at == b->submitted_at);
}

/* Every rotation of the events gives the same state: no order is special. */
static void order_does_not_matter(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_histories; i++) {
        size_t n = count_events(&histories[i]);
        struct run_state in_order;
        run_state_init(&in_order);
        for (size_t k = 0; k < n; k++)
            apply_nth(&in_order, &histories[i], k);
        for (size_t from = 0; from < n; from++) {
            struct run_state s;
            run_state_init(&s);
            for (size_t k = 0; k < n; k++)
                apply_nth(&s, &histories[i], (from + k) % n);
            expect(&histories[i], &s, "rotated");
            times_same(&histories[i], &in_order, &s);
            run_state_release(&s);
        }
        run_state_release(&in_order);
    }
}

/* A successor is newer than the job it comes after, whatever the clocks of their hosts say. */
static void submissions_by_order(void **state)
{
    static const struct ev events[] = {
        {0, "submit_intent", 101, "\"token\":\"aa\",\"order\":1"},
        {0, "submitted", 102, "\"job_id\":\"7\",\"token\":\"aa\",\"order\":1"},
        {0, "submit_intent", 90,
         "\"token\":\"bb\",\"order\":2,\"after\":\"aa\",\"after_job\":\"7\""},
        {0, "submitted", 91, "\"job_id\":\"8\",\"token\":\"bb\",\"order\":2"},
        {0, "submit_intent", 95, "\"token\":\"cc\",\"order\":3"}};
    (void)state;
    for (size_t from = 0; from < 5; from++) {
        struct run_state s;
        run_state_init(&s);
        for (size_t k = 0; k < 4; k++)
            if ((from + k) % 5 != 4)
                apply(&s, &events[(from + k) % 5]);
        if (from == 0) {
            assert_string_equal(s.token, "bb");
            assert_true(strcmp(s.after, "aa") == 0 && strcmp(s.after_job, "7") == 0);
        }
        for (size_t k = 0; k < 5; k++)
            apply(&s, &events[(from + k) % 5]);
        assert_string_equal(s.token, "cc");
        assert_true(!s.after[0] && !s.after_job[0]);
        assert_string_equal(s.job_id, "8");
        assert_string_equal(s.job_token, "bb");
        run_state_release(&s);
    }
}

/* Logs are read in the order of their names, that of attempt 10 before that of attempt 9. */
static void the_newest_attempt_gives_the_layout(void **state)
{
    static const struct ev events[] = {
        {10, "train_started", 200, "\"layout\":\"tp=2\",\"device\":\"cuda\""},
        {9, "train_started", 100, "\"layout\":\"tp=1\",\"device\":\"cpu\""},
        {2, "train_started", 50, "\"next_step\":0"}};
    (void)state;
    for (size_t from = 0; from < 3; from++) {
        struct run_state s;
        run_state_init(&s);
        for (size_t k = 0; k < 3; k++)
            apply(&s, &events[(from + k) % 3]);
        assert_string_equal(s.layout, "tp=2");
        assert_string_equal(s.device, "cuda");
        run_state_release(&s);
    }
}

/* By the clocks of the nodes alone: a launcher's, or whoever's else, may be hours behind or
 * ahead. */
static void wall_budget(void **state)
{
    static const struct {
        double wall_s;
        enum run_next next;
        struct ev events[6];
    } table[] = {
        {0, RUN_NEXT_REQUEUE,
         {CREATED, STARTED(1, 110), STEP(1, 111, 0), ENDED(1, 160, "preempt")}},
        {49, RUN_NEXT_FAILED,
         {CREATED, STARTED(1, 110), STEP(1, 111, 0), ENDED(1, 160, "preempt")}},
        {51, RUN_NEXT_REQUEUE,
         {CREATED, STARTED(1, 110), STEP(1, 111, 0), ENDED(1, 160, "preempt")}},
        {51, RUN_NEXT_REQUEUE,
         {CREATED, STARTED(1, 9110), STEP(1, 9111, 0), ENDED(1, 9160, "preempt")}},
        {49, RUN_NEXT_FAILED, {CREATED, STARTED(1, 10), STEP(1, 11, 0), ENDED(1, 60, "preempt")}},
        {51, RUN_NEXT_REQUEUE,
         {CREATED, STARTED(1, 110), {0, "changed", 9999, "\"revision\":1"},
          ENDED(1, 160, "preempt")}},
        {99, RUN_NEXT_FAILED,
         {CREATED, STARTED(1, 110), ENDED(1, 160, "preempt"), STARTED(2, 170),
          ENDED(2, 210, "preempt")}},
        {99, RUN_NEXT_REQUEUE,
         {CREATED, STARTED(1, 110), ENDED(1, 160, "preempt"), RETRY(1, 1, 5, "true"),
          STARTED(2, 170), ENDED(2, 210, "preempt")}},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct run_state s;
        char why[STATE_TEXT_BYTES];
        struct run_budget budget = {.crash = 3, .wall_s = table[i].wall_s};
        run_state_init(&s);
        for (size_t k = 0; k < 6 && table[i].events[k].kind; k++)
            apply(&s, &table[i].events[k]);
        if (run_state_next(&s, &budget, why) != table[i].next)
            fail_msg("case %zu: %s", i, why);
        assert_true(*why);
        run_state_release(&s);
    }
}

/* The host's wall clock goes back by two hours in attempt 1, and is right for most of the run.
 * Another host's is five hours ahead all the time. */
static void a_clock_that_is_stepped(void **state)
{
#define AT(mono) "\"boot\":\"b\",\"mono\":" #mono
    static const struct ev events[] = {
        {1, "attempt_started", 10100, AT(100)},
        {1, "step", 10103, AT(103) ",\"step\":0,\"started_at\":10102"},
        {1, "step", 2904, AT(104) ",\"step\":1,\"started_at\":2903"},
        {1, "stop_seen", 2904.5,
         AT(104.5) ",\"seen_at\":2904.5,\"heard_at\":2904.25,\"signal\":\"SIGUSR1\""},
        {1, "attempt_ended", 2905, AT(105) ",\"cause\":\"preempt\""},
        {2, "attempt_started", 2910, AT(110)},
        {2, "step", 2913, AT(113) ",\"step\":1,\"started_at\":2912"},
        {3, "attempt_started", 20000, "\"boot\":\"c\",\"mono\":7"},
    };
    struct run_state s;
    (void)state;
    run_state_init(&s);
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        apply(&s, &events[i]);
    assert_true(s.attempts[0].started_at == 2900 && s.attempts[0].first_step_at == 2902);
    assert_true(s.attempts[0].signal_at == 2904.25 && s.attempts[0].stop_seen_at == 2904.5 &&
                s.attempts[0].ended_at == 2905);
    assert_true(s.attempts[1].started_at == 2910 && s.attempts[1].first_step_at == 2912);
    assert_true(s.attempts[2].started_at == 20000);
    run_state_release(&s);
#undef AT
}

static void causes(void **state)
{
    static const struct {
        struct attempt_evidence e;
        enum attempt_cause cause;
    } table[] = {
        {{.done = true}, CAUSE_DONE},
        {{.done = true, .stop_requested = true}, CAUSE_DONE},
        {{.done = true, .stop_requested = true, .time_limit_near = true}, CAUSE_DONE},
        {{.is_short = true}, CAUSE_EARLY_EXIT},
        {{.is_short = true, .stop_requested = true}, CAUSE_PREEMPT},
        {{.stop_requested = true, .exit_code = 75}, CAUSE_PREEMPT},
        {{.stop_requested = true, .exit_code = -1, .exit_signal = 9}, CAUSE_PREEMPT},
        {{.stop_requested = true, .time_limit_near = true, .exit_code = 75}, CAUSE_TIME_LIMIT},
        {{.stop_requested = true, .cancel_requested = true}, CAUSE_CANCEL},
        {{.stop_requested = true, .pause_requested = true, .exit_code = 75}, CAUSE_PAUSE},
        {{.done = true, .pause_requested = true}, CAUSE_DONE},
        {{.pause_requested = true, .exit_code = 0}, CAUSE_PAUSE},
        {{.hung = true, .exit_code = -1, .exit_signal = 9}, CAUSE_HANG},
        {{.hung = true, .stop_requested = true, .exit_code = -1, .exit_signal = 9}, CAUSE_HANG},
        {{.hung = true, .done = true}, CAUSE_DONE},
        /* the others are told to stop */
        {{.node_lost = true, .stop_requested = true, .exit_code = -1, .exit_signal = 15},
         CAUSE_NODE_FAIL},
        {{.node_lost = true, .cancel_requested = true}, CAUSE_CANCEL},
        {{.ending = SCHED_END_CANCELLED, .stop_requested = true, .time_limit_near = true},
         CAUSE_CANCEL},
        {{.ending = SCHED_END_CANCELLED, .exit_code = -1, .exit_signal = 15}, CAUSE_CANCEL},
        {{.ending = SCHED_END_CANCELLED, .done = true}, CAUSE_DONE},
        {{.ending = SCHED_END_PREEMPTED, .exit_code = -1, .exit_signal = 15}, CAUSE_PREEMPT},
        {{.ending = SCHED_END_REQUEUED, .exit_code = 0}, CAUSE_PREEMPT},
        {{.ending = SCHED_END_REQUEUED, .node_lost = true}, CAUSE_NODE_FAIL},
        {{.ending = SCHED_END_NODE_FAIL, .stop_requested = true}, CAUSE_NODE_FAIL},
        {{.ending = SCHED_END_TIME_LIMIT, .stop_requested = true}, CAUSE_TIME_LIMIT},
        {{.ending = SCHED_END_UNKNOWN, .stop_requested = true}, CAUSE_PREEMPT},
        {{.ending = SCHED_END_UNKNOWN, .exit_code = 5}, CAUSE_CRASH},
        {{.disk_full = true, .ours = true, .exit_code = 5}, CAUSE_DISK_FULL},
        /* why it ended; that it could not save is told beside it */
        {{.disk_full = true, .stop_requested = true, .exit_code = 5}, CAUSE_PREEMPT},
        {{.exit_code = 5}, CAUSE_CRASH},
        {{.exit_code = 0}, CAUSE_CRASH}, /* exit 0 without the last step published is not done */
        {{.exit_code = -1, .exit_signal = 11}, CAUSE_CRASH},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        assert_int_equal(attempt_cause_of(&table[i].e), table[i].cause);
}

static void leads(void **state)
{
    static const struct {
        double limit_s, save_s, step_s, lead_s;
    } table[] = {
        {0, 0, 0, 0},       {60, 0, 0, 30},     {120, 0, 0, 60},       {3600, 0, 0, 60},
        {3600, 20, 10, 60}, {3600, 90, 5, 185}, {3600, 2000, 5, 1800},
    };
    struct run_attempt attempts[] = {{.save_s = 3}, {.save_s = 0}, {.save_s = 9}, {.save_s = 4}};
    struct run_state s = {.attempts = attempts, .n_attempts = ARRAY_LEN(attempts)}, none = {0};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        assert_true(pace_lead_s(table[i].limit_s, table[i].save_s, table[i].step_s) ==
                    table[i].lead_s);
    assert_true(pace_save_s(&s) == 9 && pace_save_s(&none) == 0);
}

/* Who saved before the end did not fail; who was killed in the middle of a step did. */
static void failures(void **state)
{
    struct run_attempt attempts[] = {
        {.first_step_at = 100, .ended_at = 400, .cause = CAUSE_PREEMPT, .stopped = true},
        {.first_step_at = 500, .ended_at = 600, .cause = CAUSE_CRASH},
        {.first_step_at = 700, .ended_at = 800, .cause = CAUSE_TIME_LIMIT},
        {.ended_at = 850, .cause = CAUSE_PREEMPT}, /* had not begun */
        {.first_step_at = 900}};
    struct run_state s = {.attempts = attempts, .n_attempts = 1, .last_event_at = 1000};
    (void)state;
    assert_true(pace_mtbf_s(&s) == 0);
    s.n_attempts = 2;
    assert_true(pace_mtbf_s(&s) == 400);
    s.n_attempts = 5;
    assert_true(pace_mtbf_s(&s) == 300);
}

/* The next agent records an end that nobody saw: the gap begins where the attempt was last heard
 * of, and not where that agent began. */
static void gap_after_silence(void **state)
{
    struct run_attempt a = {.ended_at = 143, .heard_at = 110},
                       b = {.started_at = 143, .first_step_at = 144};
    struct run_gap g = run_gap_of(&a, &b);
    (void)state;
    assert_true(g.total == 34 && g.stopping == 0 && g.waiting == 33);
    a.signal_at = 112;
    g = run_gap_of(&a, &b);
    assert_true(g.total == 32 && g.stopping == 0 && g.waiting == 31);
    a.heard_at = 0;
    g = run_gap_of(&a, &b);
    assert_true(g.total == 32 && g.stopping == 31 && g.waiting == 0);
}

/* 1, 2, 4 … 30 minutes after ends for want of space; other ends between them change nothing, a new
 * step begins anew. */
static void full_disk_pauses(void **state)
{
    static const double minutes[] = {1, 2, 4, 8, 16, 30, 30};
    struct run_state s;
    (void)state;
    run_state_init(&s);
    assert_true(run_state_not_before(&s, 1e9) == 0);
    for (int i = 0, attempt = 1; i < (int)(sizeof minutes / sizeof minutes[0]); i++, attempt += 2) {
        struct ev ends[] = {ENDED(attempt, 100 + 10 * i, "disk_full"),
                            ENDED(attempt + 1, 105 + 10 * i, "preempt")};
        for (int k = 0; k < 2; k++)
            apply(&s, &ends[k]);
        assert_true(run_state_not_before(&s, 1e9) == 100 + 10 * i + 60 * minutes[i]);
    }
    apply(&s, &(struct ev)STEP(20, 300, 7));
    apply(&s, &(struct ev)ENDED(20, 301, "disk_full"));
    assert_true(run_state_not_before(&s, 1e9) == 361);
    /* the clock was set back: no longer than the pause */
    assert_true(run_state_not_before(&s, 200) == 260);
    run_state_release(&s);
}

/* The first notice counts, wherever it was heard; the trainer's end says that it stopped because it
 * was asked to. */
static void notices(void **state)
{
    (void)state;
    static const struct ev at_step = {1, "stop_seen", 113,
                                      "\"signal\":\"SIGTERM\",\"heard_at\":112.5,\"seen_at\":113"};
    static const struct {
        struct ev events[3];
        const char *signal;
        double signal_at, seen_at;
        bool at_step, stopped;
    } table[] = {
        {{NOTICE(1, 112), at_step, TRAINED(1, 114, "stop")}, "SIGUSR1", 112, 113, false, true},
        {{at_step, NOTICE(1, 120)}, "SIGTERM", 112.5, 113, true, false},
        {{at_step, TRAINED(1, 114, "done")}, "SIGTERM", 112.5, 113, true, false},
        {{at_step, {1, "signal", 114, "\"signal\":\"SIGUSR2\",\"node\":\"n1\",\"heard_at\":112"}},
         "SIGUSR2", 112, 113, true, false},
        {{at_step, {1, "signal", 114, "\"signal\":\"SIGUSR2\",\"heard_at\":112"}}, "SIGUSR2", 112,
         113, false, false},
        {{at_step, {1, "signal", 114, "\"signal\":\"SIGUSR2\",\"heard_at\":112.75"}}, "SIGTERM",
         112.5, 113, true, false},
        /* the clock went back meanwhile */
        {{NOTICE(1, 112), {1, "signal", 112.5, "\"signal\":\"SIGTERM\",\"heard_at\":9000"}},
         "SIGUSR1", 112, 0, false, false},
        {{{1, "stop_seen", 113, "\"seen_at\":113"}, TRAINED(1, 114, "stop")}, "", 0, 113, false,
         true},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct run_state s;
        run_state_init(&s);
        for (size_t k = 0; k < 3 && table[i].events[k].kind; k++)
            apply(&s, &table[i].events[k]);
        assert_int_equal(s.n_attempts, 1);
        assert_string_equal(s.attempts[0].signal, table[i].signal);
        assert_true(s.attempts[0].signal_at == table[i].signal_at &&
                    s.attempts[0].stop_seen_at == table[i].seen_at);
        assert_true(s.attempts[0].signal_at_step == table[i].at_step &&
                    s.attempts[0].stopped == table[i].stopped);
        run_state_release(&s);
    }
}

/* Where Slurm itself signals the ranks, a node agent finds none to tell, or some that have saved
 * and are about to end. */
static void ranks_without_a_handler(void **state)
{
    (void)state;
    static const struct ev told_none = {1, "ranks_told", 114, "\"ranks\":0"},
                           seen = {1, "stop_seen", 111,
                                   "\"signal\":\"SIGTERM\",\"heard_at\":111,\"seen_at\":111"},
                           told_two = {1, "ranks_told", 114, "\"ranks\":2"},
                           two_of_four = {1, "ranks_told", 114,
                                          "\"node\":\"a\",\"ranks\":2,\"silent\":2"},
                           three_of_four = {1, "ranks_told", 115,
                                            "\"node\":\"a\",\"ranks\":3,\"silent\":1"},
                           none_of_one = {1, "ranks_told", 115,
                                          "\"node\":\"b\",\"ranks\":0,\"silent\":1"},
                           deaf = {1, "ranks_deaf", 114, "\"ranks\":1"},
                           still = {1, "ranks_still", 114, "\"ranks\":1"};
    static const struct {
        struct ev events[4];
        bool unheard, still;
        int64_t silent;
    } table[] = {
        {{NOTICE(1, 112), told_none}, false, false},
        {{NOTICE(1, 112), told_none, deaf}, true, false},
        {{NOTICE(1, 112), told_none, deaf, told_two}, false, false},
        {{told_none, deaf}, false, false},
        {{seen, NOTICE(1, 112), told_none, deaf}, false, false},
        {{NOTICE(1, 112), told_none, still}, false, true},
        {{NOTICE(1, 112), told_none, deaf, still}, false, true},
        {{NOTICE(1, 112), still, told_two}, false, false},
        {{NOTICE(1, 112), two_of_four, deaf}, false, false, 2},
        {{NOTICE(1, 112), two_of_four, deaf, three_of_four}, false, false, 1},
        {{NOTICE(1, 112), two_of_four, none_of_one, deaf}, false, false, 3},
        {{NOTICE(1, 112), none_of_one, deaf}, true, false, 0},
        {{seen, NOTICE(1, 112), two_of_four, deaf}, false, false, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct run_state s;
        run_state_init(&s);
        for (size_t k = 0; k < 4 && table[i].events[k].kind; k++)
            apply(&s, &table[i].events[k]);
        assert_int_equal(run_attempt_unheard(&s.attempts[0]), table[i].unheard);
        assert_int_equal(run_attempt_still(&s.attempts[0]), table[i].still);
        assert_int_equal(run_attempt_silent(&s.attempts[0]), table[i].silent);
        run_state_release(&s);
    }
}

/* The first nodes with such ranks have a name; where there are more than there is room for, it is
 * known that there are others. */
static void many_nodes_with_silent_ranks(void **state)
{
    (void)state;
    for (int nodes = STATE_SILENT; nodes <= STATE_SILENT + 2; nodes++) {
        struct run_state s;
        run_state_init(&s);
        apply(&s, &(struct ev)NOTICE(1, 112));
        for (int i = 0; i < nodes; i++) {
            char json[64];
            snprintf(json, sizeof json, "\"node\":\"n%d\",\"ranks\":2,\"silent\":%d", i, i + 1);
            apply(&s, &(struct ev){1, "ranks_told", 114 + i, json});
        }
        const struct run_attempt *a = &s.attempts[0];
        assert_int_equal(run_attempt_silent(a), STATE_SILENT * (STATE_SILENT + 1) / 2);
        assert_int_equal(a->n_silent, STATE_SILENT);
        assert_string_equal(a->silent[STATE_SILENT - 1].node, "n7");
        assert_int_equal(a->silent_more, nodes > STATE_SILENT);
        run_state_release(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(folds),
                                       cmocka_unit_test(order_does_not_matter),
                                       cmocka_unit_test(submissions_by_order),
                                       cmocka_unit_test(the_newest_attempt_gives_the_layout),
                                       cmocka_unit_test(wall_budget), cmocka_unit_test(causes),
                                       cmocka_unit_test(a_clock_that_is_stepped),
                                       cmocka_unit_test(leads), cmocka_unit_test(failures),
                                       cmocka_unit_test(gap_after_silence),
                                       cmocka_unit_test(full_disk_pauses),
                                       cmocka_unit_test(notices),
                                       cmocka_unit_test(ranks_without_a_handler),
                                       cmocka_unit_test(many_nodes_with_silent_ranks)};
    return cmocka_run_group_tests_name("state", tests, NULL, NULL);
}
