/* Event log: what damage costs, at every byte; failing appends; resuming; live reading. */
// LINK: -Wl,--wrap=write -Wl,--wrap=fdatasync -Wl,--wrap=ftruncate
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/evlog.h"
#include "base/hash.h"
#include "tests/lib/scratch.h"

/* ---- faults ---- */

static struct {
    bool active;
    size_t bytes_left; /* writes take this much more, then fail with ENOSPC */
    bool sync_fails, truncate_fails;
} fault;

ssize_t __real_write(int fd, const void *bytes, size_t n);
ssize_t __wrap_write(int fd, const void *bytes, size_t n);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __real_ftruncate(int fd, off_t size);
int __wrap_ftruncate(int fd, off_t size);

ssize_t __wrap_write(int fd, const void *bytes, size_t n)
{
    if (!fault.active)
        return __real_write(fd, bytes, n);
    if (fault.bytes_left == 0) {
        errno = ENOSPC;
        return -1;
    }
    n = n < fault.bytes_left ? n : fault.bytes_left;
    fault.bytes_left -= n;
    return __real_write(fd, bytes, n);
}

int __wrap_fdatasync(int fd)
{
    if (!fault.sync_fails)
        return __real_fdatasync(fd);
    errno = EIO;
    return -1;
}

int __wrap_ftruncate(int fd, off_t size)
{
    if (!fault.truncate_fails)
        return __real_ftruncate(fd, size);
    errno = EIO;
    return -1;
}

static int faultless_setup(void **state)
{
    memset(&fault, 0, sizeof fault);
    return scratch_setup(state);
}

/* ---- a small log ---- */

enum { RECORDS = 5, MAX_BYTES = 8192, MAX_SEEN = 4 * RECORDS };
static const struct evlog_ids ids = {"0123456789abcdef0123456789abcdef", 2, "agent", "tok"};

static const char *log_path(void)
{
    return in_scratch("agent.a2.evlog");
}

static struct evlog *open_log(void)
{
    struct evlog *log = NULL;
    struct err err = {0};

    if (evlog_open(scratch, &ids, &log, &err) < 0)
        fail_msg("%s", err.text);
    return log;
}

static int append(struct evlog *log, int64_t value, bool durable, struct err *err)
{
    struct evlog_event e;

    evlog_begin(log, &e, "step");
    json_put_int(&e.out, "value", value);
    return evlog_commit(log, &e, durable, err);
}

static void append_n(int64_t from, int64_t to)
{
    struct evlog *log = open_log();
    struct err err;

    for (int64_t v = from; v <= to; v++)
        assert_int_equal(append(log, v, false, &err), 0);
    evlog_close(log);
}

static int64_t size_of(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? st.st_size : -1;
}

/* A log's bytes, and where its records begin. */
struct image {
    unsigned char bytes[MAX_BYTES];
    size_t n;
    int64_t start[RECORDS + 1]; /* start[RECORDS] = n */
};

static void image_make(struct image *im)
{
    struct str s = STR_INIT;
    struct evlog_reader *r;
    const cJSON *event;

    append_n(1, RECORDS);
    assert_int_equal(evlog_reader_open(log_path(), &r, NULL), 0);
    im->start[0] = 0;
    for (int i = 1; i <= RECORDS; i++) {
        assert_int_equal(evlog_reader_next(r, &event, NULL), 1);
        im->start[i] = evlog_reader_offset(r);
    }
    assert_int_equal(evlog_reader_next(r, &event, NULL), 0);
    evlog_reader_close(r);
    assert_int_equal(file_read(log_path(), MAX_BYTES, &s, NULL), 0);
    memcpy(im->bytes, s.p, s.len);
    im->n = s.len;
    assert_int_equal(im->start[RECORDS], im->n);
    str_release(&s);
}

