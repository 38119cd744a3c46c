#include "launcher/state/attempt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/events.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/num.h"
#include "base/spawn.h"
#include "base/str.h"
#include "launcher/state/end_name.h"
#include "launcher/state/home.h"
#include "launcher/state/silent.h"
#include "launcher/state/space.h"

static const double LET_GO_S = 30; /* how long the previous attempt's agent may take to release the
                                    * lease */
static const double SKEW_S = 30;   /* largest difference between the clocks of two hosts */
enum { KEEP_BYTES = 16 << 20 };    /* for events that wait for room on the disk */

enum attempt_cause attempt_cause_of(const struct attempt_evidence *e)
{
    if (e->done)
        return CAUSE_DONE;
    if (e->cancel_requested || e->ending == SCHED_END_CANCELLED)
        return CAUSE_CANCEL;
    if (e->pause_requested)
        return CAUSE_PAUSE;
    if (e->hung)
        return CAUSE_HANG;
    if (e->node_lost || e->ending == SCHED_END_NODE_FAIL)
        return CAUSE_NODE_FAIL;
    if (e->ending == SCHED_END_TIME_LIMIT || (e->stop_requested && e->time_limit_near))
        return CAUSE_TIME_LIMIT;
    if (e->stop_requested || e->ending == SCHED_END_PREEMPTED || e->ending == SCHED_END_REQUEUED)
        return CAUSE_PREEMPT;
    if (e->is_short)
        return CAUSE_EARLY_EXIT;
    if (e->disk_full)
        return CAUSE_DISK_FULL;
    return e->ours && e->exit_code == err_exit_code(ERR_DIVERGED) ? CAUSE_DIVERGED : CAUSE_CRASH;
}

void attempt_ending_format(enum sched_end why, char *out, size_t size)
{
    const char *name = sched_end_name(why);
    snprintf(out, size, ", the job was being ended%s%s%s", *name ? " (" : "", name,
             *name ? ")" : "");
}

void attempt_told_format(const struct attempt *a, const struct run_attempt *told, bool failed,
                         bool ours, char out[ATTEMPT_ENDING_BYTES])
{
    bool speaks = told && told->failed[0];
    bool silent = told && !speaks && !told->done && !told->stopped; /* mpirun may have given 0 */
    char words[LAST_WORDS_BYTES] = "", log[LIMIT_PATH_BYTES], needed[32], left[32],
         space[SPACE_SAY_BYTES];
    out[0] = 0;
    if (told && told->disk_full && told->space.any && !run_attempt_low_bytes(told)) {
        space_say(told, space);
        snprintf(out, ATTEMPT_ENDING_BYTES, ": %s", space);
        return;
    }
    if (told && told->disk_full && told->space.any) {
        snprintf(out, ATTEMPT_ENDING_BYTES,
                 ": a checkpoint needs %s and the run's disk has %s left",
                 num_format_bytes(told->space.needed_bytes, needed, sizeof needed),
                 num_format_bytes(told->space.free_bytes, left, sizeof left));
        return;
    }
    if (ours && (failed || silent) && (!speaks || last_words_blame_mpi(told->failed)))
        last_words_gone(attempt_output_log(a, log), words, sizeof words);
    if (speaks && !words[0])
        str_cut(words, sizeof words, told->failed);
    if (words[0]) {
        snprintf(out, ATTEMPT_ENDING_BYTES, " (%s)", words);
    } else if (failed) {
        last_words_read(attempt_output_log(a, log), words, sizeof words);
        snprintf(out, ATTEMPT_ENDING_BYTES, "%s%s", *words ? ": " : "", words);
    }
}

const struct run_attempt *attempt_told(const struct run_state *s, int64_t number)
{
    for (int64_t i = 0; i < s->n_attempts; i++)
        if (s->attempts[i].number == number)
            return &s->attempts[i];
    return NULL;
}

