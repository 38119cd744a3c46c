/* Tar: exact bytes of the writer (against GNU tar's), refusals, and the reader on what others write
 * and on damage. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/spawn.h"
#include "base/tar.h"
#include "tests/lib/scratch.h"

static void read_whole(const char *path, struct str *out)
{
    struct err err;

    str_clear(out);
    if (file_read(path, 64 << 20, out, &err) < 0)
        fail_msg("%s", err.text);
}

static void run_program(const char *const *argv, const char *cwd, struct str *out)
{
    struct spawn s = SPAWN_INIT;
    struct spawn_exit e;
    struct err err;

    s.argv = argv;
    s.cwd = cwd;
    if (spawn_run(&s, NULL, 60, out, NULL, &e, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(spawn_status(&e), 0);
}

/* ---- writer ---- */

static void header_is_exact(void **state)
{
    static const struct {
        int at;
        const char *text;
        size_t n;
    } fields[] = {
        {0, "clip-1.json", 12},
        {100, "0000444", 8},
        {108, "0000000", 8},
        {116, "0000000", 8},
        {124, "00000000005", 12},
        {136, "00000000000", 12},
        {148, "011156\0 ", 8},
        {156, "0", 1},
        {257, "ustar", 6},
        {263, "00", 2},
        {265, "", 1},
        {297, "", 1},
        {329, "0000000", 8},
        {337, "0000000", 8},
        {345, "", 1},
    };
    unsigned char expect[2048] = {0};
    struct str got = STR_INIT;
    struct tar_writer w;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        memcpy(expect + fields[i].at, fields[i].text, fields[i].n);
    memcpy(expect + 512, "hello", 5);
    assert_int_equal(tar_writer_open(&w, in_scratch("a.tar"), &err), 0);
    assert_int_equal(tar_writer_offset(&w), 0);
    assert_int_equal(tar_writer_add(&w, "clip-1.json", "hello", 5, &err), 0);
    assert_int_equal(tar_writer_offset(&w), 1024);
    assert_false(file_exists(in_scratch("a.tar"))); /* nothing is seen before commit */
    assert_int_equal(tar_writer_commit(&w, NULL, &err), 0);
    read_whole(in_scratch("a.tar"), &got);
    assert_int_equal(got.len, sizeof expect);
    for (size_t i = 0; i < sizeof expect; i++)
        if ((unsigned char)got.p[i] != expect[i])
            fail_msg("byte %zu is %02x, not %02x", i, (unsigned char)got.p[i], expect[i]);
    str_release(&got);
}

static char *name_of(char c, size_t n)
{
    char *s = malloc(n + 1);

    memset(s, c, n);
    s[n] = '\0';
    return s;
}

/* The same files by GNU tar give the same bytes: plain, empty, whole blocks, a full name field,
 * prefix and name. */
static void equals_gnu_tar(void **state)
{
    struct str out = STR_INIT, ours = STR_INIT, theirs = STR_INIT, dir = STR_INIT,
               longest = STR_INIT;
    char *full = name_of('n', 100), *part = name_of('d', 155);
    const char *names[] = {"a.txt", "empty", "block", full, NULL};
    static char data[5][512] = {"some text", "", "", "full", "split"};
    static const int64_t sizes[] = {9, 0, 512, 4, 5};
    const char *argv[] = {"tar",       "--format=ustar",  "-b1",         "--mtime=@0", "--owner=0",
                          "--group=0", "--numeric-owner", "--mode=0444", "-cf",        "gnu.tar",
                          names[0],    names[1],          names[2],      names[3],     NULL,
                          NULL};
    struct tar_writer w;
    struct err err;

    (void)state;
    str_addf(&dir, "%s/%s", scratch, part);
    assert_int_equal(file_mkdirs(dir.p, &err), 0);
    /* 255 bytes and the slash: the most there is, and only one way to split */
    str_addf(&longest, "%s/%s", part, full);
    names[4] = argv[14] = longest.p;
    memset(data[2], 'b', 512);
    assert_int_equal(tar_writer_open(&w, in_scratch("ours.tar"), &err), 0);
    for (int i = 0; i < 5; i++) {
        char *path = file_join(scratch, names[i]);
        assert_int_equal(tar_writer_add(&w, names[i], data[i], sizes[i], &err), 0);
        assert_int_equal(file_publish(path, data[i], (size_t)sizes[i], &err), 0);
        free(path);
    }
    assert_int_equal(tar_writer_commit(&w, NULL, &err), 0);
    run_program(argv, scratch, &out);
    read_whole(in_scratch("ours.tar"), &ours);
    read_whole(in_scratch("gnu.tar"), &theirs);
    assert_int_equal(ours.len, theirs.len);
    assert_memory_equal(ours.p, theirs.p, ours.len);
    free(full);
    free(part);
    for (struct str *s[] = {&out, &ours, &theirs, &dir, &longest}, **p = s; p < s + 5; p++)
        str_release(*p);
}

