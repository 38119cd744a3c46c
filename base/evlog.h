/* evlog: append-only event logs, one file per writer.
 *
 * The format essay is at the top of evlog.c. A record is marker, length, sequence, checksum,
 * payload (one JSON object). Damage loses only the records it overlaps: the reader resynchronises
 * by marker and reports the gap.
 *
 * Every event carries: ev (kind), wall (UTC s), mono (s), boot, host, run, attempt, writer, seq and
 * the kind's own fields. The log adds the common ones; who writes the event adds its own.
 */
#ifndef BASE_EVLOG_H
#define BASE_EVLOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

struct evlog_ids {
    const char *run;    /* run id, 32 hex digits; or the tune's or curation's id */
    int64_t attempt;    /* from 1; 0 where there is none (submission, tune) */
    const char *writer; /* unique in a run and attempt: "agent", "rank0", "submit-<token>" */
    const char *token;  /* submission token or NULL */
};

struct evlog; /* an open log for writing */

/* Opens (creating or continuing) `<dir>/<writer>.a<attempt>.evlog`. Continues after the last good
 * record: the next seq is one more than the greatest seen; a torn tail is left as it is, and
 * skipped by readers. One process at a time may have a log open, and the caller sees to that: it
 * holds a lease (base/lease.h) on what the log tells of, as an agent holds its run's claims and
 * rank 0 its run's folder; or the writer's name is its own alone. */
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
 * fdatasync. A failed append leaves the file at its former length; to try again, begin again. *e
 * must not be moved between the two calls. ERR_INPUT, with nothing written: a key stands twice in
 * its object, or is one of the names above that the log adds (or token). */
struct evlog_event {
    struct str text;
    struct json_out out;
};
void evlog_begin(struct evlog *log, struct evlog_event *e, const char *kind);
int evlog_commit(struct evlog *log, struct evlog_event *e, bool durable, struct err *err);

/* Keeps events for which the disk has no room in memory from now on, up to max_bytes of them. They
 * are written in their order, before anything newer, as soon as there is some room: by the next
 * commit, flush or close. The commit that keeps one returns ERR_FULL all the same. What is too much
 * to keep is lost, and readers report it missing. */
void evlog_keep(struct evlog *log, size_t max_bytes);
/* Writes what is kept. 0: nothing is kept any more; ERR_FULL: there is no room yet. */
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
/* Returns the text of the event that was read last, as its writer wrote it: one line with its
 * newline, not terminated otherwise. It is borrowed until the next call. */
const char *evlog_reader_text(const struct evlog_reader *r, size_t *bytes);
int64_t evlog_reader_offset(const struct evlog_reader *r); /* just past the last record returned */
/* Goes to an offset got from evlog_reader_offset; from any other offset the reader resynchronises.
 * The damage listed so far is forgotten, and unless offset is 0 no particular seq is expected
 * next. */
int evlog_reader_seek(struct evlog_reader *r, int64_t offset, struct err *err);
/* Does the same where the record before the offset is known to be `seq`, so that its successor is
 * expected next, and what was skipped before the offset is known too: that is listed again. */
int evlog_reader_resume(struct evlog_reader *r, int64_t offset, int64_t seq,
                        const struct evlog_damage *known, size_t n, struct err *err);
/* Returns whether the log still has the bytes that were skipped there. A file system may give back
 * what could not be read once. */
bool evlog_damage_stays(const char *path, const struct evlog_damage *list, size_t n);
/* Returns the greatest seq returned so far; -1 after a seek into the middle. */
int64_t evlog_reader_seq(const struct evlog_reader *r);
/* Computes a hash of the last bytes before `end`, which is another one when the log was cut there
 * and grew again. ERR_IO when the log is shorter now. */
int evlog_tail_hash(const char *path, int64_t end, uint64_t *out, struct err *err);
/* Returns how much was skipped since open or seek, and lists it. An unfinished tail is listed last
 * until a later call finds it completed. */
size_t evlog_reader_damage(const struct evlog_reader *r, const struct evlog_damage **list);
void evlog_reader_close(struct evlog_reader *r);

#endif
