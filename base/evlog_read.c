/* evlog_read: reads event logs. The essay at the top of evlog.c describes the format and how the
 * reader treats damage. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/evlog_priv.h"
#include "base/hash.h"

enum {
    TAIL_BYTES = 4096,
    WINDOW_BYTES = 64 << 10,
    ZERO_RUN_BYTES = 32, /* a good header holds at most 12 zero bytes in a row */
};

struct evlog_reader {
    char *path;
    int fd;
    int64_t at; /* file offset just past the last record returned */

    unsigned char *window; /* bytes [window_at, window_at + window_len) of the file */
    size_t window_cap, window_len;
    int64_t window_at;

    /* the greatest seq seen; -1 after a seek into the middle, where any seq may follow */
    int64_t last_seq;
    struct json_doc doc;
    const char *text; /* the text of the event in doc; points into the window */
    size_t text_bytes;
    struct evlog_damage *damage;
    size_t n_damage, cap_damage;
    bool tail_listed; /* the last damage entry is the unfinished tail */
};

struct record {
    int64_t offset, end; /* the range of the whole record in the file */
    int64_t seq;
    const unsigned char *payload; /* points into the window */
    size_t payload_bytes;
};

/* Sets *p to the file's bytes from `offset` and returns their number: n, or fewer at the end of the
 * file. Returns <0 on an I/O error. */
static int64_t peek(struct evlog_reader *r, int64_t offset, size_t n, const unsigned char **p,
                    struct err *err)
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

/* Checks whether a good record begins at `offset`. 1: yes, and *rec describes it; 0: no, and *why
 * says what was found; <0: I/O error. */
static int record_at(struct evlog_reader *r, int64_t offset, struct record *rec, const char **why,
                     struct err *err)
{
    const unsigned char *p;
    int64_t have = peek(r, offset, EVLOG_HEADER_BYTES, &p, err);
    uint64_t n;

    if (have < 0)
        return (int)have;
    *why = "no record";
    if (memcmp(p, evlog_marker, (size_t)(have < EVLOG_MARKER_BYTES ? have : EVLOG_MARKER_BYTES)) !=
        0)
        return 0;
    *why = "torn tail";
    if (have < EVLOG_HEADER_BYTES)
        return 0;
    n = evlog_get_le(p + 16, 4);
    *why = "bad length";
    if (n < 1 || n > LIMIT_EVENT_BYTES)
        return 0;
    have = peek(r, offset, EVLOG_HEADER_BYTES + n, &p, err);
    if (have < 0)
        return (int)have;
    *why = "torn tail";
    if (have < (int64_t)(EVLOG_HEADER_BYTES + n))
        return 0;
    *why = "bad checksum";
    if (evlog_get_le(p + 8, 8) !=
        hash_64(p + EVLOG_CHECKED_FROM, EVLOG_HEADER_BYTES - EVLOG_CHECKED_FROM + n))
        return 0;
    *why = "unknown version";
    if (evlog_get_le(p + 20, 4) != EVLOG_VERSION)
        return 0;
    *rec = (struct record){offset, offset + EVLOG_HEADER_BYTES + (int64_t)n,
                           (int64_t)evlog_get_le(p + 24, 8), p + EVLOG_HEADER_BYTES, n};
    return 1;
}

/* Finds the next marker at or after `from`. Returns 1 and sets *out, 0 if there is none, <0 on an
 * I/O error. */
static int find_marker(struct evlog_reader *r, int64_t from, int64_t *out, struct err *err)
{
    for (;;) {
        const unsigned char *p, *hit;
        int64_t have = peek(r, from, WINDOW_BYTES, &p, err);
        if (have < 0)
            return (int)have;
        hit = have < EVLOG_MARKER_BYTES ? NULL
                                        : memmem(p, (size_t)have, evlog_marker, EVLOG_MARKER_BYTES);
        if (hit) {
            *out = from + (hit - p);
            return 1;
        }
        if (have < WINDOW_BYTES)
            return 0;
        from += have - EVLOG_MARKER_BYTES + 1;
    }
}

/* Computes a hash of the region's bytes, up to the end of the file. */
static int region_hash(struct evlog_reader *r, int64_t from, int64_t end, uint64_t *out,
                       struct err *err)
{
    uint64_t chain[2] = {0};
    int64_t have = 1;
    for (; from < end && have > 0; from += have) {
        const unsigned char *p;
        int64_t n = end - from < WINDOW_BYTES ? end - from : WINDOW_BYTES;
        if ((have = peek(r, from, (size_t)n, &p, err)) < 0)
            return (int)have;
        chain[1] = hash_64(p, (size_t)have);
        chain[0] = hash_64(chain, sizeof chain);
    }
    *out = chain[0];
    return 0;
}

static int damage_room(struct evlog_reader *r, struct err *err)
{
    size_t cap = r->cap_damage ? 2 * r->cap_damage : 8;
    if (r->n_damage < r->cap_damage)
        return 0;
    struct evlog_damage *d = realloc(r->damage, cap * sizeof *d);
    if (!d)
        return err_set(err, ERR_NOMEM, "out of memory while reading '%s'", r->path);
    r->damage = d;
    r->cap_damage = cap;
    return 0;
}

static int add_damage(struct evlog_reader *r, int64_t offset, int64_t bytes, const char *reason,
                      struct err *err)
{
    struct evlog_damage d = {.offset = offset, .bytes = bytes};
    int rc = region_hash(r, offset, offset + bytes, &d.hash, err);
    if (rc < 0 || (rc = damage_room(r, err)) < 0)
        return rc;
    snprintf(d.reason, sizeof d.reason, "%s", reason);
    r->damage[r->n_damage++] = d;
    return 0;
}

