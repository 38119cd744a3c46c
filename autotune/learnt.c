#include "autotune/learnt.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/evlog.h"
#include "base/file.h"
#include "base/limits.h"

/* Holds the price of a trial and its measurements, in seconds; `at` is when it ended. */
struct row {
    double at, measured_s, priced_class_s[PRICE_TERMS], class_s[PRICE_TERMS];
    struct price_bill bill;
};
struct rows {
    struct row *v;
    size_t n, room;
};

void learnt_terms_write(const char *name, const double terms[PRICE_TERMS], struct json_out *o)
{
    json_obj_begin(o, name);
    for (int t = 0; t < PRICE_TERMS; t++)
        if (terms[t] > 0)
            json_put_num(o, price_term_names[t], terms[t]);
    json_obj_end(o);
}

/* Reads the seconds of each term; 0 where the event has none. */
static void terms_read(const cJSON *event, const char *name, double terms[PRICE_TERMS])
{
    const cJSON *member = json_member(event, name);
    for (int t = 0; t < PRICE_TERMS; t++)
        terms[t] = json_num(member, price_term_names[t], 0);
}

static int row_add(struct rows *rows, const struct row *row, struct err *err)
{
    if (rows->n == rows->room) {
        size_t room = rows->room ? 2 * rows->room : 64;
        struct row *v = realloc(rows->v, room * sizeof *v);
        if (!v)
            return err_set(err, ERR_NOMEM, "out of memory for %zu measurements", room);
        rows->v = v, rows->room = room;
    }
    rows->v[rows->n++] = *row;
    return 0;
}

/* Reads one event of a tuning. Each trial has a trial_predicted and then a trial_ended, before the
 * next trial begins. */
static int event_take(const cJSON *event, struct row *row, struct rows *rows, struct err *err)
{
    const char *kind = json_text(event, "ev", "");
    if (strcmp(kind, "trial_predicted") == 0) {
        terms_read(event, "priced", row->bill.term);
        terms_read(event, "priced_hidden", row->bill.hidden);
        terms_read(event, "priced_under", row->bill.under);
        terms_read(event, "priced_alone", row->bill.alone);
        terms_read(event, "priced_fixed", row->bill.fixed);
        terms_read(event, "priced_far", row->bill.far);
        terms_read(event, "priced_class_s", row->priced_class_s);
    }
    if (strcmp(kind, "trial_ended") != 0 || strcmp(json_text(event, "state", ""), "ok") != 0 ||
        cJSON_IsTrue(json_member(event, "disturbed")))
        return 0;
    row->at = json_num(event, "wall", 0);
    row->measured_s = json_num(event, "measured_step_s", 0);
    terms_read(event, "class_s", row->class_s);
    double priced = 0;
    for (int t = 0; t < PRICE_TERMS; t++)
        priced += row->bill.term[t];
    return priced > 0 && row->measured_s > 0 ? row_add(rows, row, err) : 0;
}

/* Reads a tuning's log, if its tune_started has this key. */
static int log_read(const char *path, const char *key, struct rows *rows, struct err *err)
{
    struct evlog_reader *reader;
    struct row row = {0};
    const cJSON *event;
    bool same = false;
    if (evlog_reader_open(path, &reader, NULL) < 0)
        return 0; /* the tuning has no log yet */
    int rc;
    while ((rc = evlog_reader_next(reader, &event, err)) == 1) {
        if (strcmp(json_text(event, "ev", ""), "tune_started") == 0)
            same = strcmp(json_text(event, "learns", ""), key) == 0;
        if (!same)
            break;
        if ((rc = event_take(event, &row, rows, err)) < 0)
            break;
    }
    evlog_reader_close(reader);
    return rc < 0 ? rc : 0;
}

static int logs_read(const char *home, const char *own_id, const char *key, struct rows *rows,
                     struct err *err)
{
    char dir[LIMIT_PATH_BYTES], path[LIMIT_PATH_BYTES + 320];
    int rc = 0;
    snprintf(dir, sizeof dir, "%s/tunes", home);
    DIR *d = opendir(dir);
    for (struct dirent *e; d && rc == 0 && (e = readdir(d));) {
        if (e->d_name[0] == '.' || strcmp(e->d_name, own_id) == 0)
            continue;
        snprintf(path, sizeof path, "%s/%s/events/tune.a0.evlog", dir, e->d_name);
        rc = log_read(path, key, rows, err);
    }
    if (d)
        closedir(d);
    return rc;
}

static int by_time(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

int learnt_read(const char *home, const char *own_id, const char *key, struct fit *out,
                struct err *err)
{
    struct rows rows = {0};
    int rc = logs_read(home, own_id, key, &rows, err);
    fit_init(out);
    if (rows.n > 0)
        qsort(rows.v, rows.n, sizeof *rows.v, by_time);
    for (size_t i = rows.n > LEARNT_MOST ? rows.n - LEARNT_MOST : 0; rc == 0 && i < rows.n; i++) {
        fit_classes(out, rows.v[i].priced_class_s, rows.v[i].class_s);
        fit_add(out, &rows.v[i].bill, rows.v[i].measured_s);
    }
    free(rows.v);
    return rc;
}
