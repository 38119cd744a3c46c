#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/num.h"

enum { BLOCK_BYTES = 64 << 10, DEFAULT_ALIGN = 16 };

/* The head is the block that allocations come from. The blocks after it in the list are full, or
 * hold one big allocation. */
struct arena_block {
    struct arena_block *next;
    size_t size, used;
    unsigned char data[];
};

void arena_init(struct arena *a, size_t block_bytes)
{
    *a = (struct arena){.block_bytes = block_bytes};
}

static size_t ordinary_bytes(const struct arena *a)
{
    return a->block_bytes ? a->block_bytes : BLOCK_BYTES;
}

static void free_chain(struct arena_block *b)
{
    while (b != NULL) {
        struct arena_block *next = b->next;
        free(b);
        b = next;
    }
}

void arena_reset(struct arena *a)
{
    if (a->head != NULL) {
        free_chain(a->head->next);
        a->head->next = NULL;
        a->head->used = 0;
    }
    a->used_bytes = 0;
}

void arena_release(struct arena *a)
{
    free_chain(a->head);
    a->head = NULL;
    a->used_bytes = 0;
}

/* Returns the offset of the next aligned byte in b, or SIZE_MAX when `bytes` do not fit after
 * it. */
static size_t find_room(const struct arena_block *b, size_t bytes, size_t align)
{
    uintptr_t at = (uintptr_t)(b->data + b->used);
    size_t start = b->used + (size_t)(-at & (align - 1));
    return start <= b->size && bytes <= b->size - start ? start : SIZE_MAX;
}

static struct arena_block *block_new(size_t size)
{
    if (size > PTRDIFF_MAX - sizeof(struct arena_block)) /* no object is larger */
        return NULL;
    struct arena_block *b = malloc(sizeof *b + size);
    if (b != NULL)
        *b = (struct arena_block){.size = size};
    return b;
}

/* Adds a block with room for the request. A block for a big request becomes the second in the list,
 * so that the rest of the head stays in use. */
static struct arena_block *grow(struct arena *a, size_t bytes, size_t align)
{
    size_t ordinary = ordinary_bytes(a);
    if (bytes > SIZE_MAX - align)
        return NULL;
    size_t need = bytes + align;
    struct arena_block *b = block_new(need > ordinary / 2 ? need : ordinary);
    if (b == NULL)
        return NULL;
    if (a->head != NULL && b->size == need) {
        b->next = a->head->next;
        a->head->next = b;
    } else {
        b->next = a->head;
        a->head = b;
    }
    return b;
}

void *arena_alloc(struct arena *a, size_t bytes, size_t align)
{
    if (align == 0)
        align = DEFAULT_ALIGN;
    BUG_ON((align & (align - 1)) != 0);
    struct arena_block *b = a->head;
    size_t start = b != NULL ? find_room(b, bytes, align) : SIZE_MAX;
    if (start == SIZE_MAX) {
        b = grow(a, bytes, align);
        if (b == NULL)
            return NULL;
        start = find_room(b, bytes, align);
    }
    b->used = start + bytes;
    a->used_bytes += bytes;
    return memset(b->data + start, 0, bytes);
}

void *arena_array(struct arena *a, size_t count, size_t elem_bytes)
{
    size_t bytes;
    return num_mul_size(count, elem_bytes, &bytes) ? arena_alloc(a, bytes, 0) : NULL;
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *p = arena_alloc(a, len + 1, 1);
    return p != NULL ? memcpy(p, s, len) : NULL;
}

char *arena_strdup(struct arena *a, const char *s)
{
    return arena_strndup(a, s, strlen(s));
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    char *p = n < 0 ? NULL : arena_alloc(a, (size_t)n + 1, 1);
    if (p != NULL)
        vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(ap);
    return p;
}
