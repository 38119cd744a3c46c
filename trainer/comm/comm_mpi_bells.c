#include "trainer/comm/comm_mpi_bells.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

/* A bell belongs to a rank of the world. Each has a cache line of its own. */
struct bell {
    _Alignas(64) _Atomic uint32_t rung;
    _Atomic uint32_t sleeps, left;
    _Atomic uint32_t leavers; /* of the first bell: how many ranks of this host have left */
};
struct comm_bells {
    struct bell *at;
    int size;
};

int comm_bells_make(int size)
{
    int fd = memfd_create("reel-bells", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)((size_t)size * sizeof(struct bell))) == 0)
        return fd;
    close(fd);
    return -1;
}

static void *map_of(int64_t pid, int64_t fd, size_t bytes)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)pid, (long long)fd);
    int own = fd < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (own < 0)
        return MAP_FAILED;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
    close(own);
    return at;
}

struct comm_bells *comm_bells_open(int64_t pid, int64_t fd, int size)
{
    struct comm_bells *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    *b = (struct comm_bells){map_of(pid, fd, (size_t)size * sizeof *b->at), size};
    if (b->at != MAP_FAILED)
        return b;
    free(b);
    return NULL;
}

void comm_bells_close(struct comm_bells *b)
{
    if (b)
        munmap(b->at, (size_t)b->size * sizeof *b->at);
    free(b);
}

/* Wakes a rank that sleeps. The ringer raises the count before it reads `sleeps`, and a sleeper
 * sets `sleeps` before the system compares the count. So either the ringer sees that the rank
 * sleeps, or the rank sees the new count and does not sleep. */
void comm_bells_ring(struct comm_bells *b, int rank)
{
    if (!b)
        return;
    atomic_fetch_add(&b->at[rank].rung, 1);
    if (atomic_load(&b->at[rank].sleeps))
        syscall(SYS_futex, &b->at[rank].rung, FUTEX_WAKE, 1, NULL, NULL, 0);
}

uint32_t comm_bells_heard(const struct comm_bells *b, int rank)
{
    return b ? atomic_load(&b->at[rank].rung) : 0;
}

int comm_bells_asleep(const struct comm_bells *b)
{
    int n = 0;
    for (int r = 0; b && r < b->size; r++)
        n += atomic_load(&b->at[r].sleeps) != 0;
    return n;
}

uint32_t comm_bells_leave(struct comm_bells *b, int rank)
{
    if (!b)
        return 0;
    atomic_store(&b->at[rank].left, 1);
    return atomic_fetch_add(&b->at[0].leavers, 1);
}

bool comm_bells_left(const struct comm_bells *b, int rank)
{
    return b && atomic_load(&b->at[rank].left);
}

void comm_bells_sleep(struct comm_bells *b, int rank, uint32_t heard, double seconds)
{
    if (!b) {
        clock_sleep_s(seconds);
        return;
    }
    struct timespec most = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    atomic_store(&b->at[rank].sleeps, 1);
    syscall(SYS_futex, &b->at[rank].rung, FUTEX_WAIT, heard, &most, NULL, 0);
    atomic_store(&b->at[rank].sleeps, 0);
}
