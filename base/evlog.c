/* The event log's format, version 1
 *
 * A log is a sequence of records and nothing else: no file header, no index, no trailer. It is only ever appended to.
 * All integers are little-endian. A record, from its first byte:
 *
 *     offset  bytes  field
 *          0      8  marker    FE 'r' 'l' 'e' 'v' FF 0D 0A
 *          8      8  checksum  XXH3-64 (seed 0) of everything behind it: bytes 16 .. 31+n
 *         16      4  n         payload bytes, 1 .. LIMIT_EVENT_BYTES
 *         20      2  version   1
 *         22      2  zero
 *         24      8  seq       from 1, one more than the record before, per file
 *         32      n  payload   one JSON object in UTF-8 on one line, and a newline that n counts
 *
 * There is no padding: the next record follows at 32+n. Bytes FE and FF never occur in UTF-8, so a marker never occurs
 * in a payload. The newline makes `grep -a` useful on a log.
 *
 * What goes wrong, and what the reader does
 *
 * Power is lost in an append (torn tail); a network file system gives back blocks of zeros in the middle of a file
 * (seen by users of other tools' journals); a bit flips; a record is withdrawn by ftruncate after a failed append, or
 * that ftruncate fails too. One rule covers all: at the place where the next record should be, either a record stands
 * there with a right checksum, or the reader looks byte by byte for the next marker that begins a record with a right
 * checksum. What it skipped is one damage entry. So damage costs the records it touches and no others, and a length
 * field, damaged or not, is never trusted to skip anything.
 *   Skipped bytes at the end of the file may be an append in progress. They are listed as damage only until the file
 * has grown: the next call looks at them again.
 *   A jump in seq is an entry of its own ("missing seq 12..14", no bytes): it is the only sign left when whole records
 * were cut out. Content that stands in the log twice is returned twice; it carries the same (run, attempt, writer,
 * seq), by which the ingester tells. The reader reports no damage for it.
 *   A file that became shorter than what was read gives an entry "file truncated"; reading goes on at its new end.
 *
 * The writer
 *
 * One process writes a log; who may is the caller's business (evlog.h). Opening scans for the greatest seq and leaves
 * whatever the tail is; records go behind it. An append that fails is cut off again, and its seq used by the next: no reader can have
 * taken a part for a record. If only the sync fails, a reader may have seen the whole record, so it is cut off and its
 * seq is not used again: readers report it missing, which it is.
 */
#include "base/evlog.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"

enum { MARKER_BYTES = 8, HEADER_BYTES = 32, CHECKED_FROM = 16, VERSION = 1 };
enum { TAIL_BYTES = 4096, WINDOW_BYTES = 64 << 10, ZERO_RUN_BYTES = 32 }; /* a good header holds at most 12 zero bytes in a row */

static const unsigned char marker[MARKER_BYTES] = {0xFE, 'r', 'l', 'e', 'v', 0xFF, 0x0D, 0x0A};

