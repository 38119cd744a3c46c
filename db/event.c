#include "db/event.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "db/step_columns.h"

enum { Q_INSERT, Q_KNOWN, Q_DROP, Q_CONFLICT, Q_STEP, Q_START, Q_TRIAL, Q_LAYOUT, N_QUERIES };
static const char *const sql[N_QUERIES] = {
    [Q_INSERT] = "INSERT INTO event(run, attempt, writer, seq, kind, wall, mono, boot, host, json)"
                 " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING",
    [Q_KNOWN] = "SELECT id, wall, json, kind FROM event"
                " WHERE run = ?1 AND attempt = ?2 AND writer = ?3 AND seq = ?4",
    [Q_DROP] = "DELETE FROM event WHERE id = ?1",
    [Q_CONFLICT] = "INSERT INTO conflict(run, attempt, writer, seq, json)"
                   " VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING",
    [Q_TRIAL] = "INSERT INTO trial_event(event, tune, trial, kind, seq)"
                " VALUES (?1, ?2, ?3, ?4, ?5)",
    [Q_LAYOUT] = "INSERT INTO layout(text) VALUES (?1) ON CONFLICT DO NOTHING",
};

struct event_writer {
    struct store_query *q[N_QUERIES];
    struct str text;
};

/* Lists the fields of train_started that are columns of train_start. */
#define START_COLUMNS(X)                                                                  \
    X(next_step) X(total_steps) X(model) X(layout) X(extent) X(gbs) X(world) X(device)    \
    X(dtype) X(peak_flops) X(peak_source) X(flops_formula) X(config_hash)
static const struct {
    const char *name;
    enum event_type type;
} start_columns[] = {
#define X(field) {#field, (enum event_type)EVENT_train_started_##field},
    START_COLUMNS(X)
#undef X
};

/* Prepares an insertion into a table whose first columns identify the event. names: the n other
 * columns, each with a comma before it. */
static int insert_ask(struct store *db, const char *table, const struct str *names, int n,
                      struct store_query **out, struct err *err)
{
    struct str text = STR_INIT;
    int rc;
    if ((rc = str_check(names, err)) < 0)
        return rc;
    str_addf(&text, "INSERT INTO %s(event, run, attempt, writer, seq%s) VALUES (?, ?, ?, ?, ?",
             table, names->p ? names->p : "");
    for (int i = 0; i < n; i++)
        str_add(&text, ", ?");
    str_addc(&text, ')');
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    rc = store_ask(db, text.p, out, err);
out:
    str_release(&text);
    return rc;
}

/* Prepares the insertion of a step, with columns in the order in which project_step binds
 * values. */
static int step_ask(struct store *db, struct store_query **out, struct err *err)
{
    struct str names = STR_INIT;
    int n = 1;
    str_add(&names, ", flops_per_token");
    for (const struct step_column *c = step_columns; c->name; c++)
        if (c->since) {
            str_addf(&names, ", %s", c->name);
            n++;
        }
    int rc = insert_ask(db, "step", &names, n, out, err);
    str_release(&names);
    return rc;
}

/* Prepares the insertion of a start, with columns in the order in which project_start binds
 * values. */
static int start_ask(struct store *db, struct store_query **out, struct err *err)
{
    struct str names = STR_INIT;
    int n = (int)ARRAY_LEN(start_columns);
    str_add(&names, ", trial");
    for (int i = 0; i < n; i++)
        str_addf(&names, ", %s", start_columns[i].name);
    int rc = insert_ask(db, "train_start", &names, 1 + n, out, err);
    str_release(&names);
    return rc;
}

static int writer_ask(struct store *db, int query, struct store_query **out, struct err *err)
{
    if (query == Q_STEP)
        return step_ask(db, out, err);
    return query == Q_START ? start_ask(db, out, err) : store_ask(db, sql[query], out, err);
}

int event_writer_new(struct store *db, struct event_writer **out, struct err *err)
{
    struct event_writer *w = calloc(1, sizeof *w);
    int rc = 0;
    if (!w)
        return err_set(err, ERR_NOMEM, "out of memory preparing to write events");
    w->text = (struct str)STR_INIT;
    for (int i = 0; i < N_QUERIES; i++) {
        rc = writer_ask(db, i, &w->q[i], err);
        if (rc < 0)
            goto out;
    }
    *out = w;
    w = NULL;
out:
    event_writer_free(w);
    return rc;
}

void event_writer_free(struct event_writer *w)
{
    if (!w)
        return;
    for (int i = 0; i < N_QUERIES; i++)
        store_end(w->q[i]);
    str_release(&w->text);
    free(w);
}

