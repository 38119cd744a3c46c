/* The snapshot beside a run's logs: what is folded with it is what is folded without, and only what
 * came since is read. */
// LINK: -Wl,--wrap=clock_wall_s,--wrap=clock_mono_s,--wrap=clock_boot_id,--wrap=clock_host
#include "tests/lib/events_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

#include "launcher/state/state.h"

enum { STEPS = 3000 };
static char *run_dir, events[300], snapshot[300];
static struct evlog *log_open; /* of rank 0 */

static int setup(void **state)
{
    (void)state;
    run_dir = fx_dir();
    fx_reset();
    snprintf(events, sizeof events, "%s/events", run_dir);
    snprintf(snapshot, sizeof snapshot, "%s/state.snapshot", run_dir);
    fx_attempt(events, "r", 1, 0, 9, STEPS + 1000, "preempt");
    log_open = fx_open(events, "r", 2, "rank0");
    fx_train_started(log_open, 10, STEPS + 1000);
    for (int s = 10; s < STEPS; s++)
        fx_step(log_open, s, 1.0, fx_loss(s));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    evlog_close(log_open);
    log_open = NULL;
    return file_remove_tree(run_dir, NULL);
}

static char *state_text(const struct run_state *s)
{
    struct str t = STR_INIT;
    str_addf(&t,
             "%s %lld of %lld saved %lld done %d last %.17g, step %lld %.17g %.17g %.17g %.17g "
             "attempt %lld layout %s device %s damaged %lld\n",
             s->run, (long long)s->max_step, (long long)s->total_steps, (long long)s->saved_step,
             s->done, s->last_event_at, (long long)s->last.step, s->last.step_s, s->loss.value,
             s->last.mfu, s->last.tokens, (long long)s->last_attempt_of_step, s->layout, s->device,
             (long long)s->damaged_records);
    for (int64_t i = 0; i < s->n_attempts; i++) {
        const struct run_attempt *a = &s->attempts[i];
        str_addf(&t,
                 "%lld job %s started %.17g %.17g %.17g ended %.17g steps %lld-%lld saved %lld "
                 "loaded %lld damaged %lld cause %d detail %s\n",
                 (long long)a->number, a->job_id, a->started_at, a->trainer_started_at,
                 a->first_step_at, a->ended_at, (long long)a->first_step, (long long)a->last_step,
                 (long long)a->saved_step, (long long)a->loaded_step, (long long)a->damaged,
                 a->cause, a->detail);
    }
    return str_detach(&t);
}

/* The state as folded now, and how many events were read for it. */
static char *load(int64_t *read)
{
    struct run_fold *f = NULL;
    struct err err = {0};
    if (run_fold_open(run_dir, &f, &err) < 0 || run_fold_update(f, &err) < 0)
        fail_msg("%s", err.text);
    *read = run_fold_events(f);
    char *text = state_text(run_fold_state(f));
    run_fold_close(f);
    return text;
}

/* Reads as many events as said (-1: all there are), to the state that all of them give. */
static void loads(int64_t expected)
{
    int64_t with, all;
    char *a = load(&with);
    unlink(snapshot);
    char *b = load(&all);
    assert_string_equal(a, b);
    assert_int_equal(with, expected < 0 ? all : expected);
    free(a);
    free(b);
}

static void steps_add(int from, int n)
{
    for (int s = from; s < from + n; s++)
        fx_step(log_open, s, 1.0, fx_loss(s));
}

static void test_reads_what_came_since(void **state)
{
    struct run_state s;
    (void)state;
    loads(-1);
    assert_true(file_exists(snapshot));
    loads(0);
    steps_add(STEPS, 100);
    loads(100);
    /* logs that it has not seen */
    fx_attempt(events, "r", 3, STEPS, STEPS + 4, STEPS + 1000, "crash");
    int64_t all;
    free(load(&all));
    assert_true(all > 5 && all < 30);
    run_state_init(&s);
    assert_int_equal(run_state_load(run_dir, &s, NULL), 0);
    assert_int_equal(s.max_step, STEPS + 99);
    assert_int_equal(s.n_attempts, 3);
    run_state_release(&s);
}

static void byte_flip(const char *path, int64_t at)
{
    char c;
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fread(&c, 1, 1, f), 1);
    c = (char)(c ^ 0x40);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(&c, 1, 1, f), 1);
    fclose(f);
}

static void test_a_damaged_one_is_not_used(void **state)
{
    struct stat st;
    (void)state;
    loads(-1);
    assert_int_equal(stat(snapshot, &st), 0);
    for (int64_t at = 0; at < st.st_size; at += st.st_size / 9) {
        byte_flip(snapshot, at);
        loads(-1);
    }
    assert_int_equal(truncate(snapshot, st.st_size / 2), 0);
    loads(-1);
    assert_int_equal(truncate(snapshot, 0), 0);
    loads(-1);
    assert_int_equal(file_publish(snapshot, "something else", 14, NULL), 0);
    loads(-1);
}

static void test_a_log_that_does_not_go_on(void **state)
{
    char path[400];
    struct stat st;
    (void)state;
    snprintf(path, sizeof path, "%s/rank0.a2.evlog", events);
    loads(-1);
    assert_int_equal(stat(path, &st), 0);
    evlog_close(log_open);
    assert_int_equal(truncate(path, st.st_size - 5000), 0);
    loads(-1);
    /* it grows again, to other content, past what was seen */
    log_open = fx_open(events, "r", 2, "rank0");
    assert_int_equal(truncate(path, st.st_size - 9000), 0);
    steps_add(STEPS, 100);
    loads(-1);
    snprintf(path, sizeof path, "%s/agent.a1.evlog", events);
    assert_int_equal(unlink(path), 0);
    loads(-1);
}