static void put_file(const void *bytes, size_t n)
{
    int fd = open(log_path(), O_WRONLY | O_CREAT | O_TRUNC, 0666);

    assert_true(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    close(fd);
}

/* ---- reading everything ---- */

struct seen {
    int64_t seq[MAX_SEEN];
    size_t n;
    struct evlog_damage damage[MAX_SEEN];
    size_t n_damage;
};

static void drain(struct evlog_reader *r, struct seen *s)
{
    const struct evlog_damage *list;
    const cJSON *event;
    struct err err;
    int rc;

    while ((rc = evlog_reader_next(r, &event, &err)) == 1) {
        assert_true(s->n < MAX_SEEN);
        s->seq[s->n++] = json_int(event, "seq", -1);
        /* the whole payload is right */
        assert_int_equal(json_int(event, "value", -1), json_int(event, "seq", -2));
    }
    assert_int_equal(rc, 0);
    s->n_damage = evlog_reader_damage(r, &list);
    assert_true(s->n_damage <= MAX_SEEN);
    if (s->n_damage > 0)
        memcpy(s->damage, list, s->n_damage * sizeof *list);
}

static struct seen read_log(void)
{
    struct seen s = {.n = 0};
    struct evlog_reader *r;

    assert_int_equal(evlog_reader_open(log_path(), &r, NULL), 0);
    drain(r, &s);
    evlog_reader_close(r);
    return s;
}

/* ---- format ---- */

static void format_is_as_documented(void **state)
{
    static const unsigned char marker[8] = {0xFE, 'r', 'l', 'e', 'v', 0xFF, 0x0D, 0x0A};
    static struct image im;
    const unsigned char *p;
    uint64_t sum = 0;
    size_t n;

    (void)state;
    image_make(&im);
    for (int i = 0; i < RECORDS; i++) {
        p = im.bytes + im.start[i];
        n = (size_t)(im.start[i + 1] - im.start[i]) - 32;
        assert_memory_equal(p, marker, 8);
        assert_int_equal(p[16] | p[17] << 8 | p[18] << 16 | p[19] << 24, n);
        assert_int_equal(p[20] | p[21] << 8 | p[22] << 16 | p[23] << 24, 1);
        for (int k = 7; k >= 0; k--)
            sum = sum << 8 | p[8 + k];
        assert_true(sum == hash_64(p + 16, 16 + n));
        assert_int_equal(p[24], i + 1);
        for (int k = 25; k < 32; k++)
            assert_int_equal(p[k], 0);
        assert_int_equal(p[32], '{');
        assert_memory_equal(p + 32 + n - 2, "}\n", 2);
    }
}

static void events_carry_the_common_fields(void **state)
{
    struct evlog_reader *r;
    const cJSON *e;
    double now = clock_wall_s();

    (void)state;
    append_n(1, 1);
    assert_int_equal(evlog_reader_open(log_path(), &r, NULL), 0);
    assert_int_equal(evlog_reader_next(r, &e, NULL), 1);
    assert_string_equal(json_text(e, "ev", ""), "step");
    assert_string_equal(json_text(e, "run", ""), ids.run);
    assert_int_equal(json_int(e, "attempt", -1), 2);
    assert_string_equal(json_text(e, "writer", ""), "agent");
    assert_string_equal(json_text(e, "token", ""), "tok");
    assert_string_equal(json_text(e, "boot", ""), clock_boot_id());
    assert_string_equal(json_text(e, "host", ""), clock_host());
    assert_true(json_num(e, "wall", 0) >= now && json_num(e, "wall", 0) < now + 3600);
    assert_true(json_num(e, "mono", -1) > 0 && json_num(e, "mono", -1) <= clock_mono_s());
    evlog_reader_close(r);
}

/* ---- damage, exhaustively ---- */

/* changed[i]: record i differs from what was written. The changed ones, merged where adjacent, are
 * exactly the damage; all others are read; each lost run of seq before a good record is reported
 * missing. */
static void expect_lost(const struct image *im, const bool changed[RECORDS])
{
    struct seen s = read_log();
    size_t at = 0, d = 0;

    for (int i = 0; i < RECORDS; i++) {
        if (!changed[i]) {
            assert_true(at < s.n);
            assert_int_equal(s.seq[at++], i + 1);
            continue;
        }
        int first = i;
        while (i + 1 < RECORDS && changed[i + 1])
            i++;
        assert_true(d < s.n_damage);
        assert_int_equal(s.damage[d].offset, im->start[first]);
        assert_int_equal(s.damage[d].bytes, im->start[i + 1] - im->start[first]);
        d++;
        if (i + 1 < RECORDS) {
            assert_true(d < s.n_damage);
            assert_int_equal(s.damage[d].bytes, 0);
            assert_int_equal(s.damage[d].offset, im->start[i + 1]);
            assert_memory_equal(s.damage[d].reason, "missing seq", 11);
            d++;
        }
    }
    assert_int_equal(at, s.n);
    assert_int_equal(d, s.n_damage);
}

static void compare_images(const struct image *im, const unsigned char *bytes,
                           bool changed[RECORDS])
{
    for (int i = 0; i < RECORDS; i++)
        changed[i] = memcmp(im->bytes + im->start[i], bytes + im->start[i],
                            (size_t)(im->start[i + 1] - im->start[i])) != 0;
}

static void flipped_bit_anywhere(void **state)
{
    static struct image im;
    unsigned char bytes[MAX_BYTES];
    bool changed[RECORDS];

    (void)state;
    image_make(&im);
    for (size_t at = 0; at < im.n; at++)
        for (int flip = 0; flip < 2; flip++) {
            memcpy(bytes, im.bytes, im.n);
            bytes[at] ^= (unsigned char)(flip ? 0xff : 1 << at % 8);
            put_file(bytes, im.n);
            compare_images(&im, bytes, changed);
            expect_lost(&im, changed);
        }
}

static void zeroed_block_anywhere(void **state)
{
    static const size_t lengths[] = {1, 40, 300, 700};
    static struct image im;
    unsigned char bytes[MAX_BYTES];
    bool changed[RECORDS];

    (void)state;
    image_make(&im);
    for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++)
        for (size_t at = 0; at + lengths[k] <= im.n; at += k ? 3 : 1) {
            memcpy(bytes, im.bytes, im.n);
            memset(bytes + at, 0, lengths[k]);
            put_file(bytes, im.n);
            compare_images(&im, bytes, changed);
            expect_lost(&im, changed);
            if (lengths[k] >= 40)
                assert_string_equal(read_log().damage[0].reason, "zeroed block");
        }
}

