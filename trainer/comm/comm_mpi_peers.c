#include "trainer/comm/comm_mpi_peers.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"

/* Names a rank's process. `where` is a hash of boot and process namespace, in which the pid is
 * valid; bells is the file descriptor, in that process, of the bells' shared memory
 * (comm_mpi_bells.h). */
struct place { uint64_t where; int64_t pid, bells; };

struct comm_peers {
    struct pollfd *fds;
    int *ranks, *pids;
    int n;
    int processors;
    struct comm_bells *bells;
    bool is_told;              /* whether another host has told of a rank: told */
    struct comm_gone told;
    int load;                  /* descriptor of /proc/loadavg; -1: not known */
    double looked_s, others;   /* when it was read; how many others wanted to run, on average */
};

static const double look_s = 0.02, newest_part = 0.1, disturbed_from = 0.8;

static struct place place_own(void)
{
    struct str text = STR_INIT;
    char ns[64] = "";
    if (readlink("/proc/self/ns/pid", ns, sizeof ns - 1) < 0 ||
        file_read("/proc/sys/kernel/random/boot_id", 64, &text, NULL) < 0)
        ns[0] = '\0';
    str_add(&text, ns);
    struct place p = {ns[0] && str_check(&text, NULL) == 0 ? hash_128(text.p, text.len).hi : 0,
                      getpid(), -1};
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
    p->load = -1;
    p->fds = calloc((size_t)size, sizeof *p->fds);
    p->ranks = calloc(2 * (size_t)size, sizeof *p->ranks);
    p->pids = p->ranks ? p->ranks + size : NULL;
    if (p->fds && p->ranks)
        return p;
    comm_peers_close(p);
    return NULL;
}

/* Adds the other ranks of this host. The bells that they use are those of the first rank there. */
static void peers_add(struct comm_peers *p, const struct comm *world, const struct place *all)
{
    const struct place *own = &all[world->rank], *first = NULL;
    for (int r = 0; r < world->size; r++) {
        if (!own->where || all[r].where != own->where)
            continue;
        first = first ? first : &all[r];
        if (r != world->rank)
            peer_add(p, r, all[r].pid);
    }
    p->processors = (int)sysconf(_SC_NPROCESSORS_ONLN);
    p->load = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    p->bells = p->n > 0 ? comm_bells_open(first->pid, first->bells, world->size) : NULL;
}

int comm_peers_open(struct comm *world, struct comm_peers **out, struct err *err)
{
    struct place own = place_own(), *all = calloc((size_t)world->size, sizeof *all);
    struct comm_peers *p = all ? peers_new(world->size) : NULL;
    struct comm_op gather = {
        .kind = COMM_ALL_GATHER, .what = "processes of the ranks",
        .send = &own, .recv = all, .n = sizeof own, .dtype = DTYPE_BYTE
    };
    own.bells = comm_bells_make(world->size);
    int rc = p ? 0
               : err_set(err, ERR_NOMEM, "out of memory opening a world of %d ranks",
                         world->size);
    if ((rc = comm_agree(world, rc, err)) < 0)
        goto out;
    if ((rc = comm_do(world, &gather, NULL, err)) < 0)
        goto out;
    peers_add(p, world, all);
    /* This keeps all ranks alive until every descriptor is open. */
    if ((rc = comm_barrier(world, err)) < 0)
        goto out;
    *out = p;
    p = NULL; /* the caller owns it now */
out:
    if (own.bells >= 0)
        close((int)own.bells);
    free(all);
    comm_peers_close(p);
    return rc;
}

bool comm_peers_crowded(const struct comm_peers *p) { return p && p->n + 1 > p->processors; }
struct comm_bells *comm_peers_bells(const struct comm_peers *p) { return p ? p->bells : NULL; }

