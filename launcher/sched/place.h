/* place: decides which node gets which ranks, so that ranks that communicate most are under the
 * same switch.
 *
 * The innermost axis of the layout varies fastest in the rank number, so ranks with close numbers
 * communicate most: a node's ranks are consecutive, and the nodes are ordered so that every
 * switch's nodes are consecutive too. A ring of all nodes leaves each switch that has some but not
 * all of the nodes at least once. With this order it does so exactly once, at every level of the
 * tree: no order of the nodes crosses fewer switches (the test tries all orders).
 *
 * This leaves open in which order the branches of a switch come. A branch is the nodes below one
 * child of the switch. The next branch is the one that ends at a border of the layout's groups (of
 * the largest group possible, see place_groups), so that fewer groups are split between switches;
 * among these, the larger branch; then the first by name, n2 before n10. Nodes without a known
 * switch come last.
 */
#ifndef LAUNCHER_SCHED_PLACE_H
#define LAUNCHER_SCHED_PLACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

enum { PLACE_GROUPS = 3 };
struct slurm_net;

struct place_node {
    const char *name;
    const char *path; /* the switches above it, from the top: "spine/leaf0"; "": unknown */
};

/* Finds the path of each of these nodes, in their order. Borrows the names. */
int place_paths(const struct slurm_net *net, const char *const *names, size_t n,
                struct arena *arena, struct place_node **out, struct err *err);

/* Converts the sizes of nested groups of ranks, ascending, to sizes in nodes. Only groups of
 * several whole nodes are included; 0 ends the list. */
void place_groups(const int64_t ranks[PLACE_GROUPS], int64_t ranks_per_node,
                  int64_t nodes[PLACE_GROUPS + 1]);

/* Sorts the nodes. groups: from place_groups. */
int place_order(struct place_node *nodes, size_t n, const int64_t *groups, struct err *err);

/* Returns the first rank of node i of n. Ranks are spread evenly; if they do not divide evenly, the
 * first nodes have one more. */
static inline int64_t place_first_rank(int64_t ranks, size_t n, size_t i)
{
    int64_t more = ranks % (int64_t)n, k = (int64_t)i;
    return ranks / (int64_t)n * k + (k < more ? k : more);
}

/* Finds the CPUs of each of a node's ranks. near[i] lists the CPUs near rank i ("0-27,56-83");
 * ranks with equal lists share them evenly, by a part of each range if every range divides evenly.
 * out[i] is "" if there are fewer CPUs than ranks. ERR_INPUT: a text is no such list. */
int place_cpus(const char *const *near, size_t ranks, struct arena *arena, const char **out,
               struct err *err);
/* Writes "0-3,8" as a hexadecimal mask, "0x10f". */
int place_mask(const char *cpus, struct str *out, struct err *err);

#endif
