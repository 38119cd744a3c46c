/* datasets: shares loaded indices of datasets among several readers. The first request for an index
 * reads it from the disk, and later requests for the same one borrow it, because the index of a
 * large dataset may take as much memory as everything else that a starting rank reads.
 *
 *     struct datasets set = {0};
 *     const struct dataset *d;
 *     if (datasets_open(&set, root, fingerprint, &d, err) < 0) ...
 *     datasets_drop(&set);   // opened indices stay valid; the next request reads anew
 *     datasets_close(d);
 */
#ifndef PROFILES_DATASETS_H
#define PROFILES_DATASETS_H

#include "profiles/dataset.h"

struct datasets { struct dataset_shared *first; }; /* zeroed: it holds none */

/* Opens the index that dataset_load_generation would load. The caller closes it. set NULL: it is
 * not shared. */
int datasets_open(struct datasets *set, const char *root, struct hash128 wanted,
                  const struct dataset **out, struct err *err);
void datasets_close(const struct dataset *d); /* NULL is fine */
/* Drops all indices of the set; those that are not open are freed. set may be NULL. */
void datasets_drop(struct datasets *set);

#endif
