/* This file reads and writes the spool's records (JSON, reel.sched-job/1) and programs
 * (NUL-separated). local_machine.c reads and writes the machine's settings. */
#include "launcher/sched/local_priv.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/num.h"

#define REC_SCHEMA "reel.sched-job/1"
#define PROGRAM_MAGIC "reel.sched-program/1"

enum { PROGRAM_BYTES = 16 << 20 }; /* for argv and environment: more than execve accepts */

static const char *const state_names[] = {
#define STATE_NAME(name, text, terminal) [name] = text,
    SCHED_STATE_LIST(STATE_NAME)
#undef STATE_NAME
    NULL};
static const char *const stop_names[] = {"none", "time_limit", "preempt", "shutdown", "requeue",
                                         "cancel", NULL};

/* ---- folder and lock ---- */

int local_spool_init(struct local_spool *sp, const char *dir, struct err *err)
{
    *sp = (struct local_spool){0};
    if ((size_t)snprintf(sp->dir, sizeof sp->dir, "%s", dir) >= sizeof sp->dir - LIMIT_NAME_BYTES)
        return err_set(err, ERR_LIMIT,
                       "the spool's path '%s' is too long: choose a shorter REEL_HOME", dir);
    arena_init(&sp->texts, 0);
    return 0;
}

void local_spool_release(struct local_spool *sp)
{
    arena_release(&sp->texts);
}

int local_spool_path(const struct local_spool *sp, const char *name, char out[LIMIT_PATH_BYTES],
                     struct err *err)
{
    int n = snprintf(out, LIMIT_PATH_BYTES, "%.*s/%s", LIMIT_PATH_BYTES - LIMIT_NAME_BYTES, sp->dir,
                     name);
    return n < LIMIT_PATH_BYTES
               ? 0
               : err_set(err, ERR_LIMIT, "the path of '%s' in the spool is too long", name);
}

static int job_path(const struct local_spool *sp, int64_t id, const char *what,
                    char out[LIMIT_PATH_BYTES], struct err *err)
{
    char name[64];
    snprintf(name, sizeof name, "%lld.%s", (long long)id, what);
    return local_spool_path(sp, name, out, err);
}

int local_lock(const struct local_spool *sp, double wait_s, struct lease **lock, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    int rc;
    if ((rc = local_spool_path(sp, "lock", path, err)) < 0)
        return rc;
    return lease_take(path, wait_s, lock, err);
}

/* ---- records ---- */

#define AT(field) .offset = offsetof(struct local_rec, field)
static const struct json_field rec_fields[] = {
    {.name = "schema", .type = JSON_ANY},
    {.name = "id", .type = JSON_INT, AT(id), .min = 1, .max = 9e15},
    {.name = "token", .type = JSON_TEXT, AT(token)},
    {.name = "name", .type = JSON_TEXT, AT(name)},
    {.name = "state", .type = JSON_ENUM, AT(state), .names = state_names},
    {.name = "stop", .type = JSON_ENUM, AT(stop), .names = stop_names},
    {.name = "reason", .type = JSON_TEXT, AT(reason)},
    {.name = "priority", .type = JSON_INT, AT(priority)},
    {.name = "cores", .type = JSON_INT, AT(cores), .min = 1, .max = LIMIT_RANKS},
    {.name = "restarts", .type = JSON_INT, AT(restarts), .min = 0, .max = 1e9},
    {.name = "requeue", .type = JSON_BOOL, AT(requeue)},
    {.name = "after", .type = JSON_INT, AT(after), .min = 0, .max = 9e15, .optional = true},
    {.name = "signal", .type = JSON_INT, AT(signal), .min = 0, .max = 64},
    {.name = "time_limit_s", .type = JSON_NUM, AT(time_limit_s)},
    {.name = "signal_lead_s", .type = JSON_NUM, AT(signal_lead_s)},
    {.name = "submitted_at", .type = JSON_NUM, AT(submitted_at)},
    {.name = "starting_at", .type = JSON_NUM, AT(starting_at)},
    {.name = "starts", .type = JSON_INT, AT(starts)},
    {.name = "started_at", .type = JSON_NUM, AT(started_at)},
    {.name = "ended_at", .type = JSON_NUM, AT(ended_at)},
    {.name = "boot", .type = JSON_TEXT, AT(boot)},
    {.name = "guard_pid", .type = JSON_INT, AT(guard.pid)},
    {.name = "guard_start", .type = JSON_INT, AT(guard.start)},
    {.name = "keeper_pid", .type = JSON_INT, AT(keeper.pid)},
    {.name = "keeper_start", .type = JSON_INT, AT(keeper.start)},
    {.name = "batch_pid", .type = JSON_INT, AT(batch.pid)},
    {.name = "batch_start", .type = JSON_INT, AT(batch.start)},
    {.name = "exit_code", .type = JSON_INT, AT(exit_code)},
    {.name = "exit_signal", .type = JSON_INT, AT(exit_signal)},
};
#undef AT

