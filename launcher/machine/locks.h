/* locks: tries whether processes can exclude one another on the file system of a folder, for `reel
 * check-site`.
 *
 * reel itself excludes by leases alone (base/lease.h), which need an atomic rename and no locks.
 * flock(2) is tried because people ask about it. The database is SQLite's, which locks by fcntl(2).
 */
#ifndef LAUNCHER_MACHINE_LOCKS_H
#define LAUNCHER_MACHINE_LOCKS_H

#include <stdbool.h>

#include "base/err.h"

enum locks_elsewhere { LOCKS_NOT_ASKED, LOCKS_SEEN, LOCKS_UNSEEN };
struct locks_facts {
    bool tried; /* false: the folder does not exist, and the members below are not set */
    /* a lease has only one holder; only one process creates a file */
    bool leases, exclusive;
    int flock_error, fcntl_error; /* errno of a lock that was refused; 0: it was taken */
    bool flock_excludes;          /* flock keeps out a second opening of the file on this host */
    /* whether another node sees a lease that is held here, and which node */
    enum locks_elsewhere elsewhere;
    char node[64];
};

/* Finds all facts but elsewhere and node, in a folder of its own under dir, which it removes. */
int locks_probe(const char *dir, struct locks_facts *out, struct err *err);
/* Holds a lease under dir and lets a task of srun in this partition (NULL: Slurm's own choice) look
 * at it. Sets elsewhere and node. */
int locks_probe_elsewhere(const char *dir, const char *reel, const char *partition,
                          struct locks_facts *f, struct err *err);

#endif
