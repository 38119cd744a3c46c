/* Decides which checkpoints stay: the `keep` newest whole ones, and every folder newer than the
 * oldest of these, damaged or not. All others are removed. Before any is, the files of the ones
 * that stay, except those of the new checkpoint, are read again and verified, file k by rank k mod
 * ranks. If there are at most `keep`, nothing is read or removed. The thread that writes the new
 * checkpoint reads the files, so this happens in the background if the writing does.
 */
#include <stdlib.h>

#include "base/file.h"
#include "trainer/ckpt/ckpt_priv.h"

static int list_add(struct ckpt_list *list, int64_t step, struct err *err)
{
    for (int64_t i = 0; i < list->n; i++)
        if (list->steps[i] == step)
            return 0;
    int64_t *grown = realloc(list->steps, (size_t)(list->n + 1) * sizeof *grown);
    if (!grown)
        return err_set(err, ERR_NOMEM, "out of memory listing checkpoints");
    int64_t at = list->n++;
    for (list->steps = grown; at > 0 && grown[at - 1] < step; at--)
        grown[at] = grown[at - 1];
    grown[at] = step;
    return 0;
}

static int keep_list(struct ckpt_keep *k, struct err *err)
{
    int rc;
    if ((rc = ckpt_list_share(k->ckpt_dir, k->world, &k->list, err)) < 0)
        return rc;
    if ((rc = list_add(&k->list, k->step, err)) < 0)
        return rc;
    k->whole = calloc((size_t)k->list.n, sizeof *k->whole);
    return k->whole ? 0 : err_set(err, ERR_NOMEM, "out of memory listing checkpoints");
}

int ckpt_keep_begin(struct ckpt_keep *k, const struct ckpt_writer *w, const char *ckpt_dir,
                    int64_t step, int64_t keep, struct comm *world, struct err *err)
{
    *k = (struct ckpt_keep){
        .w = w, .ckpt_dir = ckpt_dir,
        .step = step, .keep = keep, .world = world
    };
    int rc;
    if ((rc = comm_agree(world, keep_list(k, err), err)) < 0)
        ckpt_keep_release(k);
    return rc;
}

bool ckpt_part_whole(const char *ckpt_dir, int64_t step, const struct comm *world)
{
    char dir[LIMIT_PATH_BYTES];
    struct ckpt_manifest m = {0};
    ckpt_dir_format(ckpt_dir, step, dir);
    if (ckpt_manifest_load(dir, &m, NULL) < 0)
        return false;
    bool whole = ckpt_verify(dir, &m, world->rank, world->size, NULL) == 0;
    ckpt_manifest_release(&m);
    return whole;
}

void ckpt_keep_check(struct ckpt_keep *k)
{
    for (int64_t i = 0, good = 0; i < k->list.n && good < k->keep && k->list.n > k->keep; i++)
        good += k->whole[i] = k->list.steps[i] == k->step ||
                              ckpt_part_whole(k->ckpt_dir, k->list.steps[i], k->world);
}

int ckpt_keep_finish(struct ckpt_keep *k, struct err *err)
{
    int64_t last = 0; /* the oldest step that stays; 0: fewer than `keep` are known to be whole */
    int rc;
    for (int64_t i = 0, good = 0; i < k->list.n && k->list.n > k->keep; i++) {
        char dir[LIMIT_PATH_BYTES];
        double missing = !k->whole[i];
        ckpt_dir_format(k->ckpt_dir, k->list.steps[i], dir);
        if (good == k->keep) {
            if (k->world->rank == 0)
                ckpt_remove(k->w, dir, k->list.steps[i], NULL);
            continue;
        }
        if ((rc = comm_max(k->world, &missing, 1, err)) < 0)
            return rc;
        good += missing == 0, last = good == k->keep ? k->list.steps[i] : 0;
    }
    if (k->world->rank == 0)
        ckpt_damaged_remove(k->w, k->ckpt_dir, last);
    return 0;
}

void ckpt_keep_release(struct ckpt_keep *k)
{
    free(k->list.steps);
    free(k->whole);
    *k = (struct ckpt_keep){0};
}
