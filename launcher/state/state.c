#include "launcher/state/state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/spawn.h"
#include "fold/end.h"
#include "launcher/wrap/last_words.h"

const char *const attempt_cause_names[] = {
    "", "done", "preempt", "time_limit", "crash", "node_fail", "cancel", "hang", "diverged",
    "early_exit", "pause", "disk_full", NULL};

/* Holds an event that is being folded, and its time. */
struct told_event {
    const cJSON *json;
    const char *kind;
    double wall;
    struct fold_time time;
};

void run_state_init(struct run_state *s)
{
    memset(s, 0, sizeof *s);
    s->max_step = s->saved_step = s->last.step = s->done_steps = s->loss.step = -1;
}

void run_state_release(struct run_state *s)
{
    free(s->attempts);
    fold_clocks_release(&s->clocks);
    told_release(&s->told);
    run_state_init(s);
}

/* Returns the attempt with this number; makes it (in its sorted place) if it is new. NULL when out
 * of memory. */
static struct run_attempt *attempt_get(struct run_state *s, int64_t number)
{
    int64_t at = s->n_attempts;
    while (at > 0 && s->attempts[at - 1].number >= number)
        at--;
    if (at < s->n_attempts && s->attempts[at].number == number)
        return &s->attempts[at];
    struct run_attempt *grown = realloc(s->attempts, (size_t)(s->n_attempts + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    s->attempts = grown;
    memmove(grown + at + 1, grown + at, (size_t)(s->n_attempts - at) * sizeof *grown);
    s->n_attempts++;
    grown[at] = (struct run_attempt){
        .number = number,
        .first_step = -1, .last_step = -1,
        .saved_step = -1, .loaded_step = -1};
    return &grown[at];
}

static void text_set(char *to, size_t size, const cJSON *event, const char *key)
{
    const char *value = json_text(event, key, NULL);
    if (value)
        snprintf(to, size, "%s", value);
}

static bool is_newer(int64_t order, double wall, int64_t than_order, double than_wall)
{
    return order != than_order ? order > than_order : wall >= than_wall;
}

static void apply_intent(struct run_state *s, const cJSON *event, int64_t order, double wall)
{
    s->intent_wall = wall;
    s->intent_order = order;
    s->after[0] = s->after_job[0] = '\0';
    text_set(s->token, sizeof s->token, event, "token");
    text_set(s->after, sizeof s->after, event, "after");
    text_set(s->after_job, sizeof s->after_job, event, "after_job");
    text_set(s->sched, sizeof s->sched, event, "sched");
    s->job_revision = json_int(event, "revision", 0);
}

static void length_raise(struct run_state *s, const cJSON *event)
{
    int64_t steps = json_int(event, "total_steps", 0);
    s->total_steps = steps > s->total_steps ? steps : s->total_steps;
}

void run_state_wish(struct run_state *s, enum run_wish wish, int64_t turn, int64_t met, double at,
                    const char *by)
{
    bool stronger = turn == s->wish_turn && at == s->wish_at && wish > s->wish;
    if (stronger || turn > s->wish_turn || (turn == s->wish_turn && at > s->wish_at)) {
        s->wish = wish;
        s->wish_turn = turn;
        s->wish_at = at;
        snprintf(s->cancel_by, sizeof s->cancel_by, "%s", wish == WISH_CANCEL ? by : "");
    }
    if (wish != WISH_RUN &&
        (met > s->stopped_attempt || (met == s->stopped_attempt && wish > s->stopped_by))) {
        s->stopped_attempt = met;
        s->stopped_by = wish;
    }
}

static void apply_retry(struct run_state *s, const cJSON *event)
{
    int64_t after = json_int(event, "after_attempt", 0);
    s->retried_after = after > s->retried_after ? after : s->retried_after;
    if (cJSON_IsTrue(json_member(event, "reset_budget")))
        s->budget_from = after > s->budget_from ? after : s->budget_from;
}

/* Folds an event of the run's owner. Returns false for other kinds of event. */
static bool apply_owner(struct run_state *s, const char *kind, const cJSON *event, double wall)
{
    static const struct {
        const char *kind;
        enum run_wish wish;
    } table[] = {{"cancel_requested", WISH_CANCEL},
                 {"pause_requested", WISH_PAUSE},
                 {"resume_requested", WISH_RUN},
                 {"retry_requested", WISH_RUN}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strcmp(kind, table[i].kind) == 0) {
            run_state_wish(s, table[i].wish, json_int(event, "turn", 0),
                           json_int(event, "met_attempt", 0), wall, json_text(event, "by", ""));
            if (strcmp(kind, "retry_requested") == 0)
                apply_retry(s, event);
            return true;
        }
    return false;
}

/* Adds the time of something that the event reports. text: of a notice, the signal's name. */
static int time_note(struct run_state *s, int64_t attempt, enum told_kind kind,
                     struct told_time time, const char *text, struct err *err)
{
    struct told t = {.attempt = attempt, .kind = kind, .time = time};
    snprintf(t.text, sizeof t.text, "%s", text);
    return told_add(&s->told, &t, err);
}

/* Returns the time at which the event was written. */
static struct told_time time_now(const struct told_event *e)
{
    return (struct told_time){.event = e->time};
}

/* Returns the time that the event gives, by the wall clock, under this key. */
static struct told_time time_of(const struct told_event *e, const char *key)
{
    return (struct told_time){.event = e->time, .ago_s = e->wall - json_num(e->json, key, NAN)};
}

/* Folds what the scheduler said of a job; the earliest answer counts. */
static int apply_job_over(struct run_state *s, const struct told_event *e, struct err *err)
{
    int64_t number = json_int(e->json, "met_attempt", 0);
    struct run_attempt *a = number < 1 ? NULL : attempt_get(s, number);
    if (number >= 1 && !a)
        return err_set(err, ERR_NOMEM, "out of memory folding attempt %lld", (long long)number);
    if (!a || (a->job_over.at > 0 && a->job_over.at <= e->wall))
        return 0;
    a->job_over.at = e->wall;
    a->job_over.ended_at = json_num(e->json, "ended_at", 0);
    text_set(a->job_over.why, sizeof a->job_over.why, e->json, "why");
    return 0;
}

/* Folds an event of the submitting side. Of several intents, or submissions, the newest counts,
 * whatever the order of folding. */
static int apply_submission(struct run_state *s, const struct told_event *e, struct err *err)
{
    const char *kind = e->kind;
    const cJSON *event = e->json;
    int64_t order = json_int(event, "order", 0);
    if (strcmp(kind, "submit_refused") == 0)
        s->refused_order = order > s->refused_order ? order : s->refused_order;
    if (apply_owner(s, kind, event, e->wall))
        return 0;
    if (strcmp(kind, "job_over") == 0)
        return apply_job_over(s, e, err);
    if (strcmp(kind, "run_created") == 0) {
        text_set(s->name, sizeof s->name, event, "name");
        text_set(s->model, sizeof s->model, event, "model");
        length_raise(s, event);
        return time_note(s, 0, TOLD_CREATED, time_now(e), "", err);
    } else if (strcmp(kind, "extended") == 0) {
        length_raise(s, event);
    } else if (strcmp(kind, "changed") == 0) {
        s->revision = json_int(event, "revision", 0) > s->revision
                          ? json_int(event, "revision", 0)
                          : s->revision;
    } else if (strcmp(kind, "submit_intent") == 0 &&
               is_newer(order, e->wall, s->intent_order, s->intent_wall)) {
        apply_intent(s, event, order, e->wall);
    } else if (strcmp(kind, "submitted") == 0 &&
               is_newer(order, e->wall, s->submitted_order, s->submitted_wall)) {
        s->submitted_wall = e->wall;
        s->submitted_time = e->time;
        s->submitted_order = order;
        text_set(s->job_id, sizeof s->job_id, event, "job_id");
        text_set(s->job_token, sizeof s->job_token, event, "token");
        text_set(s->sched, sizeof s->sched, event, "sched");
    }
    return 0;
}

static enum attempt_cause cause_parse(const char *text)
{
    for (int i = 1; attempt_cause_names[i]; i++)
        if (strcmp(attempt_cause_names[i], text) == 0)
            return (enum attempt_cause)i;
    return CAUSE_CRASH; /* a newer version wrote a cause that is unknown here; a crash is the safe
                         * choice */
}

static int apply_notice(struct run_state *s, struct run_attempt *a,
                        const struct told_event *e, enum told_kind kind, struct told_time time,
                        struct err *err)
{
    a->notice_logged = true;
    a->agent_told |= kind == TOLD_NOTICE_AGENT;
    return time_note(s, a->number, kind, time, json_text(e->json, "signal", ""), err);
}

static void apply_end(struct run_attempt *a, const struct told_event *e)
{
    const cJSON *event = e->json;
    double wall = e->wall;
    struct fold_end known = {a->end_told.writer, a->end_told.seq, a->end_told.wall};
    struct fold_end told = {json_text(event, "writer", ""), json_int(event, "seq", 0), wall};
    if (a->cause != CAUSE_NONE && !fold_end_counts(&told, &known))
        return;
    a->end_told.seq = told.seq;
    a->end_told.wall = wall;
    snprintf(a->end_told.writer, sizeof a->end_told.writer, "%s", told.writer);
    double ended_at = json_num(event, "ended_at", 0);
    a->end_time = ended_at > 0 ? (struct fold_time){FOLD_NO_CLOCK, ended_at} : e->time;
    a->end_named = false;
    a->cause = cause_parse(json_text(event, "cause", ""));
    a->exit_code = (int)json_int(event, "exit_code", 0);
    a->heard_at = json_num(event, "heard_at", 0);
    text_set(a->detail, sizeof a->detail, event, "detail");
}

/* Folds the times that an event of the agent gives. */
static int apply_agent_time(struct run_state *s, struct run_attempt *a,
                            const struct told_event *e, struct err *err)
{
    /* A foreign trainer whose step lines cannot be read counts as training from its start. */
    bool moves = strcmp(e->kind, "progress") == 0 || strcmp(e->kind, "step_seen") == 0 ||
                 (strcmp(e->kind, "trainer_started") == 0 &&
                  cJSON_IsTrue(json_member(e->json, "foreign")) &&
                  !cJSON_IsTrue(json_member(e->json, "prints_steps")));
    int rc;
    if (moves && (rc = time_note(s, a->number, TOLD_MOVING, time_now(e), "", err)) < 0)
        return rc;
    if (strcmp(e->kind, "attempt_started") == 0)
        return time_note(s, a->number, TOLD_STARTED, time_now(e), "", err);
    if (strcmp(e->kind, "trainer_started") == 0)
        return time_note(s, a->number, TOLD_TRAINER_STARTED, time_now(e), "", err);
    if (strcmp(e->kind, "requeue") == 0)
        return time_note(s, a->number, TOLD_REQUEUED, time_now(e), "", err);
    if (strcmp(e->kind, "signal") == 0)
        return apply_notice(s, a, e, json_text(e->json, "node", NULL) ? TOLD_NOTICE_NODE
                                                                      : TOLD_NOTICE_AGENT,
                            time_of(e, "heard_at"), err); /* an older log has no heard_at: the
                                                           * event's own time counts */
    return 0;
}

static void apply_vain(struct run_attempt *a, const cJSON *event)
{
    text_set(a->vain.what, sizeof a->vain.what, event, "what");
    text_set(a->vain.why, sizeof a->vain.why, event, "why");
    a->vain.tries = json_int(event, "tries", 1);
    a->vain.for_s = json_num(event, "for_s", 0);
    a->vain.refused = cJSON_IsTrue(json_member(event, "refused"));
}

/* Adds what was done for a node agent. The event for a silent one says that another was started. */
static void apply_mended(struct run_attempt *a, const cJSON *event)
{
    size_t n = strlen(a->agents_mended);
    const char *how = json_text(event, "how", "?");
    bool silent = strcmp(how, "silent") == 0;
    snprintf(a->agents_mended + n, sizeof a->agents_mended - n, "%sthat of node %s was %s%s",
             n ? ", " : "", json_text(event, "node", "?"), how,
             silent ? ", and another was started there" : "");
}

/* Notes how many ranks of a node have heard the notice, and how many have not; of those that have
 * not, only the first STATE_SILENT nodes. */
static void apply_heard(struct run_attempt *a, const cJSON *event)
{
    int at = 0;
    const char *node = json_text(event, "node", "?");
    int64_t silent = json_int(event, "silent", 0);
    a->ranks_heard |= json_int(event, "ranks", 0) > 0;
    while (at < a->n_silent && strcmp(a->silent[at].node, node) != 0)
        at++;
    if (at == a->n_silent && silent > 0 && at < STATE_SILENT)
        text_set(a->silent[a->n_silent++].node, sizeof a->silent->node, event, "node");
    if (at < a->n_silent)
        a->silent[at].ranks = silent;
    a->silent_more |= at >= a->n_silent && silent > 0;
}

/* Adds a suspension of the job; only the last STATE_RESTS keep their times. */
static void apply_rest(struct run_attempt *a, const struct told_event *e)
{
    struct run_rest rest = {e->time, fmax(0, json_num(e->json, "seconds", 0))};
    int at = a->n_rests;
    a->suspended_s += rest.seconds;
    if (at < STATE_RESTS)
        a->n_rests++;
    else
        for (int i = at = 0; i < STATE_RESTS; i++)
            at = a->rests[i].end.at < a->rests[at].end.at ? i : at;
    if (at == a->n_rests - 1 || rest.end.at > a->rests[at].end.at)
        a->rests[at] = rest;
}

static void apply_agent(struct run_attempt *a, const struct told_event *e)
{
    const char *kind = e->kind;
    const cJSON *event = e->json;
    if (strcmp(kind, "attempt_started") == 0) {
        text_set(a->job_id, sizeof a->job_id, event, "job_id");
        text_set(a->token, sizeof a->token, event, "token");
        text_set(a->job_handle, sizeof a->job_handle, event, "job_handle");
        a->restart = json_int(event, "restart", 0);
    } else if (strcmp(kind, "requeue") == 0) {
        const char *cause = json_text(event, "cause", NULL);
        a->requeued_for = cause ? cause_parse(cause) : CAUSE_NONE;
    } else if (strcmp(kind, "requeue_withheld") == 0) {
        a->withheld = true;
    } else if (strcmp(kind, "suspended") == 0) {
        apply_rest(a, e);
    } else if (strcmp(kind, "asked_in_vain") == 0) {
        apply_vain(a, event);
    } else if (strcmp(kind, "held") == 0) {
        a->held_until = json_num(event, "until", 0);
    } else if (strcmp(kind, "node_lost") == 0) {
        text_set(a->node_lost, sizeof a->node_lost, event, "node");
    } else if (strcmp(kind, "ranks_told") == 0) {
        apply_heard(a, event);
    } else if (strcmp(kind, "ranks_deaf") == 0) {
        a->ranks_deaf = true;
    } else if (strcmp(kind, "ranks_still") == 0) {
        a->ranks_still = true;
    } else if (strcmp(kind, "told_by_srun") == 0) {
        text_set(a->told_by_srun, sizeof a->told_by_srun, event, "node");
    } else if (strcmp(kind, "node_agents_mended") == 0) {
        apply_mended(a, event);
    } else if (strcmp(kind, "progress") == 0) {
        a->progressed = true;
    } else if (strcmp(kind, "went_back") == 0) {
        a->went_back++;
        a->back_steps += num_max_i64(0, json_int(event, "from", 0) - json_int(event, "to", 0));
    } else if (strcmp(kind, "attempt_ended") == 0) {
        apply_end(a, e);
    }
}

/* Returns when a step began. A foreign trainer's event gives its end by the agent's monotonic
 * clock. */
static struct told_time step_began(const struct told_event *e)
{
    struct told_time began = time_of(e, "started_at");
    double step_s = fmax(0, json_num(e->json, "step_s", 0));
    double ended_ago_s = json_num(e->json, "ended_ago_s", -1);
    began.least_s = step_s;
    began.exact = ended_ago_s >= 0;
    if (began.exact)
        began.ago_s = ended_ago_s + step_s;
    return began;
}

/* Says whether no step of the attempt is known that began before this one, which begins the steps
 * that the event tells of. A foreign trainer may go back below its first step later. */
static bool is_first(const struct run_attempt *a, const struct told_event *e, int64_t step)
{
    const struct fold_time *known = &a->first_step_time.event;
    if (a->first_step < 0)
        return true;
    return e->time.clock == known->clock && e->time.clock != FOLD_NO_CLOCK
               ? e->time.at < known->at : step < a->first_step;
}

/* Folds the loss of a step. A loss of reel's own trainer is null only if it was not finite; a
 * foreign trainer, whose events have the number of steps, may have printed none. */
static void apply_loss(struct run_state *s, const struct run_attempt *a, const cJSON *event,
                       int64_t step)
{
    const cJSON *loss = json_member(event, "loss");
    bool nonfinite = cJSON_IsTrue(json_member(event, "loss_nonfinite")) ||
                     (cJSON_IsNull(loss) && !json_member(event, "steps"));
    if (!nonfinite && !cJSON_IsNumber(loss))
        return;
    if (step < s->loss.step || (step == s->loss.step && a->number < s->loss.attempt))
        return;
    s->loss.step = step;
    s->loss.attempt = a->number;
    s->loss.value = nonfinite ? NAN : loss->valuedouble;
}

static void apply_step(struct run_state *s, struct run_attempt *a, const struct told_event *e)
{
    const cJSON *event = e->json;
    /* A foreign trainer's line may cover several steps. */
    int64_t step = json_int(event, "step", -1), covers = json_int(event, "steps", 1);
    if (step < 0 || covers < 1)
        return;
    int64_t from = step - covers + 1;
    if (is_first(a, e, from))
        a->first_step_time = step_began(e);
    a->first_step = a->first_step < 0 ? from : num_min_i64(a->first_step, from);
    a->last_step = step > a->last_step ? step : a->last_step;
    if (step > s->last.step || (step == s->last.step && a->number >= s->last_attempt_of_step)) {
        s->last_attempt_of_step = a->number;
        s->last.step = step;
        s->last.covers = covers;
        s->last.end = e->time;
        s->last.end.at -= fmax(0, json_num(event, "ended_ago_s", 0));
        s->last.told_s = json_num(event, "step_s", 0);
        s->last.step_s = s->last.told_s / (double)covers;
        s->last.mfu = s->last.told_mfu = json_num(event, "mfu", NAN);
        s->last.tokens = json_num(event, "tokens", 0) / (double)covers;
    }
    s->max_step = step > s->max_step ? step : s->max_step;
    apply_loss(s, a, event, step);
}

static void apply_every(struct run_state *s, const struct run_attempt *a, const cJSON *event)
{
    int64_t step = json_int(event, "step", 0);
    if (a->number < s->every.attempt || (a->number == s->every.attempt && step < s->every.step))
        return;
    s->every.attempt = a->number;
    s->every.step = step;
    s->every.steps = json_int(event, "every_steps", 0);
    s->every.step_s = json_num(event, "step_s", 0);
    s->every.save_s = json_num(event, "save_s", 0);
    s->every.mtbf_s = json_num(event, "mtbf_s", 0);
    s->every.save_measured = cJSON_IsTrue(json_member(event, "save_measured"));
    s->every.mtbf_measured = cJSON_IsTrue(json_member(event, "mtbf_measured"));
}

/* Folds the times that an event of the trainer gives, except those of its steps. */
static int apply_trainer_time(struct run_state *s, struct run_attempt *a,
                              const struct told_event *e, struct err *err)
{
    struct told_time heard = time_of(e, "heard_at");
    int rc;
    if (strcmp(e->kind, "stop_heard") == 0)
        return apply_notice(s, a, e, TOLD_NOTICE_HEARD, heard, err);
    if (strcmp(e->kind, "stop_seen") != 0)
        return 0;
    if ((rc = time_note(s, a->number, TOLD_STOP_SEEN, time_of(e, "seen_at"), "", err)) < 0)
        return rc;
    return isnan(heard.ago_s) ? 0 : apply_notice(s, a, e, TOLD_NOTICE_SEEN, heard, err);
}

static void apply_saved(struct run_state *s, struct run_attempt *a, const cJSON *event)
{
    int64_t step = json_int(event, "step", -1);
    a->saved_step = step > a->saved_step ? step : a->saved_step;
    s->saved_step = step > s->saved_step ? step : s->saved_step;
    a->save_s = fmax(a->save_s, json_num(event, "seconds", 0));
}

static void apply_space_low(struct run_attempt *a, const cJSON *event)
{
    a->space.any = true;
    a->space.enough = cJSON_IsTrue(json_member(event, "enough"));
    a->space.step = json_int(event, "step", 0);
    a->space.needed_bytes = json_int(event, "needed_bytes", 0);
    a->space.free_bytes = json_int(event, "free_bytes", -1);
    a->space.free_files = json_int(event, "free_files", -1);
    a->space.removed += json_int(event, "removed", 0);
}

static void apply_train_ended(struct run_state *s, struct run_attempt *a, const cJSON *event)
{
    const char *reason = json_text(event, "reason", "");
    a->done |= strcmp(reason, "done") == 0;
    a->disk_full |= strcmp(reason, "disk_full") == 0;
    if (a->done) { /* a wrapped trainer gives no number of steps: its "done" counts for any
                    * number */
        int64_t steps = json_int(event, "next_step", INT64_MAX);
        s->done_steps = steps > s->done_steps ? steps : s->done_steps;
    }
    a->stopped |= strcmp(reason, "stop") == 0;
    a->refused_input |= strcmp(reason, "refused") == 0;
    text_set(a->failed, sizeof a->failed, event, "detail");
}

static void apply_layout(struct run_state *s, const struct run_attempt *a, const cJSON *event)
{
    if (a->number < s->layout_attempt)
        return;
    s->layout_attempt = a->number;
    text_set(s->layout, sizeof s->layout, event, "layout");
    text_set(s->device, sizeof s->device, event, "device");
}

static void apply_trainer(struct run_state *s, struct run_attempt *a, const struct told_event *e)
{
    const char *kind = e->kind;
    const cJSON *event = e->json;
    if (strcmp(kind, "step") == 0) {
        apply_step(s, a, e);
    } else if (strcmp(kind, "progress") == 0 || strcmp(kind, "step_seen") == 0) {
        /* the number of steps done, as the trainer printed it; newer logs have it in step_seen */
        int64_t last = json_int(event, "step", 0) - 1;
        a->last_step = last > a->last_step ? last : a->last_step;
        s->max_step = last > s->max_step ? last : s->max_step;
    } else if (strcmp(kind, "train_started") == 0) {
        apply_layout(s, a, event);
        length_raise(s, event);
    } else if (strcmp(kind, "ckpt_saved") == 0) {
        apply_saved(s, a, event);
    } else if (strcmp(kind, "ckpt_every") == 0) {
        apply_every(s, a, event);
    } else if (strcmp(kind, "ckpt_loaded") == 0) {
        a->loaded_step = json_int(event, "step", -1);
        a->load_s = json_num(event, "seconds", 0);
    } else if (strcmp(kind, "ckpt_damaged") == 0) {
        a->damaged++;
    } else if (strcmp(kind, "space_low") == 0) {
        apply_space_low(a, event);
    } else if (strcmp(kind, "ckpt_refused") == 0) {
        text_set(a->refused, sizeof a->refused, event, "reason");
    } else if (strcmp(kind, "train_ended") == 0) {
        apply_train_ended(s, a, event);
    }
}

/* Decides whether the run is done. Extending a run makes it undone. If the trainer's event that it
 * was done is lost, CAUSE_DONE of the last attempt counts instead, with the steps reached. */
static void done_judge(struct run_state *s)
{
    const struct run_attempt *last = s->n_attempts ? &s->attempts[s->n_attempts - 1] : NULL;
    bool by_agent = last && last->cause == CAUSE_DONE && !last->done;
    int64_t steps = by_agent && run_attempt_reach(last) > s->done_steps ? run_attempt_reach(last)
                                                                    : s->done_steps;
    s->done = steps >= 0 && steps >= s->total_steps;
}

/* Adds an event to the clocks, and fills in its time. */
static int event_time(struct run_state *s, struct told_event *e, int64_t attempt, struct err *err)
{
    struct fold_reading reading = {.kind = e->kind,
                                   .host = json_text(e->json, "host", "unknown"),
                                   .boot = json_text(e->json, "boot", "unknown"),
                                   .mono = json_num(e->json, "mono", NAN),
                                   .wall = e->wall};
    return fold_clocks_add(&s->clocks, &reading, attempt, &e->time, err);
}

static int apply_attempt(struct run_state *s, struct run_attempt *a, const struct told_event *e,
                         struct err *err)
{
    int rc;
    apply_agent(a, e);
    apply_trainer(s, a, e);
    if ((rc = apply_agent_time(s, a, e, err)) < 0)
        return rc;
    return apply_trainer_time(s, a, e, err);
}

int run_state_apply(struct run_state *s, const cJSON *event, struct err *err)
{
    struct told_event e = {.json = event,
                           .kind = json_text(event, "ev", ""),
                           .wall = json_num(event, "wall", 0)};
    int64_t number = json_int(event, "attempt", 0);
    int rc;

    text_set(s->run, sizeof s->run, event, "run");
    s->last_event_at = fmax(s->last_event_at, e.wall);
    struct run_attempt *a = number < 1 ? NULL : attempt_get(s, number);
    if (!a && number >= 1)
        return err_set(err, ERR_NOMEM, "out of memory folding attempt %lld", (long long)number);
    if ((rc = event_time(s, &e, number, err)) < 0)
        return rc;
    rc = a ? apply_attempt(s, a, &e, err) : apply_submission(s, &e, err);
    done_judge(s);
    return rc;
}

int run_state_end(struct run_state *s, int64_t attempt, enum attempt_cause cause,
                  const char *detail, struct err *err)
{
    struct run_attempt *a = attempt_get(s, attempt);
    if (!a)
        return err_set(err, ERR_NOMEM, "out of memory folding attempt %lld", (long long)attempt);
    if (a->cause != CAUSE_NONE)
        return 0;
    a->cause = cause;
    a->ended_at = s->last_event_at;
    a->end_time = (struct fold_time){FOLD_NO_CLOCK, s->last_event_at};
    snprintf(a->detail, sizeof a->detail, "%s", detail);
    if (cause == CAUSE_DONE && s->done_steps < 0)
        s->done_steps = INT64_MAX;
    done_judge(s);
    return 0;
}

/* Takes the end from a file's name. An event of the end has a lower number, and so counts rather
 * than this one. */
static void end_take(struct run_state *s, struct run_attempt *a, const struct run_named *n)
{
    char how[64];
    last_words_exit(n->exit_code, n->exit_signal, how, sizeof how);
    a->end_named = true;
    a->end_told.seq = INT64_MAX;
    a->end_told.wall = n->at;
    a->end_told.writer[0] = '\0';
    a->end_time = (struct fold_time){FOLD_NO_CLOCK, n->at};
    a->cause = n->cause;
    a->exit_code = n->exit_code;
    snprintf(a->detail, sizeof a->detail, "%s %s; the disk had no room to say more",
             n->end == NAMED_AGENT_DIED ? "its agent" : "trainer", how);
    if (n->cause == CAUSE_DONE && s->done_steps < 0)
        s->done_steps = INT64_MAX;
}

int run_state_named(struct run_state *s, const struct run_named *n, struct err *err)
{
    struct told_time noticed = {.event = {FOLD_NO_CLOCK, n->notice_at}};
    char name[SIGNAL_NAME_BYTES];
    struct run_attempt *a = attempt_get(s, n->attempt);
    if (!a)
        return err_set(err, ERR_NOMEM, "out of memory folding attempt %lld", (long long)n->attempt);
    a->named = *n;
    a->agent_told |= n->signo != 0;
    if (n->end == NAMED_GIVEN_BACK && a->requeued_for == CAUSE_NONE)
        a->requeued_for = n->cause;
    if (n->end >= NAMED_ENDED && a->cause == CAUSE_NONE)
        end_take(s, a, n);
    s->last_event_at = fmax(s->last_event_at, n->at);
    done_judge(s);
    return n->signo ? time_note(s, n->attempt, n->at_node ? TOLD_NOTICE_NODE : TOLD_NOTICE_AGENT,
                                noticed, signal_name(n->signo, name), err)
                    : 0;
}