void attempt_init(struct attempt *a, const char *run_dir, const struct sched_self *self)
{
    *a = (struct attempt){.run_dir = run_dir, .self = self};
}

void attempt_release(struct attempt *a)
{
    evlog_close(a->log);
    lease_drop(a->lock);
    attempt_init(a, NULL, NULL);
}

/* ---- events ---- */

/* Names the writers of an attempt's events. AGENT is the attempt's agent, or after its death the
 * guard. FOLLOWER is the next attempt: it records the end of an attempt whose agent may still live
 * unseen and write to its own log. */
static const char AGENT[] = "agent", FOLLOWER[] = "follower";

static int log_open(const struct attempt *a, const char *run, int64_t number, const char *writer,
                    struct evlog **out, struct err *err)
{
    char *dir = file_join(a->run_dir, "events");
    struct evlog_ids ids = {run, number, writer, a->self->token};
    int rc = dir ? evlog_open(dir, &ids, out, err) : err_set(err, ERR_NOMEM, "out of memory");
    free(dir);
    return rc;
}

static int commit(struct evlog *log, struct evlog_event *e, bool durable)
{
    struct err err = {0};
    bool kept = evlog_keeps(log);
    int rc = evlog_commit(log, e, durable, &err);
    if (rc < 0 && !kept)
        log_msg(LOG_WARN, "event %s: %s", evlog_keeps(log) ? "not written yet" : "lost", err.text);
    return rc;
}

void attempt_event(struct attempt *a, struct evlog_event *e)
{
    commit(a->log, e, true);
}

void attempt_event_soon(struct attempt *a, struct evlog_event *e)
{
    commit(a->log, e, false);
}

/* Lets a file's name tell what a->named says, because an event of it waits for room. */
static void name_put(struct attempt *a, int64_t number)
{
    struct err err = {0};
    a->named.attempt = number;
    a->named.at = clock_wall_s();
    if (end_name_put(a->run_dir, &a->named, &err) < 0)
        log_msg(LOG_WARN, "what becomes of attempt %lld is not on record: %s", (long long)number,
                err.text);
}

void attempt_notice(struct attempt *a, struct evlog_event *e, int signo, double heard_at)
{
    if (commit(a->log, e, true) != ERR_FULL || a->named.signo)
        return;
    a->named.signo = signo;
    a->named.notice_at = heard_at;
    name_put(a, a->number);
}

void attempt_notice_at_node(struct attempt *a, int signo)
{
    if (!a->log || a->named.signo)
        return;
    a->named.signo = signo;
    a->named.at_node = true;
    a->named.notice_at = clock_wall_s();
    name_put(a, a->number);
}

static void end_name(struct attempt *a, int64_t number, enum named_end end,
                     enum attempt_cause cause, int exit_code, int exit_signal)
{
    a->named.end = end;
    a->named.cause = cause;
    a->named.exit_code = exit_code;
    a->named.exit_signal = exit_signal;
    name_put(a, number);
}

/* Says when an attempt ended whose end is written only later; 0: not known. */
struct end_time {
    double heard_at, ended_at; /* its last event, and its end, UTC s */
};

static int end_put(struct evlog *log, enum attempt_cause cause, int exit_code, int exit_signal,
                   const char *detail, struct end_time when, struct err *err)
{
    struct evlog_event e;
    event_begin(log, &e, attempt_ended);
    event_text(&e, attempt_ended, cause, attempt_cause_names[cause]);
    event_int(&e, attempt_ended, exit_code, exit_code);
    event_int(&e, attempt_ended, signal, exit_signal);
    event_text(&e, attempt_ended, detail, detail);
    if (when.heard_at > 0)
        event_num(&e, attempt_ended, heard_at, when.heard_at);
    if (when.ended_at > 0)
        event_num(&e, attempt_ended, ended_at, when.ended_at);
    return evlog_commit(log, &e, true, err);
}

