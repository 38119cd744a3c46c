#include "launcher/submit/waits.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lease.h"
#include "launcher/sched/sched.h"
#include "launcher/state/home.h"
#include "launcher/state/space.h"

/* The shared answer of the scheduler, and the logs of other hosts, are at most this old, in
 * seconds. */
static const double UNLISTED_S = 60;
/* If an attempt has not begun this long after its job's start, it waits for something. */
static const double UNBEGUN_S = 30;

/* Tells whether the job is held. squeue(1) has "JobHeldUser", "JobHeldAdmin", "job requeued in held
 * state", "launch failed requeued held". */
static bool is_held(const char *reason)
{
    return strstr(reason, "held") || strstr(reason, "Held");
}

/* Formats why a job waits, from the scheduler's reason. */
static void reason_format(const char *kind, const char *job_id, const char *reason,
                          char text[STATE_TEXT_BYTES])
{
    if (strcmp(kind, "slurm") == 0 && is_held(reason))
        snprintf(text, STATE_TEXT_BYTES,
                 "job %.20s is held and does not start by itself (%.60s): where a node's prolog "
                 "failed, see its slurmd's log; then 'scontrol release %.20s'",
                 job_id, reason, job_id);
    else
        snprintf(text, STATE_TEXT_BYTES, "job %.20s waits: %.160s", job_id, reason);
}

/* ---- the job that runs the run ---- */

struct look {
    const char *home;
    const struct run_state *s;
    const struct run_budget *budget;
    /* The newest attempt, if its job still has the run: the attempt has not ended, or its job was
     * requeued. NULL: none. Another job may have been submitted since, and left the run to this
     * one. */
    const struct run_attempt *holder;
    struct sched *sched;
    struct sched_jobs jobs;
};

/* Tells whether to ask the scheduler about the run: only if the run is to go on, and only for the
 * run's owner, because a scheduler lists a user's own jobs only. */
static bool is_asked_about(const struct look *k)
{
    static const char *const words[] = {"queued", "waiting", "starting", "training", "stopping"};
    char dir[LIMIT_PATH_BYTES];
    struct stat st;
    bool open = false;
    home_run_dir(k->home, k->s->run, dir);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        open |= strcmp(run_state_word(k->s, k->budget), words[i]) == 0;
    return open && k->s->job_id[0] && strcmp(k->s->sched, "none") != 0 && stat(dir, &st) == 0 &&
           st.st_uid == getuid();
}

static int look_ask(struct look *k, struct err *err)
{
    const char *ids[] = {k->s->job_id, k->holder ? k->holder->job_id : "", NULL};
    struct sched_filter filter = {.ids = ids};
    int rc;
    if ((rc = sched_open(k->s->sched, k->home, &k->sched, err)) < 0)
        return rc;
    return sched_poll(k->sched, &filter, &k->jobs, err);
}

/* Asks the scheduler, unless it did not answer an earlier request. */
static int look_ask_once(struct look *k, struct waits_silence *silence, struct err *err)
{
    if (silence && silence->said[0] && strcmp(silence->kind, k->s->sched) == 0)
        return err_set(err, ERR_TEMP, "%s", silence->said);
    int rc = look_ask(k, err);
    if (silence && rc == ERR_TEMP) {
        snprintf(silence->kind, sizeof silence->kind, "%s", k->s->sched);
        snprintf(silence->said, sizeof silence->said, "%s", err->text);
    }
    return rc;
}

/* Finds the run's job. A job with our id and another token belongs to another submission. */
static const struct sched_job *job_find(const struct look *k, const char *id, const char *token)
{
    const struct sched_job *job = id[0] ? sched_jobs_find(&k->jobs, id) : NULL;
    return job && token[0] && strcmp(job->token, token) != 0 ? NULL : job;
}

static bool lives(const struct sched_job *job) { return job && !sched_state_ended(job->state); }

/* ---- what to say about the job ---- */

static bool is_dying(const struct look *k, const struct sched_job *job)
{
    struct sched_ending ending;
    return job->state == SCHED_STOPPING &&
           sched_ending_of(k->sched, job->id, k->s->run, &ending, NULL) == 0 &&
           ending.why == SCHED_END_CANCELLED;
}

/* Tells whether the job runs without an attempt: the newest attempt is of another job, or of an
 * earlier execution of this one. */
static bool is_idle(const struct look *k, const struct sched_job *job)
{
    const struct run_state *s = k->s;
    const struct run_attempt *last = s->n_attempts ? &s->attempts[s->n_attempts - 1] : NULL;
    bool begun = last && strcmp(last->job_id, job->id) == 0 && last->restart >= job->restarts;
    bool lost = s->claimed > (last ? last->number : 0); /* an attempt has begun, and its log is
                                                         * lost */
    return job->state == SCHED_RUNNING && !begun && !lost;
}