static void writer_refuses(void **state)
{
    char *long_name = name_of('x', 101), *long_dir = name_of('d', 156),
         *split_ok = name_of('s', 130), bad_split[300];
    static const int64_t limit = INT64_C(1) << 33;
    struct tar_writer w;
    struct err err;

    (void)state;
    snprintf(bad_split, sizeof bad_split, "%s/name", long_dir);
    split_ok[40] = '/';
    const struct { const char *name; int64_t n; int rc; const char *says; } rows[] = {
        {"", 1, ERR_INPUT, "relative path"},
        {"/abs", 1, ERR_INPUT, "relative path"},
        {"a//b", 1, ERR_INPUT, "not allowed"},
        {"a/../b", 1, ERR_INPUT, "not allowed"},
        {"./a", 1, ERR_INPUT, "not allowed"},
        {"..", 1, ERR_INPUT, "not allowed"},
        {"a/", 1, ERR_INPUT, "not allowed"},
        {long_name, 1, ERR_LIMIT, "does not fit"},
        {bad_split, 1, ERR_LIMIT, "does not fit"},
        {"big.bin", limit, ERR_LIMIT, "8 GiB"},
        {"negative", -1, ERR_LIMIT, "8 GiB"},
        {"..a", 1, 0, NULL},
        {split_ok, 1, 0, NULL},
    };
    assert_int_equal(tar_writer_open(&w, in_scratch("a.tar"), &err), 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(tar_writer_add(&w, rows[i].name, "x", rows[i].n, &err), rows[i].rc);
        if (rows[i].says) {
            assert_non_null(strstr(err.text, rows[i].says));
            assert_int_equal(tar_writer_offset(&w), 0); /* a refused file leaves no trace */
        }
    }
    tar_writer_abort(&w);
    assert_int_equal(count_entries(scratch), 0);
    free(long_name);
    free(long_dir);
    free(split_ok);
}

/* ---- archives by hand ---- */

/* One header; `magic` is the eight bytes of magic and version. Sums are made right. */
static void add_header(struct str *a, const char *name, char type, const char *size_field,
                       const char *magic, const char *prefix)
{
    char h[512] = {0};
    unsigned sum = 0;

    memcpy(h, name, strnlen(name, 100));
    memcpy(h + 100, "0000644", 8);
    memcpy(h + 124, size_field, 12);
    memcpy(h + 148, "        ", 8);
    h[156] = type;
    memcpy(h + 257, magic, 8);
    memcpy(h + 345, prefix, strnlen(prefix, 155));
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)h[i];
    snprintf(h + 148, 8, "%06o", sum);
    str_addn(a, h, sizeof h);
}

static void add_payload(struct str *a, const void *bytes, size_t n)
{
    static const char zeros[512];

    str_addn(a, bytes, n);
    str_addn(a, zeros, (512 - n % 512) % 512);
}

static void add_file(struct str *a, char type, const char *name, const char *text)
{
    char size[13];

    snprintf(size, sizeof size, "%011o ", (unsigned)strlen(text) & 07777777777);
    add_header(a, name, type, size, "ustar\0" "00", "");
    add_payload(a, text, strlen(text));
}