int attempt_end(struct attempt *a, enum attempt_cause cause, int exit_code, int exit_signal,
                const char *detail)
{
    struct err err = {0};
    int rc = end_put(a->log, cause, exit_code, exit_signal, detail, (struct end_time){0}, &err);
    if (rc < 0)
        log_msg(LOG_WARN, "the attempt's end is not written%s: %s",
                evlog_keeps(a->log) ? " yet" : "", err.text);
    if (rc == ERR_FULL)
        end_name(a, a->number, NAMED_ENDED, cause, exit_code, exit_signal);
    return rc;
}

void attempt_requeued(struct attempt *a, const char *job_id)
{
    struct evlog_event e;
    event_begin(a->log, &e, requeue);
    event_text(&e, requeue, job_id, job_id);
    if (a->given_back != CAUSE_NONE)
        event_text(&e, requeue, cause, attempt_cause_names[a->given_back]);
    if (commit(a->log, &e, true) == ERR_FULL && a->given_back != CAUSE_NONE)
        end_name(a, a->number, NAMED_GIVEN_BACK, a->given_back, -1, 0);
}

int attempt_flush(struct attempt *a) { return evlog_flush(a->log, NULL); }

/* ---- its files ---- */

char *attempt_rank0_log(const struct attempt *a, char buf[LIMIT_PATH_BYTES])
{
    snprintf(buf, LIMIT_PATH_BYTES, "%s/events/rank0.a%lld.evlog", a->run_dir,
             (long long)a->number);
    return buf;
}

char *attempt_output_log(const struct attempt *a, char buf[LIMIT_PATH_BYTES])
{
    snprintf(buf, LIMIT_PATH_BYTES, "%s/logs/attempt-%lld.log", a->run_dir, (long long)a->number);
    return buf;
}

/* ---- a trainer that refuses its arguments ---- */

void attempt_misunderstood_note(struct attempt *a, int exit_code)
{
    char path[LIMIT_PATH_BYTES], said[STATE_TEXT_BYTES];
    struct evlog_event e;
    if (exit_code != err_exit_code(ERR_USAGE) || file_exists(attempt_rank0_log(a, path)))
        return;
    last_words_of(attempt_output_log(a, path), "reel-train: ", said, sizeof said);
    if (!said[0])
        return;
    event_begin(a->log, &e, train_ended);
    event_text(&e, train_ended, reason, "refused");
    event_text(&e, train_ended, detail, said);
    attempt_event(a, &e);
}

/* ---- the previous attempt ---- */

/* Returns the cause of an attempt that a pause or a cancel ended, and writes into detail how. */
static enum attempt_cause stopped_cause(const struct run_state *s, char detail[STATE_TEXT_BYTES])
{
    enum run_wish by = s->wish != WISH_RUN ? s->wish : s->stopped_by;
    snprintf(detail, STATE_TEXT_BYTES, "%s",
             by != WISH_CANCEL ? "paused"
             : s->cancel_by[0] ? s->cancel_by
                               : "cancelled by 'reel cancel'");
    return by == WISH_CANCEL ? CAUSE_CANCEL : CAUSE_PAUSE;
}

/* Writes the event of the attempt's first stop notice, if only a file's name tells of it. */
static void notice_put(struct evlog *log, const struct run_attempt *last)
{
    const struct run_named *n = &last->named;
    char name[SIGNAL_NAME_BYTES];
    struct evlog_event e;
    if (!n->signo || last->notice_logged)
        return;
    event_begin(log, &e, signal);
    event_text(&e, signal, signal, signal_name(n->signo, name));
    event_int(&e, signal, number, n->signo);
    event_text(&e, signal, from, "scheduler");
    if (n->at_node)
        event_text(&e, signal, node, "unknown");
    event_num(&e, signal, heard_at, n->notice_at);
    commit(log, &e, true);
}

