/* list: grows arrays on the heap by doubling. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stddef.h>

#include "base/err.h"

/* Makes room for one more element of `size` bytes in an array of which n of `cap` elements are
 * used. *list may be NULL with a cap of 0. `what` completes the error "out of memory ...": "folding
 * a run's events". */
int list_grow(void **list, size_t n, size_t *cap, size_t size, const char *what, struct err *err);

#endif
