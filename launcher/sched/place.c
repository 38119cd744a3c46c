#include "launcher/sched/place.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "launcher/sched/hosts.h"
#include "launcher/sched/slurm_rpc.h"

enum { MAX_CPUS = 1 << 14 };

/* ---- paths ---- */

struct under { /* a node and a switch above it */
    const char *node;
    const struct slurm_switch *by;
    size_t size; /* number of nodes below that switch */
};
struct table {
    struct under *v;
    size_t n;
};

/* Orders a node's switches from the top: the larger first, and among equals the one that has
 * children. */
static int by_node(const void *a, const void *b)
{
    const struct under *x = a, *y = b;
    int order = strcmp(x->node, y->node);
    if (order)
        return order;
    if (x->size != y->size)
        return x->size < y->size ? 1 : -1;
    bool p = x->by->children[0], q = y->by->children[0];
    return p != q ? q - p : (x->by > y->by) - (x->by < y->by);
}

static int table_make(const struct slurm_net *net, struct arena *arena, struct table *out,
                      struct err *err)
{
    const char ***lists = arena_array(arena, net->n_switches + 1, sizeof *lists);
    size_t *sizes = arena_array(arena, net->n_switches + 1, sizeof *sizes), total = 0;
    int rc;
    if (!lists || !sizes)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < net->n_switches; i++) {
        if ((rc = hosts_expand(net->switches[i].nodes, arena, &lists[i], &sizes[i], err)) < 0)
            return rc;
        total += sizes[i];
    }
    struct table t = {.v = arena_array(arena, total + 1, sizeof *t.v)};
    if (!t.v)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < net->n_switches; i++)
        for (const char **node = lists[i]; *node; node++)
            t.v[t.n++] = (struct under){*node, &net->switches[i], sizes[i]};
    if (t.n)
        qsort(t.v, t.n, sizeof *t.v, by_node);
    *out = t;
    return 0;
}

/* Returns the index of a node's first entry, or where it would be inserted. */
static size_t table_find(const struct table *t, const char *node)
{
    size_t low = 0, high = t->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(t->v[middle].node, node) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int place_paths(const struct slurm_net *net, const char *const *names, size_t n,
                struct arena *arena, struct place_node **out, struct err *err)
{
    struct table t = {0};
    struct place_node *v = arena_array(arena, n + 1, sizeof *v);
    int rc;
    if (!v)
        return err_set(err, ERR_NOMEM, "out of memory");
    if ((rc = table_make(net, arena, &t, err)) < 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        v[i] = (struct place_node){names[i], ""};
        for (size_t k = table_find(&t, names[i]); k < t.n && strcmp(t.v[k].node, names[i]) == 0;
             k++) {
            v[i].path = arena_printf(arena, "%s%s%s", v[i].path, *v[i].path ? "/" : "",
                                     t.v[k].by->name);
            if (!v[i].path)
                return err_set(err, ERR_NOMEM, "out of memory");
        }
    }
    *out = v;
    return 0;
}

/* ---- order ---- */

void place_groups(const int64_t ranks[PLACE_GROUPS], int64_t ranks_per_node,
                  int64_t nodes[PLACE_GROUPS + 1])
{
    int n = 0;
    for (int i = 0; i < PLACE_GROUPS; i++)
        if (ranks[i] > ranks_per_node && ranks[i] % ranks_per_node == 0)
            nodes[n++] = ranks[i] / ranks_per_node;
    nodes[n] = 0;
}

/* Returns the next component of a path; *len is 0 at its end. */
static const char *component(const char *path, size_t *len)
{
    path += *path == '/';
    *len = strcspn(path, "/");
    return path;
}

/* Compares paths component by component, so that the nodes below one switch are consecutive; nodes
 * without a switch come last. */
static int by_path(const void *a, const void *b)
{
    const struct place_node *x = a, *y = b;
    const char *p = x->path, *q = y->path;
    if (!*p != !*q)
        return !*p - !*q;
    for (size_t i, k; *p || *q; p += i, q += k) {
        char one[LIMIT_NAME_BYTES], other[LIMIT_NAME_BYTES];
        p = component(p, &i);
        q = component(q, &k);
        snprintf(one, sizeof one, "%.*s", (int)i, p);
        snprintf(other, sizeof other, "%.*s", (int)k, q);
        int order = hosts_compare(one, other);
        if (order)
            return order;
    }
    return hosts_compare(x->name, y->name);
}

struct branch {
    size_t from, n;
    bool placed;
};

/* Returns the size of the largest group that ends at this number of nodes; 0: none. */
static int64_t border(const int64_t *groups, size_t end)
{
    int64_t best = 0;
    for (; groups && *groups; groups++)
        best = (int64_t)end % *groups == 0 ? *groups : best;
    return best;
}

/* Splits nodes[from, end), which share a switch whose path ends at byte `at`, into the branches
 * below that switch. */
static size_t branches_find(const struct place_node *nodes, size_t from, size_t end, size_t at,
                            struct branch *out)
{
    size_t n = 0, i, k;
    for (; from < end; from += out[n++].n) {
        const char *p = component(nodes[from].path + at, &i);
        size_t to = from + 1;
        while (to < end) {
            const char *q = component(nodes[to].path + at, &k);
            if (i != k || strncmp(p, q, i) != 0)
                break;
            to++;
        }
        out[n] = (struct branch){from, to - from, false};
    }
    return n;
}

static const struct branch *branch_next(struct branch *b, size_t n, size_t placed,
                                        const int64_t *groups)
{
    struct branch *best = NULL;
    for (size_t i = 0; i < n; i++) {
        if (b[i].placed)
            continue;
        int64_t mine = border(groups, placed + b[i].n),
                its = best ? border(groups, placed + best->n) : 0;
        if (!best || mine > its || (mine == its && b[i].n > best->n))
            best = &b[i];
    }
    best->placed = true;
    return best;
}

static bool without_switch(const struct place_node *n)
{
    return !n->path[0];
}

/* Orders a subtree, and appends its nodes[from, end), which are sorted by path, to out. *placed:
 * number of nodes in out. */
static int subtree_order(const struct place_node *nodes, size_t from, size_t end, size_t at,
                         const int64_t *groups, struct place_node *out, size_t *placed,
                         struct err *err)
{
    struct branch *b = calloc(end - from + 1, sizeof *b);
    int rc = b ? 0 : err_set(err, ERR_NOMEM, "out of memory");
    size_t n = b ? branches_find(nodes, from, end, at, b) : 0;
    /* Nodes without a known switch are sorted last, and stay last. */
    bool unknown = n > 0 && at == 0 && without_switch(&nodes[b[n - 1].from]);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct branch *next = unknown && i == n - 1
                                        ? &b[n - 1]
                                        : branch_next(b, unknown ? n - 1 : n, *placed, groups);
        size_t len;
        const char *p = component(nodes[next->from].path + at, &len);
        if (len)
            rc = subtree_order(nodes, next->from, next->from + next->n,
                               (size_t)(p - nodes[next->from].path) + len, groups, out, placed,
                               err);
        for (size_t k = 0; !len && k < next->n; k++)
            out[(*placed)++] = nodes[next->from + k];
    }
    free(b);
    return rc;
}

