/* hosts: lists of node names as Slurm writes them: "n[1-3,7],gpu[01-16]". Pure.
 *
 * A list is names and ranges between commas; numbers in brackets keep their width ("[01-10]"); a
 * name may have several brackets ("r[1-2]n[1-4]"), of which the last varies fastest. Order of names
 * is the natural one: n2 before n10.
 */
#ifndef LAUNCHER_SCHED_HOSTS_H
#define LAUNCHER_SCHED_HOSTS_H

#include <stddef.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

enum { HOSTS_MAX = 1 << 20 }; /* more than any cluster has: a list of more is damaged */

/* Expands a list into its names, in its order, NULL-ended, in the arena. "" has none. A text
 * that is no such list is ERR_INPUT, with the text. */
int hosts_expand(const char *list, struct arena *arena, const char ***names, size_t *n,
                 struct err *err);

/* Removes from these names those that are in the list `without`. */
int hosts_remove(const char **names, size_t *n, const char *without, struct arena *arena,
                 struct err *err);

/* Writes the shortest such list of these names, in natural order; names that stand twice are named
 * once. */
void hosts_fold(const char *const *names, size_t n, struct str *out);

int hosts_compare(const char *a, const char *b); /* compares like strcmp, in natural order */

#endif
