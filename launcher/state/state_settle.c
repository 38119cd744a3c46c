/* This file converts the times of a run's events from their writers' clocks to UTC. */
#include <math.h>
#include <stdio.h>

#include "launcher/state/state.h"

static void earliest(double *at, double utc)
{
    if (*at == 0 || utc < *at)
        *at = utc;
}

static void notice_settle(struct run_attempt *a, const struct told *t, double utc)
{
    if (a->signal_at > 0 && a->signal_at <= utc)
        return;
    a->signal_at = utc;
    a->signal_at_step = t->kind != TOLD_NOTICE_AGENT;
    snprintf(a->signal, sizeof a->signal, "%s", t->text);
}

static void time_settle(struct run_attempt *a, const struct told *t, double utc)
{
    switch (t->kind) {
    case TOLD_CREATED: return;
    case TOLD_STARTED: earliest(&a->started_at, utc); return;
    case TOLD_TRAINER_STARTED: earliest(&a->trainer_started_at, utc); return;
    case TOLD_MOVING: earliest(&a->first_step_at, utc); return;
    case TOLD_REQUEUED: earliest(&a->requeued_at, utc); return;
    case TOLD_STOP_SEEN: earliest(&a->stop_seen_at, utc); return;
    case TOLD_NOTICE_AGENT:
    case TOLD_NOTICE_NODE:
    case TOLD_NOTICE_HEARD:
    case TOLD_NOTICE_SEEN: notice_settle(a, t, utc); return;
    }
}

static void attempt_settle(struct run_state *s, struct run_attempt *a)
{
    a->started_at = a->trainer_started_at = a->first_step_at = a->requeued_at = 0;
    a->stop_seen_at = a->signal_at = 0;
    a->last_event_at = fmax(a->named.at, fold_clocks_last(&s->clocks, a->number));
    if (a->first_step >= 0)
        a->first_step_at = told_utc(&s->clocks, a->number, &a->first_step_time);
    if (a->cause != CAUSE_NONE)
        a->ended_at = fold_clocks_utc(&s->clocks, a->end_time.clock, a->end_time.at);
}

/* Subtracts the time that the job was suspended from the time of the last step. */
static void last_settle(struct run_state *s)
{
    double rest_s = 0;
    if (s->last.step < 0 || !(s->last.told_s > 0))
        return;
    double end = fold_clocks_utc(&s->clocks, s->last.end.clock, s->last.end.at);
    for (const struct run_attempt *a = s->attempts; a < s->attempts + s->n_attempts; a++)
        for (int i = 0; a->number == s->last_attempt_of_step && i < a->n_rests; i++)
            rest_s += fold_rest_s(end, s->last.told_s,
                                  fold_clocks_utc(&s->clocks, a->rests[i].end.clock,
                                                  a->rests[i].end.at),
                                  a->rests[i].seconds);
    double left_s = fmax(0, s->last.told_s - rest_s);
    s->last.step_s = left_s / (double)s->last.covers;
    s->last.mfu = left_s > 0 ? s->last.told_mfu * (s->last.told_s / left_s) : NAN;
}

void run_state_settle(struct run_state *s)
{
    struct run_attempt *a = s->attempts, *end = a + s->n_attempts;
    fold_clocks_settle(&s->clocks);
    s->created_at = 0;
    if (s->submitted_wall > 0)
        s->submitted_at = fold_clocks_utc(&s->clocks, s->submitted_time.clock,
                                          s->submitted_time.at);
    for (struct run_attempt *each = a; each < end; each++)
        attempt_settle(s, each);
    last_settle(s);
    for (size_t i = 0; i < s->told.n; i++) {
        const struct told *t = &s->told.list[i];
        double utc = told_utc(&s->clocks, t->attempt, &t->time);
        while (a < end && a->number < t->attempt)
            a++;
        if (t->kind == TOLD_CREATED)
            earliest(&s->created_at, utc);
        else
            time_settle(a, t, utc);
    }
}