static void put_le(unsigned char *p, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get_le(const unsigned char *p, int bytes)
{
    uint64_t value = 0;

    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | p[i];
    return value;
}

/* ---- reading ---- */

struct evlog_reader {
    char *path;
    int fd;
    int64_t at; /* file offset just past the last record returned */

    unsigned char *window; /* bytes [window_at, window_at + window_len) of the file */
    size_t window_cap, window_len;
    int64_t window_at;

    int64_t last_seq; /* greatest seen; -1 after a seek into the middle: any seq may come */
    struct json_doc doc;
    struct evlog_damage *damage;
    size_t n_damage, cap_damage;
    bool tail_listed; /* the last damage entry is the unfinished tail */
};

struct record {
    int64_t offset, end; /* of the whole record */
    int64_t seq;
    const unsigned char *payload; /* in the window */
    size_t payload_bytes;
};

/* Up to n bytes of the file from `offset`, fewer only at its end: the count, or <0. */
static int64_t peek(struct evlog_reader *r, int64_t offset, size_t n, const unsigned char **p, struct err *err)
{
    size_t want = n > WINDOW_BYTES ? n : WINDOW_BYTES, got = 0;

    if (offset >= r->window_at && offset + (int64_t)n <= r->window_at + (int64_t)r->window_len) {
        *p = r->window + (offset - r->window_at);
        return (int64_t)n;
    }
    if (want > r->window_cap) {
        unsigned char *bigger = realloc(r->window, want);
        if (!bigger)
            return err_set(err, ERR_NOMEM, "out of memory while reading '%s'", r->path);
        r->window = bigger;
        r->window_cap = want;
    }
    while (got < want) {
        ssize_t k = pread(r->fd, r->window + got, want - got, offset + (int64_t)got);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_set_errno(err, ERR_IO, "cannot read '%s'", r->path);
        if (k == 0)
            break;
        got += (size_t)k;
    }
    r->window_at = offset;
    r->window_len = got;
    *p = r->window;
    return (int64_t)(got < n ? got : n);
}

/* 1: a good record stands at `offset`; 0: none does (*why says what is seen); <0: I/O error */
static int record_at(struct evlog_reader *r, int64_t offset, struct record *rec, const char **why, struct err *err)
{
    const unsigned char *p;
    int64_t have = peek(r, offset, HEADER_BYTES, &p, err);
    uint64_t n;

    if (have < 0)
        return (int)have;
    *why = "no record";
    if (memcmp(p, marker, (size_t)(have < MARKER_BYTES ? have : MARKER_BYTES)) != 0)
        return 0;
    *why = "torn tail";
    if (have < HEADER_BYTES)
        return 0;
    n = get_le(p + 16, 4);
    *why = "bad length";
    if (n < 1 || n > LIMIT_EVENT_BYTES)
        return 0;
    have = peek(r, offset, HEADER_BYTES + n, &p, err);
    if (have < 0)
        return (int)have;
    *why = "torn tail";
    if (have < (int64_t)(HEADER_BYTES + n))
        return 0;
    *why = "bad checksum";
    if (get_le(p + 8, 8) != hash_64(p + CHECKED_FROM, HEADER_BYTES - CHECKED_FROM + n))
        return 0;
    *why = "unknown version";
    if (get_le(p + 20, 4) != VERSION)
        return 0;
    *rec = (struct record){offset, offset + HEADER_BYTES + (int64_t)n, (int64_t)get_le(p + 24, 8), p + HEADER_BYTES, n};
    return 1;
}

/* Offset of the next marker at or after `from`: 1 and *out, 0: none, <0: I/O error. */
static int find_marker(struct evlog_reader *r, int64_t from, int64_t *out, struct err *err)
{
    for (;;) {
        const unsigned char *p, *hit;
        int64_t have = peek(r, from, WINDOW_BYTES, &p, err);
        if (have < 0)
            return (int)have;
        hit = have < MARKER_BYTES ? NULL : memmem(p, (size_t)have, marker, MARKER_BYTES);
        if (hit) {
            *out = from + (hit - p);
            return 1;
        }
        if (have < WINDOW_BYTES)
            return 0;
        from += have - MARKER_BYTES + 1;
    }
}

static int add_damage(struct evlog_reader *r, int64_t offset, int64_t bytes, const char *reason, struct err *err)
{
    if (r->n_damage == r->cap_damage) {
        size_t cap = r->cap_damage ? 2 * r->cap_damage : 8;
        struct evlog_damage *d = realloc(r->damage, cap * sizeof *d);
        if (!d)
            return err_set(err, ERR_NOMEM, "out of memory while reading '%s'", r->path);
        r->damage = d;
        r->cap_damage = cap;
    }
    r->damage[r->n_damage] = (struct evlog_damage){.offset = offset, .bytes = bytes};
    snprintf(r->damage[r->n_damage].reason, sizeof r->damage->reason, "%s", reason);
    r->n_damage++;
    return 0;
}

/* 1: the region holds a run of zeros that no record has; 0: no; <0: I/O error */
static int has_zero_run(struct evlog_reader *r, int64_t from, int64_t end, struct err *err)
{
    int64_t run = 0;

    while (from < end) {
        const unsigned char *p;
        int64_t n = end - from < WINDOW_BYTES ? end - from : WINDOW_BYTES;
        int64_t have = peek(r, from, (size_t)n, &p, err);
        if (have <= 0)
            return (int)have;
        for (int64_t i = 0; i < have; i++) {
            run = p[i] == 0 ? run + 1 : 0;
            if (run >= ZERO_RUN_BYTES)
                return 1;
        }
        from += have;
    }
    return 0;
}

static int add_region(struct evlog_reader *r, int64_t from, int64_t end, const char *why, struct err *err)
{
    int zeros = has_zero_run(r, from, end, err);

    return zeros < 0 ? zeros : add_damage(r, from, end - from, zeros ? "zeroed block" : why, err);
}

static int note_gap(struct evlog_reader *r, const struct record *rec, struct err *err)
{
    int64_t expected = r->last_seq + 1;
    char text[64];

    if (rec->seq <= r->last_seq)
        return 0; /* the same content again */
    if (r->last_seq >= 0 && rec->seq > expected) {
        if (rec->seq == expected + 1)
            snprintf(text, sizeof text, "missing seq %lld", (long long)expected);
        else
            snprintf(text, sizeof text, "missing seq %lld..%lld", (long long)expected, (long long)rec->seq - 1);
        int rc = add_damage(r, rec->offset, 0, text, err);
        if (rc < 0)
            return rc;
    }
    r->last_seq = rec->seq;
    return 0;
}

/* The file's size; if it is shorter than what was read, note it and go on from its end. */
static int check_size(struct evlog_reader *r, int64_t *size, struct err *err)
{
    struct stat st;
    int rc;

    if (fstat(r->fd, &st) < 0)
        return err_set_errno(err, ERR_IO, "cannot look at '%s'", r->path);
    *size = st.st_size;
    if (*size >= r->at)
        return 0;
    rc = add_damage(r, *size, r->at - *size, "file truncated", err);
    if (rc < 0)
        return rc;
    r->at = *size;
    r->window_len = 0; /* what will stand there is not what we hold */
    return 0;
}

/* The first good record at or after `from`: 1, 0 if none; *why is what stands at `from` otherwise. */
static int find_record(struct evlog_reader *r, int64_t from, struct record *rec, const char **why, struct err *err)
{
    const char *ignored;
    int rc = record_at(r, from, rec, why, err);

    while (rc == 0) {
        rc = find_marker(r, from + 1, &from, err);
        if (rc <= 0)
            return rc;
        rc = record_at(r, from, rec, &ignored, err);
    }
    return rc;
}

/* The next good record; lists what was skipped. The record's bytes stay valid until the next peek. */
static int next_record(struct evlog_reader *r, struct record *rec, struct err *err)
{
    const char *why;
    int64_t size = 0;
    int rc;

    if (r->tail_listed)
        r->n_damage--;
    r->tail_listed = false;
    rc = check_size(r, &size, err);
    if (rc < 0 || size == r->at)
        return rc;
    rc = find_record(r, r->at, rec, &why, err);
    if (rc < 0)
        return rc;
    if (rc == 0) {
        r->window_len = 0; /* these bytes may change: read them again next time */
        rc = add_region(r, r->at, size, why, err);
        r->tail_listed = rc == 0;
        r->window_len = 0;
        return rc;
    }
    if (rec->offset > r->at) {
        rc = add_region(r, r->at, rec->offset, why, err);
        if (rc < 0)
            return rc;
        rc = record_at(r, rec->offset, rec, &why, err); /* again: the window has moved */
        if (rc <= 0) {
            r->n_damage--;
            return rc;
        }
    }
    r->at = rec->end;
    rc = note_gap(r, rec, err);
    return rc < 0 ? rc : 1;
}

int evlog_reader_open(const char *path, struct evlog_reader **out, struct err *err)
{
    struct evlog_reader *r = calloc(1, sizeof *r);
    int rc = 0;

    if (!r)
        return err_set(err, ERR_NOMEM, "out of memory while opening '%s'", path);
    r->fd = open(path, O_RDONLY | O_CLOEXEC);
    r->path = strdup(path);
    if (r->fd < 0)
        rc = err_set_errno(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "cannot open event log '%s'", path);
    else if (!r->path)
        rc = err_set(err, ERR_NOMEM, "out of memory while opening '%s'", path);
    if (rc < 0)
        evlog_reader_close(r);
    else
        *out = r;
    return rc;
}

int evlog_reader_next(struct evlog_reader *r, const cJSON **event, struct err *err)
{
    struct record rec;
    int rc;

    while ((rc = next_record(r, &rec, err)) == 1) {
        json_release(&r->doc);
        r->doc = (struct json_doc){0};
        int parsed = json_parse((const char *)rec.payload, rec.payload_bytes, r->path, &r->doc, NULL);
        if (parsed == ERR_NOMEM) {
            r->at = rec.offset; /* the record is good: the next call may have the memory */
            return err_set(err, ERR_NOMEM, "out of memory while reading '%s'", r->path);
        }
        if (parsed == 0 && cJSON_IsObject(r->doc.root)) {
            *event = r->doc.root;
            return 1;
        }
        rc = add_damage(r, rec.offset, rec.end - rec.offset, "not a JSON object", err);
        if (rc < 0)
            return rc;
    }
    return rc;
}

int64_t evlog_reader_offset(const struct evlog_reader *r)
{
    return r->at;
}

int evlog_reader_seek(struct evlog_reader *r, int64_t offset, struct err *err)
{
    if (offset < 0)
        return err_set(err, ERR_INPUT, "cannot read '%s' from offset %lld: give 0 or more", r->path, (long long)offset);
    r->at = offset;
    r->last_seq = offset == 0 ? 0 : -1;
    r->n_damage = 0;
    r->tail_listed = false;
    r->window_len = 0;
    return 0;
}

int evlog_reader_resume(struct evlog_reader *r, int64_t offset, int64_t seq, struct err *err)
{
    int rc = evlog_reader_seek(r, offset, err);
    if (rc == 0)
        r->last_seq = seq;
    return rc;
}

int64_t evlog_reader_seq(const struct evlog_reader *r)
{
    return r->last_seq;
}

int evlog_tail_hash(const char *path, int64_t end, uint64_t *out, struct err *err)
{
    char buf[TAIL_BYTES];
    int64_t want = end < TAIL_BYTES ? end : TAIL_BYTES, got = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(err, ERR_IO, "cannot open event log '%s'", path);
    while (got < want) {
        ssize_t k = pread(fd, buf + got, (size_t)(want - got), end - want + got);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            break;
        got += k;
    }
    close(fd);
    if (got < want)
        return err_set(err, ERR_IO, "cannot read '%s': it became shorter", path);
    *out = hash_64(buf, (size_t)want);
    return 0;
}

size_t evlog_reader_damage(const struct evlog_reader *r, const struct evlog_damage **list)
{
    *list = r->damage;
    return r->n_damage;
}

void evlog_reader_close(struct evlog_reader *r)
{
    if (!r)
        return;
    if (r->fd >= 0)
        close(r->fd);
    json_release(&r->doc);
    free(r->damage);
    free(r->window);
    free(r->path);
    free(r);
}

/* ---- writing ---- */

struct evlog {
    char *path, *run, *writer, *token;
    int64_t attempt, next_seq;
    int fd;
    struct str spare; /* the last event's memory, for the next: a steady writer allocates nothing */
    struct str kept;  /* whole records that wait for room, oldest first */
    size_t keep_bytes;
};

static int check_ids(const struct evlog_ids *ids, struct err *err)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    size_t n = strlen(ids->writer);

    if (n == 0 || n > LIMIT_NAME_BYTES || strspn(ids->writer, allowed) != n)
        return err_set(err, ERR_INPUT, "event log writer '%s': use 1 to %d letters, digits, '-' or '_'", ids->writer,
                       LIMIT_NAME_BYTES);
    if (ids->attempt < 0)
        return err_set(err, ERR_INPUT, "event log of writer '%s': attempt is %lld: give 0 or more", ids->writer,
                       (long long)ids->attempt);
    return 0;
}

