#include "trainer/run/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"

int gpu_index(const struct gpu_seat *seats, int rank)
{
    int64_t before = 0;
    for (int r = 0; r < rank; r++)
        before += seats[r].host == seats[rank].host;
    return (int)(before % seats[rank].gpus);
}

int gpu_check(const struct gpu_seat *seats, int ranks, const char *advice, struct err *err)
{
    for (int b = 1; b < ranks; b++)
        for (int a = 0; a < b; a++)
            if (memcmp(seats[a].gpu.uuid, seats[b].gpu.uuid, sizeof seats[a].gpu.uuid) == 0)
                return err_set(err, ERR_ENV,
                               "ranks %d and %d have the same GPU (%s), of %lld that they see: "
                               "start as many ranks on a node as it has GPUs, or %s",
                               a, b, seats[b].gpu.name, (long long)seats[b].gpus, advice);
    return 0;
}

static int seats_share(struct comm *world, struct gpu_seat *seats, struct err *err)
{
    struct comm_op gather = {
        .kind = COMM_ALL_GATHER, .what = "GPUs of ranks", .send = &seats[world->rank],
        .recv = seats, .n = sizeof *seats, .dtype = DTYPE_BYTE};
    return comm_do(world, &gather, NULL, err);
}

/* Finds out which GPUs this process sees. */
static int seat_find(const struct cuda_backend **cuda, struct gpu_seat *own, struct err *err)
{
    const char *boot = clock_boot_id();
    int gpus = 0, rc;
    if ((rc = cuda_load(cuda, err)) < 0)
        return rc;
    if ((rc = (*cuda)->count(&gpus, err)) < 0)
        return rc;
    own->host = hash_128(boot, strlen(boot)).hi;
    own->gpus = gpus;
    return 0;
}

static int seats_fill(struct comm *world, const char *advice, struct gpu_seat *seats,
                      struct err *err)
{
    struct gpu_seat *own = &seats[world->rank];
    const struct cuda_backend *cuda = NULL;
    int rc;
    if ((rc = comm_agree(world, seat_find(&cuda, own, err), err)) < 0)
        return rc;
    if ((rc = seats_share(world, seats, err)) < 0)
        return rc;
    rc = cuda->describe(gpu_index(seats, world->rank), &own->gpu, err);
    if ((rc = comm_agree(world, rc, err)) < 0)
        return rc;
    if ((rc = seats_share(world, seats, err)) < 0)
        return rc;
    return advice ? gpu_check(seats, world->size, advice, err) : 0;
}

int gpu_choose(struct comm *world, const char *advice, struct compute_conf *out, struct err *err)
{
    struct gpu_seat *seats = calloc((size_t)world->size, sizeof *seats);
    int rc;
    if ((rc = comm_agree(world, seats ? 0 : err_set(err, ERR_NOMEM, "GPUs of ranks: no memory"),
                         err)) < 0)
        goto out;
    if ((rc = seats_fill(world, advice, seats, err)) < 0)
        goto out;
    const struct gpu_seat *own = &seats[world->rank];
    out->gpu = gpu_index(seats, world->rank);
    snprintf(out->gpu_name, sizeof out->gpu_name, "%s", own->gpu.name);
    out->gpu_shared = !advice ? hash_64(own->gpu.uuid, sizeof own->gpu.uuid) | 1 : 0;
out:
    free(seats);
    return rc;
}

/* Holds which GPU a rank uses, and how many bytes of its memory the rank needs. */
struct want { uint64_t gpu; int64_t bytes; };

int gpu_wanted(struct comm *world, const struct compute_conf *conf, int64_t bytes, int64_t *all,
               struct err *err)
{
    struct want own = {conf->gpu_shared, bytes}, *wants;
    int rc;
    *all = bytes;
    if (!conf->gpu_shared || world->size == 1)
        return 0;
    wants = calloc((size_t)world->size, sizeof *wants);
    if ((rc = comm_agree(world, wants ? 0 : err_set(err, ERR_NOMEM, "GPUs of ranks: no memory"),
                         err)) < 0)
        goto out;
    struct comm_op gather = {
        .kind = COMM_ALL_GATHER, .what = "memory of GPUs", .send = &own, .recv = wants,
        .n = sizeof own, .dtype = DTYPE_BYTE};
    if ((rc = comm_do(world, &gather, NULL, err)) < 0)
        goto out;
    *all = 0;
    for (int r = 0; r < world->size; r++)
        *all += wants[r].gpu == own.gpu ? wants[r].bytes : 0;
out:
    free(wants);
    return rc;
}