static void byte_removed_anywhere(void **state)
{
    static struct image im;
    unsigned char bytes[MAX_BYTES];

    (void)state;
    image_make(&im);
    for (size_t at = 0; at < im.n; at++) {
        struct seen s;
        memcpy(bytes, im.bytes, at);
        memcpy(bytes + at, im.bytes + at + 1, im.n - at - 1);
        put_file(bytes, im.n - 1);
        s = read_log();
        assert_int_equal(s.n, RECORDS - 1);
        assert_true(s.n_damage >= 1);
        for (size_t i = 0; i < s.n; i++) {
            int64_t seq = s.seq[i];
            assert_true((int64_t)at < im.start[seq - 1] || (int64_t)at >= im.start[seq]);
        }
    }
}

static void byte_inserted_anywhere(void **state)
{
    static struct image im;
    unsigned char bytes[MAX_BYTES];

    (void)state;
    image_make(&im);
    for (size_t at = 0; at <= im.n; at++) {
        struct seen s;
        size_t whole = RECORDS - 1;
        for (int i = 0; i <= RECORDS; i++)
            whole += (int64_t)at == im.start[i]; /* between two records it costs none */
        memcpy(bytes, im.bytes, at);
        bytes[at] = im.bytes[at ? at - 1 : 0] ^ 0x55;
        memcpy(bytes + at + 1, im.bytes + at, im.n - at);
        put_file(bytes, im.n + 1);
        s = read_log();
        assert_int_equal(s.n, whole);
        assert_true(s.n_damage >= 1);
    }
}