/* Writes the event of the end that a file's name tells. The name dates that of the trainer. */
static int named_end_put(struct evlog *log, const struct run_attempt *last, double heard_at,
                         struct err *err)
{
    bool dated = last->named.end == NAMED_ENDED;
    struct end_time when = {.heard_at = dated ? 0 : heard_at,
                            .ended_at = dated ? last->named.at : 0};
    return end_put(log, last->cause, last->exit_code, last->named.exit_signal, last->detail, when,
                   err);
}

/* Returns why an attempt ended whose agent did not say it, and writes into detail how. */
static enum attempt_cause unsaid_cause(const struct run_state *s, const struct run_attempt *last,
                                       int agent_signal, const struct attempt_ending *ending,
                                       char detail[STATE_TEXT_BYTES])
{
    bool stopped = s->wish != WISH_RUN || last->number <= s->stopped_attempt;
    return stopped ? stopped_cause(s, detail)
                   : silent_cause(last, agent_signal, ending, detail);
}

/* Opens this writer's log of the newest attempt, and records the attempt's end there unless it is
 * recorded. *log is unchanged if there is no attempt, or nothing that FOLLOWER must record.
 * ERR_FULL: the disk has no room for the record. */
static int silent_close(const struct attempt *a, const struct run_state *state, const char *writer,
                        int agent_signal, const struct attempt_ending *ending, struct evlog **log,
                        struct err *err)
{
    const struct run_attempt *last = state->n_attempts ? &state->attempts[state->n_attempts - 1]
                                                       : NULL;
    char detail[STATE_TEXT_BYTES];
    bool open = last && (last->cause == CAUSE_NONE || last->end_named);
    int rc = open || (last && writer == AGENT)
                 ? log_open(a, state->run, last->number, writer, log, err)
                 : 0;
    if (rc < 0 || !open)
        return rc;
    enum attempt_cause cause = unsaid_cause(state, last, agent_signal, ending, detail);
    double heard_at = writer == FOLLOWER ? last->last_event_at : 0;
    rc = last->end_named ? named_end_put(*log, last, heard_at, err)
                         : end_put(*log, cause, -1, agent_signal, detail,
                                   (struct end_time){.heard_at = heard_at}, err);
    if (rc == 0)
        notice_put(*log, last);
    return rc == ERR_FULL ? ERR_FULL : 0;
}

/* ---- claiming ---- */

struct claim {
    char token[ID_TEXT_BYTES], job_id[SCHED_ID_BYTES], host[64];
    char nodes[LIMIT_PATH_BYTES]; /* of the job, as the scheduler writes them; "": unknown */
    int64_t pid, restart;
    double made_at; /* by the clock of the file server */
};

/* Reads the claim of this attempt; *out is zeroed if there is none or it cannot be read. */
static void claim_load(const struct attempt *a, int64_t number, struct claim *out)
{
    char path[LIMIT_PATH_BYTES];
    struct json_doc doc = {0};
    struct stat st;
    *out = (struct claim){.pid = 0};
    snprintf(path, sizeof path, "%s/claims/attempt-%lld", a->run_dir, (long long)number);
    if (stat(path, &st) == 0 && json_load(path, &doc, NULL) == 0) {
        out->made_at = (double)st.st_mtim.tv_sec;
        const char *nodes = json_text(doc.root, "nodes", "");
        snprintf(out->nodes, sizeof out->nodes, "%s",
                 strlen(nodes) < sizeof out->nodes ? nodes : "");
        snprintf(out->token, sizeof out->token, "%s", json_text(doc.root, "token", ""));
        snprintf(out->job_id, sizeof out->job_id, "%s", json_text(doc.root, "job_id", ""));
        snprintf(out->host, sizeof out->host, "%s", json_text(doc.root, "host", ""));
        out->pid = json_int(doc.root, "pid", 0);
        out->restart = json_int(doc.root, "restart", 0);
    }
    json_release(&doc);
}

