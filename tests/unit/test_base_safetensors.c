/* safetensors: what is written is read, byte for byte; what the format forbids is refused with its
 * reason; nothing half-written stays, whichever call fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/lib/fault.h"
#include "tests/lib/scratch.h"

#include "base/file.h"
#include "base/safetensors.h"

static const struct safetensors_tensor *find(const struct safetensors_reader *r, const char *name)
{
    for (int64_t i = 0; i < r->n; i++)
        if (strcmp(r->tensors[i].name, name) == 0)
            return &r->tensors[i];
    return NULL;
}

static void write_two(const char *path)
{
    struct safetensors_tensor t[] = {{"a.weight", "F32", 2, {2, 3}},
                                     {"scalar", "F64", 0, {0}},
                                     {"none", "BF16", 1, {0}},
                                     {"b \"q\"", "U8", 1, {5}}};
    const struct safetensors_meta meta[] = {{"model", "small"}};
    const float a[6] = {0, 1, 2, 3, 4, 5};
    const double s = 7.5;
    struct safetensors_writer *w;
    struct err err = {0};
    assert_int_equal(safetensors_create(path, t, 4, meta, 1, &w, &err), 0);
    assert_true(t[1].first == 24 && t[1].bytes == 8 && t[2].bytes == 0 && t[3].first == 32);
    assert_int_equal(safetensors_add(w, a, 10, &err), 0); /* in pieces of any size */
    assert_int_equal(safetensors_add(w, (const char *)a + 10, 14, &err), 0);
    assert_int_equal(safetensors_add(w, &s, 8, &err), 0);
    assert_int_equal(safetensors_add(w, "bytes", 5, &err), 0);
    assert_int_equal(safetensors_commit(w, &err), 0);
}

static void written_is_read(void **state)
{
    struct safetensors_reader r;
    struct err err = {0};
    float a[4];
    double s;
    char b[5];
    (void)state;
    write_two(in_scratch("w.safetensors"));
    assert_int_equal(safetensors_open(in_scratch("w.safetensors"), &r, &err), 0);
    assert_int_equal(r.n, 4);
    assert_int_equal(r.data_first % 8, 0);
    const struct safetensors_tensor *t = find(&r, "a.weight");
    assert_true(t && t->nd == 2 && t->dim[0] == 2 && t->dim[1] == 3 &&
                strcmp(t->dtype, "F32") == 0);
    assert_int_equal(safetensors_read(&r, t, 8, 16, a, &err), 0);
    assert_true(a[0] == 2 && a[3] == 5);
    assert_int_equal(safetensors_read(&r, find(&r, "scalar"), 0, 8, &s, &err), 0);
    assert_true(s == 7.5);
    assert_int_equal(safetensors_read(&r, find(&r, "b \"q\""), 0, 5, b, &err), 0);
    assert_memory_equal(b, "bytes", 5);
    assert_true(find(&r, "none")->bytes == 0 && !find(&r, "c"));
    safetensors_close(&r);
}

static void half_written_does_not_stay(void **state)
{
    struct safetensors_tensor t = {"a", "F32", 1, {2}}, odd = {"a", "F80", 1, {2}},
                              huge = {"a", "F32", 2, {INT64_MAX / 2, 4}};
    struct safetensors_writer *w;
    struct err err = {0};
    (void)state;
    assert_int_equal(safetensors_create(in_scratch("h.safetensors"), &t, 1, NULL, 0, &w, &err), 0);
    assert_int_equal(safetensors_add(w, "1234", 4, &err), 0);
    assert_int_equal(safetensors_commit(w, &err), ERR_STATE);
    assert_non_null(strstr(err.text, "lacks 4 bytes"));
    assert_int_equal(safetensors_create(in_scratch("h.safetensors"), &t, 1, NULL, 0, &w, &err), 0);
    safetensors_abort(w);
    assert_int_equal(safetensors_create(in_scratch("h.safetensors"), &odd, 1, NULL, 0, &w, &err),
                     ERR_INPUT);
    assert_int_equal(safetensors_create(in_scratch("h.safetensors"), &huge, 1, NULL, 0, &w, &err),
                     ERR_LIMIT);
    assert_int_equal(count_entries(scratch), 0);
}

static int write_and_read(const char *path, struct err *err)
{
    struct safetensors_tensor t = {"a", "F32", 1, {2}};
    struct safetensors_writer *w;
    struct safetensors_reader r;
    float a[2] = {1, 2};
    int rc = safetensors_create(path, &t, 1, NULL, 0, &w, err);
    if (rc < 0)
        return rc;
    if ((rc = safetensors_add(w, a, 8, err)) < 0) {
        safetensors_abort(w);
        return rc;
    }
    if ((rc = safetensors_commit(w, err)) < 0 || (rc = safetensors_open(path, &r, err)) < 0)
        return rc;
    rc = safetensors_read(&r, &r.tensors[0], 0, 8, a, err);
    safetensors_close(&r);
    return rc;
}

static void any_call_may_fail(void **state)
{
    (void)state;
    for (enum fault_kind kind = FAULT_ALLOC; kind < FAULT_KINDS; kind++) {
        long n = 1;
        bool met = true;
        for (; met; n++) {
            struct err err = {0};
            fault_arm(kind, n);
            int rc = write_and_read(in_scratch("f.safetensors"), &err);
            met = fault_disarm();
            if (met ? rc != fault_code(kind) || !err.text[0] : rc != 0)
                fail_msg("%s %ld: %d '%s'", fault_names[kind], n, rc, err.text);
            assert_true(count_entries(scratch) <= 1); /* the file, or nothing */
            assert_int_equal(met && kind != FAULT_READ && kind != FAULT_SYNC && n == 1
                                 ? file_exists(in_scratch("f.safetensors"))
                                 : 0,
                             0);
            remove(in_scratch("f.safetensors"));
        }
        assert_true(n > 2 || kind == FAULT_MKDIR || kind == FAULT_LINK);
    }
}