static void add_end(struct str *a)
{
    static const char zeros[1024];

    str_addn(a, zeros, sizeof zeros);
}

static struct tar_reader *open_bytes(const void *bytes, size_t n)
{
    struct tar_reader *r = NULL;
    struct err err;

    assert_int_equal(file_publish(in_scratch("t.tar"), bytes, n, &err), 0);
    if (tar_reader_open(in_scratch("t.tar"), &r, &err) < 0)
        fail_msg("%s", err.text);
    return r;
}

static void expect_entry(struct tar_reader *r, const char *name, int64_t header, const char *text)
{
    struct tar_entry e;
    struct err err = {.text = ""};
    char got[600] = "";

    if (tar_reader_next(r, &e, &err) != 1)
        fail_msg("%s: %s", name, err.text);
    assert_string_equal(e.name, name);
    assert_int_equal(e.header_offset, header);
    assert_int_equal(e.regular, text != NULL);
    if (!text)
        return;
    assert_int_equal(e.bytes, strlen(text));
    assert_int_equal(tar_reader_read(r, &e, 0, e.bytes, got, &err), 0);
    assert_string_equal(got, text);
}

static void expect_end(struct tar_reader *r, int64_t offset)
{
    struct tar_entry e;

    assert_int_equal(tar_reader_next(r, &e, NULL), 0);
    assert_int_equal(tar_reader_end(r), offset);
    assert_int_equal(tar_reader_next(r, &e, NULL), 0);
    tar_reader_close(r);
}

/* What Python's tarfile writes: a pax header with a fractional mtime before each file, the file
 * padded to 10,240. */
static void python_pax(void **state)
{
    struct str a = STR_INIT;
    char zeros[10240] = {0};
    struct tar_reader *r;

    (void)state;
    add_file(&a, 'x', "./PaxHeaders/a.json", "28 mtime=1761861600.1234567\n");
    add_file(&a, '0', "a.json", "{}");
    add_file(&a, 'x', "./PaxHeaders/b.json", "20 mtime=1761861600\n");
    add_file(&a, '0', "b.json", "[]");
    int64_t end = (int64_t)a.len;
    str_addn(&a, zeros, 10240 - a.len % 10240);
    r = open_bytes(a.p, a.len);
    expect_entry(r, "a.json", 0, "{}");
    expect_entry(r, "b.json", 2048, "[]");
    expect_end(r, end);
    str_release(&a);
}

static void names_and_sizes_of_others(void **state)
{
    static const char base256[13] = "\x80\0\0\0\0\0\0\0\0\0\0\3";
    struct str a = STR_INIT, longname = STR_INIT;
    struct tar_reader *r;
    int64_t at[12], n = 0;

    (void)state;
    for (int i = 0; i < 30; i++)
        str_addf(&longname, "folder-%02d/", i);
    str_add(&longname, "x.txt");
#define HERE() (at[n++] = (int64_t)a.len)
    HERE(); /* pax path, and a size that the header's own field (zero) lies about */
    add_file(&a, 'x', "pax", "18 path=\xc3\xa9t\xc3\xa9.txt\n9 size=4\n");
    add_header(&a, "short", '0', "00000000000", "ustar\0" "00", "");
    add_payload(&a, "four", 4);
    HERE(); /* GNU long name and long link */
    add_file(&a, 'K', "././@LongLink", "some/link");
    add_file(&a, 'L', "././@LongLink", longname.p);
    add_file(&a, '0', "cut-off-name", "gnu");
    HERE(); /* base 256 */
    add_header(&a, "b256", '0', base256, "ustar\0" "00", "");
    add_payload(&a, "abc", 3);
    HERE(); /* ustar prefix */
    add_header(&a, "name", '0', "00000000000", "ustar\0" "00", "the/prefix");
    HERE(); /* old GNU keeps other things in the prefix field */
    add_header(&a, "gnu-name", '0', "00000000000", "ustar  \0", "12345670");
    HERE(); /* before ustar: no magic, type byte 0, size with leading blanks */
    add_header(&a, "v7", '\0', "          2 ", "\0\0\0\0\0\0\0\0", "");
    add_payload(&a, "v7", 2);
    HERE();
    add_header(&a, "folder/", '5', "00000000000", "ustar\0" "00", "");
    HERE(); /* a link whose size field is set, but which has no payload */
    add_header(&a, "link", '2', "00000000777", "ustar\0" "00", "");
    HERE();
    add_header(&a, "old-folder/", '\0', "00000000000", "\0\0\0\0\0\0\0\0", "");
    HERE(); /* global names apply from here on; the header is no part of the next file */
    add_file(&a, 'g', "global", "52 comment=0123456789012345678901234567890123456789\n");
    add_file(&a, '0', "after-g", "g");
    int64_t end = (int64_t)a.len;
    add_end(&a);
    r = open_bytes(a.p, a.len);
    expect_entry(r, "\xc3\xa9t\xc3\xa9.txt", at[0], "four");
    expect_entry(r, longname.p, at[1], "gnu");
    expect_entry(r, "b256", at[2], "abc");
    expect_entry(r, "the/prefix/name", at[3], "");
    expect_entry(r, "gnu-name", at[4], "");
    expect_entry(r, "v7", at[5], "v7");
    expect_entry(r, "folder/", at[6], NULL);
    expect_entry(r, "link", at[7], NULL);
    expect_entry(r, "old-folder/", at[8], NULL);
    expect_entry(r, "after-g", at[9] + 1024, "g");
    expect_end(r, end);
    str_release(&a);
    str_release(&longname);
}

