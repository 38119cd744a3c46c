#include "launcher/state/pace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/state/home.h"

static const double LEAD_LEAST_S = 60;

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Holds the longest saves of attempts, s. */
struct saves {
    double *list;
    size_t n;
};

/* Adds the longest save of each attempt; those for which there is no memory are left out. */
static void saves_add(struct saves *saves, const struct run_state *s)
{
    double *grown = realloc(saves->list,
                            (saves->n + (size_t)s->n_attempts + 1) * sizeof *saves->list);
    if (!grown)
        return;
    saves->list = grown;
    for (int64_t i = 0; i < s->n_attempts; i++)
        if (s->attempts[i].save_s > 0)
            grown[saves->n++] = s->attempts[i].save_s;
}

/* Returns the 99th percentile of the saves, 0 if there is none, and frees their list. */
static double saves_p99(struct saves *saves)
{
    double p99 = 0;
    if (saves->n) {
        qsort(saves->list, saves->n, sizeof *saves->list, by_size);
        p99 = saves->list[(size_t)ceil(0.99 * (double)saves->n) - 1];
    }
    free(saves->list);
    return p99;
}

double pace_save_s(const struct run_state *s)
{
    struct saves saves = {0};
    saves_add(&saves, s);
    return saves_p99(&saves);
}

void pace_model_find(const char *home, const char *model, struct pace_model *out)
{
    char **ids = NULL, dir[LIMIT_PATH_BYTES];
    size_t n = 0;
    struct saves saves = {0};
    *out = (struct pace_model){0};
    if (home_runs_list(home, &ids, &n, NULL) < 0)
        return;
    for (size_t i = 0; i < n; i++) {
        struct run_state s;
        run_state_init(&s);
        if (run_state_load(home_run_dir(home, ids[i], dir), &s, NULL) == 0 &&
            (!model || strcmp(s.model, model) == 0)) {
            saves_add(&saves, &s);
            out->step_s = fmax(out->step_s, s.last.step >= 0 ? s.last.step_s : 0);
        }
        run_state_release(&s);
    }
    out->save_s = saves_p99(&saves);
    home_runs_free(ids, n);
}

static bool is_failure(const struct run_attempt *a)
{
    switch (a->cause) {
    case CAUSE_CRASH:
    case CAUSE_NODE_FAIL:
    case CAUSE_HANG: return true;
    case CAUSE_PREEMPT:
    case CAUSE_TIME_LIMIT: return !a->stopped && a->first_step_at > 0;
    default: return false;
    }
}

double pace_mtbf_s(const struct run_state *s)
{
    const double least_s = 1; /* checkpoints do not help a run that fails within a second */
    double trained_s = 0;
    int64_t failures = 0;
    for (int64_t i = 0; i < s->n_attempts; i++) {
        const struct run_attempt *a = &s->attempts[i];
        double end = a->ended_at > 0 ? a->ended_at : s->last_event_at;
        trained_s += a->first_step_at > 0 ? fmax(0, end - a->first_step_at) : 0;
        failures += is_failure(a);
    }
    return failures ? fmax(least_s, trained_s / (double)failures) : 0;
}

double pace_lead_s(double time_limit_s, double save_s, double step_s)
{
    return fmin(fmax(LEAD_LEAST_S, 2 * save_s + step_s), time_limit_s / 2);
}