/* Torn at every length: the whole records are read, the rest is one entry; a writer then goes on
 * with the right seq, and nothing but the torn record is missing. */
static void torn_tail_anywhere(void **state)
{
    static struct image im;

    (void)state;
    image_make(&im);
    for (size_t at = 0; at <= im.n; at++) {
        struct seen s;
        size_t whole = 0;
        put_file(im.bytes, at);
        while (whole < RECORDS && im.start[whole + 1] <= (int64_t)at)
            whole++;
        bool torn = im.start[whole] != (int64_t)at;
        s = read_log();
        assert_int_equal(s.n, whole);
        assert_int_equal(s.n_damage, torn);
        if (torn) {
            assert_int_equal(s.damage[0].offset, im.start[whole]);
            assert_int_equal(s.damage[0].bytes, (int64_t)at - im.start[whole]);
            assert_string_equal(s.damage[0].reason, "torn tail");
        }
        if (at % 7 != 0)
            continue;
        append_n((int64_t)whole + 1, (int64_t)whole + 2);
        s = read_log();
        assert_int_equal(s.n, whole + 2);
        for (size_t i = 0; i < s.n; i++)
            assert_int_equal(s.seq[i], i + 1);
        assert_int_equal(s.n_damage, torn);
    }
}

static void put_parts(const struct image *im, const int *records, int n)
{
    unsigned char bytes[2 * MAX_BYTES];
    size_t at = 0;

    for (int i = 0; i < n; i++) {
        size_t len = (size_t)(im->start[records[i] + 1] - im->start[records[i]]);
        memcpy(bytes + at, im->bytes + im->start[records[i]], len);
        at += len;
    }
    put_file(bytes, at);
}

/* Whole records missing or there twice. */
static void cut_and_doubled(void **state)
{
    static const struct { int n, records[10]; const char *missing; } rows[] = {
        {5, {0, 1, 2, 3, 4}, NULL},
        {4, {0, 1, 3, 4}, "missing seq 3"},
        {2, {0, 4}, "missing seq 2..4"},
        {3, {2, 3, 4}, "missing seq 1..2"},
        {4, {0, 1, 2, 3}, NULL}, /* the end: nothing tells */
        {10, {0, 1, 2, 3, 4, 0, 1, 2, 3, 4}, NULL},
        {8, {0, 1, 2, 1, 2, 3, 4, 4}, NULL},
    };
    static struct image im;

    (void)state;
    image_make(&im);
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        struct seen s;
        put_parts(&im, rows[k].records, rows[k].n);
        s = read_log();
        assert_int_equal(s.n, rows[k].n);
        for (int i = 0; i < rows[k].n; i++)
            assert_int_equal(s.seq[i], rows[k].records[i] + 1);
        assert_int_equal(s.n_damage, rows[k].missing != NULL);
        if (rows[k].missing)
            assert_string_equal(s.damage[0].reason, rows[k].missing);
    }
}

static void missing_file(void **state)
{
    struct evlog_reader *r;
    struct err err;

    (void)state;
    assert_int_equal(evlog_reader_open(in_scratch("absent.evlog"), &r, &err), ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "absent.evlog"));
}

