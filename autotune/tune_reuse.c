/* Takes over the trials of an earlier search for the same question, from its event log. */
#include <stdio.h>
#include <string.h>

#include "autotune/tune_priv.h"
#include "base/file.h"

static int64_t item_of_layout(const struct tune *t, const char *text)
{
    struct layout tried, trial;
    struct err none;
    if (layout_parse(text, &tried, &none) < 0)
        return -1;
    for (size_t i = 0; i < t->space.n; i++) {
        tune_trial_layout(t, (int64_t)i, &trial);
        if (layout_equal(&trial, &tried))
            return (int64_t)i;
    }
    return -1;
}

void tune_trial_name(struct tune *t, int64_t i, double measured_s)
{
    if (!t->trial_ids[i][0] || t->items[i].measured_s == measured_s)
        snprintf(t->trial_ids[i], sizeof t->trial_ids[i], "%s", t->trial);
}

/* Returns the state of a trial's end if it is a verdict about the layout. Others may have been due
 * to that day's conditions, and are TRIAL_UNTRIED; so is memory of the host where nobody is named
 * who saw it short: a process may have been killed for another reason. */
static enum trial_state verdict_of(const cJSON *event)
{
    static const enum trial_state verdicts[] = {TRIAL_OK, TRIAL_OOM_DEVICE, TRIAL_OOM_HOST,
                                                TRIAL_ILLEGAL};
    const char *name = json_text(event, "state", "");
    for (size_t i = 0; i < ARRAY_LEN(verdicts); i++)
        if (strcmp(trial_state_names[verdicts[i]], name) == 0)
            return verdicts[i] == TRIAL_OOM_HOST && !json_text(event, "evidence", "")[0]
                       ? TRIAL_UNTRIED : verdicts[i];
    return TRIAL_UNTRIED;
}

/* Takes over one event of an earlier search. Trials follow one another: a prediction names the
 * layout, and the end that follows tells how it went. */
static void event_reuse(struct tune *t, const cJSON *event, int64_t *i)
{
    const char *kind = json_text(event, "ev", "");
    enum trial_state state = verdict_of(event);
    double measured_s = json_num(event, "measured_step_s", 0);
    if (strcmp(kind, "trial_predicted") == 0) {
        *i = item_of_layout(t, json_text(event, "layout", ""));
        snprintf(t->trial, sizeof t->trial, "%s", json_text(event, "trial", ""));
    }
    if (*i < 0 || strcmp(kind, "trial_ended") != 0 ||
        strcmp(t->trial, json_text(event, "trial", "")) != 0 || state == TRIAL_UNTRIED ||
        (state == TRIAL_OK && !(measured_s > 0)))
        return;
    double class_s[PRICE_TERMS];
    tune_event_classes_read(event, class_s);
    const struct search_outcome outcome = {.state = state, .measured_s = measured_s,
                                           .peak_bytes = json_num(event, "peak_bytes", 0),
                                           .class_s = class_s,
                                           .reused = true};
    search_tell(&t->search, *i, &outcome);
    tune_trial_name(t, *i, measured_s);
    t->reused++;
}

int tune_reuse(struct tune *t, struct err *err)
{
    char path[LIMIT_PATH_BYTES + 32];
    struct evlog_reader *reader;
    const cJSON *event;
    snprintf(path, sizeof path, "%s/events/tune.a0.evlog", t->dir);
    if (!file_exists(path))
        return 0;
    int rc = evlog_reader_open(path, &reader, err);
    if (rc < 0)
        return rc;
    int64_t i = -1;
    bool runs = false;
    while ((rc = evlog_reader_next(reader, &event, err)) == 1) {
        event_reuse(t, event, &i);
        runs = tune_event_runs(event, runs);
    }
    evlog_reader_close(reader);
    if (rc < 0 || !runs)
        return rc;
    if (t->conf.say)
        t->conf.say(t->conf.say_ctx, "the last tuning of this question died in a trial");
    return tune_event_trial_left(t, err);
}
