/* Which checkpoints go: what is damaged, what killed saves left, what must make room; and that one
 * who was replaced removes nothing. */
// LINK: -Wl,--wrap=statvfs
#include "tests/lib/trainer_ckpt.h"

#include <sys/statvfs.h>

#include "base/owner.h"

static void damaged_make(int64_t step)
{
    char name[64];
    struct err err = {0};
    snprintf(name, sizeof name, "ckpt/step-%08lld.damaged", (long long)step);
    must(file_mkdirs(in_scratch(name), &err), &err);
}

static void damaged_ones_go_by_the_same_rule(void **state)
{
    struct rig r;
    (void)state;
    ckpt_rig_open(&r, "dp=1", world);
    for (int64_t step = 1; step < 9; step += 2)
        damaged_make(step);
    for (int64_t step = 2; step <= 6; step += 2)
        save(&r, step, 2);
    assert_true(!exists(1, ".damaged") && !exists(3, ".damaged") && exists(5, ".damaged") &&
                exists(7, ".damaged"));
    optim_rig_close(&r);
}

static bool disk_is_full;
int __real_statvfs(const char *path, struct statvfs *out);
int __wrap_statvfs(const char *path, struct statvfs *out);

int __wrap_statvfs(const char *path, struct statvfs *out)
{
    int rc = __real_statvfs(path, out);
    if (disk_is_full)
        out->f_bavail = 0;
    return rc;
}

/* The newest by name is damaged, which is seen by reading it: the one before it is what a restart
 * would load. */
static void room_is_never_made_of_the_newest_whole_one(void **state)
{
    struct rig r;
    struct ckpt_room room;
    struct err err = {0};
    (void)state;
    ckpt_rig_open(&r, "dp=1", world);
    for (int64_t step = 1; step <= 3; step++)
        save(&r, step, 9);
    file_flip(step_file(3, "rank-00000.bin"), 5);
    disk_is_full = true;
    assert_int_equal(ckpt_room_make(&here, &r.o, false, &room, &err), ERR_FULL);
    disk_is_full = false;
    assert_true(room.removed == 1 && !exists(1, "") && exists(2, "") && exists(3, ""));
    optim_rig_close(&r);
}

static bool has(const char *name)
{
    return file_exists(in_scratch(name));
}

/* Whoever was taken for dead and comes back neither removes, sets aside nor publishes anything. */
static void one_that_was_replaced_changes_nothing(void **state)
{
    struct rig r;
    struct ckpt_writer older = {.run_dir = scratch, .attempt = 1};
    struct ckpt_meta meta = {.step = 2, .config_hash = config}, written = {0};
    struct lease *first = NULL, *second = NULL;
    struct err err = {0};
    (void)state;
    ckpt_rig_open(&r, "dp=1", world);
    save(&r, 1, 2);
    must(owner_take(scratch, 1, &first, &err), &err);
    must(owner_take(scratch, 2, &second, &err), &err);
    older.lease = first;
    must(file_mkdirs(in_scratch("ckpt/.tmp-step-00000003.a1.00000000"), &err), &err);
    const char *dir = in_scratch("ckpt/step-00000001");
    assert_int_equal(ckpt_remove(&older, dir, 1, &err), ERR_BUSY);
    assert_int_equal(ckpt_set_aside(&older, dir, &err), ERR_BUSY);
    assert_int_equal(ckpt_tmp_clear(&older, in_scratch("ckpt"), &err), ERR_BUSY);
    assert_int_equal(ckpt_save(&older, &r.o, &meta, 1, &written, &err), ERR_BUSY);
    assert_true(has("ckpt/step-00000001") && has("ckpt/.tmp-step-00000003.a1.00000000") &&
                count_entries(in_scratch("ckpt")) == 2);
    lease_drop(second), lease_drop(first);
    optim_rig_close(&r);
}

/* Of an older attempt nobody waits for what it half made; a newer one's is still being made. */
static void leftovers_of_older_attempts_go(void **state)
{
    struct ckpt_writer second = {.run_dir = scratch, .attempt = 2};
    struct err err = {0};
    (void)state;
    for (int a = 1; a <= 3; a++) {
        char name[64];
        snprintf(name, sizeof name, "ckpt/.tmp-step-00000007.a%d.00000000", a);
        must(file_mkdirs(in_scratch(name), &err), &err);
    }
    must(ckpt_tmp_clear(&second, in_scratch("ckpt"), &err), &err);
    assert_true(has("ckpt/.tmp-step-00000007.a3.00000000") &&
                count_entries(in_scratch("ckpt")) == 1);
}

#define ALONE(f) cmocka_unit_test_setup_teardown(f, shared_setup, shared_teardown)
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        ALONE(damaged_ones_go_by_the_same_rule), ALONE(room_is_never_made_of_the_newest_whole_one),
        ALONE(one_that_was_replaced_changes_nothing),
        ALONE(leftovers_of_older_attempts_go),
    };
    world_open(argc, argv);
    return world_close(cmocka_run_group_tests(tests, NULL, NULL));
}
