/* A controller that does not answer is waited for, which must not look like a program that
 * hangs. */
#include <stdatomic.h>

#include "base/log.h"
#include "launcher/sched/slurm_rpc.h"

static atomic_bool told; /* several threads of a program ask */

void slurm_slow_tell(void)
{
    if (!told)
        log_msg(LOG_WARN,
                "Slurm's controller does not answer: waiting for it, %d s at most for each "
                "question", SLURM_DEADLINE_S);
    told = true;
}

void slurm_slow_settle(int rc)
{
    told = told && rc == ERR_TEMP;
}