static int copy_ids(struct evlog *log, const char *dir, const struct evlog_ids *ids, struct err *err)
{
    log->attempt = ids->attempt;
    log->run = strdup(ids->run);
    log->writer = strdup(ids->writer);
    log->token = ids->token ? strdup(ids->token) : NULL;
    if (asprintf(&log->path, "%s/%s.a%lld.evlog", dir, ids->writer, (long long)ids->attempt) < 0)
        log->path = NULL;
    if (!log->path || !log->run || !log->writer || (ids->token && !log->token))
        return err_set(err, ERR_NOMEM, "out of memory while opening an event log in '%s'", dir);
    return 0;
}

/* One more than the greatest seq in the file, whatever else it holds. */
static int find_next_seq(struct evlog *log, struct err *err)
{
    struct evlog_reader *r;
    struct record rec;
    int rc = evlog_reader_open(log->path, &r, err);

    if (rc < 0)
        return rc;
    log->next_seq = 1;
    while ((rc = next_record(r, &rec, err)) == 1)
        if (rec.seq >= log->next_seq)
            log->next_seq = rec.seq + 1;
    evlog_reader_close(r);
    return rc;
}

static int open_log(struct evlog *log, const char *dir, struct err *err)
{
    int rc;

    log->fd = open(log->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log->fd < 0)
        return err_set_errno(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "cannot open event log '%s'", log->path);
    rc = find_next_seq(log, err);
    if (rc == 0 && log->next_seq == 1)
        rc = file_fsync_dir(dir, err);
    return rc;
}