/* GNU tar's own archives: names over 255 bytes, sparse files refused or listed as not regular. */
static void gnu_tar_archives(void **state)
{
    static const char *const formats[] = {"--format=pax", "--format=gnu", "--format=posix",
                                          "--format=ustar", "--format=v7"};
    struct str dir = STR_INIT, out = STR_INIT;
    struct err err;

    (void)state;
    str_add(&dir, scratch);
    for (int i = 0; i < 4; i++)
        str_addf(&dir, "/%0*d", 80, i);
    assert_int_equal(file_mkdirs(dir.p, &err), 0);
    str_add(&dir, "/deep.txt");
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        bool longs = f < 3;
        const char *argv[] = {"tar",       formats[f],
                              "-cf",       "g.tar",
                              "plain.txt", longs ? dir.p + strlen(scratch) + 1 : "plain.txt",
                              NULL};
        struct tar_reader *r;
        struct tar_entry e;
        char got[16] = "";
        assert_int_equal(file_publish(in_scratch("plain.txt"), "plain", 5, &err), 0);
        assert_int_equal(file_publish(dir.p, "deep", 4, &err), 0);
        run_program(argv, scratch, &out);
        assert_int_equal(tar_reader_open(in_scratch("g.tar"), &r, &err), 0);
        assert_int_equal(tar_reader_next(r, &e, &err), 1);
        assert_string_equal(e.name, "plain.txt");
        assert_int_equal(tar_reader_next(r, &e, &err), 1);
        if (longs) {
            assert_string_equal(e.name, dir.p + strlen(scratch) + 1);
            assert_true(e.regular);
            assert_int_equal(tar_reader_read(r, &e, 1, 3, got, &err), 0);
            assert_string_equal(got, "eep");
        }
        assert_int_equal(tar_reader_next(r, &e, &err), 0);
        tar_reader_close(r);
    }
    str_release(&dir);
    str_release(&out);
}

static void sparse_files(void **state)
{
    static const struct {
        const char *format;
        int rc;
    } rows[] = {{"--format=gnu", ERR_INPUT}, {"--format=pax", 1}};
    struct str out = STR_INIT;
    struct err err;

    (void)state;
    assert_int_equal(file_publish(in_scratch("s"), "x", 1, &err), 0);
    assert_int_equal(truncate(in_scratch("s"), 4 << 20), 0);
    for (int i = 0; i < 2; i++) {
        const char *argv[] = {"tar", rows[i].format, "--sparse", "--hole-detection=raw",
                              "-cf", "g.tar",        "s",        NULL};
        struct tar_reader *r;
        struct tar_entry e = {.regular = true};
        run_program(argv, scratch, &out);
        assert_int_equal(tar_reader_open(in_scratch("g.tar"), &r, &err), 0);
        assert_int_equal(tar_reader_next(r, &e, &err), rows[i].rc);
        if (rows[i].rc == 1)
            assert_false(e.regular);
        tar_reader_close(r);
    }
    str_release(&out);
}

