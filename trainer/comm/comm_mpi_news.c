/* Tells the ranks of other hosts that a rank has ended without a word, which only the ranks of its
 * own host can see. One of these tells it before it ends: the lowest that lives. Without that a
 * rank elsewhere would wait until its deadline, or until mpirun or srun ends it, and could not say
 * for whom. A host all of whose ranks have ended tells nothing.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "trainer/comm/comm_mpi_peers.h"
#include "trainer/comm/comm_mpi_priv.h"

/* The time that the others have to hear it, and the pause between two looks whether they have */
static const double heard_s = 2, nap_s = 1e-3;

/* Sends it to every rank of another host. A synchronous send ends when its receiver has it. */
static int news_send(const struct comm_world *world, const struct comm_gone *gone,
                     MPI_Request *sent)
{
    int n = 0;
    for (int r = 0; r < world->size; r++)
        if (comm_peers_elsewhere(world->peers, world->rank, r) &&
            MPI_Issend(gone, sizeof *gone, MPI_BYTE, r, COMM_TAG_GONE, MPI_COMM_WORLD,
                       &sent[n]) == MPI_SUCCESS)
            n++;
    return n;
}

void comm_mpi_news_tell(const struct comm_world *world)
{
    /* Neither is freed, because MPI may still need them; the process ends soon. */
    static struct comm_gone gone;
    MPI_Request *sent = NULL;
    if (!comm_peers_tells(world->peers, world->rank, &gone) ||
        !(sent = calloc((size_t)world->size, sizeof *sent)))
        return;
    int n = news_send(world, &gone, sent), all = n == 0;
    for (double until = clock_mono_s() + heard_s; !all && clock_mono_s() < until;) {
        if (!comm_mpi_all_came(n, sent, &all))
            return;
        clock_sleep_s(all ? 0 : nap_s);
    }
}

void comm_mpi_news_hear(struct comm_world *world)
{
    struct comm_gone gone;
    MPI_Status from;
    int there = 0;
    while (MPI_Iprobe(MPI_ANY_SOURCE, COMM_TAG_GONE, MPI_COMM_WORLD, &there, &from) ==
               MPI_SUCCESS &&
           there &&
           MPI_Recv(&gone, sizeof gone, MPI_BYTE, from.MPI_SOURCE, COMM_TAG_GONE, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE) == MPI_SUCCESS)
        comm_peers_told(world->peers, &gone);
}
