/* The event log's format, version 1
 *
 * A log is a sequence of records and nothing else: no file header, no index, no trailer. It is only
 * ever appended to. All integers are little-endian. A record, from its first byte:
 *
 *     offset  bytes  field
 *          0      8  marker    FE 'r' 'l' 'e' 'v' FF 0D 0A
 *          8      8  checksum  XXH3-64 (seed 0) of everything after it: bytes 16 .. 31+n
 *         16      4  n         payload bytes, 1 .. LIMIT_EVENT_BYTES
 *         20      2  version   1
 *         22      2  zero
 *         24      8  seq       from 1, one more than the record before, per file
 *         32      n  payload   one JSON object in UTF-8 on one line, and a newline that n counts
 *
 * There is no padding: the next record follows at 32+n. Bytes FE and FF never occur in UTF-8, so a
 * marker never occurs in a payload. The newline makes `grep -a` useful on a log.
 *
 * What goes wrong, and what the reader (evlog_read.c) does
 *
 * Power is lost in an append (torn tail); a network file system gives back blocks of zeros in the
 * middle of a file (seen by users of other tools' journals); a bit flips; a record is withdrawn by
 * ftruncate after a failed append, or that ftruncate fails too. One rule covers all these cases: if
 * there is no record with a right checksum at the offset where the next record should begin, the
 * reader looks byte by byte for the next marker that begins a record with a right checksum. The
 * bytes it skipped become one damage entry. So damage costs the records it touches and no others,
 * and the reader never skips bytes because of a length field, damaged or not.
 *
 * Skipped bytes at the end of the file may be an append in progress. So they are listed as damage
 * only until the next call, which reads them again.
 *
 * A jump in seq is an entry of its own ("missing seq 12..14", no bytes): it is the only sign left
 * when whole records were cut out. A record that the log holds twice is returned twice, without a
 * damage entry; the ingester recognises it by its (run, attempt, writer, seq).
 *
 * A file that became shorter than what was read gives an entry "file truncated"; reading goes on at
 * its new end.
 *
 * The writer
 *
 * One process at a time writes a log, and the caller ensures that (evlog.h). Opening scans for the
 * greatest seq and leaves the tail as it is; new records follow it. If an append fails, the part
 * that was written is cut off again, and the next append uses the same seq, because no reader can
 * have taken a part for a record. If only the sync fails, a reader may have seen the whole record.
 * So it is cut off, its seq is not used again, and readers correctly report it missing.
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
#include "base/evlog_priv.h"
#include "base/file.h"
#include "base/hash.h"

const unsigned char evlog_marker[EVLOG_MARKER_BYTES] = {0xFE, 'r', 'l', 'e',
                                                        'v', 0xFF, 0x0D, 0x0A};

struct evlog {
    char *path, *run, *writer, *token;
    int64_t attempt, next_seq;
    int fd;
    /* The next event reuses the memory of the last one, so that a steady writer allocates
     * nothing. */
    struct str spare;
    struct str kept;  /* whole records that wait for room, oldest first */
    size_t keep_bytes;
};

static int check_ids(const struct evlog_ids *ids, struct err *err)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
                                  "_";
    size_t n = strlen(ids->writer);

    if (n == 0 || n > LIMIT_NAME_BYTES || strspn(ids->writer, allowed) != n)
        return err_set(err, ERR_INPUT,
                       "event log writer '%s': use 1 to %d letters, digits, '-' or '_'",
                       ids->writer, LIMIT_NAME_BYTES);
    if (ids->attempt < 0)
        return err_set(err, ERR_INPUT, "event log of writer '%s': attempt is %lld: give 0 or more",
                       ids->writer, (long long)ids->attempt);
    return 0;
}

static int copy_ids(struct evlog *log, const char *dir, const struct evlog_ids *ids,
                    struct err *err)
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

static int open_log(struct evlog *log, const char *dir, struct err *err)
{
    int rc;

    log->fd = open(log->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log->fd < 0)
        return err_set_errno(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO,
                             "cannot open event log '%s'", log->path);
    if ((rc = evlog_next_seq(log->path, &log->next_seq, err)) < 0)
        return rc;
    return log->next_seq == 1 ? file_fsync_dir(dir, err) : 0;
}

int evlog_open(const char *dir, const struct evlog_ids *ids, struct evlog **out, struct err *err)
{
    struct evlog *log;
    int rc;

    if ((rc = check_ids(ids, err)) < 0)
        return rc;
    log = calloc(1, sizeof *log);
    if (!log)
        return err_set(err, ERR_NOMEM, "out of memory while opening an event log in '%s'", dir);
    log->fd = -1;
    log->spare = (struct str)STR_INIT;
    log->kept = (struct str)STR_INIT;
    if ((rc = copy_ids(log, dir, ids, err)) < 0)
        goto out;
    if ((rc = open_log(log, dir, err)) < 0)
        goto out;
    *out = log;
    log = NULL; /* the caller owns it now */
out:
    evlog_close(log);
    return rc;
}