/* Tells whether the region holds a span of zeros that is longer than any in a record: 1, 0, or <0
 * on an I/O error. */
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

static int add_region(struct evlog_reader *r, int64_t from, int64_t end, const char *why,
                      struct err *err)
{
    int zeros = has_zero_run(r, from, end, err);

    return zeros < 0 ? zeros : add_damage(r, from, end - from, zeros ? "zeroed block" : why, err);
}

static int note_gap(struct evlog_reader *r, const struct record *rec, struct err *err)
{
    int64_t expected = r->last_seq + 1;
    char text[64];

    if (rec->seq <= r->last_seq)
        return 0; /* the log holds this record twice */
    if (r->last_seq >= 0 && rec->seq > expected) {
        if (rec->seq == expected + 1)
            snprintf(text, sizeof text, "missing seq %lld", (long long)expected);
        else
            snprintf(text, sizeof text, "missing seq %lld..%lld", (long long)expected,
                     (long long)rec->seq - 1);
        int rc = add_damage(r, rec->offset, 0, text, err);
        if (rc < 0)
            return rc;
    }
    r->last_seq = rec->seq;
    return 0;
}

/* Finds the size of the file. If the file has become shorter than the reader's position, adds a
 * damage entry and continues from the new end. */
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
    r->window_len = 0; /* the file may grow again with other bytes than the window holds */
    return 0;
}

/* Finds the first good record at or after `from`. Returns 1, or 0 if there is none. If no record
 * begins at `from` itself, *why says what was found there. */
static int find_record(struct evlog_reader *r, int64_t from, struct record *rec, const char **why,
                       struct err *err)
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

/* Reads the next good record and adds a damage entry for the bytes skipped before it. The bytes of
 * the record stay valid until the next peek. */
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
        r->window_len = 0; /* these bytes may change, so the next call reads them again */
        rc = add_region(r, r->at, size, why, err);
        r->tail_listed = rc == 0;
        r->window_len = 0;
        return rc;
    }
    if (rec->offset > r->at) {
        rc = add_region(r, r->at, rec->offset, why, err);
        if (rc < 0)
            return rc;
        /* reads it again, because add_region has moved the window */
        rc = record_at(r, rec->offset, rec, &why, err);
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
        rc = err_set_errno(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO,
                           "cannot open event log '%s'", path);
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
        int parsed = json_parse((const char *)rec.payload, rec.payload_bytes, r->path, &r->doc,
                                NULL);
        if (parsed == ERR_NOMEM) {
            /* the record is good, and the next call may get the memory for it */
            r->at = rec.offset;
            return err_set(err, ERR_NOMEM, "out of memory while reading '%s'", r->path);
        }
        if (parsed == 0 && cJSON_IsObject(r->doc.root)) {
            *event = r->doc.root;
            r->text = (const char *)rec.payload;
            r->text_bytes = rec.payload_bytes;
            return 1;
        }
        rc = add_damage(r, rec.offset, rec.end - rec.offset, "not a JSON object", err);
        if (rc < 0)
            return rc;
    }
    return rc;
}

const char *evlog_reader_text(const struct evlog_reader *r, size_t *bytes)
{
    *bytes = r->text_bytes;
    return r->text;
}

int64_t evlog_reader_offset(const struct evlog_reader *r)
{
    return r->at;
}

int evlog_reader_seek(struct evlog_reader *r, int64_t offset, struct err *err)
{
    if (offset < 0)
        return err_set(err, ERR_INPUT, "cannot read '%s' from offset %lld: give 0 or more", r->path,
                       (long long)offset);
    r->at = offset;
    r->last_seq = offset == 0 ? 0 : -1;
    r->n_damage = 0;
    r->tail_listed = false;
    r->window_len = 0;
    return 0;
}

int evlog_reader_resume(struct evlog_reader *r, int64_t offset, int64_t seq,
                        const struct evlog_damage *known, size_t n, struct err *err)
{
    int rc = evlog_reader_seek(r, offset, err);
    if (rc < 0)
        return rc;
    r->last_seq = seq;
    for (size_t i = 0; i < n; i++) {
        if ((rc = damage_room(r, err)) < 0)
            return rc;
        r->damage[r->n_damage++] = known[i];
    }
    return 0;
}

bool evlog_damage_stays(const char *path, const struct evlog_damage *list, size_t n)
{
    struct evlog_reader *r = NULL;
    uint64_t hash;
    bool stays = n == 0 || evlog_reader_open(path, &r, NULL) == 0;
    for (size_t i = 0; i < n && stays; i++)
        stays = region_hash(r, list[i].offset, list[i].offset + list[i].bytes, &hash, NULL) == 0 &&
                hash == list[i].hash;
    evlog_reader_close(r);
    return stays;
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

int evlog_next_seq(const char *path, int64_t *out, struct err *err)
{
    struct evlog_reader *r;
    struct record rec;
    int64_t next = 1;
    int rc;

    if ((rc = evlog_reader_open(path, &r, err)) < 0)
        return rc;
    while ((rc = next_record(r, &rec, err)) == 1)
        if (rec.seq >= next)
            next = rec.seq + 1;
    evlog_reader_close(r);
    if (rc < 0)
        return rc;
    *out = next;
    return 0;
}
