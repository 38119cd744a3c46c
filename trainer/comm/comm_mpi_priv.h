/* comm_mpi_priv: declares what the MPI backend's groups (comm_mpi.c) and its engine
 * (comm_mpi_engine.c) share. */
#ifndef TRAINER_COMM_COMM_MPI_PRIV_H
#define TRAINER_COMM_COMM_MPI_PRIV_H

#include <mpi.h>

#include "trainer/comm/comm_priv.h"

/* A group has far more tags than operations in flight, so numbers can be used again. The last tags
 * are for send_recvs and, in the world's range, for questions, answers and news. */
enum {
    COMM_MPI_TAGS = 1 << 10,
    COMM_TAG_MESSAGE = COMM_MPI_TAGS - 1,
    COMM_TAG_ASK = COMM_MPI_TAGS - 2,
    COMM_TAG_ANSWER = COMM_MPI_TAGS - 3,
    COMM_TAG_GONE = COMM_MPI_TAGS - 4,
    COMM_TAGS_NUMBERED = COMM_MPI_TAGS - 4, /* for the other operations, in turn */
};

/* Holds the messages in flight of one direction of a comm_work. */
struct mpi_batch {
    MPI_Request *requests; /* MPI_REQUEST_NULL: done */
    int *peers;            /* group ranks */
    int n, open;
};

struct mpi_work {
    struct mpi_batch sends, recvs;
    bool reducing; /* true in the first phase of a reduction; false in an exchange */
    int tag;
    int slot;      /* of the group's scratch; -1: none */
    /* elements of a part that have been posted for sending; that were added up; that are coming
     * in */
    int64_t sent, got, arriving;
    struct comm_work *next; /* the next in flight */
};

struct mpi_group {
    int first_tag; /* no other group with two of these ranks has any of the COMM_MPI_TAGS */
    struct mpi_work works[COMM_WORKS + 1];
    unsigned sequence;  /* number of operations started, without send_recv */
    char *scratch;      /* [slots][size - 1][depth · COMM_MESSAGE_BYTES] */
    /* bytes at the start of each slot that are resident, divided by size - 1: as many as
     * reserved */
    int64_t part_bytes;
    int slots, depth;   /* depth: how many messages of a part are in flight at a time */
    bool slot_taken[COMM_WORKS];
    int *indices;       /* for MPI_Testsome, as many as a batch has */
    MPI_Status *statuses;
};

/* Returns the bytes of address space of a slot. */
static inline int64_t comm_mpi_slot_bytes(const struct comm *c, int64_t depth)
{
    return (c->size - 1) * depth * COMM_MESSAGE_BYTES;
}

int comm_mpi_checked(struct comm *c, int status, const char *what, struct err *err);
int comm_mpi_start(struct comm *c, struct comm_work *w, struct err *err);
int comm_mpi_wait(struct comm *c, struct comm_work *w, struct err *err);
void comm_mpi_progress(struct comm *c);

/* ---- comm_mpi_ask.c ---- */
int comm_mpi_ask(struct comm *world, const struct comm_ask *ask);
bool comm_mpi_answer(struct comm *world);
/* Sets all to whether all of n requests have ended; those that have are MPI_REQUEST_NULL then.
 * Returns false if MPI failed. */
bool comm_mpi_all_came(int n, MPI_Request *requests, int *all);

/* ---- comm_mpi_news.c ---- */
/* Tells the ranks of other hosts which rank of this host has ended without a word, if one has and
 * it is this rank that tells it. It waits a moment until they have heard it. */
void comm_mpi_news_tell(const struct comm_world *world);
/* Hears what ranks of other hosts tell; comm_peers_gone finds it from then on. */
void comm_mpi_news_hear(struct comm_world *world);

#endif
