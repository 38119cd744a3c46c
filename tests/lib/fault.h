/* fault: makes the n-th call of one kind fail, for every n.
 *
 * Calls inside shared libraries (SQLite, libc) are not seen.
 *
 *     do {
 *         fault_arm(FAULT_WRITE, n);
 *         rc = save(…);
 *         met = fault_disarm();
 *         … look at what is left …
 *         n += fault_step(1);
 *     } while (met);
 *
 * FAULT_STEP=k in the environment takes every k-th n only (tests choose their own step;
 * check-faults takes all).
 */
#ifndef TESTS_FAULT_H
#define TESTS_FAULT_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

enum fault_kind {
    FAULT_NONE, FAULT_ALLOC, FAULT_WRITE, FAULT_SYNC, FAULT_RENAME, FAULT_MKDIR, FAULT_LINK,
    FAULT_READ, FAULT_KINDS
};
extern const char *const fault_names[FAULT_KINDS];

/* Holds what is to fail. A test may set the kind to FAULT_NONE for a while: what is called then
 * neither counts nor fails. */
struct fault {
    enum fault_kind kind;
    long at, calls; /* the call that fails, from 1; calls of the kind so far */
};
extern struct fault fault;

/* Counts a call of this kind and says whether it is to fail; if so, errno is set to `error`. */
bool fault_hits(enum fault_kind kind, int error);

/* Makes the n-th call of this kind from now on fail. */
void fault_arm(enum fault_kind kind, long n);

/* Ends it. Returns true if the n-th call was made, and failed. */
bool fault_disarm(void);

/* Returns the code of a call of ours that fails for this fault: writes and folders fail for want of
 * space, the rest by EIO. */
int fault_code(enum fault_kind kind);

/* Returns what is to be added to n: `step`, or what FAULT_STEP says. */
long fault_step(long step);

/* Allocates what malloc does, or fails; libraries that take an allocator can be given it. */
void *__wrap_malloc(size_t n);

#endif