/* Formats why a running job has not begun an attempt. If the disk shows no reason, as with a quota,
 * the text stays empty until UNBEGUN_S after the job's start. */
static void idle_format(const struct look *k, const struct sched_job *job,
                        char text[STATE_TEXT_BYTES])
{
    char dir[LIMIT_PATH_BYTES];
    const char *shut = space_shut(home_run_dir(k->home, k->s->run, dir));
    if (*shut)
        snprintf(text, STATE_TEXT_BYTES,
                 "job %.20s runs and its attempt does not begin, for '%.300s' %s: it begins as "
                 "soon as that is mended", job->id, dir, shut);
    else if (job->started_at > 0 && clock_wall_s() - job->started_at > UNBEGUN_S)
        snprintf(text, STATE_TEXT_BYTES,
                 "job %.20s runs and its attempt has not begun: its output says why, a quota may "
                 "be used up", job->id);
}

/* Tells whether the run's agent was killed on this host. A single look cannot tell that of an agent
 * on another host. */
static bool is_agent_gone(const char *dir)
{
    char path[LIMIT_PATH_BYTES];
    struct lease_watch once = {.quiet_s = 0};
    snprintf(path, sizeof path, "%.4000s/claims/lock", dir);
    return !lease_lives(&once, path, LEASE_SILENT_S);
}

/* Formats what a running job may wait for if its folder cannot be written and its attempt has no
 * recorded end: the guard of a killed agent waits to record the end, and so may an agent whose
 * trainer has ended. */
static void mute_format(const struct look *k, const struct sched_job *job,
                        char text[STATE_TEXT_BYTES])
{
    char dir[LIMIT_PATH_BYTES];
    const char *shut = space_shut(home_run_dir(k->home, k->s->run, dir));
    if (*shut && is_agent_gone(dir))
        snprintf(text, STATE_TEXT_BYTES,
                 "job %.20s waits: its agent was killed, and the guard cannot write that down, for "
                 "'%.200s' %s: it does, and the run goes on, as soon as that is mended",
                 job->id, dir, shut);
    else if (*shut)
        snprintf(text, STATE_TEXT_BYTES,
                 "job %.20s runs, and '%.200s' %s: if its attempt is over, the job waits to write "
                 "that down, and the run goes on as soon as that is mended", job->id, dir, shut);
}

/* Tells whether the job waits to run again without a recorded end of its last execution: its node
 * was lost, or all its processes were killed. */
static bool is_lost(const struct look *k, const struct sched_job *job)
{
    const struct run_attempt *last = k->holder;
    return (job->state == SCHED_PENDING || job->state == SCHED_REQUEUED) && last &&
           last->cause == CAUSE_NONE && strcmp(last->job_id, job->id) == 0 &&
           last->restart < job->restarts;
}

/* Returns the state's name for a run whose last execution ended without a record: "paused" or
 * "cancelled" if the owner asked for that, else `word`. */
static const char *over_word(const struct run_state *s, const char *word)
{
    return s->wish == WISH_PAUSE ? "paused" : s->wish == WISH_CANCEL ? "cancelled" : word;
}

/* Returns the name of the run's state, and formats what the live job waits for. */
static const char *alive_format(const struct look *k, const struct sched_job *job,
                                char text[STATE_TEXT_BYTES])
{
    const char *word = run_state_word(k->s, k->budget);
    bool lost = is_lost(k, job);
    if (job->state == SCHED_SUSPENDED) {
        snprintf(text, STATE_TEXT_BYTES,
                 "job %.20s is suspended at the scheduler: nothing of it runs until it is "
                 "resumed%s",
                 job->id, strcmp(k->s->sched, "slurm") == 0 ? " (scontrol resume)" : "");
        return "suspended";
    }
    bool waits = lost || strcmp(word, "queued") == 0 || strcmp(word, "waiting") == 0;
    if ((job->state == SCHED_PENDING || job->state == SCHED_REQUEUED) && waits && job->reason[0])
        reason_format(k->s->sched, job->id, job->reason, text);
    else if (is_idle(k, job))
        idle_format(k, job, text);
    else if (job->state == SCHED_RUNNING && k->holder && k->holder->cause == CAUSE_NONE)
        mute_format(k, job, text);
    else if (is_dying(k, job))
        snprintf(text, STATE_TEXT_BYTES, "job %.20s is being cancelled at the scheduler", job->id);
    return lost ? over_word(k->s, "waiting") : word;
}

