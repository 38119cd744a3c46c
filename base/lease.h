/* lease: a lock that holds across hosts on a file system that has no locks, and is given up for those who died with it.
 *
 * A lease asks two things of a shared file system: rename(2) puts a folder over nothing or over an empty folder, atomically, and never over
 * one with content; and a file that was closed after writing is read by who opens it later. flock(2) and fcntl(2) locks, which some file
 * systems refuse (ENOSYS, ENOLCK) and some keep to one host, are not used. How it works, and why nobody takes a lease that somebody else
 * has: the essay at the top of lease.c.
 *
 * Who holds a lease is judged so: on this host (boot id and pid namespace) by its process, at once; on another host by silence. A thread of
 * the holder renews each lease every LEASE_BEAT_S; whoever waits and sees nothing change for LEASE_SILENT_S of its own time takes
 * over. No two clocks are compared. A holder that was stopped for longer finds its lease gone: who acts on one after a while asks
 * lease_check before each step that must not be made twice.
 *
 *     struct lease *l;
 *     lease_take(path, 30, &l, err);    // ERR_BUSY: somebody lives who has it
 *     …  lease_check(l, err)  …         // ERR_BUSY: it was taken from us
 *     lease_drop(l);
 *
 * Each lease is renewed by a thread of its own: where a file system does not answer, lease_check and lease_drop of a lease on it wait for
 * it, and nothing else does.
 *
 * A child made by fork holds nothing. A process that ends without lease_drop leaves a folder, and whoever comes next removes it.
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

/* path: a name that nothing else has, in a folder that exists; there is a folder of this name while the lease is held. wait_s bounds the
 * wait for a holder that is known to live; one of another host is watched until it is seen to live or was silent, or could not be read for
 * as long, whatever wait_s is, unless that is 0: try once. Negative: for ever. ERR_BUSY names the holder, ERR_NOT_FOUND: no folder to make
 * it in. *out is new. */
int lease_take(const char *path, double wait_s, struct lease **out, struct err *err);
/* Takes it at once from a holder of a lower rank, alive or not: an attempt's number, say. lease_take's rank is 0. */
int lease_take_over(const char *path, int64_t rank, double wait_s, struct lease **out, struct err *err);
void lease_drop(struct lease *l); /* NULL is fine */

/* 0: it is still ours. ERR_BUSY: somebody took it over, named in *err. ERR_IO: the file system does not say. */
int lease_check(const struct lease *l, struct err *err);
const char *lease_token(const struct lease *l); /* 32 hex digits, of this taking alone; borrowed, more text follows them */
/* Has the renewing thread found it taken? Asks no file system, and may be LEASE_BEAT_S late. */
bool lease_is_lost(const struct lease *l);

struct lease_holder {
    char name[256]; /* of its file */
    char token[ID_TEXT_BYTES], boot[64], host[64];
    int64_t pids, pid, start, rank; /* pids: the pid namespace */
};
/* Who has the lease, dead or alive. False: nobody, or its name is not one of ours. */
bool lease_look(const char *path, struct lease_holder *out);

/* Takes it from this very holder, of whose end the caller knows by other means; harms no other. 0, too, when that one has gone. */
int lease_evict(const char *path, const struct lease_holder *h, struct err *err);

/* One looker's memory of a lease; begins zeroed. */
struct lease_watch {
    char name[256], beat[64]; /* the holder's file, and what it said */
    double quiet_s, looked_s; /* for how long that did not change; the last look, monotonic */
    double unread_s;          /* for how long its file could not be read */
    bool renewed;             /* this holder was seen to say something new */
};
/* Asked again and again: does a holder live? False: nobody holds it, its process on this host has ended, or it lives elsewhere and has been
 * silent for silent_s since the first look. */
bool lease_lives(struct lease_watch *w, const char *path, double silent_s);

extern double lease_beat_s, lease_silent_s; /* as above; tests that play two hosts have less patience */

#endif