/* Returns how many threads of the whole host run or are ready to run; 0: not known. */
static int runnable(const struct comm_peers *p)
{
    char text[128];
    int n = 0;
    ssize_t len = p->load < 0 ? -1 : pread(p->load, text, sizeof text - 1, 0);
    text[len > 0 ? len : 0] = '\0';
    return len > 0 && sscanf(text, "%*s %*s %*s %d/", &n) == 1 ? n : 0;
}

bool comm_peers_disturbed(struct comm_peers *p, double now)
{
    if (!p || p->n == 0)
        return false;
    if (now - p->looked_s > look_s) {
        int wanting = runnable(p) + comm_bells_asleep(p->bells);
        int others = wanting > p->processors ? wanting - (p->n + 1) : 0;
        p->others += newest_part * (others - p->others);
        p->looked_s = now;
    }
    return p->others > disturbed_from;
}

struct pollfd *comm_peers_fds(const struct comm_peers *p, int *n)
{
    struct pollfd *fds = p && p->n > 0 ? calloc((size_t)p->n + 1, sizeof *fds) : NULL;
    *n = fds ? p->n : 0;
    if (fds)
        memcpy(fds, p->fds, (size_t)p->n * sizeof *fds);
    return fds;
}

bool comm_peers_ended(const struct comm_peers *p, const struct pollfd *fds, struct comm_gone *out)
{
    int found = -1;
    for (int i = 0; i < p->n; i++) {
        bool spoke = comm_bells_left(p->bells, p->ranks[i]);
        if (!(fds[i].revents & POLLIN) || (found >= 0 && (spoke || !out->spoke)))
            continue;
        found = i;
        *out = (struct comm_gone){p->ranks[i], p->pids[i], spoke};
    }
    return found >= 0;
}

/* Finds a rank of this host whose process has ended, as comm_peers_gone does. */
static bool gone_here(const struct comm_peers *p, int wait_ms, struct comm_gone *out)
{
    return p->n > 0 && poll(p->fds, (nfds_t)p->n, wait_ms) > 0 &&
           comm_peers_ended(p, p->fds, out);
}

bool comm_peers_gone(const struct comm_peers *p, int wait_ms, struct comm_gone *out)
{
    if (!p)
        return false;
    bool here = gone_here(p, p->is_told ? 0 : wait_ms, out);
    if (p->is_told && (!here || out->spoke))
        *out = p->told;
    return here || p->is_told;
}

bool comm_peers_elsewhere(const struct comm_peers *p, int rank, int r)
{
    bool here = !p || r == rank;
    for (int i = 0; !here && i < p->n; i++)
        here = p->ranks[i] == r;
    return !here;
}

bool comm_peers_tells(const struct comm_peers *p, int rank, struct comm_gone *out)
{
    if (!p || !gone_here(p, 0, out) || out->spoke)
        return false;
    for (int i = 0; i < p->n; i++)
        if (p->ranks[i] < rank &&
            (!(p->fds[i].revents & POLLIN) || comm_bells_left(p->bells, p->ranks[i])))
            return false;
    return true;
}

void comm_peers_told(struct comm_peers *p, const struct comm_gone *gone)
{
    if (p && !p->is_told)
        p->told = *gone, p->is_told = true;
}

bool comm_peers_leave(const struct comm_peers *p, int rank)
{
    struct comm_gone gone = {.spoke = true};
    if (!p)
        return true;
    uint32_t before = comm_bells_leave(p->bells, rank);
    if (!gone_here(p, 0, &gone) || gone.spoke)
        return !p->is_told;
    uint32_t silent = 0; /* ranks that have ended without a word, and leave nothing to wait for */
    for (int i = 0; i < p->n; i++)
        silent += p->fds[i].revents & POLLIN && !comm_bells_left(p->bells, p->ranks[i]);
    return before + silent >= (uint32_t)p->n;
}

void comm_peers_close(struct comm_peers *p)
{
    for (int i = 0; p && i < p->n; i++)
        close(p->fds[i].fd);
    if (p) {
        comm_bells_close(p->bells);
        if (p->load >= 0)
            close(p->load);
        free(p->fds);
        free(p->ranks);
    }
    free(p);
}