/* Formats that the job is gone. job: its last state at the scheduler; NULL: it is not listed. */
static void gone_format(const struct run_state *s, const struct sched_job *job,
                        char text[STATE_TEXT_BYTES])
{
    char then[LIMIT_NAME_BYTES + 64];
    snprintf(then, sizeof then, "'reel %s %.200s' lets the run go on",
             s->wish == WISH_PAUSE ? "resume" : "retry", s->name);
    if (s->wish != WISH_PAUSE && !s->job_token[0]) /* a wrapped one */
        snprintf(then, sizeof then, "the run goes on when its job script is submitted again");
    if (!job)
        snprintf(text, STATE_TEXT_BYTES, "job %.20s is not known to the scheduler any more: %s",
                 s->job_id, then);
    else if (job->state == SCHED_CANCELLED)
        snprintf(text, STATE_TEXT_BYTES, "job %.20s was cancelled at the scheduler: %s", job->id,
                 then);
    else
        snprintf(text, STATE_TEXT_BYTES, "job %.20s is over (%s) and the run is not: %s", job->id,
                 sched_state_name(job->state), then);
}

/* Tells whether the scheduler should list the job by now. A log may name a job before it is listed,
 * and jobs of "local" are listed on their own host only. */
static bool is_missed(const struct look *k)
{
    double silent_s = fabs(clock_wall_s() - k->s->last_event_at);
    return strcmp(k->s->sched, "local") != 0 && silent_s >= fmin(k->sched->absence_s, UNLISTED_S);
}

/* Tells whether the logs still give the same state: an agent records the end before its job ends,
 * and may have done so since the logs were read. */
static bool is_still_so(const struct look *k)
{
    char dir[LIMIT_PATH_BYTES];
    struct run_state now;
    run_state_init(&now);
    home_run_dir(k->home, k->s->run, dir);
    bool same = run_state_load(dir, &now, NULL) == 0 && now.n_attempts == k->s->n_attempts &&
                strcmp(now.job_id, k->s->job_id) == 0;
    if (same)
        same = strcmp(run_state_word(&now, k->budget), run_state_word(k->s, k->budget)) == 0;
    run_state_release(&now);
    return same;
}

/* Returns the name of the run's state, and formats what there is to say about its job. */
static const char *look_format(const struct look *k, char text[STATE_TEXT_BYTES])
{
    const struct sched_job *newest = job_find(k, k->s->job_id, k->s->job_token);
    const struct run_attempt *holder = k->holder;
    const struct sched_job *running = holder ? job_find(k, holder->job_id, holder->token) : NULL;
    if (lives(running) || lives(newest))
        return alive_format(k, lives(running) ? running : newest, text);
    if (!(newest || is_missed(k)) || !is_still_so(k))
        return run_state_word(k->s, k->budget);
    gone_format(k->s, newest, text);
    return over_word(k->s, "interrupted");
}

bool waits_for_owner(const struct run_state *s, const struct run_budget *budget)
{
    return strcmp(s->sched, "none") == 0 && run_state_next(s, budget, NULL) == RUN_NEXT_REQUEUE;
}

/* Tells whether the process that ran the run outside of any job is gone, without a recorded end. */
static bool is_left_by_hand(const struct look *k)
{
    char dir[LIMIT_PATH_BYTES];
    return strcmp(k->s->sched, "none") == 0 && k->holder && k->holder->cause == CAUSE_NONE &&
           is_agent_gone(home_run_dir(k->home, k->s->run, dir)) && is_still_so(k);
}

/* Formats how a run without a scheduler is brought back. Returns whether the process that ran it is
 * gone. */
static bool owner_format(const struct look *k, char text[STATE_TEXT_BYTES])
{
    bool left = is_left_by_hand(k);
    if (left || waits_for_owner(k->s, k->budget))
        snprintf(text, STATE_TEXT_BYTES,
                 "%snothing brings it back by itself: give its 'reel wrap' command again, with "
                 "--name %.200s",
                 left ? "its process was killed, and " : "", k->s->name);
    return left;
}

const char *waits_why(const char *home, const struct run_state *s, const struct run_budget *budget,
                      struct waits_silence *silence, char text[STATE_TEXT_BYTES])
{
    struct look k = {.home = home, .s = s, .budget = budget};
    struct err err = {0};
    const struct run_attempt *last = s->n_attempts ? &s->attempts[s->n_attempts - 1] : NULL;
    k.holder = last && (last->cause == CAUSE_NONE || last->requeued_at > 0) ? last : NULL;
    text[0] = '\0';
    const char *word = owner_format(&k, text) ? over_word(s, "interrupted")
                                              : run_state_word(s, budget);
    if (!is_asked_about(&k))
        return word;
    if (look_ask_once(&k, silence, &err) < 0)
        snprintf(text, STATE_TEXT_BYTES, "how job %.20s stands is not known: %.180s", s->job_id,
                 err.text);
    else
        word = look_format(&k, text);
    sched_jobs_release(&k.jobs);
    sched_close(k.sched);
    return word;
}
