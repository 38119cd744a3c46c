/* evlog: writes and reads append-only event logs, one file per writer.
 *
 * The format essay is at the top of evlog.c. A record has a marker, a checksum, its length, a
 * sequence number and a payload (one JSON object). Damage loses only the records it overlaps: the
 * reader resynchronises by marker and reports the gap.
 *
 * Every event carries: ev (kind), wall (UTC s), mono (s), boot, host, run, attempt, writer, token
 * (if the log has one), seq and the kind's own fields. evlog_begin and evlog_commit add the common
 * fields; the caller adds the kind's own.
 */
#ifndef BASE_EVLOG_H
#define BASE_EVLOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

struct evlog_ids {
    const char *run;    /* run id, 32 hex digits; or the tune's or curation's id */
    int64_t attempt;    /* from 1; 0 for a log that belongs to no attempt (submission, tune) */
    const char *writer; /* unique in a run and attempt: "agent", "rank0", "submit-<token>" */
    const char *token;  /* submission token or NULL */
};

struct evlog; /* an open log for writing */

/* Opens `<dir>/<writer>.a<attempt>.evlog`, and creates it if it is missing. New records follow the
 * last good one: the next seq is one more than the greatest in the file. A torn tail is left as it
 * is, and readers skip it. Only one process at a time may have a log open, and the caller ensures
 * that. Either it holds a lease (base/lease.h) on the object that the log describes, as an agent
 * holds its run's claims and rank 0 its run's folder; or no other process uses its writer name. */
int evlog_open(const char *dir, const struct evlog_ids *ids, struct evlog **out, struct err *err);
void evlog_close(struct evlog *log); /* syncs first; NULL is fine */

/* Append one event, whose own fields the caller writes between the two calls:
 *
 *     struct evlog_event e;
 *     evlog_begin(log, &e, "step");
 *     json_put_int(&e.out, "step", 7);
 *     evlog_commit(log, &e, true, err);
 *
 * evlog_commit adds seq and releases the event's text in any case; with `durable` it returns after
 * fdatasync. A failed append leaves the file at its former length; to retry, the caller starts
 * again with evlog_begin. *e must not be moved between the two calls. ERR_INPUT, with nothing
 * written: an object has a key twice, or the caller wrote a common field or "token" itself. */
struct evlog_event {
    struct str text;
    struct json_out out;
};
void evlog_begin(struct evlog *log, struct evlog_event *e, const char *kind);
int evlog_commit(struct evlog *log, struct evlog_event *e, bool durable, struct err *err);

/* Makes the log keep in memory, from now on, up to max_bytes of events that the disk has no room
 * for. They are written in their order, before any newer event, as soon as the disk has room: by
 * the next commit, flush or close. The commit whose event is kept still returns ERR_FULL. An event
 * that exceeds max_bytes is lost, and readers report it missing. */
void evlog_keep(struct evlog *log, size_t max_bytes);
/* Writes the kept events. 0: all are written; ERR_FULL: there is no room yet. */
int evlog_flush(struct evlog *log, struct err *err);
bool evlog_keeps(const struct evlog *log); /* tells whether any event is kept */

/* ---- reading ---- */
struct evlog_damage {
    int64_t offset, bytes; /* skipped region */
    char reason[64];       /* "bad checksum", "zeroed block", "torn tail", "missing seq 12..14"
                            * (with 0 bytes), … */
    uint64_t hash;         /* of the region */
};
struct evlog_reader;
int evlog_reader_open(const char *path, struct evlog_reader **out, struct err *err);
/* Reads the next event. 1: *event is the parsed object of the next good record (borrowed until the
 * next call); 0: the end (a later call may find more, since the file may grow); <0: an I/O error.
 * Damage is not an error: it is counted and listed. */
int evlog_reader_next(struct evlog_reader *r, const cJSON **event, struct err *err);
/* Returns the text of the event that was read last, as its writer wrote it: one line that ends in a
 * newline, without a terminating NUL. It is borrowed until the next call. */
const char *evlog_reader_text(const struct evlog_reader *r, size_t *bytes);
/* Returns the offset just past the last record returned. */
int64_t evlog_reader_offset(const struct evlog_reader *r);
/* Moves to an offset that evlog_reader_offset returned; from any other offset the reader
 * resynchronises. It forgets the damage listed so far. Unless offset is 0, the next record may have
 * any seq. */
int evlog_reader_seek(struct evlog_reader *r, int64_t offset, struct err *err);
/* Does what evlog_reader_seek does, but the caller states that the record before the offset has
 * `seq`, so that its successor is expected next, and gives the n damage entries `known` from before
 * the offset. They are listed again. */
int evlog_reader_resume(struct evlog_reader *r, int64_t offset, int64_t seq,
                        const struct evlog_damage *known, size_t n, struct err *err);
/* Tells whether the regions in `list` still hold the same damaged bytes. A file system may return
 * good data for a region that it could not read before. */
bool evlog_damage_stays(const char *path, const struct evlog_damage *list, size_t n);
/* Returns the greatest seq of the events returned so far; -1 after a seek into the middle. */
int64_t evlog_reader_seq(const struct evlog_reader *r);
/* Computes a hash of the last bytes before `end`. It differs if the log was cut before `end` and
 * grew again. ERR_IO if the log is shorter than `end`. */
int evlog_tail_hash(const char *path, int64_t end, uint64_t *out, struct err *err);
/* Returns the number of damage entries since open or seek, and the entries in *list. An unfinished
 * tail is the last entry until a later call finds it completed. */
size_t evlog_reader_damage(const struct evlog_reader *r, const struct evlog_damage **list);
void evlog_reader_close(struct evlog_reader *r);

#endif
