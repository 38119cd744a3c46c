/* This file takes over the trials of earlier tunings with the same id from their event log. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/tune_priv.h"
#include "base/file.h"

/* ---- finding the item of a trial ---- */

/* Holds the layout of a trial, and the item that it measures. */
struct tried { struct layout trial; int64_t item; };
struct index { struct tried *tried; size_t n; };

static int by_trial(const void *a, const void *b)
{
    const struct tried *x = a, *y = b;
    int order = layout_compare(&x->trial, &y->trial);
    return order ? order : (x->item > y->item) - (x->item < y->item);
}

static int index_make(const struct tune *t, struct index *out, struct err *err)
{
    struct tried *tried = calloc(t->space.n + 1, sizeof *tried);
    if (!tried)
        return err_set(err, ERR_NOMEM, "out of memory for %zu layouts", t->space.n);
    for (size_t i = 0; i < t->space.n; i++) {
        tune_trial_layout(t, (int64_t)i, &tried[i].trial);
        tried[i].item = (int64_t)i;
    }
    qsort(tried, t->space.n, sizeof *tried, by_trial);
    *out = (struct index){tried, t->space.n};
    return 0;
}

/* Returns the first item whose trial runs this layout; -1: there is none. */
static int64_t item_of(const struct index *index, const char *text)
{
    struct layout l;
    struct err none;
    size_t low = 0, high = index->n;
    if (layout_parse(text, &l, &none) < 0)
        return -1;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (layout_compare(&index->tried[middle].trial, &l) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < index->n && layout_equal(&index->tried[low].trial, &l) ? index->tried[low].item
                                                                        : -1;
}

/* ---- taking over ---- */

void tune_trial_name(struct tune *t, int64_t i, double measured_s)
{
    if (!t->trial_ids[i][0] || t->items[i].measured_s == measured_s)
        snprintf(t->trial_ids[i], sizeof t->trial_ids[i], "%s", t->trial);
}

/* Returns the state of a trial's end if it is a verdict about the layout. Other states may have
 * been due to that day's conditions; for them it returns TRIAL_UNTRIED. The same holds for oom_host
 * without evidence, because the process may have been killed for another reason. */
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

/* Takes over one event of an earlier tuning. Trials do not overlap: a prediction names the layout,
 * and the end that follows says how it went. */
static void event_reuse(struct tune *t, const struct index *index, const cJSON *event,
                        int64_t *i)
{
    const char *kind = json_text(event, "ev", "");
    enum trial_state state = verdict_of(event);
    double measured_s = json_num(event, "measured_step_s", 0);
    if (strcmp(kind, "trial_predicted") == 0) {
        *i = item_of(index, json_text(event, "layout", ""));
        snprintf(t->trial, sizeof t->trial, "%s", json_text(event, "trial", ""));
    }
    if (*i < 0 || strcmp(kind, "trial_ended") != 0 ||
        strcmp(t->trial, json_text(event, "trial", "")) != 0 || state == TRIAL_UNTRIED ||
        (state == TRIAL_OK && !(measured_s > 0)))
        return;
    double class_s[PRICE_TERMS];
    tune_event_classes_read(event, class_s);
    const struct search_outcome outcome = {
        .state = state, .measured_s = measured_s, .peak_bytes = json_num(event, "peak_bytes", 0),
        .class_s = class_s, .reused = true,
        .disturbed = cJSON_IsTrue(json_member(event, "disturbed"))};
    search_tell(&t->search, *i, &outcome);
    tune_trial_name(t, *i, measured_s);
    t->reused++;
}

/* Opens the log of earlier tunings. *out: NULL where there were none. */
static int log_open(const struct tune *t, struct evlog_reader **out, struct err *err)
{
    char path[LIMIT_PATH_BYTES + 32];
    *out = NULL;
    snprintf(path, sizeof path, "%s/events/tune.a0.evlog", t->dir);
    return file_exists(path) ? evlog_reader_open(path, out, err) : 0;
}

static int log_reuse(struct tune *t, struct evlog_reader *reader, bool *runs, struct err *err)
{
    struct index index = {0};
    const cJSON *event;
    int64_t i = -1;
    int rc;
    if ((rc = index_make(t, &index, err)) < 0)
        return rc;
    while ((rc = evlog_reader_next(reader, &event, err)) == 1) {
        event_reuse(t, &index, event, &i);
        *runs = tune_event_runs(event, *runs);
    }
    free(index.tried);
    return rc;
}

int tune_reuse(struct tune *t, struct err *err)
{
    struct evlog_reader *reader;
    bool runs = false;
    int rc;
    if ((rc = log_open(t, &reader, err)) < 0 || !reader)
        return rc;
    rc = log_reuse(t, reader, &runs, err);
    evlog_reader_close(reader);
    if (rc < 0 || !runs)
        return rc;
    if (t->conf.say)
        t->conf.say(t->conf.say_ctx, "the last tuning of this question died in a trial");
    return tune_event_trial_left(t, err);
}

/* ---- what is on record ---- */

/* Adds the layout of a prediction to a list. */
static int recorded_add(const cJSON *event, struct layout **list, size_t *n, struct err *err)
{
    struct layout l;
    struct err none;
    if (strcmp(json_text(event, "ev", ""), "trial_predicted") != 0 ||
        layout_parse(json_text(event, "layout", ""), &l, &none) < 0)
        return 0;
    struct layout *longer = realloc(*list, (*n + 1) * sizeof *longer);
    if (!longer)
        return err_set(err, ERR_NOMEM, "out of memory for %zu layouts", *n + 1);
    longer[(*n)++] = l;
    *list = longer;
    return 0;
}

int tune_recorded(const struct tune *t, struct layout **out, size_t *n, struct err *err)
{
    struct layout *list = NULL;
    struct evlog_reader *reader;
    const cJSON *event;
    size_t found = 0;
    int rc;
    if ((rc = log_open(t, &reader, err)) < 0)
        return rc;
    while (reader && (rc = evlog_reader_next(reader, &event, err)) == 1)
        if ((rc = recorded_add(event, &list, &found, err)) < 0)
            goto out;
    if (rc < 0)
        goto out;
    *out = list, *n = found;
    list = NULL; /* the caller owns it now */
out:
    evlog_reader_close(reader);
    free(list);
    return rc;
}
