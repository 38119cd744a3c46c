#include "launcher/submit/change.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/events.h"
#include "base/file.h"
#include "base/num.h"
#include "launcher/state/next.h"
#include "profiles/dataset.h"

enum kind { KIND_FREE, KIND_LENGTH, KIND_RATE, KIND_FIXED, KIND_SILENT };

struct comparison {
    const struct change_ask *ask;
    const struct run *old, *given;
    bool plain_plan;   /* the old plan is the default one, see change_plan_is_plain */
    struct str changes; /* JSON array: what has changed */
    struct json_out out;
    struct str lines, fixed, unasked; /* messages for the user: changes made, refused, and refused
                                       * without an option */
    bool wants_extend, wants_rate;    /* options that the changes in `unasked` need: --extend,
                                       * --change lr */
    int64_t n;
    bool done;         /* the run is done: it has no other attempt unless it gets more steps */
    /* These tell what changes: resources of the job, the run's length, its learning rate. */
    bool job, length, rate;
    int rc;
    struct err *err;
};

/* ---- what a key is ---- */

static bool hash_known(struct hash128 h)
{
    return h.hi || h.lo;
}

static bool hash_same(struct hash128 a, struct hash128 b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

/* Returns how a member of a stage may change. */
static enum kind stage_kind(const struct comparison *c, int64_t stage, const char *field,
                            const cJSON *from, const cJSON *to)
{
    const struct run_stage *a = &c->old->stages[stage], *b = &c->given->stages[stage];
    if (stage >= c->old->n_stages)
        return KIND_LENGTH;
    if (strcmp(field, ".plan") == 0) /* stage_plan_choose compares plans by content */
        return KIND_SILENT;
    if (strcmp(field, ".data") == 0 && hash_known(a->data_fingerprint) &&
        hash_same(a->data_fingerprint, b->data_fingerprint))
        return KIND_FREE;
    bool last = stage == c->old->n_stages - 1 && strcmp(field, ".steps") == 0;
    return last && from && to && to->valuedouble > from->valuedouble ? KIND_LENGTH : KIND_FIXED;
}

static enum kind kind_of(const struct comparison *c, const char *key, const cJSON *from,
                         const cJSON *to)
{
    static const char *const may[] = {"checkpoint.", "budget.", "validation.", "resources.",
                                      "data."};
    long long stage;
    int n = 0;
    if (sscanf(key, "stages[%lld]%n", &stage, &n) == 1 && n > 0)
        return stage_kind(c, stage, key + n, from, to);
    if (strcmp(key, "validation.data_fingerprint") == 0)
        return from && to && strcmp(c->old->validation.data, c->given->validation.data) == 0
                   ? KIND_FIXED
                   : KIND_FREE;
    for (size_t i = 0; i < ARRAY_LEN(may); i++)
        if (str_starts(key, may[i]))
            return KIND_FREE;
    if (strcmp(key, "adamw.lr") == 0 || str_starts(key, "schedule."))
        return KIND_RATE;
    if (strcmp(key, "init.from") == 0 && hash_known(c->old->warm.hash) &&
        hash_same(c->old->warm.hash, c->given->warm.hash))
        return KIND_FREE;
    return KIND_FIXED;
}

/* Tells whether file or options name this key; otherwise its value is a default.
 * resources.ranks_per_node follows from the plan: without a given plan it counts as named only if
 * the old plan is the default one. */
static bool is_said(const struct comparison *c, const char *key)
{
    char section[64];
    /* The fingerprint belongs to the data, and is named with them. */
    key = strcmp(key, "validation.data_fingerprint") == 0 ? "validation.data" : key;
    const char *dot = strchr(key, '.');
    if (strcmp(key, "resources.ranks_per_node") == 0 && !c->ask->plan_given && !c->plain_plan)
        return false;
    for (const char *const *o = c->ask->options; *o; o++)
        if (strcmp(*o, key) == 0)
            return true;
    if (!dot || dot == key || (size_t)(dot - key) >= sizeof section || strchr(key, '['))
        return true;
    snprintf(section, sizeof section, "%.*s", (int)(dot - key), key);
    return json_member(json_member(c->ask->file, section), dot + 1) != NULL;
}

/* ---- messages for the user ---- */

static void value_text(const cJSON *value, struct str *out)
{
    char *text = value ? cJSON_PrintUnformatted(value) : NULL;
    str_add(out, cJSON_IsString(value) ? value->valuestring : text ? text : "nothing");
    cJSON_free(text);
}

static void tell(struct str *to, const char *between, const char *key, const char *from,
                 const char *by)
{
    str_addf(to, "%s%s %s -> %s", to->len ? between : "", key, from, by);
}

static void changed(struct comparison *c, const char *key, const char *from, const char *to)
{
    json_obj_begin(&c->out, NULL);
    json_put_text(&c->out, "key", key);
    json_put_text(&c->out, "from", from);
    json_put_text(&c->out, "to", to);
    json_obj_end(&c->out);
    tell(&c->lines, "\n", key, from, to);
    c->n++;
}

/* Keeps the old value of a key that neither file nor options name, and notes that for the user. */
static void stays(struct comparison *c, const char *key, const cJSON *from, cJSON *parent)
{
    const char *field = strrchr(key, '.') + 1;
    struct str text = STR_INIT;
    cJSON *copy = from ? cJSON_Duplicate(from, true) : NULL;
    if (!from)
        cJSON_DeleteItemFromObjectCaseSensitive(parent, field);
    else if (!copy ||
             !(json_member(parent, field)
                   ? cJSON_ReplaceItemInObjectCaseSensitive(parent, field, copy)
                   : cJSON_AddItemToObject(parent, field, copy)))
        c->rc = err_set(c->err, ERR_NOMEM, "out of memory comparing run files");
    value_text(from, &text);
    if (strcmp(key, "resources.ranks_per_node") != 0)
        str_addf(&c->lines, "%s%s stays %s: neither file nor options name it",
                 c->lines.len ? "\n" : "", key, text.len ? text.p : "");
    str_release(&text);
}

/* Decides whether a key whose two values differ changes, keeps its old value, or is refused. */
static void differ(struct comparison *c, const char *key, const cJSON *from, const cJSON *to,
                   cJSON *parent)
{
    struct str a = STR_INIT, b = STR_INIT;
    enum kind kind = kind_of(c, key, from, to);
    bool unasked = (kind == KIND_LENGTH && !c->ask->extend) ||
                   (kind == KIND_RATE && !c->ask->rate);
    c->wants_extend = c->wants_extend || (unasked && kind == KIND_LENGTH);
    c->wants_rate = c->wants_rate || (unasked && kind == KIND_RATE);
    value_text(from, &a);
    value_text(to, &b);
    if (str_check(&a, c->err) < 0 || str_check(&b, c->err) < 0)
        c->rc = ERR_NOMEM;
    else if (kind == KIND_FIXED || unasked)
        tell(kind == KIND_FIXED ? &c->fixed : &c->unasked, "; ", key, a.p, b.p);
    else if (kind == KIND_FREE && !is_said(c, key))
        stays(c, key, from, parent);
    else if (kind != KIND_SILENT)
        changed(c, key, a.p, b.p);
    bool taken = c->rc == 0 && !unasked && (kind != KIND_FREE || is_said(c, key));
    c->length |= taken && kind == KIND_LENGTH;
    c->rate |= taken && kind == KIND_RATE;
    c->job |= taken && str_starts(key, "resources.") && strcmp(key, "resources.node_agents") != 0;
    str_release(&a);
    str_release(&b);
}

/* ---- two canonical run files ---- */

static void compare(struct comparison *c, const char *key, const cJSON *from, cJSON *to,
                    cJSON *parent);

static void compare_member(struct comparison *c, const char *key, const char *name, int index,
                           const cJSON *from, cJSON *to, cJSON *parent)
{
    char path[512];
    if (name)
        snprintf(path, sizeof path, "%s%s%s", key, *key ? "." : "", name);
    else
        snprintf(path, sizeof path, "%s[%d]", key, index);
    compare(c, path, from, to, parent);
}

static void compare(struct comparison *c, const char *key, const cJSON *from, cJSON *to,
                    cJSON *parent)
{
    bool objects = cJSON_IsObject(from) && cJSON_IsObject(to),
         arrays = cJSON_IsArray(from) && cJSON_IsArray(to);
    if (!objects && !arrays) {
        if (!cJSON_Compare(from, to, true))
            differ(c, key, from, to, parent);
        return;
    }
    int i = 0;
    for (const cJSON *a = from->child; a; a = a->next, i++)
        compare_member(c, key, objects ? a->string : NULL, i, a,
                       objects ? cJSON_GetObjectItemCaseSensitive(to, a->string)
                               : cJSON_GetArrayItem(to, i),
                       to);
    i = 0;
    for (cJSON *b = to->child, *next; b; b = next, i++) {
        next = b->next; /* compare_member may remove this member */
        if (objects ? !json_member(from, b->string) : i >= cJSON_GetArraySize(from))
            compare_member(c, key, objects ? b->string : NULL, i, NULL, b, to);
    }
}

static int tree_of(const struct run *r, struct json_doc *out, struct err *err)
{
    struct str text = STR_INIT;
    struct json_out o;
    int rc;
    json_out_init(&o, &text, 0);
    run_write(r, &o);
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    rc = json_parse(text.p, text.len, r->name, out, err);
out:
    str_release(&text);
    return rc;
}

static int refused(const struct comparison *c, struct err *err)
{
    if (c->fixed.len)
        return err_set(err, ERR_INPUT,
                       "run '%s' exists and was made with another value of what cannot change: "
                       "%s: give this one another name (--name)",
                       c->old->name, c->fixed.p);
    if (c->unasked.len)
        return err_set(err, ERR_INPUT,
                       "run '%s' exists, and this needs a word more: "
                       "%s: give %s%s%s, or another name (--name)",
                       c->old->name, c->unasked.p,
                       c->wants_extend ? "--extend for more steps or stages" : "",
                       c->wants_extend && c->wants_rate ? ", " : "",
                       c->wants_rate ? "--change lr for another learning rate of the steps to come"
                                     : "");
    return 0;
}

/* Tells whether the folder holds a dataset with this fingerprint, in its newest or an earlier
 * generation. */
static bool generation_is_there(const char *data, struct hash128 fingerprint)
{
    struct dataset d = {0};
    bool there = hash_known(fingerprint) &&
                 dataset_load_generation(data, fingerprint, &d, NULL) == 0 &&
                 hash_same(d.fingerprint, fingerprint);
    dataset_release(&d);
    return there;
}

static void validation_keep(const struct comparison *c, struct run *given)
{
    const struct run_validation *old = &c->old->validation;
    bool open = !json_member(json_member(c->ask->file, "validation"), "data_fingerprint");
    if (open && old->data_fingerprint && given->validation.data_fingerprint &&
        strcmp(old->data, given->validation.data) == 0 &&
        generation_is_there(old->data, run_validation_generation(c->old)))
        given->validation.data_fingerprint = old->data_fingerprint;
}

/* Gives each stage, and the validation, the data generation that the run began with, if the file
 * names no data_fingerprint for it and that generation still exists. */
static void generations_keep(const struct comparison *c, struct run *given)
{
    const cJSON *stages = json_member(c->ask->file, "stages");
    for (int64_t i = 0; i < given->n_stages; i++) {
        struct run_stage *s = &given->stages[i];
        struct hash128 old = run_data_generation(c->old, s->data);
        if (!json_member(cJSON_GetArrayItem(stages, (int)i), "data_fingerprint") &&
            generation_is_there(s->data, old))
            s->data_fingerprint = old;
    }
    validation_keep(c, given);
}

/* Compares the existing run with the given one. *merged: the run with the changes. */
static int runs_compare(struct comparison *c, struct run *merged, struct err *err)
{
    struct run given = *c->ask->run; /* borrows the texts */
    struct json_doc a = {0}, b = {0};
    char *text = NULL;
    int rc;
    if (!given.warmup_given)
        given.warmup_steps = c->old->warmup_steps; /* its default depends on the number of steps */
    memcpy(given.past, c->old->past, sizeof given.past);
    given.n_past = c->old->n_past;
    generations_keep(c, &given);
    c->given = &given;
    if ((rc = tree_of(c->old, &a, err)) < 0)
        goto out;
    if ((rc = tree_of(&given, &b, err)) < 0)
        goto out;
    compare(c, "", a.root, b.root, NULL);
    if ((rc = c->rc < 0 ? c->rc : refused(c, err)) < 0)
        goto out;
    text = cJSON_PrintUnformatted(b.root);
    rc = text ? run_parse(text, strlen(text), "the changed run", merged, err)
              : err_set(err, ERR_NOMEM, "out of memory comparing run files");
out:
    cJSON_free(text);
    json_release(&a);
    json_release(&b);
    c->given = NULL;
    return rc;
}

/* ---- plans ---- */

/* Tells whether the plan has only a layout, and no predictions or measurements. */
static bool plan_is_bare(const struct plan *p)
{
    return p->peak_flops == 0 && p->n_terms == 0 && p->n_evidence == 0;
}

bool change_plan_is_plain(const struct plan *p)
{
    struct layout plain = layout_default();
    plain.dp = p->layout.dp;
    return layout_equal(&plain, &p->layout) && plan_is_bare(p);
}

static int plan_text(const struct plan *p, struct str *out, struct err *err)
{
    struct json_out o;
    json_out_init(&o, out, 0);
    plan_write(p, &o);
    return str_check(out, err);
}

static int plan_differ(struct comparison *c, const char *key, const struct plan *from,
                       const struct plan *to, bool *differs, struct err *err)
{
    struct str a = STR_INIT, b = STR_INIT, x = STR_INIT, y = STR_INIT;
    int rc;
    if ((rc = plan_text(from, &a, err)) < 0)
        goto out;
    if ((rc = plan_text(to, &b, err)) < 0)
        goto out;
    layout_format(&from->layout, &x);
    layout_format(&to->layout, &y);
    if ((rc = str_check(&x, err)) < 0)
        goto out;
    if ((rc = str_check(&y, err)) < 0)
        goto out;
    *differs = strcmp(a.p, b.p) != 0;
    if (*differs)
        changed(c, key, x.p,
                strcmp(x.p, y.p) == 0 ? "the same layout, measured anew" : y.p);
out:
    str_release(&a), str_release(&b), str_release(&x), str_release(&y);
    return rc;
}

/* Chooses the plan of the run: the given one; or the existing one, if it is for the new number of
 * ranks; or the default one. If the given plan is only the layout that the run has already, the
 * existing plan stays with its measurements. */
static int plan_choose(struct comparison *c, const struct plan *old, struct run *run,
                       struct plan *out, struct err *err)
{
    int64_t world = run->resources.nodes * run->resources.ranks_per_node;
    bool differs = false;
    bool same = plan_is_bare(c->ask->plan) && layout_equal(&c->ask->plan->layout, &old->layout);
    *out = (c->ask->plan_given && !same) || layout_world(&old->layout) != world ? *c->ask->plan
                                                                                : *old;
    if (layout_world(&out->layout) != world)
        return err_set(err, ERR_INPUT,
                       "run '%s' gets %lld ranks and its plan is for %lld: "
                       "give a --layout or --plan for as many",
                       run->name, (long long)world, (long long)layout_world(&out->layout));
    int rc;
    if ((rc = layout_check(&out->layout, &run->model, out->seq, out->gbs, world, err)) < 0)
        return rc;
    return plan_differ(c, "plan", old, out, &differs, err);
}

/* Compares a stage's plan by its content, and writes a new plan to a file of this revision in the
 * run's folder. */
static int stage_plan_choose(struct comparison *c, const struct launch *l, int64_t stage,
                             int64_t revision, struct run *run, struct err *err)
{
    char path[LIMIT_PATH_BYTES + 64], key[32];
    const char *from = stage < c->old->n_stages ? c->old->stages[stage].plan : NULL,
               *given = c->ask->run->stages[stage].plan;
    struct plan old, new;
    bool differs = true;
    int rc;
    snprintf(key, sizeof key, "stages[%lld].plan", (long long)stage);
    run->stages[stage].plan = from;
    if (!given)
        return 0;
    if ((rc = plan_load(given, &new, err)) < 0)
        return rc;
    if (from && (rc = plan_load(from, &old, err)) < 0)
        return rc;
    if (from && (rc = plan_differ(c, key, &old, &new, &differs, err)) < 0)
        return rc;
    if (!from)
        changed(c, key, "the run's", given);
    if (!differs)
        return 0;
    snprintf(path, sizeof path, "%s/stage-%02lld.r%lld.plan.json", l->run_dir, (long long)stage,
             (long long)revision);
    int64_t world = run->resources.nodes * run->resources.ranks_per_node;
    if ((rc = layout_check(&new.layout, &run->model, new.seq, new.gbs, world, err)) < 0)
        return err_context(err, "%s '%s'", key, given);
    run->stages[stage].plan = arena_strdup(&run->arena, path);
    if (c->ask->dry)
        return 0;
    return run->stages[stage].plan ? plan_save(&new, path, err)
                                   : err_set(err, ERR_NOMEM, "out of memory");
}

/* ---- saving the change for the next attempt ---- */

static int event_changed(struct evlog *log, const struct next *n, struct err *err)
{
    struct evlog_event e;
    event_begin(log, &e, changed);
    event_int(&e, changed, revision, n->revision);
    json_put_tree(&e.out, EVENT_FIELD(changed, changes, TREE), json_member(n->doc.root, "changes"));
    return evlog_commit(log, &e, true, err);
}

static int event_extended(struct evlog *log, const struct next *n, struct err *err)
{
    struct evlog_event e;
    char hash[HASH_TEXT_BYTES];
    event_begin(log, &e, extended);
    event_int(&e, extended, revision, n->revision);
    event_int(&e, extended, from_steps, n->extended_from);
    event_int(&e, extended, total_steps, run_total_steps(&n->run));
    event_int(&e, extended, stages, n->run.n_stages);
    event_text(&e, extended, config_hash, hash_format(run_config_hash(&n->run), hash));
    return evlog_commit(log, &e, true, err);
}

/* Writes the events of the waiting change, unless the log has them: the process that made the
 * change may have been killed before it wrote them. */
static int events_write(const struct launch *l, const struct run_state *state, const struct next *n,
                        struct err *err)
{
    struct evlog *log = NULL;
    int rc;
    if (!n->waits || state->revision >= n->revision)
        return 0;
    if ((rc = launch_log_open(l, NULL, &log, err)) < 0)
        return rc;
    if (n->extended_from > 0 && (rc = event_extended(log, n, err)) < 0)
        goto out;
    rc = event_changed(log, n, err);
out:
    evlog_close(log);
    return rc;
}

/* Tells the user, if the learning rate decays over the run's steps, that a run of the new length
 * would have had other rates in the steps done. */
static void length_tell(struct comparison *c, const struct run *run)
{
    if (c->length && run->lr_schedule != LR_CONSTANT)
        str_addf(&c->lines,
                 "\nthe rate falls (%s) over %lld steps now: "
                 "a run of so many from its start would have had other rates until here",
                 lr_schedule_names[run->lr_schedule], (long long)run_total_steps(run));
}

/* Refuses to change a run that is done, because the change would never take effect. */
static int done_refuse(struct comparison *c, struct err *err)
{
    struct str line = STR_INIT;
    for (const char *p = c->lines.p; p; p = *p ? p + 1 : NULL) {
        size_t len = strcspn(p, "\n");
        str_addf(&line, "%.*s%s", (int)len, p, p[len] ? "; " : "");
        p += len;
    }
    int rc = err_set(err, ERR_INPUT,
                     "run '%s' is done and makes no other attempt, in which this could hold: "
                     "%s: give more steps with --extend, or another name (--name)",
                     c->old->name, line.p ? line.p : "");
    str_release(&line);
    return rc;
}

/* Saves the change for the next attempt. */
static int leave(struct comparison *c, const struct launch *l, const struct next *before,
                 struct next *after, struct err *err)
{
    if (c->done && !c->length)
        return done_refuse(c, err);
    after->job_revision = c->job ? after->revision : before->waits ? before->job_revision : 0;
    after->extended_from = c->length && !before->extended_from ? run_total_steps(&before->run)
                                                               : before->extended_from;
    length_tell(c, &after->run);
    json_arr_end(&c->out);
    int rc = str_check(&c->changes, err);
    return rc < 0 || c->ask->dry ? rc : next_save(after, &c->changes, l->run_dir, err);
}

static int changes_find(struct comparison *c, const struct launch *l, const struct next *before,
                        struct next *after, struct err *err)
{
    int rc;
    c->old = &before->run;
    c->plain_plan = change_plan_is_plain(&before->plan);
    json_out_init(&c->out, &c->changes, 0);
    json_arr_begin(&c->out, NULL);
    if ((rc = runs_compare(c, &after->run, err)) < 0)
        return rc;
    if ((rc = plan_choose(c, &before->plan, &after->run, &after->plan, err)) < 0)
        return rc;
    for (int64_t i = 0; i < after->run.n_stages; i++)
        if ((rc = stage_plan_choose(c, l, i, after->revision, &after->run, err)) < 0)
            return rc;
    if (c->n > 0 && (rc = leave(c, l, before, after, err)) < 0)
        return rc;
    return str_check(&c->lines, err);
}

static int apply_locked(const struct launch *l, const struct change_ask *ask,
                        const struct run_state *state, struct change_told *told, struct err *err)
{
    /* The run before the change, after it, and as saved: three such structs are too large for the
     * stack. */
    struct next *before = calloc(3, sizeof *before);
    struct comparison c = {.ask = ask, .done = state->done, .err = err};
    int rc;
    if (!before)
        return err_set(err, ERR_NOMEM, "out of memory for a change");
    struct next *after = before + 1, *now = before + 2;
    if ((rc = next_load(l->run_dir, before, err)) < 0)
        goto out;
    if (!ask->dry && (rc = events_write(l, state, before, err)) < 0)
        goto out;
    after->revision = num_max_i64(state->revision, before->revision) + 1;
    if ((rc = changes_find(&c, l, before, after, err)) < 0)
        goto out;
    bool left = !ask->dry && c.n > 0;
    if (left && (rc = next_load(l->run_dir, now, err)) < 0)
        goto out;
    if (left && (rc = events_write(l, state, now, err)) < 0)
        goto out;
    *told = (struct change_told){
        c.lines, c.n,
        state->n_attempts ? state->attempts[state->n_attempts - 1].number + 1 : 1};
    c.lines = (struct str)STR_INIT;
out:
    str_release(&c.lines);
    str_release(&c.changes), str_release(&c.fixed), str_release(&c.unasked);
    next_release(before), next_release(after), next_release(now);
    free(before);
    return rc;
}

int change_apply(const struct launch *l, const struct change_ask *ask, struct change_told *told,
                 struct err *err)
{
    struct run_state state;
    struct lease *lock = NULL;
    int rc;
    run_state_init(&state);
    if ((rc = ask->dry ? run_state_load(l->run_dir, &state, err)
                       : launch_lock(l, &lock, &state, err)) < 0)
        goto out;
    rc = apply_locked(l, ask, &state, told, err);
out:
    run_state_release(&state);
    lease_drop(lock);
    return rc;
}