void evlog_close(struct evlog *log)
{
    if (!log)
        return;
    if (log->fd >= 0) {
        evlog_flush(log, NULL);
        /* the result is ignored: evlog_commit has synced each event that had to be durable */
        fsync(log->fd);
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
    static const char header[EVLOG_HEADER_BYTES];

    e->text = log->spare;
    log->spare = (struct str)STR_INIT;
    str_clear(&e->text);
    /* evlog_commit fills in the header, so that header and payload are one write. */
    str_addn(&e->text, header, sizeof header);
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

/* Refuses an event that has a key twice, because readers refuse such a record. Refuses an event
 * with a field "token" in a log without a token, because readers would take it for a submission's
 * token. */
static int check_keys(const struct evlog *log, const char *event, struct err *err)
{
    const char *key = json_written_twice(event);

    if (!key && !log->token)
        key = json_written_key(event, "\"token\"");
    if (!key)
        return 0;
    return err_set(err, ERR_INPUT,
                   "event for '%s' names a field twice, or one that the log adds itself: %.*s",
                   log->path, (int)strcspn(key, ":"), key);
}

/* Closes the object, checks it and fills in the header. Afterwards e->text is the whole record. */
static int seal(const struct evlog *log, struct evlog_event *e, struct err *err)
{
    unsigned char *p;
    size_t n;
    int rc;

    json_put_int(&e->out, "seq", log->next_seq);
    json_obj_end(&e->out);
    str_addc(&e->text, '\n');
    rc = str_check(&e->text, err);
    rc = rc < 0 ? rc : check_keys(log, e->text.p + EVLOG_HEADER_BYTES, err);
    if (rc < 0)
        return rc;
    n = e->text.len - EVLOG_HEADER_BYTES;
    if (n > LIMIT_EVENT_BYTES)
        return err_set(err, ERR_LIMIT, "event for '%s' has %zu bytes: the most is %d", log->path, n,
                       LIMIT_EVENT_BYTES);
    p = (unsigned char *)e->text.p;
    if (memmem(p + EVLOG_HEADER_BYTES, n, evlog_marker, EVLOG_MARKER_BYTES))
        return err_set(err, ERR_INPUT, "event for '%s' holds a text that is not UTF-8", log->path);
    memcpy(p, evlog_marker, EVLOG_MARKER_BYTES);
    evlog_put_le(p + 16, n, 4);
    evlog_put_le(p + 20, EVLOG_VERSION, 4);
    evlog_put_le(p + 24, (uint64_t)log->next_seq, 8);
    evlog_put_le(p + 8,
                 hash_64(p + EVLOG_CHECKED_FROM, EVLOG_HEADER_BYTES - EVLOG_CHECKED_FROM + n), 8);
    return 0;
}

static int sync_log(const struct evlog *log, struct err *err)
{
    while (fdatasync(log->fd) < 0)
        if (errno != EINTR)
            return err_set_errno(err, ERR_IO, "cannot write event log '%s' to disk", log->path);
    return 0;
}

static int record_write(const struct evlog *log, const char *p, size_t n, bool durable, bool *seen,
                        struct err *err)
{
    int rc;
    *seen = false;
    if ((rc = file_write_all(log->fd, p, n, log->path, err)) < 0)
        return rc;
    *seen = true;
    return durable ? sync_log(log, err) : 0;
}

/* Appends a record. *seen becomes true when a reader may have seen the record, even if the call
 * fails. */
static int append(const struct evlog *log, const char *p, size_t n, bool durable, bool *seen,
                  struct err *err)
{
    struct stat before;
    if (fstat(log->fd, &before) < 0)
        return err_set_errno(err, ERR_IO, "cannot look at event log '%s'", log->path);
    int rc = record_write(log, p, n, durable, seen, err);
    if (rc < 0 && ftruncate(log->fd, before.st_size) < 0)
        return rc; /* readers skip the part that is left */
    return rc;
}

/* ---- keeping ---- */

void evlog_keep(struct evlog *log, size_t max_bytes) { log->keep_bytes = max_bytes; }

bool evlog_keeps(const struct evlog *log) { return log->kept.len > 0; }

/* Writes kept records, oldest first, and returns the number of bytes written. If these are not all,
 * *rc is the error. */
static size_t kept_append(const struct evlog *log, int *rc, struct err *err)
{
    size_t done = 0;
    bool seen;

    for (*rc = 0; *rc == 0 && done < log->kept.len;) {
        const char *p = log->kept.p + done;
        size_t n = EVLOG_HEADER_BYTES + evlog_get_le((const unsigned char *)p + 16, 4);
        *rc = append(log, p, n, false, &seen, err);
        done += *rc == 0 ? n : 0;
    }
    return done;
}

/* Writes the kept records, oldest first. If the sync fails they stay kept and are written again
 * later; a reader recognises by seq the ones it has already seen. */
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

/* Keeps a record in memory if there is room for it. Its seq is never used again, so that readers
 * report the record missing until it is written. */
static void keep(struct evlog *log, const struct str *record)
{
    if (log->kept.len + record->len <= log->keep_bytes)
        /* if memory runs out, nothing of the record is added */
        str_addn(&log->kept, record->p, record->len);
    log->next_seq = (int64_t)evlog_get_le((const unsigned char *)record->p + 24, 8) + 1;
}

int evlog_commit(struct evlog *log, struct evlog_event *e, bool durable, struct err *err)
{
    bool seen = false, sealed = false;
    int rc;
    if ((rc = seal(log, e, err)) < 0)
        goto out;
    sealed = true;
    if ((rc = evlog_flush(log, err)) < 0)
        goto out;
    rc = append(log, e->text.p, e->text.len, durable, &seen, err);
out:
    log->next_seq += seen;
    if (sealed && rc == ERR_FULL && log->keep_bytes)
        keep(log, &e->text);
    str_release(&log->spare); /* frees the memory of another event that was committed in between */
    log->spare = e->text;
    e->text = (struct str)STR_INIT;
    return rc;
}
