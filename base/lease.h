/* lease: gives locks that work across hosts on a file system without locks, and that others may
 * take over when their holder has died.
 *
 * A lease asks two things of a shared file system: rename(2) puts a folder over nothing or over an
 * empty folder, atomically, and never over one with content; and a file that was closed after
 * writing is read by whoever opens it later. flock(2) and fcntl(2) locks, which some file systems
 * refuse (ENOSYS, ENOLCK) and some limit to one host, are not used. The essay at the top of lease.c
 * says how it works and why two processes never take the same lease.
 *
 * A holder on this host (same boot id and pid namespace) is judged by its process, at once; a
 * holder on another host by its silence. A thread of the holder renews each lease every
 * LEASE_BEAT_S; a process that waits and sees no change for LEASE_SILENT_S of its own time takes
 * the lease over. No two clocks are compared. A holder that was stopped for longer than that finds
 * its lease gone. So a holder calls lease_check before each step that must not be made twice.
 *
 *     struct lease *l;
 *     lease_take(path, 30, &l, err);    // ERR_BUSY: a live process holds it
 *     …  lease_check(l, err)  …         // ERR_BUSY: it was taken from us
 *     lease_drop(l);
 *
 * Each lease is renewed by a thread of its own. If a file system does not answer, only lease_check
 * and lease_drop of leases on that file system wait for it.
 *
 * A child made by fork does not hold its parent's leases. A process that ends without lease_drop
 * leaves a folder, which the next holder removes.
 */
#ifndef BASE_LEASE_H
#define BASE_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"

#define LEASE_BEAT_S 5.0
#define LEASE_SILENT_S 60.0
#define LEASE_TELL_S 2.0

struct lease;

/* Takes a lease. No other file may use the name `path`; its parent folder exists, and while the
 * lease is held `path` is a folder. wait_s bounds the wait for a holder that is known to live;
 * negative means for ever, 0 means one try. A holder on another host is watched (unless wait_s is
 * 0) until it is seen to live, or until it was silent or unreadable for LEASE_SILENT_S. That does
 * not count as waiting: who takes over may be another process that watched, and lives. A warning
 * names the holder once it has been watched for LEASE_TELL_S. ERR_BUSY
 * names the holder; ERR_NOT_FOUND: the parent folder does not exist. *out is new. */
int lease_take(const char *path, double wait_s, struct lease **out, struct err *err);
/* Takes a lease, and takes it at once from a holder of a lower rank, alive or not. A rank is, for
 * instance, the number of an attempt. lease_take uses rank 0. */
int lease_take_over(const char *path, int64_t rank, double wait_s, struct lease **out,
                    struct err *err);
void lease_drop(struct lease *l); /* NULL is fine */

/* Returns 0 if this process still holds the lease. ERR_BUSY: another process, named in *err, took
 * it over. ERR_IO: the file system does not answer the question. */
int lease_check(const struct lease *l, struct err *err);
/* Returns a text that begins with 32 hex digits which are unique to this call of lease_take. It is
 * borrowed. */
const char *lease_token(const struct lease *l);
/* Tells whether the renewing thread has found that the lease was taken over. This does not ask the
 * file system, so the answer may be LEASE_BEAT_S late. */
bool lease_is_lost(const struct lease *l);

struct lease_holder {
    char name[256]; /* the name of the holder's file */
    char token[ID_TEXT_BYTES], boot[64], host[64];
    int64_t pids, pid, start, rank; /* pids: the pid namespace */
};
/* Finds the holder of the lease, dead or alive. Returns false if nobody holds it or the holder's
 * file name has another format. */
bool lease_look(const char *path, struct lease_holder *out);

/* Takes the lease away from this holder, which the caller knows to have ended. It never affects
 * another holder. Returns 0 also when that holder no longer has the lease. */
int lease_evict(const char *path, const struct lease_holder *h, struct err *err);

/* Holds what one observer remembers of a lease. Zero it before the first call. */
struct lease_watch {
    /* the name of the holder's file, and its content and time, at the last look */
    char name[256], beat[64];
    /* seconds without a change of the two; monotonic time of the last look */
    double quiet_s, looked_s;
    double unread_s;          /* seconds for which the file could not be read */
    bool renewed;             /* this holder was seen to renew the lease */
};
/* Tells whether the holder lives. The caller calls it repeatedly with the same w. The answer is no
 * if nobody holds the lease, if the holder's process on this host has ended, or if the holder is on
 * another host and has been silent for silent_s since the first call. */
bool lease_lives(struct lease_watch *w, const char *path, double silent_s);

/* These times are LEASE_BEAT_S, LEASE_SILENT_S and LEASE_TELL_S, except in tests that simulate two
 * hosts and shorten them. */
extern double lease_beat_s, lease_silent_s, lease_tell_s;

#endif
