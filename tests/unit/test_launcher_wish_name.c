/* A wish that stands in a file's name: kept without a new file, found by the fold, and overruled by
 * what was said later. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/evlog.h"
#include "launcher/state/wish_name.h"
#include "tests/lib/scratch.h"

static const char run_id[] = "0123456789abcdef0123456789abcdef";

static int files(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static enum run_wish folded(struct run_state *s)
{
    run_state_init(s);
    assert_int_equal(run_state_load(scratch, s, NULL), 0);
    return s->wish;
}

static void event_put(const char *kind, int64_t turn)
{
    struct evlog_ids ids = {run_id, 0, "submit-x", NULL};
    struct evlog *log;
    struct evlog_event e;
    assert_int_equal(evlog_open(in_scratch("events"), &ids, &log, NULL), 0);
    evlog_begin(log, &e, kind);
    json_put_int(&e.out, "turn", turn);
    assert_int_equal(evlog_commit(log, &e, true, NULL), 0);
    evlog_close(log);
}

static void kept_in_one_file(void **state)
{
    struct run_state s;
    struct err err = {0};
    (void)state;
    assert_int_equal(mkdir(in_scratch("events"), 0777), 0);
    wish_name_reserve(in_scratch("events"));
    wish_name_reserve(in_scratch("events"));
    assert_int_equal(files(in_scratch("events")), 1);
    assert_int_equal(folded(&s), WISH_RUN);
    struct wish_name pause = wish_name_make(&s, WISH_PAUSE, false);
    struct wish_name rival = wish_name_make(&s, WISH_CANCEL, false);
    assert_int_equal(wish_name_put(scratch, &pause, &err), 0);
    assert_int_equal(wish_name_put(scratch, &rival, &err), ERR_BUSY); /* of the same turn, and later */
    assert_int_equal(folded(&s), WISH_PAUSE);
    assert_true(s.last_event_at > 0);
    struct wish_name cancel = wish_name_make(&s, WISH_CANCEL, true);
    assert_int_equal(wish_name_put(scratch, &cancel, &err), 0);
    assert_int_equal(folded(&s), WISH_CANCEL);
    assert_non_null(strstr(s.cancel_by, "cancelled at the scheduler"));
    assert_int_equal(files(in_scratch("events")), 1);
    run_state_release(&s);
}

static void overruled_by_the_log(void **state)
{
    struct run_state s;
    (void)state;
    assert_int_equal(mkdir(in_scratch("events"), 0777), 0);
    run_state_init(&s);
    struct wish_name cancel = wish_name_make(&s, WISH_CANCEL, false);
    /* a run of an older version has no file yet */
    assert_int_equal(wish_name_put(scratch, &cancel, NULL), 0);
    assert_int_equal(folded(&s), WISH_CANCEL);
    event_put("retry_requested", s.wish_turn + 1);
    run_state_release(&s);
    assert_int_equal(folded(&s), WISH_RUN);
    struct wish_name again = wish_name_make(&s, WISH_PAUSE, false);
    run_state_release(&s);
    assert_int_equal(wish_name_put(scratch, &again, NULL), 0);
    assert_int_equal(folded(&s), WISH_PAUSE);
    assert_int_equal(files(in_scratch("events")), 2);
    run_state_release(&s);
}

static void names(void **state)
{
    struct wish_name m;
    (void)state;
    assert_true(wish_name_is("wish.none") && !wish_name_parse("wish.none", &m));
    assert_true(wish_name_parse("wish.pause.3.2.1700000000123", &m));
    assert_true(m.wish == WISH_PAUSE && m.turn == 3 && m.met_attempt == 2 && m.at > 1700000000.1);
    assert_false(wish_name_parse("wish.sleep.3.2.1", &m));
    assert_false(wish_name_is("submit-x.a0.evlog"));
}

#define IN_SCRATCH(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
int main(void)
{
    const struct CMUnitTest all[] = {IN_SCRATCH(kept_in_one_file), IN_SCRATCH(overruled_by_the_log),
                                     IN_SCRATCH(names)};
    return cmocka_run_group_tests_name("wish names", all, NULL, NULL);
}