/* And GNU tar reads ours. */
static void gnu_tar_reads_ours(void **state)
{
    const char *argv[] = {"tar", "--full-time", "--utc", "-tvf", "a.tar", NULL};
    struct str out = STR_INIT;
    struct tar_writer w;
    struct err err;

    (void)state;
    assert_int_equal(tar_writer_open(&w, in_scratch("a.tar"), &err), 0);
    assert_int_equal(tar_writer_add(&w, "k.json", "{}", 2, &err), 0);
    assert_int_equal(tar_writer_commit(&w, NULL, &err), 0);
    run_program(argv, scratch, &out);
    assert_string_equal(out.p, "-r--r--r-- 0/0               2 1970-01-01 00:00:00 k.json\n");
    str_release(&out);
}

/* ---- damage ---- */

static void make_mixed(struct str *a)
{
    add_file(a, 'x', "pax", "12 path=abc\n");
    add_file(a, '0', "n1", "first");
    add_file(a, 'L', "././@LongLink", "long-name");
    add_file(a, '0', "n2", "second");
    add_file(a, '0', "n3", "");
    add_end(a);
}

/* Cut anywhere before the first zero block is whole: an error that names an offset, never a quiet
 * end. */
static void truncated_anywhere(void **state)
{
    struct str a = STR_INIT;

    (void)state;
    make_mixed(&a);
    for (size_t n = 0; n < a.len; n += n % 512 == 1 || n % 512 == 511 || n % 512 == 0 ? 1 : 255) {
        struct tar_reader *r = open_bytes(a.p, n);
        struct tar_entry e;
        struct err err = {.text = ""};
        int rc;
        while ((rc = tar_reader_next(r, &e, &err)) == 1)
            ;
        assert_int_equal(rc, n < a.len - 512 ? ERR_CORRUPT : 0);
        if (rc < 0)
            assert_non_null(strstr(err.text, "at byte "));
        tar_reader_close(r);
    }
    str_release(&a);
}

/* A flipped byte of a header is always noticed, except in the sum's own last two bytes, which say
 * nothing. */
static void flipped_header_bytes(void **state)
{
    struct str a = STR_INIT;

    (void)state;
    add_file(&a, '0', "name", "text");
    add_end(&a);
    for (int i = 0; i < 512; i++) {
        struct tar_reader *r;
        struct tar_entry e;
        struct err err;
        a.p[i] ^= 0x11;
        r = open_bytes(a.p, a.len);
        if (i == 154 || i == 155)
            assert_true(tar_reader_next(r, &e, &err) != 0);
        else
            assert_int_equal(tar_reader_next(r, &e, &err), ERR_CORRUPT);
        tar_reader_close(r);
        a.p[i] ^= 0x11;
    }
    str_release(&a);
}

