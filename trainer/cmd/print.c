#include <stdio.h>

#include "base/log.h"
#include "trainer/cmd/main.h"

int train_print(const struct str *text, struct err *err)
{
    int rc = str_check(text, err);
    if (rc == 0 && (fwrite(text->p, 1, text->len, stdout) != text->len || fflush(stdout) != 0))
        rc = err_set_errno(err, ERR_IO, "cannot write to standard output");
    return rc;
}

int train_world_open(int *argc, char ***argv, struct comm **out, struct err *err)
{
    return comm_mpi_started() ? comm_mpi_open(argc, argv, out, err) : comm_self_open(out, err);
}

void train_sentence_say(const struct comm *world, struct err *err)
{
    if ((world->rank == 0 || world->broken) && err->text[0]) /* rank 0 may be the one that is gone */
        log_msg(LOG_ERROR, "%s", err->text);
    err->text[0] = 0;
}