/* A file of this header (its length as it is, or `length`) and n bytes of data. */
static void file_make(const char *path, const char *header, int64_t length, int n)
{
    FILE *f = fopen(path, "wb");
    uint64_t len = length < 0 ? strlen(header) : (uint64_t)length;
    assert_non_null(f);
    for (int i = 0; i < 8; i++)
        fputc((int)(len >> 8 * i & 255), f);
    fputs(header, f);
    for (int i = 0; i < n; i++)
        fputc(i, f);
    fclose(f);
}

/* Opened to be read, a pipe that nobody writes to would be waited for. */
static void pipe_is_not_waited_for(void **state)
{
    struct safetensors_reader r;
    struct err err = {0};
    (void)state;
    assert_int_equal(mkfifo(in_scratch("pipe"), 0600), 0);
    alarm(60);
    assert_int_equal(safetensors_open(in_scratch("pipe"), &r, &err), ERR_INPUT);
    alarm(0);
    assert_non_null(strstr(err.text, "is a pipe or a device: give a file"));
}

static void forbidden_is_refused(void **state)
{
#define T(name, dtype, shape, a, b)                                                                \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #a "," #b "]}"
    static const struct {
        const char *header;
        int64_t length;
        int data;
        const char *word;
    } cases[] = {
        {"{" T("a", "F32", "[2]", 0, 8) "}", -1, 8, NULL},
        {"{" T("a", "F32", "[2]", 0, 8) "}   ", -1, 8, NULL},
        {"{}", -1, 0, NULL},
        {"{" T("b", "U8", "[4]", 8, 12) "," T("a", "F32", "[2]", 0, 8) "}", -1, 12, NULL},
        {"{" T("e", "F32", "[0,3]", 8, 8) "," T("a", "F32", "[2]", 0, 8) "," T("b", "U8", "[1]", 8,
                                                                               9) "}",
         -1, 9, NULL},
        {"{\"__metadata__\":{\"k\":\"v\"}," T("a", "F32", "[]", 0, 4) "}", -1, 4, NULL},
        {"{" T("a", "F32", "[2]", 0, 8) "}", -1, 7, "the tensors have 8 bytes, the file 7"},
        {"{" T("a", "F32", "[2]", 0, 8) "}", -1, 9, "the tensors have 8 bytes, the file 9"},
        {"{" T("a", "F32", "[2]", 4, 12) "}", -1, 12, "begins at byte 4"},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 4, 12) "}", -1, 12,
         "begins at byte 4 of the data"},
        {"{" T("a", "F32", "[3]", 0, 8) "}", -1, 8, "its shape asks for 12"},
        {"{" T("a", "F33", "[2]", 0, 8) "}", -1, 8, "a.dtype 'F33'"},
        {"{" T("a", "F32", "[-2]", 0, 8) "}", -1, 8, "a.shape"},
        {"{" T("a", "F32", "[1,1,1,1,1,1,2]", 0, 8) "}", -1, 8, "a.shape"},
        {"{" T("a", "F32", "[1.5]", 0, 6) "}", -1, 6, "a.shape"},
        {"{" T("a", "F32", "2", 0, 8) "}", -1, 8, "a.shape"},
        {"{" T("a", "F32", "[4194304,4194304,4194304]", 0, 8) "}", -1, 8, "its shape asks for"},
        {"{" T("a", "F32", "[2]", 8, 0) "}", -1, 8, "a.data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", -1, 8, "a.data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", -1, 8, "'a' is no tensor"},
        {"{\"a\":[1]}", -1, 8, "'a' is no tensor"},
        {"{" T("a", "F32", "[1]", 0, 4) "," T("a", "F32", "[1]", 4, 8) "}", -1, 8, "a"},
        {"{\"__metadata__\":{\"k\":1}}", -1, 0, "__metadata__"},
        {"[]", -1, 0, "does not begin with '{'"},
        {" {}", -1, 0, "does not begin with '{'"},
        {"{} x", -1, 0, ""},
        {"{", -1, 0, "a header of 1 bytes"},
        {"{}", 3, 0, "a header of 3 bytes"},
        {"{}", INT64_MAX, 0, "does not fit"},
        {"{\"a\":", -1, 0, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct safetensors_reader r = {0};
        struct err err = {0};
        file_make(in_scratch("c.safetensors"), cases[i].header, cases[i].length, cases[i].data);
        int rc = safetensors_open(in_scratch("c.safetensors"), &r, &err);
        if (cases[i].word ? rc != ERR_CORRUPT || !strstr(err.text, cases[i].word) : rc != 0)
            fail_msg("%s: %d '%s'", cases[i].header, rc, err.text);
        safetensors_close(&r);
    }
    struct safetensors_reader r = {0};
    struct err err = {0};
    assert_int_equal(safetensors_open(in_scratch("missing"), &r, &err), ERR_NOT_FOUND);
}

#define ALONE(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {ALONE(written_is_read), ALONE(half_written_does_not_stay),
                                       ALONE(any_call_may_fail), ALONE(forbidden_is_refused),
                                       ALONE(pipe_is_not_waited_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
