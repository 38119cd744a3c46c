/* This file keeps the controller's answer that all processes of a user share.
 *
 * The file is <home>/sched/slurm/poll-<cluster>.json, where <cluster> is a hash of SLURM_CONF, so
 * that processes with other configuration files have another answer:
 *
 *     {"schema": "reel.slurm-poll/1", "asked_at": s, "answered_at": s, "said": "...",
 *      "jobs": [{...}, ...]}
 *
 * asked_at is the time of the last request, answered_at that of the last answer without an error;
 * said is the error of the last request, "" if there was none. A process that finds the last
 * request older than poll_s takes the lock and asks; the others read the file. A failed request
 * counts too, so that a controller in trouble is not asked more often than a healthy one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/lease.h"
#include "base/str.h"
#include "launcher/sched/slurm_priv.h"
#include "launcher/sched/slurm_wire.h"

static const char poll_schema[] = "reel.slurm-poll/1";
enum { LOCK_WAIT_S = 90 };

static void paths(const struct sched_slurm *s, char file[LIMIT_PATH_BYTES + 64],
                  char lock[LIMIT_PATH_BYTES + 64])
{
    const char *conf = getenv("SLURM_CONF");
    char hex[HASH_TEXT_BYTES];
    hash_format(hash_128(conf ? conf : "", conf ? strlen(conf) : 0), hex);
    snprintf(file, LIMIT_PATH_BYTES + 64, "%s/poll-%.16s.json", s->dir, hex);
    snprintf(lock, LIMIT_PATH_BYTES + 64, "%s/poll-%.16s.lock", s->dir, hex);
}

/* ---- the file ---- */

struct answer {
    double asked_at, answered_at;
    const char *said;
    struct slurm_jobs jobs;
};

static int answer_read(const struct json_doc *doc, struct arena *arena, struct answer *out,
                       struct err *err)
{
    out->asked_at = json_num(doc->root, "asked_at", 0);
    out->answered_at = json_num(doc->root, "answered_at", 0);
    out->said = arena_strdup(arena, json_text(doc->root, "said", ""));
    if (!out->said)
        return err_set(err, ERR_NOMEM, "out of memory");
    return slurm_wire_jobs_read(json_member(doc->root, "jobs"), arena, &out->jobs, err);
}

/* Loads the answer. If the file is missing or cannot be read, *out is as if nothing had been asked
 * yet, because the file is only a cache. */
static int answer_load(const char *path, struct arena *arena, struct answer *out, struct err *err)
{
    struct json_doc doc = {0};
    int rc = 0;
    *out = (struct answer){.said = ""};
    if (json_load(path, &doc, NULL) == 0 && json_check_schema(&doc, poll_schema, NULL) == 0)
        rc = answer_read(&doc, arena, out, err);
    json_release(&doc);
    return rc;
}

static int answer_save(const char *path, const struct answer *a, struct err *err)
{
    struct str text = STR_INIT;
    struct json_out o;
    int rc;
    json_out_init(&o, &text, 0);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", poll_schema);
    json_put_num(&o, "asked_at", a->asked_at);
    json_put_num(&o, "answered_at", a->answered_at);
    json_put_text(&o, "said", a->said);
    json_arr_begin(&o, "jobs");
    for (size_t i = 0; i < a->jobs.n; i++)
        slurm_wire_job_write(&a->jobs.v[i], &o);
    json_arr_end(&o);
    json_obj_end(&o);
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    rc = file_publish(path, text.p, text.len, err);
out:
    str_release(&text);
    return rc;
}

/* ---- asking ---- */

static bool fresh(const struct sched_slurm *s, const struct answer *a)
{
    double age = clock_wall_s() - a->asked_at; /* asked_at may be by another host's clock */
    return a->asked_at > 0 && age >= 0 && age < s->poll_s;
}

static int verdict(const struct answer *a, struct err *err)
{
    if (!a->said[0])
        return 0;
    if (a->answered_at > 0)
        return err_set(err, ERR_TEMP, "the controller last answered %.0f s ago: %s",
                       fmax(0, clock_wall_s() - a->answered_at), a->said);
    return err_set(err, ERR_TEMP, "the controller does not answer: %s", a->said);
}

