/* datasets: indices that several readers share. Whoever asks for one first reads it from the disk,
 * and whoever asks for the same after that borrows it. The index of a large dataset is as large as
 * what else starts a rank.
 *
 *     struct datasets set = {0};
 *     const struct dataset *d;
 *     if (datasets_open(&set, root, fingerprint, &d, err) < 0) ...
 *     datasets_drop(&set);   // who has opened one keeps it; the next to ask reads anew
 *     datasets_close(d);
 */
#ifndef PROFILES_DATASETS_H
#define PROFILES_DATASETS_H

#include "profiles/dataset.h"

struct datasets { struct dataset_shared *first; }; /* zeroed: it holds none */

/* Opens what dataset_load_generation loads. The caller closes it. set NULL: the caller alone has
 * it. */
int datasets_open(struct datasets *set, const char *root, struct hash128 wanted,
                  const struct dataset **out, struct err *err);
void datasets_close(const struct dataset *d); /* NULL is fine */
/* Lets go of all that the set holds; what is not open is freed. set may be NULL. */
void datasets_drop(struct datasets *set);

#endif
