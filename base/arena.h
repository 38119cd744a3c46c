/* arena: hands out memory that is freed all at once.
 *
 * Blocks are added as they are needed, and nothing is freed before arena_reset or arena_release.
 * A long-lived structure owns an arena for its texts; a command has one for as long as it runs. An
 * arena is not thread-safe.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

struct arena_block;
struct arena {
    struct arena_block *head;
    size_t block_bytes; /* size of an ordinary block; 0 means 64 KiB */
    size_t used_bytes;  /* bytes handed out since arena_init or arena_reset */
};

void arena_init(struct arena *a, size_t block_bytes);
void arena_reset(struct arena *a);   /* keeps one block */
void arena_release(struct arena *a); /* safe on a zeroed struct */

/* Returns zeroed memory aligned to `align` (a power of two; 0 means 16), or NULL when the system
 * has none. */
void *arena_alloc(struct arena *a, size_t bytes, size_t align);
/* Returns an array from arena_alloc. It is NULL also when its size overflows. */
void *arena_array(struct arena *a, size_t count, size_t elem_bytes);
char *arena_strdup(struct arena *a, const char *s);
char *arena_strndup(struct arena *a, const char *s, size_t n);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
