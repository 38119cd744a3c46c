#include "profiles/datasets.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct dataset_shared {
    struct dataset data;   /* must be first: callers have its address */
    char *root;
    struct hash128 wanted; /* the fingerprint requested when it was read; zero: the newest */
    int users;             /* callers that have it open, plus one for the set */
    struct dataset_shared *next;
};

static bool hash_same(struct hash128 a, struct hash128 b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

static struct dataset_shared *find(const struct datasets *set, const char *root,
                                   struct hash128 wanted)
{
    struct dataset_shared *s = set ? set->first : NULL;
    while (s && !(strcmp(s->root, root) == 0 &&
                  (hash_same(s->wanted, wanted) || hash_same(s->data.fingerprint, wanted))))
        s = s->next;
    return s;
}

static int read_new(const char *root, struct hash128 wanted, struct dataset_shared **out,
                    struct err *err)
{
    struct dataset_shared *s = calloc(1, sizeof *s);
    int rc;
    if (!s || !(s->root = strdup(root))) {
        rc = err_set(err, ERR_NOMEM, "out of memory for the index of '%s'", root);
        goto out;
    }
    if ((rc = dataset_load_generation(root, wanted, &s->data, err)) < 0)
        goto out;
    s->wanted = wanted;
    s->users = 1;
    *out = s;
    return 0;
out:
    if (s)
        free(s->root);
    free(s);
    return rc;
}

int datasets_open(struct datasets *set, const char *root, struct hash128 wanted,
                  const struct dataset **out, struct err *err)
{
    struct dataset_shared *s = find(set, root, wanted);
    int rc;
    if (s) {
        s->users++;
    } else {
        if ((rc = read_new(root, wanted, &s, err)) < 0)
            return rc;
        if (set) {
            s->users++;
            s->next = set->first;
            set->first = s;
        }
    }
    *out = &s->data;
    return 0;
}

static void let_go(struct dataset_shared *s)
{
    if (--s->users > 0)
        return;
    dataset_release(&s->data);
    free(s->root);
    free(s);
}

void datasets_close(const struct dataset *d)
{
    if (d)
        let_go((struct dataset_shared *)(uintptr_t)d);
}

void datasets_drop(struct datasets *set)
{
    while (set && set->first) {
        struct dataset_shared *s = set->first;
        set->first = s->next;
        let_go(s);
    }
}