/* Tells whether the scheduler has ended the job of this claim. The job's agent may still run, since
 * the scheduler also ends a job when its node does not answer any more. Job ids are reused, so the
 * job must also have the claim's token and have run when the claim was made. */
static bool job_is_over(const struct attempt *a, const struct claim *c)
{
    struct sched_jobs jobs = {0};
    if (!a->sched || !c->job_id[0] || sched_look(a->sched, c->job_id, &jobs, NULL) < 0)
        return false;
    const struct sched_job *job = sched_jobs_find(&jobs, c->job_id);
    bool over = job && sched_state_ended(job->state) && strcmp(job->token, c->token) == 0 &&
                job->started_at > 0 && c->made_at >= job->started_at - SKEW_S &&
                c->made_at <= job->ended_at + SKEW_S;
    sched_jobs_release(&jobs);
    return over;
}

/* Takes the lease from an agent of an earlier execution of this job, or of another job that is
 * over: the scheduler has ended these, or got no answer from them any more. Otherwise this agent
 * would wait until the lease has been silent for long, or not get it at all. */
static int former_evict(struct attempt *a, const char *lock, struct err *err)
{
    struct claim c;
    struct lease_holder h;
    struct lease_watch once = {.quiet_s = 0};
    claim_load(a, run_state_claimed(a->run_dir), &c);
    bool held = lease_look(lock, &h) && h.pid == c.pid && strcmp(h.host, c.host) == 0;
    bool same = a->self->id[0] && strcmp(c.job_id, a->self->id) == 0;
    if (!held || (same ? c.restart >= a->self->restarts : !job_is_over(a, &c)))
        return 0;
    if (lease_lives(&once, lock, LEASE_SILENT_S)) /* on this host a dead agent is seen; on another
                                                   * host it may still run unseen */
        a->evicted_mono = clock_mono_s();
    return lease_evict(lock, &h, err);
}

/* Returns the time (UTC s) after which the loss of a node cannot have ended this attempt. A node
 * whose loss ended it was lost before the other nodes got their notice, or before the scheduler
 * ended the job. If neither time is known, the limit is the scheduler's node timeout after the
 * attempt's last event. */
static double lost_by(const struct run_attempt *last, double ended_at, struct sched *sched)
{
    struct sched_site site = {.node_timeout_s = 0};
    if (last->signal_at > 0 || ended_at > 0)
        return (last->signal_at > 0 ? last->signal_at : ended_at) + SKEW_S;
    sched_describe(sched, &site, NULL); /* without an answer the timeout stays 0 */
    return last->last_event_at + site.node_timeout_s + SKEW_S;
}

/* Asks the scheduler whether the attempt lost a node. All its nodes worked when its job began, so a
 * node that was lost before the job's end is the cause of that end. ended_at: the end of the job;
 * 0: unknown. */
static void nodes_ask(const struct attempt *a, const struct run_attempt *last, double ended_at,
                      struct sched *sched, struct attempt_ending *out)
{
    struct err err = {0};
    struct claim claim;
    claim_load(a, last->number, &claim);
    if (!claim.nodes[0])
        return;
    bool dated = last->started_at > 0;
    struct sched_loss loss = {.booted_after = dated ? last->started_at + SKEW_S : INFINITY,
                              .down_by = lost_by(last, ended_at, sched)};
    out->nodes_told = sched_lost_node(sched, claim.nodes, &loss, out->node_lost, &err) == 0;
    if (!out->nodes_told)
        log_msg(LOG_WARN, "whether attempt %lld lost a node is not known: %s",
                (long long)last->number, err.text);
}

static enum sched_end end_parse(const char *why)
{
    for (int end = SCHED_END_REQUEUED; end <= SCHED_END_NODE_FAIL; end++)
        if (strcmp(sched_end_name((enum sched_end)end), why) == 0)
            return (enum sched_end)end;
    return SCHED_END_NONE;
}