/* Writes a record by the table above, which is also used to read one. */
static void rec_format(const struct local_rec *r, struct str *out)
{
    struct json_out o;
    json_out_init(&o, out, 1);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", REC_SCHEMA);
    for (size_t i = 1; i < ARRAY_LEN(rec_fields); i++) {
        const struct json_field *f = &rec_fields[i];
        const char *at = (const char *)r + f->offset;
        switch (f->type) {
        case JSON_INT: json_put_int(&o, f->name, *(const int64_t *)at); break;
        case JSON_NUM: json_put_num(&o, f->name, *(const double *)at); break;
        case JSON_BOOL: json_put_bool(&o, f->name, *(const bool *)at); break;
        case JSON_TEXT: json_put_text(&o, f->name, *(const char *const *)at); break;
        default: json_put_text(&o, f->name, f->names[*(const int *)at]); break;
        }
    }
    json_obj_end(&o);
    str_addc(out, '\n');
}

int local_rec_save(const struct local_spool *sp, const struct local_rec *rec, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct str text = STR_INIT;
    int rc;
    rec_format(rec, &text);
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    if ((rc = job_path(sp, rec->id, "job", path, err)) < 0)
        goto out;
    rc = file_publish(path, text.p, text.len, err);
out:
    str_release(&text);
    return rc;
}

int local_rec_load(const struct local_spool *sp, int64_t id, struct arena *arena,
                   struct local_rec *out, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct json_doc doc = {0};
    struct local_rec rec = {0};
    int rc;
    if ((rc = job_path(sp, id, "job", path, err)) < 0)
        return rc;
    if (!file_exists(path))
        return err_set(err, ERR_NOT_FOUND, "there is no job %lld on this machine", (long long)id);
    if ((rc = json_load(path, &doc, err)) < 0)
        return rc;
    if ((rc = json_check_schema(&doc, REC_SCHEMA, err)) < 0)
        goto out;
    if ((rc = json_read(&doc, doc.root, "", rec_fields, ARRAY_LEN(rec_fields), arena, &rec,
                        err)) < 0)
        goto out;
    if (rec.id == id)
        *out = rec;
    else
        rc = err_set(err, ERR_CORRUPT, "%s: field 'id' is %lld: this is another job's record", path,
                     (long long)rec.id);
out:
    json_release(&doc);
    return rc;
}

/* Returns a record for a file that cannot be read. Nothing is known about that job, and it does not
 * block others. */
static struct local_rec rec_unreadable(int64_t id, const char *why, struct arena *arena)
{
    const char *text = arena_strdup(arena, why);
    return (struct local_rec){.id = id,
                              .token = "", .name = "", .boot = "", .reason = text ? text : "",
                              .state = SCHED_UNKNOWN,
                              .cores = 1,
                              .exit_code = -1};
}