int place_order(struct place_node *nodes, size_t n, const int64_t *groups, struct err *err)
{
    struct place_node *out = calloc(n + 1, sizeof *out);
    size_t placed = 0;
    if (!out)
        return err_set(err, ERR_NOMEM, "out of memory");
    qsort(nodes, n, sizeof *nodes, by_path);
    int rc;
    if ((rc = subtree_order(nodes, 0, n, 0, groups, out, &placed, err)) < 0)
        goto out;
    memcpy(nodes, out, n * sizeof *nodes);
out:
    free(out);
    return rc;
}

/* ---- CPUs ---- */

struct ranges {
    long low[64], high[64];
    size_t n;
    long total;
};

static int ranges_parse(const char *text, struct ranges *r, struct err *err)
{
    const char *p = text;
    *r = (struct ranges){0};
    while (*p) {
        char *end;
        long low = strtol(p, &end, 10), high = low;
        if (end != p && *end == '-') {
            p = end + 1;
            high = strtol(p, &end, 10);
        }
        if (end == p || (*end && *end != ',') || low < 0 || low > high || high >= MAX_CPUS ||
            r->n == 64)
            return err_set(err, ERR_INPUT, "'%.100s' is no list of CPUs like 0-27,56-83", text);
        r->low[r->n] = low;
        r->high[r->n++] = high;
        r->total += high - low + 1;
        p = end + (*end == ',');
    }
    return 0;
}

static void range_add(long low, long n, struct str *out)
{
    if (n > 0)
        str_addf(out, n > 1 ? "%s%ld-%ld" : "%s%ld", out->len ? "," : "", low, low + n - 1);
}

/* Adds the CPUs of share i of k shares. */
static void share_add(const struct ranges *r, long i, long k, struct str *out)
{
    bool even = true;
    for (size_t j = 0; j < r->n; j++)
        even &= (r->high[j] - r->low[j] + 1) % k == 0;
    long each = r->total / k, skip = i * each;
    for (size_t j = 0; j < r->n; j++) {
        long size = r->high[j] - r->low[j] + 1;
        if (even) {
            range_add(r->low[j] + i * (size / k), size / k, out);
            continue;
        }
        long take = skip >= size ? 0 : size - skip < each ? size - skip : each;
        range_add(r->low[j] + skip, take, out);
        each -= take;
        skip = skip >= size ? skip - size : 0;
    }
}

int place_cpus(const char *const *near, size_t ranks, struct arena *arena, const char **out,
               struct err *err)
{
    for (size_t i = 0; i < ranks; i++) {
        struct ranges r;
        struct str text = STR_INIT;
        long of = 0, mine = 0;
        for (size_t k = 0; k < ranks; k++)
            if (strcmp(near[i], near[k]) == 0) {
                mine += k < i;
                of++;
            }
        int rc = ranges_parse(near[i], &r, err);
        if (rc < 0)
            return rc;
        share_add(&r, mine, of, &text);
        out[i] = arena_strdup(arena, text.p);
        str_release(&text);
        if (!out[i])
            return err_set(err, ERR_NOMEM, "out of memory");
    }
    return 0;
}

int place_mask(const char *cpus, struct str *out, struct err *err)
{
    unsigned char nibbles[MAX_CPUS / 4] = {0};
    struct ranges r;
    size_t top = 0;
    int rc;
    if ((rc = ranges_parse(cpus, &r, err)) < 0)
        return rc;
    for (size_t i = 0; i < r.n; i++)
        for (long cpu = r.low[i]; cpu <= r.high[i]; cpu++) {
            nibbles[cpu / 4] |= (unsigned char)(1 << cpu % 4);
            top = (size_t)cpu / 4 > top ? (size_t)cpu / 4 : top;
        }
    str_add(out, "0x");
    for (size_t i = top + 1; i-- > 0;)
        str_addf(out, "%x", nibbles[i]);
    return 0;
}