/* Damage wider than the reader's window, and a record of the greatest size behind it. */
static void large_damage_and_record(void **state)
{
    enum { JUNK = 200000 };
    char *junk = malloc(JUNK), *text = malloc(LIMIT_EVENT_BYTES);
    struct evlog_reader *r;
    struct evlog_event e;
    const cJSON *event;
    struct evlog *log;
    struct err err;
    const struct evlog_damage *d;

    (void)state;
    for (int i = 0; i < JUNK; i++) /* full of starts of markers */
        junk[i] = i % 3 ? (char)0xFE : 'r';
    put_file(junk, JUNK);
    memset(text, 'x', LIMIT_EVENT_BYTES);
    text[LIMIT_EVENT_BYTES - 600] = '\0';
    log = open_log();
    evlog_begin(log, &e, "big");
    json_put_text(&e.out, "text", text);
    assert_int_equal(evlog_commit(log, &e, false, &err), 0);
    text[LIMIT_EVENT_BYTES - 600] = 'x';
    text[LIMIT_EVENT_BYTES - 1] = '\0';
    evlog_begin(log, &e, "too big");
    json_put_text(&e.out, "text", text);
    assert_int_equal(evlog_commit(log, &e, false, &err), ERR_LIMIT);
    assert_int_equal(append(log, 2, false, &err), 0);
    evlog_close(log);
    assert_int_equal(evlog_reader_open(log_path(), &r, NULL), 0);
    assert_int_equal(evlog_reader_next(r, &event, &err), 1);
    assert_int_equal(strlen(json_text(event, "text", "")), LIMIT_EVENT_BYTES - 600);
    assert_int_equal(evlog_reader_next(r, &event, &err), 1);
    assert_int_equal(json_int(event, "seq", 0), 2);
    assert_int_equal(evlog_reader_next(r, &event, &err), 0);
    assert_int_equal(evlog_reader_damage(r, &d), 1);
    assert_int_equal(d[0].bytes, JUNK);
    evlog_reader_close(r);
    free(junk);
    free(text);
}

/* A marker that lies across the end of what the reader holds at once, at each of its bytes. */
static void marker_across_windows(void **state)
{
    static struct image im;
    enum { WINDOW = 64 << 10 };
    char *bytes = malloc(WINDOW + MAX_BYTES);

    (void)state;
    image_make(&im);
    for (size_t junk = WINDOW - 10; junk < WINDOW + 4; junk++) {
        struct seen s;
        memset(bytes, '-', junk);
        memcpy(bytes + junk, im.bytes, im.n);
        put_file(bytes, junk + im.n);
        s = read_log();
        assert_int_equal(s.n, RECORDS);
        assert_int_equal(s.damage[0].bytes, junk);
    }
    free(bytes);
}

/* ---- live files ---- */

/* A record that arrives byte by byte: an unfinished tail is not damage once it is finished. */
static void record_growing_under_the_reader(void **state)
{
    static struct image im;
    struct seen s = {.n = 0};
    struct evlog_reader *r;
    int fd;

    (void)state;
    image_make(&im);
    put_file(im.bytes, 0);
    assert_int_equal(evlog_reader_open(log_path(), &r, NULL), 0);
    fd = open(log_path(), O_WRONLY | O_APPEND);
    for (size_t at = 0; at < im.n; at++) {
        size_t whole = 0;
        assert_int_equal(write(fd, im.bytes + at, 1), 1);
        drain(r, &s);
        while (whole < RECORDS && im.start[whole + 1] <= (int64_t)at + 1)
            whole++;
        assert_int_equal(s.n, whole);
        assert_int_equal(evlog_reader_offset(r), im.start[whole]);
        assert_int_equal(s.n_damage, im.start[whole] != (int64_t)at + 1);
    }
    assert_int_equal(s.n_damage, 0);
    close(fd);
    evlog_reader_close(r);
}

static void file_truncated_under_the_reader(void **state)
{
    static struct image im;
    struct seen s = {.n = 0};
    struct evlog_reader *r;
    int64_t cut;

    (void)state;
    image_make(&im);
    cut = im.start[2] + 10;
    assert_int_equal(evlog_reader_open(log_path(), &r, NULL), 0);
    drain(r, &s);
    assert_int_equal(s.n, RECORDS);
    assert_int_equal(truncate(log_path(), cut), 0);
    drain(r, &s);
    assert_int_equal(s.n, RECORDS);
    assert_int_equal(s.n_damage, 1);
    assert_string_equal(s.damage[0].reason, "file truncated");
    assert_int_equal(s.damage[0].offset, cut);
    assert_int_equal(s.damage[0].bytes, im.start[RECORDS] - cut);
    append_n(3, 4); /* the writer knows of two whole records */
    s.n = 0;
    drain(r, &s);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.seq[0], 3);
    evlog_reader_close(r);
}

