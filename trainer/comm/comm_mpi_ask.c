/* Asks and answers, between ranks that wait, how many operations a rank has queued in one of the
 * plane's communicators (comm_plane.h). A question and its answer are one message of the world
 * each. No rank waits for an answer longer than the question allows. Every rank that polls answers.
 * Messages that are still under way when the time is up keep their memory until the process ends,
 * which will be soon, because a rank is late.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "trainer/comm/comm_mpi_peers.h"
#include "trainer/comm/comm_mpi_priv.h"
#include "trainer/comm/comm_plane.h"

static const double nap_s = 1e-3;

/* A note is a question, which has the id of a communicator, or an answer, which also has the number
 * of operations queued in it. */
struct note { uint64_t id; int64_t queued; };

/* Holds the notes of a rank that asks or answers. They are never freed, because MPI may still need
 * them. */
struct notes {
    struct note out, *in; /* in: [n] */
    MPI_Request *requests; /* [2 n] */
};

static struct notes *notes_new(int n)
{
    struct notes *k = calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->in = calloc((size_t)n + 1, sizeof *k->in);
    k->requests = calloc(2 * (size_t)n + 1, sizeof *k->requests);
    return k->in && k->requests ? k : NULL;
}

/* Sends the question to all ranks that are asked, and posts receives for their answers. */
static int question_post(struct comm *world, const struct comm_ask *ask, struct notes *k)
{
    int status = MPI_SUCCESS;
    for (int i = 0; i < 2 * ask->n; i++)
        k->requests[i] = MPI_REQUEST_NULL;
    for (int i = 0; i < ask->n && status == MPI_SUCCESS; i++) {
        status = MPI_Irecv(&k->in[i], sizeof k->in[i], MPI_BYTE, ask->ranks[i], COMM_TAG_ANSWER,
                           MPI_COMM_WORLD, &k->requests[i]);
        if (status == MPI_SUCCESS)
            status = MPI_Isend(&k->out, sizeof k->out, MPI_BYTE, ask->ranks[i], COMM_TAG_ASK,
                               MPI_COMM_WORLD, &k->requests[ask->n + i]);
        comm_bells_ring(comm_peers_bells(world->world->peers), ask->ranks[i]);
    }
    return status == MPI_SUCCESS ? 0 : -1;
}

/* Does what MPI_Testall would with MPI_STATUSES_IGNORE, of which GCC warns where MPICH's header
 * declares the parameter as an array. */
bool comm_mpi_all_came(int n, MPI_Request *requests, int *all)
{
    int came = 0;
    *all = 1;
    for (int i = 0; i < n; i++) {
        if (MPI_Test(&requests[i], &came, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
            *all = 0;
            return false;
        }
        *all = *all && came;
    }
    return true;
}

int comm_mpi_ask(struct comm *world, const struct comm_ask *ask)
{
    double until = clock_mono_s() + ask->seconds;
    struct notes *k = notes_new(ask->n);
    int all = 0, came;
    if (!k)
        return -1;
    k->out.id = ask->id;
    if (question_post(world, ask, k) < 0)
        return -1;
    while (!all && clock_mono_s() < until) {
        comm_mpi_answer(world); /* a rank that is asked may be asking, too */
        if (!comm_mpi_all_came(ask->n, k->requests, &all))
            break;
        clock_sleep_s(all ? 0 : nap_s);
    }
    for (int i = 0; i < ask->n; i++) {
        came = all;
        if (!all && MPI_Test(&k->requests[i], &came, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            came = 0;
        ask->answers[i] = came && k->in[i].id == ask->id ? k->in[i].queued : COMM_NO_ANSWER;
    }
    return 0;
}

/* Answers one question, if there is one. */
static bool question_answer(struct comm *world)
{
    struct note asked;
    struct notes *k;
    MPI_Status from;
    int there = 0;
    if (MPI_Iprobe(MPI_ANY_SOURCE, COMM_TAG_ASK, MPI_COMM_WORLD, &there, &from) != MPI_SUCCESS ||
        !there)
        return false;
    if (MPI_Recv(&asked, sizeof asked, MPI_BYTE, from.MPI_SOURCE, COMM_TAG_ASK, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE) != MPI_SUCCESS ||
        !(k = notes_new(0)))
        return false;
    k->out = (struct note){asked.id, comm_plane_queued(world->world->plane, asked.id)};
    MPI_Isend(&k->out, sizeof k->out, MPI_BYTE, from.MPI_SOURCE, COMM_TAG_ANSWER, MPI_COMM_WORLD,
              &k->requests[0]);
    return true;
}

bool comm_mpi_answer(struct comm *world)
{
    bool any = false;
    comm_mpi_news_hear(world->world);
    while (question_answer(world))
        any = true;
    return any;
}