bool event_key_read(const cJSON *event, struct event_key *out)
{
    const cJSON *attempt = json_member(event, "attempt"), *seq = json_member(event, "seq");
    const char *run = json_text(event, "run", NULL), *writer = json_text(event, "writer", NULL);
    if (!run || !writer || !json_text(event, "ev", NULL) || !cJSON_IsNumber(attempt) ||
        !cJSON_IsNumber(seq))
        return false;
    if (!isfinite(json_num(event, "wall", NAN)) || !isfinite(json_num(event, "mono", NAN)))
        return false;
    *out = (struct event_key){run, writer, (int64_t)attempt->valuedouble,
                              (int64_t)seq->valuedouble};
    return true;
}

/* ---- binding members: one that is absent or has a wrong type becomes NULL ---- */

static void bind_num(struct store_query *q, int i, const cJSON *event, const char *key)
{
    const cJSON *m = json_member(event, key);
    store_bind_num(q, i, cJSON_IsNumber(m) ? m->valuedouble : NAN);
}

static void bind_int(struct store_query *q, int i, const cJSON *event, const char *key)
{
    const cJSON *m = json_member(event, key);
    if (cJSON_IsBool(m))
        store_bind_int(q, i, cJSON_IsTrue(m));
    else if (cJSON_IsNumber(m) && fabs(m->valuedouble) < 9e18)
        store_bind_int(q, i, (int64_t)m->valuedouble);
    else
        store_bind_text(q, i, NULL);
}

static void bind_text(struct store_query *q, int i, const cJSON *event, const char *key)
{
    store_bind_text(q, i, json_text(event, key, NULL));
}

static void bind_key(struct store_query *q, int first, const struct event_key *k)
{
    store_bind_text(q, first, k->run);
    store_bind_int(q, first + 1, k->attempt);
    store_bind_text(q, first + 2, k->writer);
    store_bind_int(q, first + 3, k->seq);
}

/* Runs a statement that gives no row. */
static int run_once(struct store_query *q, struct err *err)
{
    int rc = store_next(q, err);
    store_reset(q);
    return rc;
}

/* ---- projections: pure functions of one event ---- */

static void column_bind(struct store_query *q, int i, const cJSON *e, const char *name,
                        enum event_type type)
{
    if (type == EVENT_TEXT)
        bind_text(q, i, e, name);
    else
        (type == EVENT_NUM ? bind_num : bind_int)(q, i, e, name);
}

static int project_step(struct event_writer *w, int64_t id, const struct event_key *k,
                        const cJSON *e, struct err *err)
{
    struct store_query *q = w->q[Q_STEP];
    if (!cJSON_IsNumber(json_member(e, "step")))
        return 0; /* the raw row stays, but there is nothing to count */
    store_bind_int(q, 1, id);
    bind_key(q, 2, k);
    store_bind_num(q, 6, json_num(e, "model_flops", NAN) / json_num(e, "tokens", NAN));
    for (int i = 0, at = 7; step_columns[i].name; i++)
        if (step_columns[i].since)
            column_bind(q, at++, e, step_columns[i].name, step_columns[i].type);
    return run_once(q, err);
}

static int project_start(struct event_writer *w, int64_t id, const struct event_key *k,
                         const cJSON *e, struct err *err)
{
    struct store_query *q = w->q[Q_START];
    const cJSON *trial = json_member(e, "trial");
    store_bind_int(q, 1, id);
    bind_key(q, 2, k);
    store_bind_int(q, 6, trial && !cJSON_IsFalse(trial) && !cJSON_IsNull(trial));
    for (int i = 0; i < (int)ARRAY_LEN(start_columns); i++)
        column_bind(q, 7 + i, e, start_columns[i].name, start_columns[i].type);
    return run_once(q, err);
}

static int project_trial(struct event_writer *w, int64_t id, const struct event_key *k,
                         const cJSON *e, struct err *err)
{
    struct store_query *q = w->q[Q_TRIAL];
    if (!json_text(e, "trial", NULL))
        return 0;
    store_bind_int(q, 1, id);
    store_bind_text(q, 2, k->run);
    bind_text(q, 3, e, "trial");
    bind_text(q, 4, e, "ev");
    store_bind_int(q, 5, k->seq);
    int rc = run_once(q, err);
    const char *layout = json_text(e, "layout", NULL);
    if (rc < 0 || !layout)
        return rc;
    store_bind_text(w->q[Q_LAYOUT], 1, layout);
    return run_once(w->q[Q_LAYOUT], err);
}

static int project(struct event_writer *w, int64_t id, const struct event_key *k, const cJSON *e,
                   struct err *err)
{
    const char *kind = json_text(e, "ev", "");
    if (strcmp(kind, "step") == 0)
        return project_step(w, id, k, e, err);
    if (strcmp(kind, "train_started") == 0)
        return project_start(w, id, k, e, err);
    if (str_starts(kind, "trial_"))
        return project_trial(w, id, k, e, err);
    return 0;
}