static void seek_and_continue(void **state)
{
    static struct image im;
    struct seen s = {.n = 0};
    struct evlog_reader *r;
    struct err err;

    (void)state;
    image_make(&im);
    assert_int_equal(evlog_reader_open(log_path(), &r, NULL), 0);
    assert_int_equal(evlog_reader_seek(r, im.start[3], &err), 0);
    drain(r, &s);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.seq[0], 4);
    assert_int_equal(s.n_damage, 0);
    /* into a record: the next one is found */
    assert_int_equal(evlog_reader_seek(r, im.start[3] + 1, &err), 0);
    s.n = 0;
    drain(r, &s);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.n_damage, 1);
    assert_int_equal(evlog_reader_seek(r, 0, &err), 0);
    s.n = 0;
    drain(r, &s);
    assert_int_equal(s.n, RECORDS);
    assert_int_equal(s.n_damage, 0);
    assert_int_equal(evlog_reader_seek(r, -1, &err), ERR_INPUT);
    evlog_reader_close(r);
}

/* ---- the writer ---- */

/* The disk is full after every possible number of bytes: the file is as before, and the next append
 * is seq 2. */
static void full_disk(void **state)
{
    struct err err;
    int64_t before, record;

    (void)state;
    append_n(1, 1);
    /* two times are printed as short as they come: up to 24 bytes each */
    record = size_of(log_path()) - 60;
    for (int64_t room = 0; room < record; room += 5) {
        struct evlog *log;
        struct seen s;
        unlink(log_path());
        append_n(1, 1);
        before = size_of(log_path());
        log = open_log();
        fault.active = true;
        fault.bytes_left = (size_t)room;
        assert_int_equal(append(log, 2, true, &err), ERR_FULL);
        fault.active = false;
        assert_non_null(strstr(err.text, "No space left"));
        assert_int_equal(size_of(log_path()), before);
        assert_int_equal(append(log, 2, true, &err), 0);
        evlog_close(log);
        s = read_log();
        assert_int_equal(s.n, 2);
        assert_int_equal(s.n_damage, 0);
    }
}

/* A log that keeps: whatever room there is meanwhile, all is written in the end, once and in order;
 * what was too much to keep is missed. */
static void full_disk_and_kept(void **state)
{
    struct err err;

    (void)state;
    for (size_t room = 0; room < 1000; room += 37) {
        struct evlog *log;
        struct seen s;
        unlink(log_path());
        log = open_log();
        evlog_keep(log, 1 << 16);
        fault.active = true;
        fault.bytes_left = 0;
        for (int64_t v = 1; v <= 5; v++)
            assert_int_equal(append(log, v, true, &err), ERR_FULL);
        assert_true(evlog_keeps(log));
        fault.bytes_left = room;
        assert_int_equal(evlog_flush(log, &err), ERR_FULL);
        fault.active = false;
        assert_int_equal(append(log, 6, true, &err), 0);
        assert_false(evlog_keeps(log));
        evlog_close(log);
        s = read_log();
        assert_int_equal(s.n, 6);
        for (size_t i = 0; i < s.n; i++)
            assert_int_equal(s.seq[i], i + 1);
        assert_int_equal(s.n_damage, 0);
    }
}

static void full_disk_and_too_much_kept(void **state)
{
    struct evlog *log = open_log();
    struct err err;
    struct seen s;

    (void)state;
    evlog_keep(log, 700); /* three of them at most */
    fault.active = true;
    fault.bytes_left = 0;
    for (int64_t v = 1; v <= 9; v++)
        assert_int_equal(append(log, v, true, &err), ERR_FULL);
    fault.active = false;
    evlog_close(log); /* writes what it has */
    s = read_log();
    assert_in_range(s.n, 1, 3);
    assert_int_equal(s.seq[s.n - 1], s.n);
}

