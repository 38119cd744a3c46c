/* arena and str: alignment, growth, reuse, and the nearest name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/str.h"

/* Pieces of many sizes and alignments: aligned, zeroed, apart from each other. Each is filled with
 * its own byte, and all are checked at the end, so an overlap shows. Twice, because a reset arena
 * hands out used memory. */
static void test_arena_pieces(void **state)
{
    (void)state;
    enum { N = 400 };
    static unsigned char *piece[N];
    static size_t size[N];
    struct arena a;
    arena_init(&a, 1024);
    for (int round = 0; round < 2; round++) {
        size_t sum = 0;
        for (size_t i = 0; i < N; i++) {
            size_t align = (size_t)1 << (i % 13);
            size[i] = i * 37 % 301 + (i % 50 == 0 ? 5000 : 0);
            piece[i] = arena_alloc(&a, size[i], align);
            assert_non_null(piece[i]);
            assert_int_equal((uintptr_t)piece[i] % align, 0);
            for (size_t k = 0; k < size[i]; k++)
                assert_int_equal(piece[i][k], 0);
            memset(piece[i], (int)(i % 255 + 1), size[i]);
            sum += size[i];
        }
        for (size_t i = 0; i < N; i++)
            for (size_t k = 0; k < size[i]; k++)
                assert_int_equal(piece[i][k], i % 255 + 1);
        assert_int_equal(a.used_bytes, sum);
        arena_reset(&a);
        assert_int_equal(a.used_bytes, 0);
    }
    arena_release(&a);
    arena_release(&a);
    assert_null(a.head);
}

static void test_arena_limits(void **state)
{
    (void)state;
    struct arena a = {0};
    assert_null(arena_array(&a, SIZE_MAX / 4, 8));
    assert_null(arena_alloc(&a, SIZE_MAX - 8, 16));
    assert_null(arena_alloc(&a, SIZE_MAX - 64, 16));
    assert_non_null(arena_alloc(&a, 0, 0));
    assert_int_equal((uintptr_t)arena_alloc(&a, 1, 0) % 16, 0);
    assert_string_equal(arena_strndup(&a, "abcdef", 3), "abc");
    assert_string_equal(arena_strndup(&a, "ab\0cdef", 5), "ab");
    assert_string_equal(arena_strdup(&a, ""), "");
    assert_string_equal(arena_printf(&a, "%05d-%s", 42, "x"), "00042-x");
    arena_release(&a);
}

static void test_str_grows(void **state)
{
    (void)state;
    struct str s = STR_INIT;
    assert_string_equal(s.p, "");
    str_clear(&s);
    str_addn(&s, "", 0);
    for (int i = 0; i < 1000; i++) {
        str_addf(&s, "%d,", i % 10);
        assert_int_equal(s.p[s.len], '\0');
    }
    assert_int_equal(s.len, 2000);
    str_addn(&s, "a\0b", 3);
    assert_int_equal(s.len, 2003);
    assert_memory_equal(s.p + 1998, "9,a\0b", 6);
    char *p = str_detach(&s);
    assert_memory_equal(p, "0,1,", 4);
    assert_string_equal(s.p, "");
    free(p);
    p = str_detach(&s); /* an empty one is a text of its own too */
    assert_string_equal(p, "");
    free(p);
    str_addc(&s, 'x');
    str_clear(&s);
    assert_string_equal(s.p, "");
    str_release(&s);
    str_release(&s);
    assert_int_equal(str_empty[0], '\0');
}

static void test_str_limit(void **state)
{
    (void)state;
    struct str s = STR_INIT;
    struct err err = {0};
    str_add(&s, "kept");
    str_addn(&s, "x", SIZE_MAX - 2); /* refused before a byte is read */
    assert_true(s.failed);
    str_add(&s, "more");
    assert_string_equal(s.p, "kept");
    assert_int_equal(str_check(&s, &err), ERR_NOMEM);
    assert_null(str_detach(&s));
    assert_int_equal(str_check(&s, &err), 0);
}

static void test_str_ends(void **state)
{
    (void)state;
    assert_true(str_starts("abc", "ab") && str_starts("abc", "") && !str_starts("ab", "abc"));
    assert_true(str_ends("abc", "bc") && str_ends("abc", "") && !str_ends("bc", "abc"));
}

static void test_str_cut(void **state)
{
    static const struct {
        const char *text;
        size_t size;
        const char *want;
    } table[] = {
        {"", 8, ""},
        {"rank 1", 7, "rank 1"},
        {"rank 1 is gone", 15, "rank 1 is gone"},
        {"rank 1 is gone", 14, "rank 1 is..."},
        {"rank 1 is gone", 13, "rank 1 is..."},
        {"rank 1 is gone", 12, "rank 1..."},
        {"reduce-scatter", 10, "reduce..."},
        {"a reduce-scatter", 10, "a redu..."},
        {"gone", 4, "..."},
        {"gr\xc3\xb6\xc3\x9f" "er", 8, "gr\xc3\xb6..."},
        {"gr\xc3\xb6\xc3\x9f" "er", 7, "gr..."},
    };
    char out[16];
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        str_cut(out, table[i].size, table[i].text);
        assert_string_equal(out, table[i].want);
    }
}

static void test_nearest(void **state)
{
    (void)state;
    static const char *const names[] = {"steps", "seed",          "micro-batch", "no-resume", "gbs",
                                        "b200",  "h100-sxm-long", "h100-sxm",    "",          NULL};
    static const char *const none[] = {NULL};
    static const struct {
        const char *word, *near;
    } table[] = {
        {"stpes", "steps"},
        {"step", "steps"},
        {"sead", "seed"},
        {"microbatch", "micro-batch"},
        {"bgs", "gbs"},
        {"micro_batch", "micro-batch"},
        {"noresume", "no-resume"},
        {"h100", "h100-sxm"}, /* it is begun so, though b200 has as few other letters */
        {"micro", "micro-batch"},
        {"h1", NULL},
        {"elephant", NULL},
        {"x", NULL},
        {"", NULL},
        {"s", NULL},
        {"a-word-of-far-more-than-sixty-four-letters-that-no-name-in-any-table-will-be-near-to",
         NULL},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const char *near = str_nearest(table[i].word, names);
        if (table[i].near == NULL ? near != NULL : near == NULL || strcmp(near, table[i].near) != 0)
            fail_msg("'%s' -> '%s'", table[i].word, near ? near : "(none)");
    }
    assert_null(str_nearest("steps", none));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena_pieces), cmocka_unit_test(test_arena_limits),
        cmocka_unit_test(test_str_grows),    cmocka_unit_test(test_str_limit),
        cmocka_unit_test(test_str_ends),     cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_str_cut),
    };
    return cmocka_run_group_tests_name("base_memory", tests, NULL, NULL);
}
