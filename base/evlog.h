/* evlog: append-only event logs, one file per writer.
 *
 * The format essay is at the top of evlog.c. A record is marker, length, sequence, checksum, payload (one JSON
 * object). Damage loses only the records it overlaps: the reader resynchronises by marker and reports the gap.
 *
 * Every event carries: ev (kind), wall (UTC s), mono (s), boot, host, run, attempt, writer, seq and the kind's own
 * fields. The writer adds the common ones; the caller's callback adds its own.
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
    const char *writer; /* unique among the writers of a run and attempt: "agent", "rank0", "submit-<token>" */
    const char *token;  /* submission token or NULL */
};

struct evlog; /* an open log for writing */

/* Opens (creating or continuing) `<dir>/<writer>.a<attempt>.evlog`. Continues after the last good record:
 * the next seq is one more than the greatest seen; a torn tail is left as it is, and skipped by readers.
 * One process at a time may have a log open, and the caller sees to it: it holds a lease (base/lease.h) on what the log tells of, as an
 * agent holds its run's claims and rank 0 its run's folder, or the writer's name is its own alone. */
int evlog_open(const char *dir, const struct evlog_ids *ids, struct evlog **out, struct err *err);
void evlog_close(struct evlog *log); /* fsync; NULL is fine */

/* Append one event. fields: a JSON object's inside written by the caller through json_put_*:
 *     struct evlog_event e; evlog_begin(log, &e, "step"); json_put_int(&e.out, "step", 7); evlog_commit(log, &e, true, err);
 * durable: fdatasync before returning. commit adds seq and releases the event's text in any case. A failed append
 * leaves the file at its former length; to try again, begin again. *e must not be moved between the two calls.
 * ERR_INPUT, and nothing written: a key twice in its object, or one of the names above that the log adds (and token). */
struct evlog_event {
    struct str text;
    struct json_out out;
};
void evlog_begin(struct evlog *log, struct evlog_event *e, const char *kind);
int evlog_commit(struct evlog *log, struct evlog_event *e, bool durable, struct err *err);

/* From now on events for which the disk has no room are kept in memory, up to max_bytes of them, and
 * written in their order, before anything newer, as soon as there is some: by the next commit, flush or
 * close. The commit that keeps one returns ERR_FULL all the same. What is too much to keep is lost, and
 * readers report it missing. */
void evlog_keep(struct evlog *log, size_t max_bytes);
/* Writes what is kept. 0: nothing is kept any more; ERR_FULL: there is no room yet. */
int evlog_flush(struct evlog *log, struct err *err);
bool evlog_keeps(const struct evlog *log); /* Is any event kept? */

/* ---- reading ---- */
struct evlog_damage {
    int64_t offset, bytes; /* skipped region */
    char reason[64];       /* "bad checksum", "zeroed block", "torn tail", "missing seq 12..14" (bytes 0), … */
};
struct evlog_reader;
int evlog_reader_open(const char *path, struct evlog_reader **out, struct err *err);
/* 1: *event is the next good record's parsed object (borrowed until the next call); 0: end (a later call may find
 * more, the file may grow); <0: I/O error. Damage is not an error: it is counted and listed. */
int evlog_reader_next(struct evlog_reader *r, const cJSON **event, struct err *err);
int64_t evlog_reader_offset(const struct evlog_reader *r); /* just past the last record returned */
/* To an offset got from evlog_reader_offset (any other is resynchronised from). Forgets the damage listed so far, and
 * unless offset is 0 expects no particular seq next. */
int evlog_reader_seek(struct evlog_reader *r, int64_t offset, struct err *err);
/* The same, where the record before it is known to be `seq`: the next is expected to be its successor. */
int evlog_reader_resume(struct evlog_reader *r, int64_t offset, int64_t seq, struct err *err);
int64_t evlog_reader_seq(const struct evlog_reader *r); /* greatest returned; -1 after a seek into the middle */
/* Hash of the last bytes before `end`: another one when the log was cut there and grew again. ERR_IO when it is shorter now. */
int evlog_tail_hash(const char *path, int64_t end, uint64_t *out, struct err *err);
/* Everything skipped since open or seek. An unfinished tail is listed last until a later call finds it completed. */
size_t evlog_reader_damage(const struct evlog_reader *r, const struct evlog_damage **list);
void evlog_reader_close(struct evlog_reader *r);

#endif
