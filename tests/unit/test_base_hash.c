/* Hashes: the values of the XXH3 specification, stream equal to one-shot, files. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "tests/lib/scratch.h"

/* Empty input: published in xxHash's documentation; they fix algorithm, seed and byte order of the
 * text. */
static void known_values(void **state)
{
    char text[HASH_TEXT_BYTES];

    (void)state;
    assert_int_equal(hash_64("", 0), UINT64_C(0x2d06800538d394c2));
    assert_string_equal(hash_format(hash_128("", 0), text), "99aa06d3014798d86001c324468d497f");
}

static void stream_equals_whole(void **state)
{
    unsigned char data[3000];
    struct hash128 whole, streamed;

    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 131 >> 3);
    whole = hash_128(data, sizeof data);
    for (size_t step = 1; step < sizeof data; step = step * 3 + 1) {
        struct hash_stream *h = hash_stream_new();
        for (size_t at = 0; at < sizeof data; at += step)
            hash_stream_add(h, data + at, step < sizeof data - at ? step : sizeof data - at);
        streamed = hash_stream_128(h);
        assert_memory_equal(&streamed, &whole, sizeof whole);
        hash_stream_free(h);
    }
    hash_stream_free(NULL);
}

static void files(void **state)
{
    enum { N = 200000 };
    char *data = malloc(N);
    struct hash128 got = {1, 2}, expect;
    struct err err;

    (void)state;
    memset(data, 'x', N);
    data[N - 1] = 'y';
    assert_int_equal(file_publish(in_scratch("f"), data, N, &err), 0);
    assert_int_equal(hash_file(in_scratch("f"), &got, &err), 0);
    expect = hash_128(data, N);
    assert_memory_equal(&got, &expect, sizeof got);
    assert_int_equal(hash_file(in_scratch("absent"), &got, &err), ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "absent"));
    /* a folder opens but cannot be read */
    assert_int_equal(hash_file(scratch, &got, &err), ERR_IO);
    /* a pipe or a device might be read for ever */
    assert_int_equal(hash_file("/dev/zero", &got, &err), ERR_INPUT);
    assert_int_equal(mkfifo(in_scratch("pipe"), 0600), 0);
    assert_int_equal(hash_file(in_scratch("pipe"), &got, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "is a pipe or a device"));
    assert_memory_equal(&got, &expect, sizeof got);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(stream_equals_whole),
        cmocka_unit_test_setup_teardown(files, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
