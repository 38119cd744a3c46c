#include "launcher/run/limit.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/num.h"
#include "launcher/state/pace.h"

static const double LOOK_EVERY_S = 600;
/* A request for the limit is given up after ANSWER_S; the next one comes AGAIN_S later. */
static const double ANSWER_S = 5, AGAIN_S = 30;

double limit_left_s(const struct sched_ending *e, double lasted_s)
{
    return fmin(e->limit_at - clock_wall_s(), e->limit_s - lasted_s);
}

/* Returns the number of seconds in an environment variable; otherwise_s if it is not set, or cannot
 * be read. */
static double seconds_of(const char *variable, double otherwise_s)
{
    const char *text = getenv(variable);
    struct err err = {0};
    double s = otherwise_s;
    if (text && num_parse_f64(text, variable, &s, &err) < 0)
        log_msg(LOG_WARN, "%s", err.text);
    return s;
}

void limit_init(struct limit *l, double time_limit_s, bool known)
{
    double now = clock_mono_s();
    *l = (struct limit){.begun_mono = now,
                        .lead_s = pace_lead_s(time_limit_s, 0, 0),
                        .every_s = seconds_of(LIMIT_LOOK_ENV, LOOK_EVERY_S)};
    l->look_mono = known ? now + l->every_s : now;
    if (time_limit_s > 0) {
        l->ends_mono = now + time_limit_s;
        l->look_mono = fmin(l->look_mono, now + time_limit_s / 2);
    }
}

bool limit_is_due(const struct limit *l) { return clock_mono_s() >= l->look_mono; }

/* Updates the limit from the scheduler's answer: it may have been changed or removed. Returns false
 * while the answer may still come. If none comes the limit stays as it was. */
static bool ends_take(struct limit *l, struct asker *asker, double now)
{
    struct sched_ending ending;
    int rc = ERR_TEMP;
    if (!asker_take(asker, &rc, &ending) && now - l->asked_mono < ANSWER_S)
        return false;
    l->asked_mono = 0;
    l->look_mono = now + (rc == 0 ? l->every_s : fmin(AGAIN_S, l->every_s));
    if (rc == 0 && ending.why == SCHED_END_NONE)
        l->ends_mono = ending.limit_at > 0 ? now + limit_left_s(&ending, now - l->begun_mono) : 0;
    return true;
}

static double lead_now(const struct limit *l, struct run_fold *fold)
{
    const struct run_state *s = run_fold_state(fold);
    double submitted_s = seconds_of(PACE_SAVE_ENV, 0), lead_s = l->lead_s;
    if (run_fold_renew(fold, NULL) == 0)
        lead_s = pace_lead_s(l->ends_mono - l->begun_mono, fmax(submitted_s, pace_save_s(s)),
                              s->last.step >= 0 ? s->last.step_s : 0);
    return lead_s;
}

bool limit_look(struct limit *l, struct asker *asker, struct run_fold *fold)
{
    double now = clock_mono_s();
    if (l->asked_mono <= 0) {
        asker_put(asker);
        l->asked_mono = now;
    }
    if (!ends_take(l, asker, now) || l->ends_mono <= 0)
        return false;
    l->lead_s = lead_now(l, fold);
    double due = l->ends_mono - l->lead_s;
    l->look_mono = fmin(l->look_mono, due);
    return now >= due;
}
