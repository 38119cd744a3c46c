/* owner: which attempt may write into a run's folder.
 *
 * Rank 0 of an attempt holds the lease <run>/owner (base/lease.h) with the attempt's number as its rank, from before it opens its log to its
 * end. A newer attempt takes it over at once: the older one may be a zombie on a node that was lost, and finds out when it asks, which it
 * does before each thing that others see: a rename, a removal. Attempts of the same number, and older ones, are refused while the
 * holder lives. Outside these moments two attempts may run side by side: all they write then has the attempt in its name.
 */
#ifndef BASE_OWNER_H
#define BASE_OWNER_H

#include "base/lease.h"

/* ERR_BUSY names the attempt that has it. run_dir exists. *out is new, to be dropped by lease_drop. */
int owner_take(const char *run_dir, int64_t attempt, struct lease **out, struct err *err);
/* 0: still the owner. ERR_BUSY names the attempt that is. */
int owner_check(const struct lease *l, const char *run_dir, int64_t attempt, struct err *err);
/* Asked again and again (w begins zeroed): does rank 0 of this attempt live, as far as can be told from here? One of another host is given
 * up after it was silent for silent_s. */
bool owner_lives(struct lease_watch *w, const char *run_dir, int64_t attempt, double silent_s);

#endif
