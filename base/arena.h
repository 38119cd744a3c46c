/* arena: memory that is freed all at once.
 *
 * Blocks grow as needed; nothing is freed before arena_reset or arena_release. Long-lived structures own one;
 * a command or a parse uses one. Not thread-safe.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

struct arena_block;
struct arena {
    struct arena_block *head;
    size_t block_bytes; /* size of an ordinary block; 0 means 64 KiB */
    size_t used_bytes;  /* handed out since init or reset */
};

void arena_init(struct arena *a, size_t block_bytes);
void arena_reset(struct arena *a);   /* keeps one block */
void arena_release(struct arena *a); /* safe on a zeroed struct */

/* Zeroed memory aligned to `align` (a power of two; 0 means 16); NULL when the system has none. */
void *arena_alloc(struct arena *a, size_t bytes, size_t align);
void *arena_array(struct arena *a, size_t count, size_t elem_bytes); /* NULL on overflow too */
char *arena_strdup(struct arena *a, const char *s);
char *arena_strndup(struct arena *a, const char *s, size_t n);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
