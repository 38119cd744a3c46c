/* This file warns the user that the program waits for a controller that does not answer, so that it
 * does not seem to hang. */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/num.h"
#include "launcher/sched/slurm_rpc.h"

enum { WAIT_S = 60, WAIT_MOST_S = 3600 };

static atomic_bool told; /* atomic because several threads of a program send requests */

static int wait_take(int64_t *s, struct err *err)
{
    const char *text = getenv(SLURM_WAIT_ENV);
    int rc;
    *s = WAIT_S;
    if (text && *text && (rc = num_parse_i64(text, SLURM_WAIT_ENV, s, err)) < 0)
        return rc;
    if (*s < 1 || *s > WAIT_MOST_S)
        return err_set(err, ERR_INPUT, "%s is %s: give 1 to %d seconds", SLURM_WAIT_ENV, text,
                       WAIT_MOST_S);
    return 0;
}

int slurm_wait_check(struct err *err)
{
    int64_t s;
    return wait_take(&s, err);
}

int slurm_wait_s(void)
{
    int64_t s;
    return wait_take(&s, NULL) < 0 ? WAIT_S : (int)s;
}

void slurm_slow_tell(void)
{
    if (!told)
        log_msg(LOG_WARN,
                "Slurm's controller does not answer: waiting for it, %d s at most for each "
                "question", slurm_wait_s());
    told = true;
}

void slurm_slow_settle(int rc)
{
    told = told && rc == ERR_TEMP;
}
