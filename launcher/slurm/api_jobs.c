#include "launcher/slurm/api.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/num.h"

/* Returns squeue's name for a state; the function below it does so for a reason. libslurm exports
 * these functions but does not declare them. */
extern char *slurm_job_state_string(uint32_t state);
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(24, 5, 0)
extern const char *slurm_job_state_reason_string(enum job_state_reason reason);
#define REASON_TEXT slurm_job_state_reason_string
#else
extern char *slurm_job_reason_string(enum job_state_reason reason);
#define REASON_TEXT slurm_job_reason_string
#endif

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
typedef slurm_step_id_t job_arg;
#define JOB_ARG(number) ((job_arg){.job_id = (number), .step_het_comp = NO_VAL, .step_id = NO_VAL})
#else
typedef uint32_t job_arg;
#define JOB_ARG(number) (number)
#endif

/* Hidden partitions are listed too, and only this cluster is asked and not its federation. */
enum { SHOW = SHOW_ALL | SHOW_LOCAL };

static const char *reason_of(const job_info_t *info)
{
    const char *reason = info->state_desc ? info->state_desc : REASON_TEXT(info->state_reason);
    return strcmp(reason, "None") == 0 ? "" : reason;
}

/* Returns when a job ends, Unix s; 0 for a running job without a time limit, whose end is
 * unknown. */
static double end_of(const job_info_t *info)
{
    return info->time_limit == INFINITE && info->end_time > time(NULL) ? 0 : (double)info->end_time;
}

static const char *handle_of(const job_info_t *info, struct arena *arena)
{
    return info->array_task_id == NO_VAL
               ? arena_printf(arena, "%u", (unsigned)info->job_id)
               : arena_printf(arena, "%u_%u", (unsigned)info->array_job_id,
                              (unsigned)info->array_task_id);
}

static int job_fill(const job_info_t *info, struct arena *arena, struct slurm_job *j,
                    struct err *err)
{
    *j = (struct slurm_job){
        .id = arena_printf(arena, "%u", (unsigned)info->job_id),
        .handle = handle_of(info, arena),
        .state = arena_strdup(arena, slurm_job_state_string((uint32_t)info->job_state)),
        .base = arena_strdup(arena,
                             slurm_job_state_string((uint32_t)info->job_state & JOB_STATE_BASE)),
        .reason = arena_strdup(arena, reason_of(info)),
        .comment = arena_strdup(arena, info->comment ? info->comment : ""),
        .name = arena_strdup(arena, info->name ? info->name : ""),
        .restarts = (int)info->restart_cnt,
        .nodes = (int)info->num_nodes,
        .cores = (int)info->num_cpus,
        .nice = (int)info->nice - NICE_OFFSET,
        .exit_status = (int)info->exit_code,
        .requeue = info->requeue == 1,
        .submitted_at = (double)info->submit_time,
        .started_at = (double)info->start_time,
        .ended_at = end_of(info),
        .preempted_at = (double)info->preempt_time,
        .partition = arena_strdup(arena, info->partition ? info->partition : ""),
        .cwd = arena_strdup(arena, info->work_dir ? info->work_dir : "")};
    bool all = j->id && j->handle && j->state && j->base && j->reason && j->comment && j->name &&
               j->partition && j->cwd;
    return all ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

static int job_parse(const char *id, job_arg *out, struct err *err)
{
    int64_t number = 0;
    if (num_parse_i64(id, "the job's id", &number, NULL) < 0 || number < 1 || number > UINT32_MAX)
        return err_set(err, ERR_NOT_FOUND, "'%s' is not the id of a job", id);
    *out = JOB_ARG((uint32_t)number);
    return 0;
}

static int load(const char *id, job_info_msg_t **out, struct err *err)
{
    job_arg job = JOB_ARG(0);
    if (!id)
        return slurm_load_job_user(out, getuid(), SHOW) == SLURM_SUCCESS ? 0
                                                                         : api_error("jobs", err);
    int rc;
    if ((rc = job_parse(id, &job, err)) < 0)
        return rc;
    return slurm_load_job(out, job, SHOW) == SLURM_SUCCESS ? 0 : api_error("job", err);
}

int api_jobs(const char *id, struct arena *arena, struct slurm_jobs *out, struct err *err)
{
    job_info_msg_t *msg = NULL;
    int rc = load(id, &msg, err);
    if (rc < 0)
        return rc;
    struct slurm_jobs jobs = {.v = arena_array(arena, msg->record_count + 1, sizeof *jobs.v)};
    if (!jobs.v) {
        rc = err_set(err, ERR_NOMEM, "out of memory");
        goto out;
    }
    for (uint32_t i = 0; i < msg->record_count; i++)
        if ((rc = job_fill(&msg->job_array[i], arena, &jobs.v[jobs.n++], err)) < 0)
            goto out;
    *out = jobs;
out:
    slurm_free_job_info_msg(msg);
    return rc;
}

/* Requeues a task of an array, and none of its other tasks. */
static int task_requeue(const char *handle, struct err *err)
{
    job_array_resp_msg_t *tasks = NULL;
    if (slurm_requeue2((char *)handle, 0, &tasks) != SLURM_SUCCESS)
        return api_error("requeue", err);
    errno = tasks && tasks->job_array_count > 0 ? (int)tasks->error_code[0] : 0;
    int rc = errno ? api_error("requeue", err) : 0;
    slurm_free_job_array_resp(tasks);
    return rc;
}

int api_requeue(const char *handle, struct err *err)
{
    job_arg job = JOB_ARG(0);
    int rc;
    if (strchr(handle, '_')) /* for a plain id libslurm 22.05 leaks the answer of slurm_requeue2 */
        return task_requeue(handle, err);
    if ((rc = job_parse(handle, &job, err)) < 0)
        return rc;
    return slurm_requeue(job, 0) == SLURM_SUCCESS ? 0 : api_error("requeue", err);
}
