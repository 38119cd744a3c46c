#include "launcher/sched/hosts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"

int hosts_compare(const char *a, const char *b)
{
    return strverscmp(a, b);
}

/* ---- expanding a list to names ---- */

struct expansion {
    struct arena *arena;
    const char *list; /* the whole list, for error messages */
    const char **v;
    size_t n, room;
};

static int bad(const struct expansion *x, struct err *err)
{
    return err_set(err, ERR_INPUT, "'%.100s' is no list of nodes like n[1-3],n7", x->list);
}

static int name_add(struct expansion *x, const char *name, struct err *err)
{
    if (x->n == HOSTS_MAX)
        return err_set(err, ERR_LIMIT, "'%.100s' names more than %d nodes", x->list, HOSTS_MAX);
    if (x->n + 1 >= x->room) {
        size_t room = x->room ? 2 * x->room : 64;
        const char **v = arena_array(x->arena, room, sizeof *v);
        if (!v)
            return err_set(err, ERR_NOMEM, "out of memory");
        if (x->n)
            memcpy(v, x->v, x->n * sizeof *v);
        x->v = v;
        x->room = room;
    }
    x->v[x->n] = arena_strdup(x->arena, name);
    return x->v[x->n++] ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

/* Parses "3" or "01-16"; *width is the number of digits of the first number if it begins with 0,
 * else 1. */
static int range_parse(const char **text, long *low, long *high, int *width)
{
    char *end;
    if (!isdigit((unsigned char)**text))
        return -1;
    *low = *high = strtol(*text, &end, 10);
    *width = **text == '0' ? (int)(end - *text) : 1;
    if (*end == '-') {
        const char *from = end + 1;
        if (!isdigit((unsigned char)*from))
            return -1;
        *high = strtol(from, &end, 10);
    }
    *text = end;
    return *low <= *high && *high - *low < HOSTS_MAX && *width < 20 ? 0 : -1;
}

/* Expands one element of the list. head: the part that is expanded already; text: the rest, which
 * may still have brackets. */
static int element_expand(struct expansion *x, const char *head, const char *text, struct err *err)
{
    const char *open = strchr(text, '['), *close = open ? strchr(open, ']') : NULL;
    char name[LIMIT_NAME_BYTES * 4];
    if (!open)
        return (size_t)snprintf(name, sizeof name, "%s%s", head, text) < sizeof name && *name
                   ? name_add(x, name, err)
                   : bad(x, err);
    if (!close || close == open + 1)
        return bad(x, err);
    for (const char *p = open + 1; p < close; p += *p == ',') {
        long low, high;
        int width, rc;
        if (range_parse(&p, &low, &high, &width) < 0 || (*p != ',' && *p != ']'))
            return bad(x, err);
        for (; low <= high; low++) {
            int len = snprintf(name, sizeof name, "%s%.*s%0*ld", head, (int)(open - text), text,
                               width, low);
            if ((size_t)len >= sizeof name)
                return bad(x, err);
            if ((rc = element_expand(x, name, close + 1, err)) < 0)
                return rc;
        }
    }
    return 0;
}

int hosts_expand(const char *list, struct arena *arena, const char ***names, size_t *n,
                 struct err *err)
{
    struct expansion x = {.arena = arena, .list = list};
    char *copy = arena_strdup(arena, list), *from = copy;
    int rc, depth = 0;
    if (!copy)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (char *p = copy; *from; p++) {
        depth += (*p == '[') - (*p == ']');
        if (depth < 0 || depth > 1 || (!*p && depth))
            return bad(&x, err);
        if (*p && (*p != ',' || depth))
            continue;
        bool last = !*p;
        *p = '\0';
        if ((rc = element_expand(&x, "", from, err)) < 0)
            return rc;
        from = last ? p : p + 1;
    }
    if (!x.v && !(x.v = arena_array(arena, 1, sizeof *x.v)))
        return err_set(err, ERR_NOMEM, "out of memory");
    x.v[x.n] = NULL;
    *names = x.v;
    *n = x.n;
    return 0;
}

/* ---- writing names as a list ---- */

/* Returns where the digits at a name's end begin; at most 18 digits count, which fit into a
 * long. */
static size_t digits_at(const char *name)
{
    size_t len = strlen(name), i = len;
    while (i > 0 && len - i < 18 && isdigit((unsigned char)name[i - 1]))
        i--;
    return i;
}

int hosts_remove(const char **names, size_t *n, const char *without, struct arena *arena,
                 struct err *err)
{
    const char **gone;
    size_t n_gone, left = 0;
    int rc = hosts_expand(without ? without : "", arena, &gone, &n_gone, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < *n; i++) {
        size_t k = 0;
        while (k < n_gone && strcmp(names[i], gone[k]) != 0)
            k++;
        if (k == n_gone)
            names[left++] = names[i];
    }
    names[*n = left] = NULL;
    return 0;
}

/* Tells whether b may share a pair of brackets with a: both have the same head, and numbers of
 * equal width or without leading zeros. */
static bool same_head(const char *a, const char *b)
{
    size_t i = digits_at(a), k = digits_at(b);
    if (i != k || strncmp(a, b, i) != 0 || !a[i] || !b[k])
        return false;
    return strlen(a) == strlen(b) || (a[i] != '0' && b[k] != '0');
}

static int by_name(const void *a, const void *b)
{
    return hosts_compare(*(const char *const *)a, *(const char *const *)b);
}

/* Writes names[0..n) as one element of a list, such as n[1-3,7]. They have the same head and are in
 * ascending order. */
static void run_fold(const char *const *names, size_t n, struct str *out)
{
    size_t at = digits_at(names[0]);
    if (n == 1) {
        str_add(out, names[0]);
        return;
    }
    str_addf(out, "%.*s[", (int)at, names[0]);
    for (size_t i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && strtol(names[k] + at, NULL, 10) ==
                                     strtol(names[k - 1] + at, NULL, 10) + 1;
             k++)
            ;
        str_addf(out, "%s%s", i ? "," : "", names[i] + at);
        if (k > i + 1)
            str_addf(out, "-%s", names[k - 1] + at);
    }
    str_addc(out, ']');
}

void hosts_fold(const char *const *names, size_t n, struct str *out)
{
    const char **v = calloc(n + 1, sizeof *v);
    size_t m = 0;
    if (!v) {
        out->failed = 1;
        return;
    }
    memcpy(v, names, n * sizeof *v);
    qsort(v, n, sizeof *v, by_name);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(v[i], v[m - 1]) != 0)
            v[m++] = v[i];
    for (size_t i = 0, k; i < m; i = k) {
        for (k = i + 1; k < m && same_head(v[i], v[k]); k++)
            ;
        if (i)
            str_addc(out, ',');
        run_fold(v + i, k - i, out);
    }
    free(v);
}

const char *hosts_of_job(int component)
{
    const char *size = getenv("SLURM_HET_SIZE");
    char name[64];
    if (!size || !*size)
        return component == 0 ? getenv("SLURM_JOB_NODELIST") : NULL;
    snprintf(name, sizeof name, "SLURM_JOB_NODELIST_HET_GROUP_%d", component);
    return getenv(name);
}
