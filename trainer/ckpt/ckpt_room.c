/* Makes room for the next checkpoint. Its size is known before it is written, so old files can be
 * removed from a disk that is too full. First the newest whole checkpoint is found, by reading and
 * verifying; it always stays. Then folders of killed saves are removed. If there is a whole
 * checkpoint, damaged folders follow, then the oldest checkpoints.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/num.h"
#include "profiles/saved.h"
#include "trainer/ckpt/ckpt_priv.h"

int ckpt_damaged_remove(const struct ckpt_writer *w, const char *ckpt_dir, int64_t below)
{
    DIR *dir = opendir(ckpt_dir);
    int n = 0;
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char path[LIMIT_PATH_BYTES];
        long long step;
        if (sscanf(d->d_name, "step-%lld", &step) == 1 && str_ends(d->d_name, ".damaged") &&
            step < below && snprintf(path, sizeof path, "%s/%s", ckpt_dir, d->d_name) > 0)
            n += ckpt_remove(w, path, step, NULL) == 0;
    }
    if (dir)
        closedir(dir);
    return n;
}

/* Finds the index in the list of the newest whole checkpoint; -1: none is whole. */
static int newest_whole(const char *ckpt_dir, const struct ckpt_list *list, struct comm *world,
                        int64_t *at, struct err *err)
{
    int rc;
    *at = -1;
    for (int64_t i = 0; i < list->n && *at < 0; i++) {
        double missing = !ckpt_part_whole(ckpt_dir, list->steps[i], world);
        if ((rc = comm_max(world, &missing, 1, err)) < 0)
            return rc;
        if (missing == 0)
            *at = i;
    }
    return 0;
}

/* Removes, on rank 0, all damaged folders, and then old checkpoints until there is room. full: the
 * file system refuses to write, whatever it reports as free (a quota); then all checkpoints older
 * than number `newest` are removed. */
static void remove_old(const struct ckpt_writer *w, const char *ckpt_dir,
                       const struct ckpt_list *list, int64_t newest, bool full,
                       struct ckpt_room *room)
{
    room->removed += ckpt_damaged_remove(w, ckpt_dir, INT64_MAX);
    for (int64_t i = list->n - 1;
         i > newest && (full || file_space(w->run_dir) < room->needed_bytes); i--) {
        char dir[LIMIT_PATH_BYTES];
        ckpt_dir_format(ckpt_dir, list->steps[i], dir);
        room->removed += ckpt_remove(w, dir, list->steps[i], NULL) == 0;
    }
}

static int room_share(struct comm *world, struct ckpt_room *room, struct err *err)
{
    return comm_broadcast_bytes(world, room, (int64_t)sizeof *room, 0, err);
}

static int room_take(const struct ckpt_writer *w, const struct optim *o, bool full,
                     struct ckpt_room *room, struct err *err)
{
    char ckpt_dir[LIMIT_PATH_BYTES], needed[32], left[32];
    struct comm *world = o->c.world;
    struct ckpt_list list = {0};
    int64_t newest = -1;
    snprintf(ckpt_dir, sizeof ckpt_dir, "%s/ckpt", w->run_dir);
    int rc;
    if ((rc = ckpt_list_share(ckpt_dir, world, &list, err)) < 0)
        goto out;
    if ((rc = newest_whole(ckpt_dir, &list, world, &newest, err)) < 0)
        goto out;
    if ((rc = comm_agree(world, world->rank == 0 ? ckpt_tmp_clear(w, ckpt_dir, err) : 0,
                         err)) < 0)
        goto out;
    if (newest >= 0 && world->rank == 0)
        remove_old(w, ckpt_dir, &list, newest, full, room);
    int64_t now = file_space(w->run_dir);
    if (world->rank == 0)
        room->enough = full ? room->removed > 0 : now < 0 || now >= room->needed_bytes;
    if ((rc = room_share(world, room, err)) < 0)
        goto out;
    if (!room->enough)
        rc = err_set(err, ERR_FULL,
                     "the checkpoint needs %s and no space is left for it on the disk of '%s' (%s "
                     "are free)",
                     num_format_bytes(room->needed_bytes, needed, sizeof needed), w->run_dir,
                     num_format_bytes(num_max_i64(now, 0), left, sizeof left));
out:
    free(list.steps);
    return rc;
}

int ckpt_room_make(const struct ckpt_writer *w, const struct optim *o, bool full,
                   struct ckpt_room *room, struct err *err)
{
    *room = (struct ckpt_room){0};
    int rc;
    if ((rc = saved_bytes(o->c.run, o->c.layout, &room->needed_bytes, err)) < 0)
        return rc;
    room->needed_bytes += SAVED_BESIDE_BYTES;
    room->free_bytes = file_space(w->run_dir);
    room->free_files = file_inodes(w->run_dir);
    room->enough = !full && (room->free_bytes < 0 || room->free_bytes >= room->needed_bytes);
    if ((rc = room_share(o->c.world, room, err)) < 0)
        return rc;
    return room->enough ? 0 : room_take(w, o, full, room, err);
}
