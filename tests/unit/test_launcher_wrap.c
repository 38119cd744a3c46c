/* wrap: how many steps a checkpoint's name tells, and a folder of them. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "launcher/wrap/wrap.h"
#include "tests/lib/scratch.h"

static void names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t steps;
    } table[] = {
        {"iter_0000400", 400},
        {"step-00000400", 400},
        {"global_step400", 400},
        {"checkpoint-400", 400},
        {"ckpt_400.pt", 400},
        {"epoch=3-step=400.ckpt", 400},
        {"Step 400", 400},
        {"iteration400", 400},
        {"step-400-rank3.pt", 400},
        {"400", -1},
        {"20261122-170000", -1},
        {"model.safetensors", -1},
        {"epoch-3", -1},
        {"run2", -1},
        {"", -1},
        {"step", -1},
        {"step-99999999999999999999999999", -1},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (wrap_name_steps(table[i].name) != table[i].steps)
            fail_msg("'%s': %lld steps", table[i].name, (long long)wrap_name_steps(table[i].name));
}

static void save(const char *name, const char *text, time_t at)
{
    const char *path = in_scratch(name);
    struct timespec times[2] = {{.tv_sec = at}, {.tv_sec = at}};
    assert_int_equal(file_publish(path, text, strlen(text), NULL), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void folder(void **state)
{
    (void)state;
    struct wrap w = {.saves = NULL};
    assert_int_equal(wrap_saved_steps(&w), -1);
    w.saves = scratch;
    assert_int_equal(wrap_saved_steps(&w), -1);
    save("step-900", "of an older run", 100);
    save("step-90", "", 200);
    save(".step-400", "being written", 300);
    save("train.log", "", 400);
    assert_int_equal(wrap_saved_steps(&w), 90);
    save("latest", "global_step80\n", 50);
    assert_int_equal(wrap_saved_steps(&w), 80);
    save("latest_checkpointed_iteration.txt", "70", 50);
    assert_int_equal(wrap_saved_steps(&w), 70);
    save("latest_checkpointed_iteration.txt", "release", 50);
    assert_int_equal(wrap_saved_steps(&w), 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test_setup_teardown(folder, scratch_setup, scratch_teardown)};
    return cmocka_run_group_tests_name("wrap", tests, NULL, NULL);
}