static int compare_ids(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Returns the id in a file name: "12.job" is 12; 0 for every other name. */
static int64_t name_id(const char *name)
{
    char *end;
    long long id = name[0] >= '1' && name[0] <= '9' ? strtoll(name, &end, 10) : 0;
    return id > 0 && strcmp(end, ".job") == 0 ? id : 0;
}

/* Lists the ids of all records, sorted, in the arena. */
static int ids_list(const struct local_spool *sp, bool locked, struct arena *arena, int64_t **ids,
                    size_t *n, struct err *err)
{
    size_t cap = 64, count = 0;
    int64_t *v = arena_array(arena, cap, sizeof *v);
    DIR *d = opendir(sp->dir);
    if (!d && errno != ENOENT)
        return err_set_errno(err, ERR_IO, "cannot read the spool '%s'", sp->dir);
    for (struct dirent *e; v && d && (e = readdir(d));) {
        int64_t id = name_id(e->d_name);
        if (locked && strstr(e->d_name, ".tmp."))
            unlinkat(dirfd(d), e->d_name, 0);
        if (id == 0)
            continue;
        if (count == cap) {
            int64_t *more = arena_array(arena, 2 * cap, sizeof *v);
            if (more)
                memcpy(more, v, cap * sizeof *v);
            v = more;
            cap *= 2;
        }
        if (v)
            v[count++] = id;
    }
    if (d)
        closedir(d);
    if (!v)
        return err_set(err, ERR_NOMEM, "out of memory while listing the jobs in '%s'", sp->dir);
    qsort(v, count, sizeof *v, compare_ids);
    *ids = v;
    *n = count;
    return 0;
}

int local_recs_load(const struct local_spool *sp, bool locked, struct local_recs *out,
                    struct err *err)
{
    struct local_recs recs = {0};
    int64_t *ids = NULL;
    size_t n = 0;
    int rc;
    arena_init(&recs.arena, 0);
    if ((rc = ids_list(sp, locked, &recs.arena, &ids, &n, err)) < 0)
        goto out;
    if (!(recs.v = arena_array(&recs.arena, n + 1, sizeof *recs.v))) {
        rc = err_set(err, ERR_NOMEM, "out of memory while reading %zu job records", n);
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        struct err why = {0};
        if (local_rec_load(sp, ids[i], &recs.arena, &recs.v[i], &why) < 0)
            recs.v[i] = rec_unreadable(ids[i], why.text, &recs.arena);
    }
    recs.n = n;
    *out = recs;
    recs.arena = (struct arena){0};
out:
    arena_release(&recs.arena);
    return rc;
}

void local_recs_release(struct local_recs *recs)
{
    arena_release(&recs->arena);
    *recs = (struct local_recs){0};
}

/* ---- programs ---- */

static void add_list(struct str *out, const char *const *list)
{
    size_t n = 0;
    while (list[n])
        n++;
    str_addf(out, "%zu", n);
    str_addc(out, '\0');
    for (size_t i = 0; i < n; i++)
        str_addn(out, list[i], strlen(list[i]) + 1);
}

int local_program_save(const struct local_spool *sp, int64_t id, const struct sched_spec *spec,
                       struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct str text = STR_INIT;
    int rc;
    str_addn(&text, PROGRAM_MAGIC, sizeof PROGRAM_MAGIC);
    str_addn(&text, spec->cwd, strlen(spec->cwd) + 1);
    str_addn(&text, spec->log_path, strlen(spec->log_path) + 1);
    add_list(&text, spec->argv);
    add_list(&text, spec->env);
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    if (text.len > PROGRAM_BYTES) {
        rc = err_set(err, ERR_LIMIT,
                     "job '%s': arguments and environment take %zu bytes: at most %d fit",
                     spec->name, text.len, PROGRAM_BYTES);
        goto out;
    }
    if ((rc = job_path(sp, id, "program", path, err)) < 0)
        goto out;
    /* Arguments and environment may hold secrets. */
    rc = file_publish_private(path, text.p, text.len, err);
out:
    str_release(&text);
    return rc;
}

/* Returns the string at *p, and moves *p past it; NULL at the end. */
static const char *take(const char **p, const char *end)
{
    const char *s = *p;
    if (s >= end)
        return NULL;
    *p = s + strlen(s) + 1; /* every string ends with a NUL, the last one by struct str */
    return s;
}

static const char **take_list(const char **p, const char *end)
{
    const char *count = take(p, end);
    int64_t n;
    if (!count || num_parse_i64(count, "count", &n, NULL) < 0 || n < 0 || n > end - *p)
        return NULL;
    const char **list = calloc((size_t)n + 1, sizeof *list);
    for (int64_t i = 0; list && i < n; i++)
        if (!(list[i] = take(p, end))) {
            free(list);
            return NULL;
        }
    return list;
}

/* Splits a program's text into its strings; returns false if it is no such text or is cut short. */
static bool program_take(struct local_program *g)
{
    const char *p = g->text.p, *end = p + g->text.len, *magic = take(&p, end);
    if (!magic || strcmp(magic, PROGRAM_MAGIC) != 0)
        return false;
    return (g->cwd = take(&p, end)) && (g->log_path = take(&p, end)) &&
           (g->argv = take_list(&p, end)) && (g->env = take_list(&p, end)) && g->argv[0];
}

int local_program_load(const struct local_spool *sp, int64_t id, struct local_program *out,
                       struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct local_program g = {.text = STR_INIT};
    int rc;
    if ((rc = job_path(sp, id, "program", path, err)) < 0)
        return rc;
    if ((rc = file_read(path, PROGRAM_BYTES, &g.text, err)) < 0)
        goto out;
    if (!program_take(&g)) {
        rc = err_set(err, ERR_CORRUPT, "%s: not a job's program, or cut short", path);
        goto out;
    }
    *out = g;
    g = (struct local_program){.text = STR_INIT};
out:
    local_program_release(&g);
    return rc;
}

void local_program_release(struct local_program *p)
{
    free(p->argv);
    free(p->env);
    str_release(&p->text);
    *p = (struct local_program){.text = STR_INIT};
}

/* ---- environments ---- */

static bool same_name(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");
    return strncmp(a, b, n) == 0 && b[n] == '=';
}

static bool overridden(const char *entry, const char *const *own)
{
    for (size_t i = 0; own[i]; i++)
        if (same_name(own[i], entry))
            return true;
    return false;
}

int local_env_merge(const char *const *base, const char *const *own, const char ***out,
                    struct err *err)
{
    size_t n_base = 0, n_own = 0, n = 0;
    while (base[n_base])
        n_base++;
    while (own[n_own])
        n_own++;
    const char **env = calloc(n_base + n_own + 1, sizeof *env);
    if (!env)
        return err_set(err, ERR_NOMEM, "out of memory for an environment of %zu entries",
                       n_base + n_own);
    for (size_t i = 0; i < n_base; i++)
        if (!overridden(base[i], own))
            env[n++] = base[i];
    memcpy(env + n, own, n_own * sizeof *own);
    *out = env;
    return 0;
}
