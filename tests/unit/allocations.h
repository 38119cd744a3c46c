/* allocations: counts what our objects allocate. Calls from inside MPI and other libraries are
 * theirs and are not seen.
 *
 * A test that includes this has the line
 * `// LINK: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc`. */
#ifndef TESTS_UNIT_ALLOCATIONS_H
#define TESTS_UNIT_ALLOCATIONS_H

#include <stddef.h>
#include <stdint.h>

static int64_t allocations;
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
void *__wrap_malloc(size_t n) { allocations++; return __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { allocations++; return __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t n) { allocations++; return __real_realloc(p, n); }
void *__wrap_aligned_alloc(size_t align, size_t n)
{
    allocations++;
    return __real_aligned_alloc(align, n);
}

#endif
