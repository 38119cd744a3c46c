#include "profiles/pack.h"

#include <stdlib.h>
#include <string.h>

#include "base/philox.h"

struct open_pack { int64_t pack, room, samples; };
struct packing {
    struct open_pack open[PACK_OPEN];
    int n_open;
    int64_t n; /* packs begun */
};

/* Returns the open pack in which the sample leaves the least room; -1: it fits into none. */
static int best_fit(const struct packing *p, int64_t tokens)
{
    int best = -1;
    for (int i = 0; i < p->n_open; i++) {
        const struct open_pack *o = &p->open[i];
        if (o->room >= tokens && o->samples < PACK_SAMPLES_MAX &&
            (best < 0 || o->room < p->open[best].room))
            best = i;
    }
    return best;
}

static int begin(struct packing *p, int64_t most)
{
    int at = p->n_open;
    if (at < PACK_OPEN)
        p->n_open++;
    else /* close the fullest to make room */
        for (int i = at = 0; i < p->n_open; i++)
            at = p->open[i].room < p->open[at].room ? i : at;
    p->open[at] = (struct open_pack){p->n++, most, 0};
    return at;
}

static int64_t pack_choose(struct packing *p, int64_t tokens, int64_t most)
{
    int at = best_fit(p, tokens);
    if (at < 0)
        at = begin(p, most);
    p->open[at].room -= tokens;
    p->open[at].samples++;
    return p->open[at].pack;
}

/* Returns the sample at position i of the packing order. The order of an epoch is the permutation
 * with the epoch's number, so the packing order has the largest number. */
static int64_t order(uint64_t seed, int64_t n, int64_t i)
{
    return (int64_t)philox_permute(seed, UINT64_MAX, (uint64_t)n, (uint64_t)i);
}

/* Chooses a pack for every sample; pack_of[i] is that of the i-th sample in packing order. */
static int choose_all(const int64_t *tokens, int64_t n, int64_t most, uint64_t seed,
                      int64_t *pack_of, int64_t *n_packs, struct err *err)
{
    struct packing p = {.n_open = 0};
    for (int64_t i = 0; i < n; i++) {
        int64_t sample = order(seed, n, i);
        if (tokens[sample] > most)
            return err_set(err, ERR_INPUT,
                           "sample %lld has %lld tokens, a pack takes %lld: give a larger "
                           "pack_tokens",
                           (long long)sample, (long long)tokens[sample], (long long)most);
        pack_of[i] = pack_choose(&p, tokens[sample], most);
    }
    *n_packs = p.n;
    return 0;
}

/* Sorts samples by pack with a counting sort; inside a pack the order stays. */
static void sort_members(const int64_t *pack_of, int64_t n, uint64_t seed, struct packs *p)
{
    for (int64_t i = 0; i < n; i++)
        p->first[pack_of[i] + 1]++;
    for (int64_t k = 0; k < p->n; k++)
        p->first[k + 1] += p->first[k];
    for (int64_t i = 0; i < n; i++)
        p->members[p->first[pack_of[i]]++] = order(seed, n, i);
    /* Filling has moved each first[k] to first[k + 1]: this moves them back. */
    memmove(p->first + 1, p->first, (size_t)p->n * sizeof *p->first);
    p->first[0] = 0;
}

int packs_build(const int64_t *tokens, int64_t n, int64_t most, uint64_t seed, struct packs *out,
                struct err *err)
{
    int64_t *pack_of = malloc((size_t)n * sizeof *pack_of + 1);
    struct packs p = {.members = malloc((size_t)n * sizeof *p.members + 1)};
    int rc = ERR_NOMEM;
    if (!pack_of || !p.members)
        goto out;
    if ((rc = choose_all(tokens, n, most, seed, pack_of, &p.n, err)) < 0)
        goto out;
    if (!(p.first = calloc((size_t)p.n + 1, sizeof *p.first))) {
        rc = ERR_NOMEM;
        goto out;
    }
    sort_members(pack_of, n, seed, &p);
    *out = p;
    p = (struct packs){0}; /* the caller owns it now */
out:
    if (rc == ERR_NOMEM)
        err_set(err, rc, "out of memory packing %lld samples", (long long)n);
    free(pack_of);
    packs_release(&p);
    return rc;
}

void packs_release(struct packs *p)
{
    free(p->first);
    free(p->members);
    *p = (struct packs){0};
}

int64_t packs_bytes(const struct packs *p)
{
    return p->n ? (p->n + 1 + p->first[p->n]) * (int64_t)sizeof *p->first : 0;
}
