/* owner: which attempt may write into a run's folder.
 *
 * Rank 0 of an attempt holds the lease <run>/owner (base/lease.h), with the number of the attempt
 * as the lease's rank, from before it opens its log to its end. A newer attempt takes the lease
 * over at once, because the older one may be a zombie on a node that was lost. The older one finds
 * out when it asks, which it does before each thing that others see: a rename, a removal. Attempts
 * with the same or a smaller number are refused while the holder lives. Outside these moments two
 * attempts may run side by side, and all that they write then has the attempt in its name.
 */
#ifndef BASE_OWNER_H
#define BASE_OWNER_H

#include "base/lease.h"

/* Takes the lease for this attempt. ERR_BUSY names the attempt that has it. run_dir exists. *out is
 * new, and lease_drop drops it. */
int owner_take(const char *run_dir, int64_t attempt, struct lease **out, struct err *err);
/* Returns 0 if this attempt is still the owner. ERR_BUSY names the attempt that is. */
int owner_check(const struct lease *l, const char *run_dir, int64_t attempt, struct err *err);
/* Tells whether rank 0 of this attempt lives, as far as that can be known from here. The caller
 * asks again and again, and w begins zeroed. A rank on another host is given up when it was silent
 * for silent_s. */
bool owner_lives(struct lease_watch *w, const char *run_dir, int64_t attempt, double silent_s);

#endif