/* A record unfinished at the end may be an append in progress. Places within that cannot be read
 * are counted again, and when one can be read later all is read again. */
static void test_unfinished_and_unreadable_places(void **state)
{
    char path[400];
    struct stat st;
    struct str text = STR_INIT;
    int64_t read;
    (void)state;
    snprintf(path, sizeof path, "%s/rank0.a2.evlog", events);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(file_read(path, 1 << 24, &text, NULL), 0);
    assert_int_equal(truncate(path, st.st_size - 7), 0);
    loads(-1);
    loads(0);
    FILE *f = fopen(path, "ab");
    assert_int_equal(fwrite(text.p + text.len - 7, 1, 7, f), 7);
    fclose(f);
    str_release(&text);
    loads(1);
    unlink(snapshot);
    for (int64_t at = 20000; at < 200000; at += 30000)
        byte_flip(path, at);
    char *without = load(&read);
    assert_non_null(strstr(without, "damaged 12\n")); /* each is a place, and misses a number */
    assert_true(file_exists(snapshot));
    loads(0);
    free(load(&read));
    steps_add(STEPS, 100);
    loads(100);
    free(load(&read));
    byte_flip(path, 80000);
    char *with = load(&read);
    assert_true(read > STEPS);
    assert_non_null(strstr(with, "damaged 10\n"));
    free(without);
    free(with);
    loads(0);
}

static void test_where_none_can_be_written(void **state)
{
    int64_t first, second;
    (void)state;
    assert_int_equal(mkdir(snapshot, 0777), 0); /* a folder has its name; root may write into any */
    char *a = load(&first), *b = load(&second);
    assert_string_equal(a, b);
    assert_int_equal(first, second);
    free(a);
    free(b);
}

/* Renews a fold that was kept: it reads so many events (-1: all there are), to the state that a new
 * one has. */
static void renews(struct run_fold *f, int64_t expected)
{
    int64_t all, before = run_fold_events(f);
    struct err err = {0};
    if (run_fold_renew(f, &err) < 0)
        fail_msg("%s", err.text);
    char *kept = state_text(run_fold_state(f)), *made = load(&all);
    assert_string_equal(kept, made);
    if (expected >= 0)
        assert_int_equal(run_fold_events(f) - before, expected);
    free(kept);
    free(made);
}

/* An agent's fold reads what came since, and is what a new one would be, also where logs did not
 * just grow. */
static void test_a_fold_that_is_kept(void **state)
{
    char path[400];
    struct run_fold *f = NULL;
    struct stat st;
    (void)state;
    assert_int_equal(mkdir(snapshot, 0777), 0); /* no snapshot helps here */
    snprintf(path, sizeof path, "%s/rank0.a2.evlog", events);
    byte_flip(path, 20000);
    assert_int_equal(run_fold_open(run_dir, &f, NULL), 0);
    renews(f, -1);
    byte_flip(path, 20000); /* the file system has given the place back */
    renews(f, -1);
    renews(f, 0);
    steps_add(STEPS, 100);
    renews(f, 100);
    fx_attempt(events, "r", 3, STEPS, STEPS + 4, STEPS + 1000, "crash");
    renews(f, -1);
    assert_int_equal(run_state_end(run_fold_suppose(f), 2, CAUSE_CRASH, "made up", NULL), 0);
    assert_int_equal(run_fold_state(f)->attempts[1].cause, CAUSE_CRASH);
    renews(f, -1);
    evlog_close(log_open);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 9000), 0);
    log_open = fx_open(events, "r", 2, "rank0");
    steps_add(STEPS, 200);
    renews(f, -1);
    run_fold_close(f);
}

/* A copy of a log that someone left beside it tells nothing anew, however it is named and whether or
 * not a snapshot was made before. */
static void test_a_copy_of_a_log(void **state)
{
    static const char *const names[] = {
        "copy of rank0.a2.evlog", "rank0.a2.evlog.bak", "rank0.a2 (2).evlog", "rank0.a02.evlog",
        "rank1.a2.evlog",         "rank0.a3.evlog",     "zz.evlog"};
    struct str log = STR_INIT;
    char path[400];
    int64_t read;
    (void)state;
    fx_event(log_open, "ckpt_damaged", "step", 'i', STEPS, "dir", 't', "ckpt/x", NULL);
    snprintf(path, sizeof path, "%s/rank0.a2.evlog", events);
    assert_int_equal(file_read(path, 64 << 20, &log, NULL), 0);
    steps_add(STEPS, 100);
    char *was = load(&read);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof path, "%s/%s", events, names[i]);
        assert_int_equal(file_publish(path, log.p, log.len, NULL), 0);
        for (int anew = 0; anew < 2; anew++) {
            char *now = load(&read);
            if (strcmp(was, now) != 0)
                fail_msg("%s, anew %d: instead of\n%s\n%s", names[i], anew, was, now);
            free(now);
            unlink(snapshot);
        }
        unlink(path);
    }
    free(was);
    str_release(&log);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_reads_what_came_since),     T(test_a_damaged_one_is_not_used),
        T(test_a_log_that_does_not_go_on), T(test_unfinished_and_unreadable_places),
        T(test_where_none_can_be_written), T(test_a_fold_that_is_kept),
        T(test_a_copy_of_a_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
