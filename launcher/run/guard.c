#include "launcher/run/guard.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/num.h"
#include "launcher/run/successor.h"
#include "launcher/run/duty.h"

/* Runs the agent in the child process. Signals stay blocked, and the agent reads them from a
 * descriptor. The agent's exit status becomes the guard's; its error is logged here. */
static void agent_live(const struct agent_conf *conf, pid_t parent)
{
    struct err err = {0};
    int exit_code = 5;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
        _exit(5);
    int rc = agent_run(conf, &exit_code, &err);
    if (rc < 0)
        log_msg(LOG_ERROR, "%s", err.text);
    fflush(NULL);
    _exit(rc < 0 ? err_exit_code(rc) : exit_code);
}

/* Forwards each signal to the child until the child has ended; returns its wait status. */
static int agent_wait(pid_t child, const sigset_t *signals)
{
    int status;
    while (waitpid(child, &status, WNOHANG) == 0) {
        int signo = sigwaitinfo(signals, NULL);
        if (signo > 0 && signo != SIGCHLD)
            kill(child, signo);
    }
    return status;
}

/* Waits a second for disk space; returns the signal of a stop notice that came meanwhile, 0 if none
 * did. */
static int room_wait(const sigset_t *signals)
{
    static const struct timespec pause = {.tv_sec = 1};
    int signo = sigtimedwait(signals, NULL, &pause);
    return signo <= 0 || signo == SIGCHLD ? 0 : signo;
}

/* Records the end of the dead agent's attempt. If the disk has no room for that it waits, because
 * nobody else would bring the run back; at a stop notice it requeues the job, and a file's name
 * tells the end. */
static int mourn(struct attempt *attempt, struct duty *duty, int signo, enum sched_end why,
                 const sigset_t *signals, struct err *err)
{
    int rc = attempt_mourn(attempt, duty->fold, signo, why, err), notice = 0;
    if (rc == ERR_FULL)
        log_msg(LOG_WARN, "the end of a killed agent is not written yet: %s", err->text);
    while (rc == ERR_FULL && duty->sched && (notice = room_wait(signals)) == 0)
        rc = attempt_mourn(attempt, duty->fold, signo, why, err);
    if (rc == ERR_FULL) {
        attempt_mourn_name(attempt, duty->fold, signo, why);
        duty_give_back(duty, attempt, notice == SIGTERM);
    }
    return rc;
}

/* Loads the settings of the dead agent's run. The run's file system may be unmounted for a repair:
 * then this waits for it, and requeues the job at a stop notice. */
static int duty_await(const struct agent_conf *conf, const struct trainer_kind *kind,
                      struct attempt *attempt, struct duty *duty, const sigset_t *signals,
                      struct err *err)
{
    int rc, notice = 0;
    if ((rc = duty_job(duty, kind, conf->home, err)) < 0)
        return rc;
    for (;;) {
        if ((rc = attempt_folder_check(attempt, err)) == 0) {
            rc = duty_load(duty, conf->run_dir, conf->home, err);
            if (rc == 0 || file_exists(conf->run_dir)) /* otherwise the folder vanished while it was
                                                        * read */
                return rc;
        } else if (rc != ERR_FULL || !duty->sched) {
            return rc;
        }
        if ((notice = room_wait(signals)) != 0) {
            if (run_fold_open(conf->run_dir, &duty->fold, NULL) == 0)
                duty_give_back(duty, attempt, notice == SIGTERM);
            return rc;
        }
    }
}

/* Records the end of the dead agent's attempt, and brings the run back if its budget allows another
 * attempt. */