int evlog_open(const char *dir, const struct evlog_ids *ids, struct evlog **out, struct err *err)
{
    struct evlog *log;
    int rc = check_ids(ids, err);

    if (rc < 0)
        return rc;
    log = calloc(1, sizeof *log);
    if (!log)
        return err_set(err, ERR_NOMEM, "out of memory while opening an event log in '%s'", dir);
    log->fd = -1;
    log->spare = (struct str)STR_INIT;
    log->kept = (struct str)STR_INIT;
    rc = copy_ids(log, dir, ids, err);
    if (rc == 0)
        rc = open_log(log, dir, err);
    if (rc < 0)
        evlog_close(log);
    else
        *out = log;
    return rc;
}

void evlog_close(struct evlog *log)
{
    if (!log)
        return;
    if (log->fd >= 0) {
        evlog_flush(log, NULL);
        fsync(log->fd); /* best effort: what had to be durable was synced when it was committed */
        close(log->fd);
    }
    str_release(&log->spare);
    str_release(&log->kept);
    free(log->path);
    free(log->run);
    free(log->writer);
    free(log->token);
    free(log);
}

void evlog_begin(struct evlog *log, struct evlog_event *e, const char *kind)
{
    static const char header[HEADER_BYTES];

    e->text = log->spare;
    log->spare = (struct str)STR_INIT;
    str_clear(&e->text);
    str_addn(&e->text, header, sizeof header); /* filled in by commit: header and payload are one write */
    json_out_init(&e->out, &e->text, 0);
    json_obj_begin(&e->out, NULL);
    json_put_text(&e->out, "ev", kind);
    json_put_num(&e->out, "wall", clock_wall_s());
    json_put_num(&e->out, "mono", clock_mono_s());
    json_put_text(&e->out, "boot", clock_boot_id());
    json_put_text(&e->out, "host", clock_host());
    json_put_text(&e->out, "run", log->run);
    json_put_int(&e->out, "attempt", log->attempt);
    json_put_text(&e->out, "writer", log->writer);
    if (log->token)
        json_put_text(&e->out, "token", log->token);
}

