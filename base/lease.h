/* lease: a lock that holds across hosts on a file system that has no locks, and that is given up
 * for those who died with it.
 *
 * A lease asks two things of a shared file system: rename(2) puts a folder over nothing or over an
 * empty folder, atomically, and never over one with content; and a file that was closed after
 * writing is read by whoever opens it later. flock(2) and fcntl(2) locks, which some file systems
 * refuse (ENOSYS, ENOLCK) and some keep to one host, are not used. The essay at the top of lease.c
 * says how it works and why nobody takes a lease that somebody else has.
 *
 * A holder on this host (same boot id and pid namespace) is judged by its process, at once; a
 * holder on another host by its silence. A thread of the holder renews each lease every
 * LEASE_BEAT_S; whoever waits and sees nothing change for LEASE_SILENT_S of its own time takes
 * over. No two clocks are compared. A holder that was stopped for longer finds its lease gone. So
 * whoever acts on a lease after a while asks lease_check before each step that must not be made
 * twice.
 *
 *     struct lease *l;
 *     lease_take(path, 30, &l, err);    // ERR_BUSY: somebody has it and lives
 *     …  lease_check(l, err)  …         // ERR_BUSY: it was taken from us
 *     lease_drop(l);
 *
 * Each lease is renewed by a thread of its own. Where a file system does not answer, lease_check
 * and lease_drop of a lease on it wait for it, and nothing else does.
 *
 * A child made by fork holds nothing. A process that ends without lease_drop leaves a folder, which
 * whoever comes next removes.
 */
#ifndef BASE_LEASE_H
#define BASE_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"

#define LEASE_BEAT_S 5.0
#define LEASE_SILENT_S 60.0

struct lease;

/* Takes a lease. path is a name that nothing else has, in a folder that exists; while the lease is
 * held a folder has this name. wait_s bounds the wait for a holder that is known to live; negative
 * means for ever, 0 means one try. A holder on another host is watched, whatever wait_s is unless
 * that is 0, until it is seen to live, or it was silent or could not be read for LEASE_SILENT_S.
 * ERR_BUSY names the holder; ERR_NOT_FOUND: there is no folder to make it in. *out is new. */
int lease_take(const char *path, double wait_s, struct lease **out, struct err *err);
/* Takes it at once from a holder of a lower rank, alive or not; a rank may be the number of an
 * attempt. lease_take's rank is 0. */
int lease_take_over(const char *path, int64_t rank, double wait_s, struct lease **out,
                    struct err *err);
void lease_drop(struct lease *l); /* NULL is fine */

/* Returns 0 if the lease is still ours. ERR_BUSY: somebody, named in *err, took it over. ERR_IO:
 * the file system does not say. */
int lease_check(const struct lease *l, struct err *err);
/* Returns 32 hex digits of this taking alone. They are borrowed, and more text follows them. */
const char *lease_token(const struct lease *l);
/* Tells whether the renewing thread has found the lease taken. It asks no file system, and may be
 * LEASE_BEAT_S late. */
bool lease_is_lost(const struct lease *l);

struct lease_holder {
    char name[256]; /* of its file */
    char token[ID_TEXT_BYTES], boot[64], host[64];
    int64_t pids, pid, start, rank; /* pids: the pid namespace */
};
/* Tells who has the lease, dead or alive. Returns false if nobody has it or its name is not one of
 * ours. */
bool lease_look(const char *path, struct lease_holder *out);

/* Takes the lease away from this very holder, of whose end the caller knows by other means; harms
 * no other. Returns 0 too when that holder has gone. */
int lease_evict(const char *path, const struct lease_holder *h, struct err *err);

/* One looker's memory of a lease; begins zeroed. */
struct lease_watch {
    char name[256], beat[64]; /* the holder's file, and what it said */
    double quiet_s, looked_s; /* for how long that did not change; the last look, monotonic */
    double unread_s;          /* for how long its file could not be read */
    bool renewed;             /* whether this holder was seen to say something new */
};
/* Tells whether a holder lives, to one who asks again and again. It does not if nobody holds the
 * lease, if its process on this host has ended, or if it lives elsewhere and has been silent for
 * silent_s since the first look. */
bool lease_lives(struct lease_watch *w, const char *path, double silent_s);

/* They begin as the two above. Tests that play two hosts have less patience. */
extern double lease_beat_s, lease_silent_s;

#endif
