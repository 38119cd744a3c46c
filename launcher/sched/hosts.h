/* hosts: expands lists of node names as Slurm writes them, "n[1-3,7],gpu[01-16]", and writes names
 * as such a list.
 *
 * A list has names and ranges, separated by commas; numbers in brackets keep their width
 * ("[01-10]"); a name may have several brackets ("r[1-2]n[1-4]"), of which the last varies fastest.
 * Names are ordered naturally: n2 before n10.
 */
#ifndef LAUNCHER_SCHED_HOSTS_H
#define LAUNCHER_SCHED_HOSTS_H

#include <stddef.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

enum { HOSTS_MAX = 1 << 20 }; /* more nodes than any cluster has: a longer list is damaged */

/* Expands a list into its names, in their order, as a NULL-terminated array in the arena. "" has no
 * names. ERR_INPUT: the text is not such a list; the error shows it. */
int hosts_expand(const char *list, struct arena *arena, const char ***names, size_t *n,
                 struct err *err);

/* Removes the names of the list `without` from these names. */
int hosts_remove(const char **names, size_t *n, const char *without, struct arena *arena,
                 struct err *err);

/* Writes these names as one list, in natural order: names that differ only in the number at their
 * end share brackets. A name that occurs twice is written once. */
void hosts_fold(const char *const *names, size_t n, struct str *out);

/* Returns the list of the nodes of this process's Slurm job, from its environment: of this
 * component of a heterogeneous job, counted from 0; any other job has one. NULL: there is no such
 * component. */
const char *hosts_of_job(int component);

int hosts_compare(const char *a, const char *b); /* compares like strcmp, in natural order */

#endif