static int ask(struct sched_slurm *s, const char *file, struct arena *arena, struct answer *a,
               struct err *err)
{
    struct err why = {0};
    struct slurm_jobs jobs;
    a->asked_at = clock_wall_s();
    int rc = s->rpc->ops->jobs(s->rpc, NULL, arena, &jobs, &why);
    if (rc == 0) {
        a->jobs = jobs;
        a->answered_at = clock_wall_s();
        a->said = "";
    } else {
        a->said = arena_strdup(arena, why.text);
    }
    if (!a->said)
        return err_set(err, ERR_NOMEM, "out of memory");
    if (rc < 0 && rc != ERR_TEMP)
        return err_set(err, rc, "%s", why.text);
    return answer_save(file, a, err);
}

/* Takes the lock. While another process asks, waits for that answer, or goes on with an older one
 * if that takes long. */
static int turn_take(const char *lock, const struct answer *a, struct lease **held, struct err *err)
{
    int rc = lease_take(lock, a->answered_at > 0 ? 1 : SLURM_SLOW_S, held, err);
    if (rc != ERR_BUSY || a->answered_at > 0)
        return rc;
    slurm_slow_tell();
    return lease_take(lock, LOCK_WAIT_S - SLURM_SLOW_S, held, err);
}

void slurm_poll_forget(struct sched_slurm *s)
{
    char file[LIMIT_PATH_BYTES + 64], lock[LIMIT_PATH_BYTES + 64];
    paths(s, file, lock);
    s->alone_at = 0;
    unlink(file); /* the file is only a cache: an old answer stays for poll_s at most */
}

/* Asks the controller under the lock, unless another process has just got an answer. */
static int turn_ask(struct sched_slurm *s, const char *file, struct arena *arena, struct answer *a,
                    struct err *err)
{
    int rc;
    if ((rc = answer_load(file, arena, a, err)) < 0)
        return rc;
    return fresh(s, a) ? 0 : ask(s, file, arena, a, err);
}

/* Renews the answer. While another process asks, an older answer is used. */
static int answer_renew(struct sched_slurm *s, const char *file, const char *lock,
                        struct arena *arena, struct answer *a, struct err *err)
{
    struct lease *held = NULL;
    int rc;
    if ((rc = turn_take(lock, a, &held, err)) < 0)
        return rc == ERR_BUSY && a->answered_at > 0 ? 0 : rc;
    rc = turn_ask(s, file, arena, a, err);
    lease_drop(held);
    return rc;
}

/* Takes the jobs from the shared file, after renewing it. */
static int poll_by_file(struct sched_slurm *s, struct arena *arena, struct slurm_jobs *out,
                        struct err *err)
{
    char file[LIMIT_PATH_BYTES + 64], lock[LIMIT_PATH_BYTES + 64];
    struct answer a;
    int rc;
    paths(s, file, lock);
    if ((rc = file_mkdirs(s->dir, err)) < 0)
        return rc;
    if ((rc = answer_load(file, arena, &a, err)) < 0)
        return rc;
    if (!fresh(s, &a) && (rc = answer_renew(s, file, lock, arena, &a, err)) < 0)
        return rc;
    if ((rc = verdict(&a, err)) < 0)
        return rc;
    *out = a.jobs;
    return 0;
}

static int poll_alone(struct sched_slurm *s, struct arena *arena, struct slurm_jobs *out,
                      struct err *err)
{
    double now = clock_mono_s();
    if (s->alone_at == 0 || now - s->alone_at >= s->poll_s) {
        arena_release(&s->alone_arena);
        arena_init(&s->alone_arena, 0);
        s->alone_at = 0;
        int rc = s->rpc->ops->jobs(s->rpc, NULL, &s->alone_arena, &s->alone, err);
        if (rc < 0)
            return rc;
        s->alone_at = now;
    }
    /* The caller gets a copy, because it shortens the list and may ask again. */
    *out = (struct slurm_jobs){arena_array(arena, s->alone.n + 1, sizeof *out->v), s->alone.n};
    if (!out->v)
        return err_set(err, ERR_NOMEM, "out of memory");
    if (s->alone.n)
        memcpy(out->v, s->alone.v, s->alone.n * sizeof *out->v);
    return 0;
}

int slurm_poll_shared(struct sched_slurm *s, struct arena *arena, struct slurm_jobs *out,
                      struct err *err)
{
    struct err why = {0};
    int rc = poll_by_file(s, arena, out, &why);
    if (rc == ERR_FULL || rc == ERR_IO)
        return poll_alone(s, arena, out, err);
    return rc < 0 ? err_set(err, rc, "%s", why.text) : rc;
}