/* A key twice makes a record no reader takes; a token of its own would pass for a submission's. */
static int check_keys(const struct evlog *log, const char *event, struct err *err)
{
    const char *key = json_written_twice(event);

    if (!key && !log->token)
        key = json_written_key(event, "\"token\"");
    if (!key)
        return 0;
    return err_set(err, ERR_INPUT, "event for '%s' names a field twice, or one that the log adds itself: %.*s", log->path,
                   (int)strcspn(key, ":"), key);
}

/* Close the object, check it and fill in the header: e->text is then the whole record. */
static int seal(const struct evlog *log, struct evlog_event *e, struct err *err)
{
    unsigned char *p;
    size_t n;
    int rc;

    json_put_int(&e->out, "seq", log->next_seq);
    json_obj_end(&e->out);
    str_addc(&e->text, '\n');
    rc = str_check(&e->text, err);
    rc = rc < 0 ? rc : check_keys(log, e->text.p + HEADER_BYTES, err);
    if (rc < 0)
        return rc;
    n = e->text.len - HEADER_BYTES;
    if (n > LIMIT_EVENT_BYTES)
        return err_set(err, ERR_LIMIT, "event for '%s' has %zu bytes: the most is %d", log->path, n, LIMIT_EVENT_BYTES);
    p = (unsigned char *)e->text.p;
    if (memmem(p + HEADER_BYTES, n, marker, MARKER_BYTES))
        return err_set(err, ERR_INPUT, "event for '%s' holds a text that is not UTF-8", log->path);
    memcpy(p, marker, MARKER_BYTES);
    put_le(p + 16, n, 4);
    put_le(p + 20, VERSION, 4);
    put_le(p + 24, (uint64_t)log->next_seq, 8);
    put_le(p + 8, hash_64(p + CHECKED_FROM, HEADER_BYTES - CHECKED_FROM + n), 8);
    return 0;
}