/* And what was written cannot be cut off again. */
static void full_disk_and_failing_truncate(void **state)
{
    struct err err;

    (void)state;
    for (size_t room = 1; room < 200; room += 11) {
        struct evlog *log;
        struct seen s;
        unlink(log_path());
        log = open_log();
        assert_int_equal(append(log, 1, true, &err), 0);
        fault.active = fault.truncate_fails = true;
        fault.bytes_left = room;
        assert_int_equal(append(log, 2, true, &err), ERR_FULL);
        fault.active = fault.truncate_fails = false;
        assert_int_equal(append(log, 2, true, &err), 0);
        evlog_close(log);
        s = read_log();
        assert_int_equal(s.n, 2);
        assert_int_equal(s.seq[1], 2);
        assert_int_equal(s.n_damage, 1);
        assert_int_equal(s.damage[0].bytes, room);
    }
}

/* A record whose sync failed is withdrawn, and its seq not used for another event. */
static void failing_sync(void **state)
{
    struct evlog *log = open_log();
    struct err err;
    struct seen s;
    int64_t before;

    (void)state;
    assert_int_equal(append(log, 1, true, &err), 0);
    before = size_of(log_path());
    fault.sync_fails = true;
    assert_int_equal(append(log, 2, true, &err), ERR_IO);
    assert_int_equal(size_of(log_path()), before);
    assert_int_equal(append(log, 3, false, &err), 0); /* not durable: no sync */
    fault.sync_fails = false;
    evlog_close(log);
    s = read_log();
    assert_int_equal(s.n, 2);
    assert_int_equal(s.seq[1], 3);
    assert_string_equal(s.damage[0].reason, "missing seq 2");
}

/* An event that readers would have to refuse, or that claims another writer's identity, is not
 * written. */
static void event_with_a_key_twice(void **state)
{
    static const char *const keys[] = {"ev",     "wall",  "mono", "boot",
                                       "host",   "run",   "seq",  "attempt",
                                       "writer", "token", "step", "a \"quoted\", one"};
    struct evlog_ids own = ids;
    const cJSON *event;

    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(keys); i++) {
        const char *key = keys[i / 2];
        struct evlog_event e;
        struct evlog *log;
        struct err err = {0};
        own.token = i % 2 ? NULL : "tok";
        assert_int_equal(evlog_open(scratch, &own, &log, NULL), 0);
        evlog_begin(log, &e, "step");
        json_put_text(&e.out, "step", "\\\", \"step\": {");
        json_put_int(&e.out, "a \"quoted\", one", 1);
        json_put_int(&e.out, key, 2);
        assert_int_equal(evlog_commit(log, &e, true, &err), ERR_INPUT);
        assert_non_null(strstr(err.text, key[0] == 'a' && key[1] == ' ' ? "quoted" : key));
        assert_non_null(strstr(err.text, "agent.a2.evlog"));
        assert_int_equal(size_of(log_path()), 0);
        evlog_close(log);
    }
    append_n(1, 1);
    struct evlog_reader *r;
    assert_int_equal(evlog_reader_open(log_path(), &r, NULL), 0);
    assert_int_equal(evlog_reader_next(r, &event, NULL), 1);
    assert_int_equal(json_int(event, "seq", -1), 1); /* the refused ones took no number */
    evlog_reader_close(r);
}

/* Objects inside: a key may stand in several, in one of them only once. */
static void event_with_a_key_twice_inside(void **state)
{
    (void)state;
    for (int twice = 0; twice < 2; twice++) {
        struct evlog_event e;
        struct evlog *log;
        assert_int_equal(evlog_open(scratch, &ids, &log, NULL), 0);
        evlog_begin(log, &e, "step");
        json_arr_begin(&e.out, "list");
        for (int i = 0; i < 2; i++) {
            json_obj_begin(&e.out, NULL);
            json_put_int(&e.out, "seq", i);
            json_obj_begin(&e.out, "run");
            json_obj_end(&e.out);
            json_put_int(&e.out, twice && i == 1 ? "seq" : "x", i);
            json_obj_end(&e.out);
        }
        json_arr_end(&e.out);
        assert_int_equal(evlog_commit(log, &e, true, NULL), twice ? ERR_INPUT : 0);
        evlog_close(log);
    }
}