static int aftermath(const struct agent_conf *conf, const struct trainer_kind *kind, int signo,
                     const sigset_t *signals, int *exit_code, struct err *err)
{
    struct attempt attempt;
    struct duty duty = {0};
    char why[STATE_TEXT_BYTES];
    struct sched_ending ending = {0};
    int rc;
    attempt_init(&attempt, conf->run_dir, &duty.self);
    if ((rc = duty_await(conf, kind, &attempt, &duty, signals, err)) < 0)
        goto out;
    duty.teller = &attempt;
    duty_ending(&duty, false, &ending);
    if ((rc = run_fold_open(conf->run_dir, &duty.fold, err)) < 0)
        goto out;
    if ((rc = mourn(&attempt, &duty, signo, ending.why, signals, err)) < 0)
        goto out;
    if ((rc = run_fold_renew(duty.fold, err)) < 0)
        goto out;
    enum run_next next = run_state_next(run_fold_state(duty.fold), &duty.budget, why);
    log_msg(LOG_WARN, "the agent died of signal %d%s%s", signo, *why ? ": " : "", why);
    if (attempt.log)
        successor_settle(conf, &duty, &attempt, duty.fold, next);
    *exit_code = next == RUN_NEXT_DONE ? 0 : next == RUN_NEXT_REQUEUE ? 75 : 1;
out:
    attempt_release(&attempt);
    duty_requeue_settle(&duty);
    run_fold_close(duty.fold);
    duty_release(&duty);
    return rc;
}

/* ---- the daemon that reports this process's end to the scheduler ---- */

/* Returns the pid of the slurmstepd that started this process as the batch process of a Slurm job;
 * 0 if the process was started by hand or in a step. */
static pid_t step_daemon(void)
{
    const char *pid = getenv("SLURM_TASK_PID");
    int64_t task = 0;
    bool in_batch = getenv("SLURM_JOB_ID") && !getenv("SLURM_STEP_ID");
    if (!in_batch || !pid || num_parse_i64(pid, "SLURM_TASK_PID", &task, NULL) < 0 ||
        task != getpid())
        return 0;
    return getppid();
}

/* Ends the job at the scheduler, because Slurm does not learn of the batch process's end after the
 * process's slurmstepd was killed. It is called when the run is over; otherwise the job has been
 * requeued. */
static void job_end(const struct agent_conf *conf, const struct trainer_kind *kind)
{
    struct duty duty = {0};
    struct err err = {0};
    log_msg(LOG_WARN, "the step daemon above this job's batch process was killed: "
                      "the job is ended at the scheduler");
    if (duty_job(&duty, kind, conf->home, &err) < 0)
        log_msg(LOG_WARN, "the job is left in the queue until its time limit ends it: %s",
                err.text);
    else
        duty_end(&duty);
    duty_release(&duty);
}

static bool is_over(int exit_code)
{
    return exit_code == 0 || exit_code == 1; /* see agent.h */
}

int guard_run(const struct agent_conf *conf, int *exit_code, struct err *err)
{
    /* The kind is looked up now, because the run's folder may vanish later. */
    const struct trainer_kind *kind = duty_kind(conf->run_dir);
    pid_t daemon = step_daemon();
    sigset_t signals;
    sigemptyset(&signals);
    for (const int *s = (const int[]){SIGTERM, SIGUSR1, SIGUSR2, SIGINT, SIGHUP, SIGCHLD, 0}; *s;
         s++)
        sigaddset(&signals, *s);
    if (sigprocmask(SIG_BLOCK, &signals, NULL) < 0)
        return err_set_errno(err, ERR_IO, "cannot block signals");
    signal(SIGPIPE, SIG_IGN); /* the reader of our output may end first; the trainer gets the
                               * default action back */
    fflush(NULL);
    pid_t parent = getpid(), child = fork();
    if (child < 0)
        return err_set_errno(err, ERR_ENV, "cannot start the agent's process");
    if (child == 0)
        agent_live(conf, parent);
    int status = agent_wait(child, &signals), rc;
    if (!WIFSIGNALED(status))
        *exit_code = WEXITSTATUS(status);
    else if ((rc = aftermath(conf, kind, WTERMSIG(status), &signals, exit_code,
                             err)) < 0)
        return rc;
    if (is_over(*exit_code) && daemon && getppid() != daemon)
        job_end(conf, kind);
    return 0;
}
