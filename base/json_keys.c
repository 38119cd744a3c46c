/* json_keys: finds keys in text that json_out wrote, without building a tree. It allocates no
 * memory, so a writer that must not allocate may call it. */
#include <string.h>

#include "base/json.h"

/* Returns a pointer just past the quoted string at p. */
static const char *skip_string(const char *p)
{
    for (p++; *p != '"'; p++)
        p += *p == '\\';
    return p + 1;
}

/* Returns the next key of the object that p points into, NULL if there is none. p points at a key
 * of the object or into the member that follows it. */
static const char *next_key(const char *p)
{
    for (int depth = 0; depth >= 0 && *p != '\0';) {
        if (*p == '"') {
            p = skip_string(p);
            continue;
        }
        depth += *p == '{' || *p == '[';
        depth -= *p == '}' || *p == ']';
        if (depth == 0 && *p == ',')
            return strchr(p, '"');
        p++;
    }
    return NULL;
}

/* Returns the first key of the object that begins at p, NULL if it is empty. */
static const char *first_key(const char *p)
{
    p += 1 + strspn(p + 1, " \n");
    return *p == '"' ? p : NULL;
}

static const char *find_from(const char *key, const char *quoted, size_t n)
{
    while (key != NULL && strncmp(key, quoted, n) != 0)
        key = next_key(key);
    return key;
}

const char *json_written_key(const char *object, const char *quoted)
{
    return find_from(first_key(object), quoted, strlen(quoted));
}

const char *json_written_twice(const char *text)
{
    for (const char *p = text; *p != '\0';) {
        for (const char *k = *p == '{' ? first_key(p) : NULL; k != NULL; k = next_key(k))
            if (find_from(next_key(k), k, (size_t)(skip_string(k) - k)) != NULL)
                return k;
        p = *p == '"' ? skip_string(p) : p + 1;
    }
    return NULL;
}