static void bad_ids(void **state)
{
    static const struct { struct evlog_ids ids; const char *dir; int rc; } rows[] = {
        {{"r", 1, "", NULL}, NULL, ERR_INPUT},
        {{"r", 1, "a/b", NULL}, NULL, ERR_INPUT},
        {{"r", 1, "..", NULL}, NULL, ERR_INPUT},
        {{"r", -1, "agent", NULL}, NULL, ERR_INPUT},
        {{"r", 1, "agent", NULL}, "/no/such/folder", ERR_NOT_FOUND},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct evlog *log = NULL;
        struct err err;
        assert_int_equal(evlog_open(rows[i].dir ? rows[i].dir : scratch, &rows[i].ids, &log, &err),
                         rows[i].rc);
        assert_null(log);
    }
    assert_int_equal(count_entries(scratch), 0);
}

/* A writer killed again and again: no seq is lost before the last one, none comes twice, the tail
 * costs one record. */
static void killed_writers(void **state)
{
    enum { KILLS = 12 };
    struct evlog_reader *r;
    const struct evlog_damage *d;
    const cJSON *event;
    int64_t last = 0;

    (void)state;
    for (int k = 0; k < KILLS; k++) {
        int64_t before = size_of(log_path());
        pid_t pid = fork();
        if (pid == 0) {
            struct evlog *log;
            if (evlog_open(scratch, &ids, &log, NULL) < 0)
                _exit(1);
            for (int64_t i = 0;; i++)
                if (append(log, i, false, NULL) < 0)
                    _exit(1);
        }
        clock_sleep_s(0.002 + 0.001 * k);
        /* one at least has written */
        for (int i = 0; k == KILLS - 1 && i < 60000 && size_of(log_path()) <= before; i++)
            clock_sleep_s(0.001);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
    }
    assert_int_equal(evlog_reader_open(log_path(), &r, NULL), 0);
    while (evlog_reader_next(r, &event, NULL) == 1)
        assert_int_equal(json_int(event, "seq", -1), ++last);
    assert_true(last > 0);
    for (size_t i = evlog_reader_damage(r, &d); i-- > 0;)
        assert_true(strncmp(d[i].reason, "missing", 7) != 0);
    evlog_reader_close(r);
}

int main(void)
{
#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, faultless_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(format_is_as_documented),
        IN_SCRATCH(events_carry_the_common_fields),
        IN_SCRATCH(flipped_bit_anywhere),
        IN_SCRATCH(zeroed_block_anywhere),
        IN_SCRATCH(byte_removed_anywhere),
        IN_SCRATCH(byte_inserted_anywhere),
        IN_SCRATCH(torn_tail_anywhere),
        IN_SCRATCH(cut_and_doubled),
        IN_SCRATCH(missing_file),
        IN_SCRATCH(large_damage_and_record),
        IN_SCRATCH(marker_across_windows),
        IN_SCRATCH(record_growing_under_the_reader),
        IN_SCRATCH(file_truncated_under_the_reader),
        IN_SCRATCH(seek_and_continue),
        IN_SCRATCH(full_disk),
        IN_SCRATCH(full_disk_and_kept),
        IN_SCRATCH(full_disk_and_too_much_kept),
        IN_SCRATCH(full_disk_and_failing_truncate),
        IN_SCRATCH(failing_sync),
        IN_SCRATCH(event_with_a_key_twice),
        IN_SCRATCH(event_with_a_key_twice_inside),
        IN_SCRATCH(bad_ids),
        IN_SCRATCH(killed_writers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