/* Tells whether all that is told of the attempt was written on this host, since it was booted. */
static bool was_here(const struct run_state *s, int64_t number)
{
    bool here = false;
    for (size_t i = 0; i < s->clocks.n_parts; i++) {
        const struct fold_part *p = &s->clocks.parts[i];
        if (p->attempt != number)
            continue;
        const struct fold_clock *c = p->clock == FOLD_NO_CLOCK ? NULL : &s->clocks.list[p->clock];
        here = c && strcmp(c->host, clock_host()) == 0 && strcmp(c->boot, clock_boot_id()) == 0;
        if (!here)
            break;
    }
    return here;
}

void attempt_before(const struct attempt *a, const struct run_state *s, struct sched *sched,
                    struct attempt_ending *out)
{
    const struct run_attempt *last = s->n_attempts ? &s->attempts[s->n_attempts - 1] : NULL;
    struct sched_ending ending = {.why = SCHED_END_UNKNOWN};
    *out = (struct attempt_ending){.why = SCHED_END_UNKNOWN};
    out->host_is_up = last && !last->job_id[0] && was_here(s, last->number);
    if (!last || last->cause != CAUSE_NONE || !last->job_id[0] || !sched)
        return;
    bool again = strcmp(last->job_id, a->self->id) == 0;
    out->other_job = !again;
    if (!again && sched_ending_of(sched, last->job_id, s->run, &ending, NULL) == 0)
        out->why = ending.why;
    if (!again && out->why == SCHED_END_UNKNOWN && last->job_over.at > 0) {
        out->why = end_parse(last->job_over.why);
        ending.ended_at = last->job_over.ended_at;
    }
    nodes_ask(a, last, ending.ended_at, sched, out);
}

int attempt_folder_check(struct attempt *a, struct err *err)
{
    double now_s = clock_mono_s();
    if (file_exists(a->run_dir)) {
        a->gone_mono = 0;
        return 0;
    }
    if (a->gone_mono <= 0) {
        a->gone_mono = now_s;
        log_msg(LOG_WARN, "the run's folder '%s' is gone: waiting for it, %d minutes at most",
                a->run_dir, HOME_WAIT_S / 60);
    }
    return err_set(err, now_s - a->gone_mono < HOME_WAIT_S ? ERR_FULL : ERR_NOT_FOUND,
                   "the run's folder '%s' is gone: bring it back, or mount its disk", a->run_dir);
}

int attempt_lock(struct attempt *a, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    int rc;
    if (a->lock)
        return 0;
    if ((rc = attempt_folder_check(a, err)) < 0)
        return rc;
    snprintf(path, sizeof path, "%s/claims", a->run_dir);
    if ((rc = file_mkdirs(path, err)) < 0)
        return rc;
    snprintf(path, sizeof path, "%s/claims/lock", a->run_dir);
    if ((rc = former_evict(a, path, err)) < 0)
        return rc;
    return lease_take(path, LET_GO_S, &a->lock, err);
}

bool attempt_is_newest(const struct attempt *a)
{
    return run_state_claimed(a->run_dir) <= a->number;
}

bool attempt_is_followed(const struct attempt *a)
{
    return a->lock && lease_is_lost(a->lock) && !attempt_is_newest(a);
}

/* Creates the claim file exclusively: of two agents on different hosts with the same folded state
 * only one gets the number. */
static int claim_create(const struct attempt *a, int64_t number, struct err *err)
{
    char name[LIMIT_PATH_BYTES];
    const char *nodes = getenv("SLURM_JOB_NODELIST");
    struct str text = STR_INIT;
    struct json_out o;
    int rc;
    snprintf(name, sizeof name, "%s/claims/attempt-%lld", a->run_dir, (long long)number);
    json_out_init(&o, &text, 0);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "job_id", a->self->id);
    json_put_text(&o, "token", a->self->token);
    json_put_int(&o, "restart", a->self->restarts);
    json_put_text(&o, "host", clock_host());
    json_put_int(&o, "pid", getpid());
    json_put_text(&o, "nodes", nodes ? nodes : "");
    json_obj_end(&o);
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    rc = file_create_exclusive(name, text.p, text.len, err);
out:
    str_release(&text);
    return rc;
}

