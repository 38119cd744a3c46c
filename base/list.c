#include "base/list.h"

#include <stdlib.h>

enum { LEAST = 16 };

int list_grow(void **list, size_t n, size_t *cap, size_t size, const char *what, struct err *err)
{
    if (n < *cap)
        return 0;
    size_t more = *cap ? 2 * *cap : LEAST;
    void *grown = realloc(*list, more * size);
    if (!grown)
        return err_set(err, ERR_NOMEM, "out of memory %s", what);
    *list = grown;
    *cap = more;
    return 0;
}
