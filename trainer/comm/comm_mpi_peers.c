#include "trainer/comm/comm_mpi_peers.h"

#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"

/* Names a rank's process, and where its number means something: by a hash of boot and namespace. */
struct place { uint64_t where; int64_t pid; };

struct comm_peers {
    struct pollfd *fds;
    int *ranks, *pids;
    int n;
    bool crowded;
};

static struct place place_own(void)
{
    struct str text = STR_INIT;
    char ns[64] = "";
    if (readlink("/proc/self/ns/pid", ns, sizeof ns - 1) < 0 ||
        file_read("/proc/sys/kernel/random/boot_id", 64, &text, NULL) < 0)
        ns[0] = '\0';
    str_add(&text, ns);
    struct place p = {ns[0] && str_check(&text, NULL) == 0 ? hash_128(text.p, text.len).hi : 0,
                      getpid()};
    str_release(&text);
    return p;
}

static void peer_add(struct comm_peers *p, int rank, int64_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0); /* the system closes it on exec */
    if (fd < 0)
        return;
    p->fds[p->n] = (struct pollfd){.fd = fd, .events = POLLIN};
    p->ranks[p->n] = rank, p->pids[p->n++] = (int)pid;
}

static struct comm_peers *peers_new(int size)
{
    struct comm_peers *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->fds = calloc((size_t)size, sizeof *p->fds);
    p->ranks = calloc(2 * (size_t)size, sizeof *p->ranks);
    p->pids = p->ranks ? p->ranks + size : NULL;
    if (p->fds && p->ranks)
        return p;
    comm_peers_close(p);
    return NULL;
}

int comm_peers_open(struct comm *world, struct comm_peers **out, struct err *err)
{
    struct place own = place_own(), *all = calloc((size_t)world->size, sizeof *all);
    struct comm_peers *p = all ? peers_new(world->size) : NULL;
    struct comm_op gather = {
        .kind = COMM_ALL_GATHER, .what = "processes of the ranks",
        .send = &own, .recv = all, .n = sizeof own, .dtype = DTYPE_BYTE
    };
    int rc = p ? 0
               : err_set(err, ERR_NOMEM, "out of memory opening a world of %d ranks",
                         world->size);
    if ((rc = comm_agree(world, rc, err)) < 0)
        goto out;
    if ((rc = comm_do(world, &gather, NULL, err)) < 0)
        goto out;
    for (int r = 0; r < world->size; r++)
        if (r != world->rank && own.where && all[r].where == own.where)
            peer_add(p, r, all[r].pid);
    p->crowded = p->n + 1 > sysconf(_SC_NPROCESSORS_ONLN);
    /* all ranks live until every descriptor is open */
    if ((rc = comm_barrier(world, err)) < 0)
        goto out;
    *out = p;
    p = NULL; /* the caller's */
out:
    free(all);
    comm_peers_close(p);
    return rc;
}

bool comm_peers_crowded(const struct comm_peers *p) { return p && p->crowded; }

int comm_peers_gone(const struct comm_peers *p, int wait_ms, int *pid)
{
    if (!p || p->n == 0 || poll(p->fds, (nfds_t)p->n, wait_ms) <= 0)
        return -1;
    for (int i = 0; i < p->n; i++)
        if (p->fds[i].revents & POLLIN) {
            *pid = p->pids[i];
            return p->ranks[i];
        }
    return -1;
}

void comm_peers_close(struct comm_peers *p)
{
    for (int i = 0; p && i < p->n; i++)
        close(p->fds[i].fd);
    if (p) {
        free(p->fds);
        free(p->ranks);
    }
    free(p);
}
