/* allocations: counts what our objects allocate. Calls from inside MPI and other libraries are
 * theirs and are not seen. A test has only to include this. */
#ifndef TESTS_ALLOCATIONS_H
#define TESTS_ALLOCATIONS_H

#include <stdint.h>

/* This many calls were made so far. A test may set it back, and count further calls that it wraps
 * itself. */
extern int64_t allocations;

#endif