static int sync_log(const struct evlog *log, struct err *err)
{
    while (fdatasync(log->fd) < 0)
        if (errno != EINTR)
            return err_set_errno(err, ERR_IO, "cannot write event log '%s' to disk", log->path);
    return 0;
}

/* *seen: a reader may have seen it, whatever the result is. */
static int append(const struct evlog *log, const char *p, size_t n, bool durable, bool *seen,
                  struct err *err)
{
    struct stat before;
    int rc;

    if (fstat(log->fd, &before) < 0)
        return err_set_errno(err, ERR_IO, "cannot look at event log '%s'", log->path);
    rc = file_write_all(log->fd, p, n, log->path, err);
    *seen = rc == 0;
    if (rc == 0)
        rc = durable ? sync_log(log, err) : 0;
    if (rc < 0 && ftruncate(log->fd, before.st_size) < 0)
        return rc; /* the reader passes over what is left */
    return rc;
}

/* ---- keeping ---- */

void evlog_keep(struct evlog *log, size_t max_bytes) { log->keep_bytes = max_bytes; }

bool evlog_keeps(const struct evlog *log) { return log->kept.len > 0; }

/* Bytes of the kept records that could be written, from the oldest on; less than all with what failed in *rc. */
static size_t kept_append(const struct evlog *log, int *rc, struct err *err)
{
    size_t done = 0;
    bool seen;

    for (*rc = 0; *rc == 0 && done < log->kept.len;) {
        const char *p = log->kept.p + done;
        size_t n = HEADER_BYTES + get_le((const unsigned char *)p + 16, 4);
        *rc = append(log, p, n, false, &seen, err);
        done += *rc == 0 ? n : 0;
    }
    return done;
}

/* Writes the kept records, oldest first. If the sync fails they stay kept and are written once more: a reader tells by
 * their seq which it has seen. */
int evlog_flush(struct evlog *log, struct err *err)
{
    int rc, synced;
    size_t done;

    if (!evlog_keeps(log))
        return 0;
    done = kept_append(log, &rc, err);
    synced = done ? sync_log(log, rc < 0 ? NULL : err) : 0;
    if (synced < 0)
        return rc < 0 ? rc : synced;
    log->kept.len -= done;
    memmove(log->kept.p, log->kept.p + done, log->kept.len);
    if (rc == 0)
        str_release(&log->kept);
    return rc;
}

/* Its seq stays its own, kept or not, so that a reader misses it as long as it is not written. */
static void keep(struct evlog *log, const struct str *record)
{
    if (log->kept.len + record->len <= log->keep_bytes)
        str_addn(&log->kept, record->p, record->len); /* with no memory it is left out whole */
    log->next_seq = (int64_t)get_le((const unsigned char *)record->p + 24, 8) + 1;
}

int evlog_commit(struct evlog *log, struct evlog_event *e, bool durable, struct err *err)
{
    bool seen = false;
    int rc = seal(log, e, err);
    bool sealed = rc == 0;

    if (rc == 0)
        rc = evlog_flush(log, err);
    if (rc == 0)
        rc = append(log, e->text.p, e->text.len, durable, &seen, err);
    log->next_seq += seen;
    if (sealed && rc == ERR_FULL && log->keep_bytes)
        keep(log, &e->text);
    str_release(&log->spare); /* of another event that ended in between */
    log->spare = e->text;
    e->text = (struct str)STR_INIT;
    return rc;
}