/* Tells whether a newer submission has replaced this job. A job that is requeued while its
 * successor waits may go on; once the successor has begun it may not. */
static bool is_replaced(const struct attempt *a, const struct run_state *state)
{
    struct claim newest;
    if (!a->self->token[0] || !state->token[0] || strcmp(a->self->token, state->token) == 0)
        return false;
    claim_load(a, run_state_claimed(a->run_dir), &newest);
    return strcmp(a->self->token, state->after) != 0 || strcmp(newest.token, state->token) == 0;
}

static int number_take(struct attempt *a, const struct run_state *state,
                       const struct attempt_ending *before, struct err *err)
{
    if (is_replaced(a, state))
        return err_set(err, ERR_BUSY,
                       "this job (token %s) was replaced by a newer submission (token %s)",
                       a->self->token, state->token);
    struct evlog *log = NULL;
    int rc = silent_close(a, state, FOLLOWER, 0, before, &log, err);
    evlog_close(log);
    if (rc < 0)
        return rc;
    int64_t number = run_state_claimed(a->run_dir) + 1;
    if ((rc = claim_create(a, number, err)) < 0)
        return rc;
    a->number = number;
    return 0;
}

/* Makes the file whose name can tell of this attempt when there is no room. */
static void reserve(const struct attempt *a)
{
    char *dir = file_join(a->run_dir, "events");
    if (dir)
        end_name_reserve(dir);
    free(dir);
}

int attempt_claim(struct attempt *a, const struct run_state *state,
                  const struct attempt_ending *before, struct err *err)
{
    int rc;
    if ((rc = attempt_folder_check(a, err)) < 0)
        return rc;
    if (!a->number && (rc = number_take(a, state, before, err)) < 0)
        return rc;
    if ((rc = log_open(a, state->run, a->number, AGENT, &a->log, err)) < 0)
        return rc;
    evlog_keep(a->log, KEEP_BYTES);
    reserve(a);
    return 0;
}

int attempt_mourn(struct attempt *a, struct run_fold *fold, int signo, enum sched_end why,
                  struct err *err)
{
    const struct attempt_ending ending = {.why = why};
    int rc;
    if ((rc = attempt_lock(a, err)) < 0)
        return rc;
    if ((rc = attempt_folder_check(a, err)) < 0)
        return rc;
    if ((rc = run_fold_renew(fold, err)) < 0)
        return rc;
    if ((rc = silent_close(a, run_fold_state(fold), AGENT, signo, &ending, &a->log, err)) < 0) {
        evlog_close(a->log);
        a->log = NULL;
    }
    return rc;
}

void attempt_mourn_name(struct attempt *a, struct run_fold *fold, int signo, enum sched_end why)
{
    const struct attempt_ending ending = {.why = why};
    char detail[STATE_TEXT_BYTES];
    struct claim c;
    if (run_fold_renew(fold, NULL) < 0)
        return;
    const struct run_state *s = run_fold_state(fold);
    const struct run_attempt *last = s->n_attempts ? &s->attempts[s->n_attempts - 1] : NULL;
    if (!last || last->cause != CAUSE_NONE || run_state_claimed(a->run_dir) != last->number)
        return;
    claim_load(a, last->number, &c);
    if (strcmp(c.job_id, a->self->id) != 0 || c.restart != a->self->restarts)
        return;
    a->named = last->named;
    end_name(a, last->number, NAMED_AGENT_DIED, unsaid_cause(s, last, signo, &ending, detail), -1,
             signo);
}
