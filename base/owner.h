/* owner: decides which attempt may write into a run's folder.
 *
 * Rank 0 of an attempt holds the lease <run>/owner (base/lease.h), with the number of the attempt
 * as the lease's rank, from before it opens its log until it ends. A newer attempt takes the lease
 * over at once, because the older one may still run on a node that was lost. The older attempt
 * notices, since it calls owner_check before each step that others see (a rename, a removal).
 * Attempts with the same or a smaller number are refused while the holder lives. Between these
 * checks two attempts may run side by side, and the names of all files that they write contain the
 * attempt.
 */
#ifndef BASE_OWNER_H
#define BASE_OWNER_H

#include "base/lease.h"

/* Takes the lease for this attempt. ERR_BUSY names the attempt that holds it. run_dir must exist.
 * *out is new; the caller ends it with lease_drop. */
int owner_take(const char *run_dir, int64_t attempt, struct lease **out, struct err *err);
/* Returns 0 if this attempt is still the owner. ERR_BUSY names the attempt that owns the folder
 * now. */
int owner_check(const struct lease *l, const char *run_dir, int64_t attempt, struct err *err);
/* Tells whether rank 0 of this attempt lives, as far as this host can know. The caller calls it
 * repeatedly with the same w, which it zeroes first. A rank 0 on another host counts as dead when
 * it was silent for silent_s. */
bool owner_lives(struct lease_watch *w, const char *run_dir, int64_t attempt, double silent_s);

#endif
