#include "base/log.h"
#include "base/program.h"
#include "trainer/cmd/main.h"
#include "trainer/ops/simd.h"

int train_print(const struct str *text, struct err *err)
{
    return program_print(text, err);
}

/* Makes all ranks compute with the same vectors. Where two ranks compute the same replica, their
 * results must be equal to the last bit, whichever hosts they run on. */
static int simd_agree(struct comm *world, struct err *err)
{
    enum simd simd = SIMD_GENERIC;
    int rc;
    if ((rc = comm_agree(world, simd_choose(&simd, err), err)) < 0)
        return rc;
    double widest = -(double)simd;
    if ((rc = comm_max(world, &widest, 1, err)) < 0)
        return rc;
    simd_limit((enum simd)-widest);
    return 0;
}

int train_world_open(int *argc, char ***argv, struct comm **out, struct err *err)
{
    int rc = comm_mpi_started() ? comm_mpi_open(argc, argv, out, err) : comm_self_open(out, err);
    if (rc < 0)
        return rc;
    if ((rc = simd_agree(*out, err)) < 0)
        comm_close(*out);
    return rc;
}

void train_sentence_say(const struct comm *world, struct err *err)
{
    /* In a broken world rank 0 may be the rank that has gone. */
    if ((world->rank == 0 || world->broken) && err->text[0])
        log_msg(LOG_ERROR, "%s", err->text);
    err->text[0] = 0;
}
