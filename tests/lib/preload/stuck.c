/* This library is preloaded into the ranks of a world. From the moment when the file
 * "$REEL_STUCK/testsome" exists, MPI_Testsome no longer returns on rank 0 of the world; with the
 * file "abort" MPI_Abort does not return on any rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int PMPI_Testsome(int n, void *requests, int *done, int *indices, void *statuses);
int PMPI_Abort(void *comm, int code);

static void hold_if(const char *call)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("REEL_STUCK"), call);
    while (access(path, F_OK) == 0)
        sleep(1);
}

int MPI_Testsome(int n, void *requests, int *done, int *indices, void *statuses)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (rank && strcmp(rank, "0") == 0)
        hold_if("testsome");
    return PMPI_Testsome(n, requests, done, indices, statuses);
}

int MPI_Abort(void *comm, int code)
{
    hold_if("abort");
    return PMPI_Abort(comm, code);
}