/* ---- the raw row ---- */

/* Says whether a log may spell a number of this tree differently than json_put_num: json_put_int
 * writes all digits of 1000000000000000, and json_put_num writes 1e+15. json_put_int writes no
 * numbers beyond 2^53. */
static bool has_long_integer(const cJSON *tree)
{
    double size = cJSON_IsNumber(tree) ? fabs(tree->valuedouble) : 0;
    if (size >= 1e15 && size <= 0x1p53)
        return true;
    for (const cJSON *c = tree->child; c; c = c->next)
        if (has_long_integer(c))
            return true;
    return false;
}

/* Makes the text that is stored for an event, in which a number has only one spelling. It is almost
 * always the log's own text, because the same functions wrote that. */
static int text_make(struct event_writer *w, const cJSON *event, const char *text, size_t bytes,
                     struct err *err)
{
    struct json_out out;
    str_clear(&w->text);
    json_out_init(&out, &w->text, 0);
    if (has_long_integer(event))
        json_put_tree(&out, NULL, event);
    else
        str_addn(&w->text, text, bytes - (text[bytes - 1] == '\n'));
    return str_check(&w->text, err);
}

/* Inserts an event. Returns 1 and sets *id, or 0 when an event has this key already. */
static int insert(struct event_writer *w, const struct event_key *k, const cJSON *e, int64_t *id,
                  struct err *err)
{
    struct store_query *q = w->q[Q_INSERT];
    bind_key(q, 1, k);
    bind_text(q, 5, e, "ev");
    bind_num(q, 6, e, "wall");
    bind_num(q, 7, e, "mono");
    store_bind_text(q, 8, json_text(e, "boot", "unknown"));
    store_bind_text(q, 9, json_text(e, "host", "unknown"));
    store_bind_text(q, 10, w->text.p);
    int64_t row;
    int rc;
    if ((rc = run_once(q, err)) < 0)
        return rc;
    if (!(row = store_inserted(q)))
        return 0;
    *id = row;
    return 1;
}

static int conflict_add(struct event_writer *w, const struct event_key *k, const char *text,
                        struct err *err)
{
    struct store_query *q = w->q[Q_CONFLICT];
    bind_key(q, 1, k);
    store_bind_text(q, 5, text);
    return run_once(q, err);
}

/* Returns whether the new event replaces the known one, which has the same key and another text.
 * `order` compares the two texts. An event that ended an attempt wins (fold/end.h); otherwise the
 * later one wins. */
static bool event_wins(const cJSON *e, struct store_query *known, int order)
{
    double later_s = json_num(e, "wall", 0) - store_num(known, 1);
    bool ends = strcmp(json_text(e, "ev", ""), "attempt_ended") == 0;
    bool known_ends = strcmp(store_text(known, 3), "attempt_ended") == 0;
    if (ends != known_ends)
        return ends;
    return later_s > 0 || (later_s == 0 && order > 0);
}

/* Decides between an event and the known one with its key. Returns 0 when they are the same event
 * or the known one wins, and 1 when the known one was dropped, so that the key is free. The choice
 * between two different events does not depend on the order in which they are read. */
static int contend(struct event_writer *w, const struct event_key *k, const cJSON *e,
                   struct err *err)
{
    struct store_query *q = w->q[Q_KNOWN];
    bind_key(q, 1, k);
    int rc = store_next(q, err);
    if (rc <= 0) {
        store_reset(q);
        return rc;
    }
    int64_t id = store_int(q, 0);
    int order = strcmp(w->text.p, store_text(q, 2));
    bool wins = event_wins(e, q, order);
    rc = order == 0 ? 0 : conflict_add(w, k, wins ? store_text(q, 2) : w->text.p, err);
    store_reset(q);
    if (rc < 0 || order == 0 || !wins)
        return rc;
    store_bind_int(w->q[Q_DROP], 1, id);
    rc = run_once(w->q[Q_DROP], err);
    return rc < 0 ? rc : 1;
}

int event_write(struct event_writer *w, const cJSON *event, const char *text, size_t text_bytes,
                int64_t *id, bool *replaced, struct err *err)
{
    struct event_key k;
    BUG_ON(!event_key_read(event, &k));
    int rc;
    *replaced = false;
    if ((rc = text_make(w, event, text, text_bytes, err)) < 0)
        return rc;
    if ((rc = insert(w, &k, event, id, err)) < 0)
        return rc;
    if (rc == 0) {
        if ((rc = contend(w, &k, event, err)) <= 0)
            return rc;
        *replaced = true;
        if ((rc = insert(w, &k, event, id, err)) <= 0)
            return rc;
    }
    rc = project(w, *id, &k, event, err);
    return rc < 0 ? rc : 1;
}
