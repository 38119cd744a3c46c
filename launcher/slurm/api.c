#include "launcher/slurm/api.h"

#include <errno.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(21, 8, 0)
#error "reel-slurm needs Slurm 21.08 or later; the commands serve older ones: build with SLURM=0"
#endif

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
#define QUEUE_FULL ESLURM_MAX_JOB_COUNT
#else
#define QUEUE_FULL ESLURM_ERROR_ON_DESC_TO_RECORD_COPY
#endif

/* ---- the library ---- */

const char *api_release(void)
{
    static char text[32];
    snprintf(text, sizeof text, "%d.%02d.%d", SLURM_VERSION_MAJOR(SLURM_VERSION_NUMBER),
             SLURM_VERSION_MINOR(SLURM_VERSION_NUMBER), SLURM_VERSION_MICRO(SLURM_VERSION_NUMBER));
    return text;
}

/* Returns the version of libslurm (API_CURRENT of Slurm's META file) that belongs to a release; 0
 * for a release newer than these. */
static int library_of(int release)
{
    static const struct {
        int release, soname;
    } known[] = {{2108, 37}, {2205, 38}, {2302, 39}, {2311, 40}, {2405, 41},
                 {2411, 42}, {2505, 43}, {2511, 44}, {2605, 45}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].release == release)
            return known[i].soname;
    return 0;
}

int api_open(struct err *err)
{
    int want = library_of(SLURM_VERSION_MAJOR(SLURM_VERSION_NUMBER) * 100 +
                          SLURM_VERSION_MINOR(SLURM_VERSION_NUMBER));
    int have = (int)SLURM_VERSION_MAJOR(slurm_api_version());
    const char *clusters = getenv("SLURM_CLUSTERS");
    if (want && have != want)
        return err_set(
            err, ERR_ENV,
            "reel-slurm was compiled for Slurm %s, which has libslurm %d, and finds libslurm %d: "
            "build it again where it is to run",
            api_release(), want, have);
    if (clusters && *clusters)
        return err_set(err, ERR_ENV,
                       "SLURM_CLUSTERS is '%s' and reel-slurm asks the cluster of SLURM_CONF only: "
                       "unset it, or set REEL_SLURM_VIA=commands",
                       clusters);
    slurm_init(NULL);
    return 0;
}

/* ---- errors ---- */

/* Returns the class of error that follows from errno after a failed call (slurm_errno.h). Codes of
 * the system and of the transport (from 1000 on; packets from 5000 on, authentication from 6000 on)
 * leave open whether the controller accepted the request. The others are the controller's
 * answer. */
static int class_of(int code)
{
    switch (code) {
    case SLURM_PROTOCOL_VERSION_ERROR:
        return ERR_ENV;
    case ESLURM_INVALID_JOB_ID:
        return ERR_NOT_FOUND;
    case ESLURM_ALREADY_DONE:
    case ESLURM_DISABLED:
    case ESLURM_JOB_PENDING:
    case ESLURM_BATCH_ONLY:
    case ESLURM_JOB_STARTED:
    case ESLURM_JOB_FINISHED:
    case ESLURM_JOB_NOT_RUNNING:
    case ESLURM_JOB_NOT_PENDING_NOR_RUNNING:
        return ERR_STATE;
    case ESLURM_TRANSITION_STATE_NO_UPDATE:
    case ESLURM_IN_STANDBY_MODE:
    case ESLURM_IN_STANDBY_USE_BACKUP:
    case ESLURM_WRITING_TO_FILE:
    case ESLURM_NODES_BUSY: /* after these two codes, sbatch waits and tries again */
    case QUEUE_FULL:
        return ERR_TEMP;
    case ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE:
    case ESLURM_TOO_MANY_REQUESTED_CPUS:
    case ESLURM_INVALID_NODE_COUNT:
    case ESLURM_INVALID_CPU_COUNT:
        return ERR_LIMIT;
    default:
        return code < ESLURM_INVALID_PARTITION_NAME || (code >= 5000 && code < 7000) ? ERR_TEMP
                                                                                     : ERR_INPUT;
    }
}

int api_error(const char *what, struct err *err)
{
    int code = errno;
    return err_set(err, class_of(code), "%s: %s", what, slurm_strerror(code));
}

/* ---- acting on a job ---- */

int api_signal(const char *handle, int signo, bool all, struct err *err)
{
    int rc = slurm_kill_job2(handle, (uint16_t)signo, all ? KILL_FULL_JOB : KILL_JOB_BATCH, NULL);
    return rc == SLURM_SUCCESS ? 0 : api_error("signal", err);
}

/* Cancels a job. As with scancel, a job that does not exist any more counts as cancelled. */
int api_cancel(const char *handle, struct err *err)
{
    int rc = slurm_kill_job2(handle, SIGKILL, 0, NULL);
    return rc == SLURM_SUCCESS || errno == ESLURM_ALREADY_DONE || errno == ESLURM_INVALID_JOB_ID
               ? 0
               : api_error("cancel", err);
}