/* Headers with a right sum and wrong content. */
static void wrong_content(void **state)
{
    static const struct { char type; const char *text, *says; } rows[] = {
        {'x', "no length", "bad record in a pax header"},
        {'x', "99 path=short\n", "bad record in a pax header"},
        {'x', "12 path=abcd\n", "bad record in a pax header"},
        {'x', "3 \n", "bad record in a pax header"},
        {'x', "0 path=a\n", "bad record in a pax header"},
        {'x', "-5 path=a\n", "bad record in a pax header"},
        {'x', "9 path a\n", "bad record in a pax header"},
        {'x', "11 size=1x\n", "bad size in a pax header"},
        {'x', "11 size=-1\n", "bad size in a pax header"},
        {'x', "9 size=9\n", "beyond the end"},
        {'x', "28 size=9223372036854775807\n", "beyond the end"},
        {'x', "29 size=99223372036854775807\n", "bad size in a pax header"},
        {'g', "no length", "bad record in a pax header"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct str a = STR_INIT;
        struct tar_reader *r;
        struct tar_entry e;
        struct err err = {.text = ""};
        add_file(&a, rows[i].type, "ext", rows[i].text);
        add_header(&a, "file", '0', "00000000000", "ustar\0" "00", "");
        if (strstr(rows[i].says, "beyond") == NULL)
            add_end(&a);
        r = open_bytes(a.p, a.len);
        assert_int_equal(tar_reader_next(r, &e, &err), ERR_CORRUPT);
        if (!strstr(err.text, rows[i].says))
            fail_msg("row %zu: %s", i, err.text);
        tar_reader_close(r);
        str_release(&a);
    }
}

static void wrong_sizes(void **state)
{
    static const char *const sizes[] = {
        "0000000zzzz ", "            ", "77777777777 ", "-0000000001 ", "00000002000 ",
        "\x80\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    };
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int extension = 0; extension < 2; extension++) {
            struct str a = STR_INIT;
            struct tar_reader *r;
            struct tar_entry e;
            struct err err = {.text = ""};
            add_header(&a, "file", extension ? 'L' : '0', sizes[i], "ustar\0" "00", "");
            add_payload(&a, "x", 1);
            r = open_bytes(a.p, a.len);
            assert_int_equal(tar_reader_next(r, &e, &err), ERR_CORRUPT);
            assert_non_null(strstr(err.text, "t.tar': at byte "));
            tar_reader_close(r);
            str_release(&a);
        }
}

static void reading_parts_and_seeking(void **state)
{
    struct str a = STR_INIT;
    struct tar_reader *r;
    struct tar_entry e;
    struct err err;
    char got[8] = "";

    (void)state;
    add_file(&a, '0', "one", "0123456789");
    add_file(&a, '0', "two", "zwei");
    add_end(&a);
    r = open_bytes(a.p, a.len);
    assert_int_equal(tar_reader_end(r), -1);
    assert_int_equal(tar_reader_next(r, &e, &err), 1);
    assert_int_equal(tar_reader_read(r, &e, 3, 4, got, &err), 0);
    assert_string_equal(got, "3456");
    assert_int_equal(tar_reader_read(r, &e, 8, 3, got, &err), ERR_INPUT);
    assert_int_equal(tar_reader_read(r, &e, -1, 3, got, &err), ERR_INPUT);
    assert_int_equal(tar_reader_read(r, &e, 11, 0, got, &err), ERR_INPUT);
    assert_int_equal(tar_reader_read(r, &e, 10, 0, got, &err), 0);
    assert_int_equal(tar_reader_seek(r, 1024, &err), 0);
    expect_entry(r, "two", 1024, "zwei");
    assert_int_equal(tar_reader_seek(r, 0, &err), 0);
    expect_entry(r, "one", 0, "0123456789");
    assert_int_equal(tar_reader_seek(r, 100, &err), ERR_INPUT);
    assert_int_equal(tar_reader_seek(r, 1 << 20, &err), ERR_INPUT);
    assert_int_equal(tar_reader_seek(r, 512, &err), 0); /* a payload is no header */
    assert_int_equal(tar_reader_next(r, &e, &err), ERR_CORRUPT);
    tar_reader_close(r);
    assert_int_equal(tar_reader_open(in_scratch("absent.tar"), &r, &err), ERR_NOT_FOUND);
    str_release(&a);
}

int main(void)
{
#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(header_is_exact),
        IN_SCRATCH(equals_gnu_tar),
        IN_SCRATCH(writer_refuses),
        IN_SCRATCH(python_pax),
        IN_SCRATCH(names_and_sizes_of_others),
        IN_SCRATCH(gnu_tar_archives),
        IN_SCRATCH(sparse_files),
        IN_SCRATCH(gnu_tar_reads_ours),
        IN_SCRATCH(truncated_anywhere),
        IN_SCRATCH(flipped_header_bytes),
        IN_SCRATCH(wrong_content),
        IN_SCRATCH(wrong_sizes),
        IN_SCRATCH(reading_parts_and_seeking),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
