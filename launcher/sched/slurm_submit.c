/* This file submits a job exactly once.
 *
 * The record of a submission is <home>/sched/slurm/jobs/<token>.json: {"schema":
 * "reel.slurm-job/1", "token": ..., "job_id": "" | "123", "name": ...}; the name is the job's.
 *
 *   record     what is known                              submit does
 *   none       nothing was submitted                      writes the intent (durable), then submits
 *   intent     a submitter died or got no clear answer    looks for the token first
 *   bound      the job's id                               returns the id
 *
 *   sbatch's answer                job may exist    then
 *   an id                          yes              bind it
 *   a refusal                      no               remove the intent, return the reason
 *   none (ERR_TEMP)                yes              look for the token
 *
 * To look for the token, the call asks the controller itself for every job of the user. The token
 * is in the job's comment. If a site's job_submit plugin overwrites the comment, the job is
 * identified by its name, by its working folder, which for a run's job is the run's, and by an id
 * that is not bound to another token. If the job is found, its id is bound. If it is absent, a
 * request that was cut off may still arrive, so only a second answer without it, more than
 * REEL_SLURM_LOOK_S later, means that the job does not exist; then it is submitted again. While the
 * controller does not answer, the result is ERR_TEMP: the intent stays, and the next call continues
 * from there.
 *
 * A lock makes submitters of one token take turns. The client program that submits is killed when
 * its submitter dies, so that no request begins after the submitter's death. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/id.h"
#include "base/json.h"
#include "base/lease.h"
#include "base/str.h"
#include "launcher/sched/hosts.h"
#include "launcher/sched/slurm_priv.h"

static const char record_schema[] = "reel.slurm-job/1";
enum { TRIES = 3, LOCK_WAIT_S = 120 };
extern char **environ;

/* ---- records ---- */

static void record_path(const struct sched_slurm *s, const char *token,
                        char out[LIMIT_PATH_BYTES + 64])
{
    snprintf(out, LIMIT_PATH_BYTES + 64, "%s/jobs/%s.json", s->dir, token);
}

int slurm_record_load(const struct sched_slurm *s, const char *token, struct slurm_record *out,
                      struct err *err)
{
    char path[LIMIT_PATH_BYTES + 64];
    struct json_doc doc = {0};
    *out = (struct slurm_record){0};
    record_path(s, token, path);
    if (!file_exists(path))
        return 0;
    int rc;
    if ((rc = json_load(path, &doc, err)) < 0)
        return rc;
    if ((rc = json_check_schema(&doc, record_schema, err)) < 0)
        goto out;
    out->exists = true;
    snprintf(out->id, sizeof out->id, "%s", json_text(doc.root, "job_id", ""));
    snprintf(out->name, sizeof out->name, "%s", json_text(doc.root, "name", ""));
out:
    json_release(&doc);
    return rc;
}

/* Handles one of the records; returns false if the search may end. */
typedef bool record_fn(void *context, const char *token, const struct slurm_record *record);

static void records_visit(const struct sched_slurm *s, record_fn *fn, void *context)
{
    char dir[LIMIT_PATH_BYTES + 64], token[ID_TEXT_BYTES];
    struct slurm_record record;
    bool goes_on = true;
    snprintf(dir, sizeof dir, "%s/jobs", s->dir);
    DIR *d = opendir(dir);
    for (struct dirent *e; d && goes_on && (e = readdir(d));) {
        if (!str_ends(e->d_name, ".json"))
            continue;
        snprintf(token, sizeof token, "%.*s", (int)sizeof token - 1, e->d_name);
        if (slurm_record_load(s, token, &record, NULL) == 0 && record.id[0])
            goes_on = fn(context, token, &record);
    }
    if (d)
        closedir(d);
}

struct id_search {
    const char *id;
    bool found;
};

static bool id_compare(void *context, const char *token, const struct slurm_record *record)
{
    struct id_search *search = context;
    (void)token;
    search->found = strcmp(record->id, search->id) == 0;
    return !search->found;
}

/* Tells whether a record binds this id to a submission of reel's. */
static bool record_of_id(const struct sched_slurm *s, const char *id)
{
    struct id_search search = {.id = id};
    records_visit(s, id_compare, &search);
    return search.found;
}

struct mending {
    struct slurm_jobs *jobs;
    struct arena *arena;
    bool failed; /* out of memory */
};

static bool needs_comment(const struct slurm_job *j) { return !slurm_token(j->comment)[0]; }

static bool comment_mend(void *context, const char *token, const struct slurm_record *record)
{
    struct mending *m = context;
    for (size_t i = 0; i < m->jobs->n && !m->failed; i++) {
        struct slurm_job *j = &m->jobs->v[i];
        if (!needs_comment(j) || strcmp(j->id, record->id) != 0 || !record->name[0] ||
            strcmp(j->name, record->name) != 0)
            continue;
        const char *comment = arena_printf(m->arena, SLURM_COMMENT "%s", token);
        m->failed = !comment;
        j->comment = comment ? comment : j->comment;
    }
    return !m->failed;
}

int slurm_comments_mend(const struct sched_slurm *s, struct slurm_jobs *jobs, struct arena *arena,
                        struct err *err)
{
    struct mending m = {jobs, arena, false};
    bool needed = false;
    for (size_t i = 0; i < jobs->n; i++)
        needed |= needs_comment(&jobs->v[i]);
    if (needed)
        records_visit(s, comment_mend, &m);
    return m.failed ? err_set(err, ERR_NOMEM, "out of memory") : 0;
}

static int record_save(const struct sched_slurm *s, const char *token, const char *id,
                       const char *name, struct err *err)
{
    char path[LIMIT_PATH_BYTES + 64];
    struct str text = STR_INIT;
    struct json_out o;
    int rc;
    json_out_init(&o, &text, 0);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", record_schema);
    json_put_text(&o, "token", token);
    json_put_text(&o, "job_id", id);
    json_put_text(&o, "name", name);
    json_obj_end(&o);
    str_addc(&text, '\n');
    record_path(s, token, path);
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    rc = file_publish(path, text.p, text.len, err);
out:
    str_release(&text);
    return rc;
}

static void record_remove(const struct sched_slurm *s, const char *token)
{
    char path[LIMIT_PATH_BYTES + 64];
    record_path(s, token, path);
    unlink(path);
}

/* ---- the job's script and environment ---- */

static void quote(struct str *out, const char *text)
{
    str_addc(out, '\'');
    for (; *text; text++)
        if (*text == '\'')
            str_add(out, "'\\''");
        else
            str_addc(out, *text);
    str_addc(out, '\'');
}

void slurm_script(const struct sched_spec *spec, struct str *out)
{
    static const char *const added[] = {"HOSTNAME", "ENVIRONMENT", "TMPDIR", NULL};
    str_add(out, "#!/bin/sh\n");
    for (int i = 0; added[i]; i++) {
        bool submitted = false;
        for (const char *const *e = spec->env; *e; e++)
            submitted |= str_starts(*e, added[i]) && (*e)[strlen(added[i])] == '=';
        if (!submitted)
            str_addf(out, "unset %s\n", added[i]);
    }
    str_addf(out,
             "export REEL_JOB_SCHED=slurm REEL_RUN_TOKEN=%s REEL_JOB_ID=\"$SLURM_JOB_ID\" "
             "REEL_JOB_RESTART=\"${SLURM_RESTART_COUNT:-0}\" "
             "REEL_JOB_NODES=\"$SLURM_JOB_NUM_NODES\" "
             "REEL_JOB_CORES=\"$SLURM_CPUS_ON_NODE\"\nexec",
             spec->token);
    for (const char *const *a = spec->argv; *a; a++) {
        str_addc(out, ' ');
        quote(out, *a);
    }
    str_addc(out, '\n');
}

/* Tells whether this is a user's setting for PMIx or for Slurm's plugin. SLURM_PMIX_MAPPING_SERV is
 * not, because the plugin adds it. */
static bool is_setting(const char *entry)
{
    return !str_starts(entry, "SLURM_PMIX_MAPPING_SERV=") &&
           (str_starts(entry, "SLURM_PMIX_") || str_starts(entry, "PMIX_MCA_"));
}

static bool is_slurms(const char *entry)
{
    return !is_setting(entry) &&
           (str_starts(entry, "SLURM_") || str_starts(entry, "SBATCH_") ||
            str_starts(entry, "PMIX_") || str_starts(entry, "PMI_"));
}

/* Makes the job's environment: that of the spec, without the variables of a job in which this
 * process may run, and with those that select the cluster. */
static const char **job_env(const struct sched_spec *spec, struct arena *arena)
{
    static const char *const which[] = {"SLURM_CONF", "SLURM_CONF_SERVER", NULL};
    size_t n = 0, k = 0;
    while (spec->env[n])
        n++;
    const char **env = arena_array(arena, n + 5, sizeof *env);
    for (size_t i = 0; env && i < n; i++)
        if (!is_slurms(spec->env[i]))
            env[k++] = spec->env[i];
    for (int i = 0; env && which[i]; i++)
        if (getenv(which[i]) &&
            !(env[k++] = arena_printf(arena, "%s=%s", which[i], getenv(which[i]))))
            return NULL;
    if (env)
        env[k++] = "SLURM_EXIT_ERROR=1"; /* Slurm refuses a submission without environment (errno
                                          * 2019) */
    return env;
}

/* ---- submitting and looking ---- */

/* Finds the job whose end the new job waits for; *out is NULL if it ended so long ago that the
 * controller has forgotten it and might refuse its id. */
static int after_of(struct sched_slurm *s, const char *after, const char **out,
                    struct err *err)
{
    struct slurm_ours job;
    int rc;
    *out = NULL;
    if (!after)
        return 0;
    if ((rc = slurm_job_ours(s, after, &job, err)) < 0)
        return rc == ERR_NOT_FOUND && record_of_id(s, after) ? 0 : rc;
    *out = after;
    return 0;
}

/* Submits the job, or with test_only asks whether it would be taken. */
static int submit(struct sched_slurm *s, const struct sched_spec *wanted, bool test_only,
                  char id[SCHED_ID_BYTES], struct err *err)
{
    struct sched_spec copy = *wanted, *spec = &copy;
    char comment[64];
    struct arena arena;
    struct str script = STR_INIT;
    arena_init(&arena, 0);
    snprintf(comment, sizeof comment, SLURM_COMMENT "%s", spec->token);
    slurm_script(spec, &script);
    struct slurm_submit what = {spec, comment, script.p, job_env(spec, &arena),
                                -spec->priority * SLURM_NICE, test_only};
    int rc;
    if ((rc = str_check(&script, err)) < 0)
        goto out;
    if ((rc = after_of(s, wanted->after, &spec->after, err)) < 0)
        goto out;
    rc = what.env ? s->rpc->ops->submit(s->rpc, &what, id, err)
                  : err_set(err, ERR_NOMEM, "out of memory");
out:
    str_release(&script);
    arena_release(&arena);
    return rc;
}

/* Tells whether this is the job of the specification although its comment was overwritten. */
static bool is_overwritten(const struct sched_slurm *s, const struct slurm_job *j,
                           const struct sched_spec *spec)
{
    return needs_comment(j) && strcmp(j->name, spec->name) == 0 &&
           strcmp(j->cwd, spec->cwd) == 0 && !record_of_id(s, j->id);
}

/* Looks for the job. Returns 1 if it is found, 0 for an answer without it. */
static int look(struct sched_slurm *s, const struct sched_spec *spec, char id[SCHED_ID_BYTES],
                struct err *err)
{
    struct arena arena;
    struct slurm_jobs jobs = {0};
    int rc;
    arena_init(&arena, 0);
    if ((rc = s->rpc->ops->jobs(s->rpc, NULL, &arena, &jobs, err)) < 0)
        goto out;
    for (size_t i = 0; i < jobs.n && rc == 0; i++)
        if (strcmp(slurm_token(jobs.v[i].comment), spec->token) == 0 ||
            is_overwritten(s, &jobs.v[i], spec)) {
            snprintf(id, SCHED_ID_BYTES, "%s", jobs.v[i].id);
            rc = 1;
        }
out:
    arena_release(&arena);
    return rc;
}

static int look_twice(struct sched_slurm *s, const struct sched_spec *spec,
                      char id[SCHED_ID_BYTES], struct err *err)
{
    int rc = look(s, spec, id, err);
    if (rc != 0)
        return rc;
    clock_sleep_s(s->look_apart_s);
    return look(s, spec, id, err);
}

/* Carries out an intent that is on record. open: the outcome of an earlier try is unknown. */
static int carry_out(struct sched_slurm *s, const struct sched_spec *spec, bool open,
                     char id[SCHED_ID_BYTES], struct err *err)
{
    int rc = 0;
    for (int i = 0; i < TRIES; i++) {
        if (open && (rc = look_twice(s, spec, id, err)) != 0)
            return rc < 0 ? rc : 0;
        rc = submit(s, spec, false, id, err);
        if (rc != ERR_TEMP)
            return rc;
        open = true;
    }
    return rc;
}

int slurm_fits(struct sched_slurm *s, const struct sched_spec *spec, struct err *err)
{
    struct sched_site site;
    const struct sched_partition *p;
    int rc = s->described ? 0 : sched_describe(&s->base, &site, err);
    if (rc < 0)
        return rc;
    site = s->site.site;
    if (strchr(spec->log_path, '\\'))
        return err_set(err, ERR_INPUT,
                       "the log's path '%s' has a backslash, which sbatch takes away: use another "
                       "folder", spec->log_path);
    if (!(p = sched_site_partition(&site, spec->partition)))
        return spec->partition
                   ? err_set(err, ERR_INPUT, "there is no partition '%s'", spec->partition)
                   : err_set(err, ERR_INPUT, "this cluster has no default partition: name one");
    if (spec->nodes > p->nodes)
        return err_set(err, ERR_LIMIT, "%d nodes are asked for and partition %s has %d",
                       spec->nodes, p->name, p->nodes);
    if (spec->cores_per_node > p->cores_per_node)
        return err_set(err, ERR_LIMIT,
                       "%d cores a node are asked for and the largest node of partition %s has %d",
                       spec->cores_per_node, p->name, p->cores_per_node);
    if (spec->gpus_per_node > p->gpus_per_node)
        return err_set(err, ERR_LIMIT,
                       "%d GPUs a node are asked for and the largest node of partition %s has %d",
                       spec->gpus_per_node, p->name, p->gpus_per_node);
    if (p->max_time_s > 0 && spec->time_limit_s > p->max_time_s)
        return err_set(err, ERR_LIMIT,
                       "a time limit of %.0f s is asked for and partition %s allows %.0f s",
                       spec->time_limit_s, p->name, p->max_time_s);
    return 0;
}

/* These are words of a refusal that the submission would meet too, and what they are about. Other
 * things the controller may refuse only now. */
static const struct refusal {
    const char *words;
    enum { OF_ACCOUNT, OF_QOS, OF_LIMITS, OF_PLACE, OF_NODES } of;
} refusals[] = {
    {"nvalid account", OF_ACCOUNT},
    {"account not permitted", OF_ACCOUNT},
    {"nvalid qos", OF_QOS},
    {"qos not permitted", OF_QOS},
    {"QOS not permitted", OF_QOS},
    {"violates accounting", OF_LIMITS},
    {"nvalid node name", OF_NODES},
    {"nvalid partition", OF_PLACE},
    {"Required partition not available", OF_PLACE},
    {"nvalid feature", OF_PLACE},
    {"not permitted to use this partition", OF_PLACE},
    {"Requested node configuration is not available", OF_NODES},
};

/* Finds what a refusal is about; NULL if the submission may be taken all the same. Nodes can be
 * missing for a moment, as while the controller starts, unless the job excludes some. */
static const struct refusal *refusal_find(const char *said, const struct sched_spec *spec)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
        if (strstr(said, refusals[i].words) && (refusals[i].of != OF_NODES || spec->exclude) &&
            (refusals[i].of != OF_LIMITS || !spec->has_job))
            return &refusals[i];
    return NULL;
}

/* Writes "resources.qos 'NAME'", or that the default is used. */
static const char *named(const char *key, const char *value, char buf[LIMIT_NAME_BYTES * 2])
{
    if (value)
        snprintf(buf, LIMIT_NAME_BYTES * 2, "resources.%s '%s'", key, value);
    else
        snprintf(buf, LIMIT_NAME_BYTES * 2, "the default %s", key);
    return buf;
}

/* Adds what the job asks for, and what lists the limits that it may exceed. */
static void limits_add(const struct sched_spec *spec, const char *qos, const char *account,
                       struct err *err)
{
    struct err why = *err;
    char limit[32] = "none";
    if (spec->time_limit_s > 0)
        snprintf(limit, sizeof limit, "%.0f s", spec->time_limit_s);
    err_set(err, why.code,
            "%s (%s of %s; nodes: %d, cores of each: %d, GPUs of each: %d, "
            "resources.time_limit_s: %s; 'sacctmgr show qos' and 'sacctmgr show assoc user=$USER' "
            "list the limits)",
            why.text, qos, account, spec->nodes, spec->cores_per_node, spec->gpus_per_node, limit);
}

/* Adds to a refusal that is about accounts which values of the run it is about, and what lists
 * those that there are. */
static void accounts_add(const struct sched_spec *spec, const struct refusal *about,
                         struct err *err)
{
    char account[LIMIT_NAME_BYTES * 2], qos[LIMIT_NAME_BYTES * 2], place[LIMIT_NAME_BYTES * 2];
    struct err why = *err;
    named("account", spec->account, account);
    named("qos", spec->qos, qos);
    named("partition", spec->partition, place);
    if (about->of == OF_ACCOUNT)
        err_set(err, why.code,
                "%s (%s in %s; 'sacctmgr show assoc user=$USER' lists the accounts that are yours, "
                "'scontrol show partition' those that each takes)",
                why.text, account, place);
    else if (about->of == OF_QOS)
        err_set(err, why.code,
                "%s (%s of %s in %s; 'sacctmgr show assoc user=$USER format=account,qos%%60' lists "
                "those that are allowed, 'scontrol show partition' those that each takes)",
                why.text, qos, account, place);
    else if (about->of == OF_LIMITS)
        limits_add(spec, qos, account, err);
}

/* Adds to the refusal which of the nodes to be excluded the cluster does not have. */
static void unknown_nodes_add(struct sched_slurm *s, const char *exclude, struct err *err)
{
    struct arena arena;
    struct slurm_net net = {0};
    struct str unknown = STR_INIT;
    struct err why = *err;
    const char **names;
    size_t n = 0;
    arena_init(&arena, 0);
    if (s->rpc->ops->net(s->rpc, true, &arena, &net, NULL) < 0 ||
        hosts_expand(exclude, &arena, &names, &n, NULL) < 0)
        n = 0;
    for (size_t i = 0; i < n; i++) {
        bool known = false;
        for (size_t k = 0; k < net.n_nodes && !known; k++)
            known = strcmp(names[i], net.nodes[k].name) == 0;
        if (!known)
            str_addf(&unknown, "%s%s", unknown.len ? "," : "", names[i]);
    }
    if (unknown.len && !unknown.failed)
        err_set(err, why.code, "%s (resources.exclude: this cluster has no %s)", why.text,
                unknown.p);
    str_release(&unknown);
    arena_release(&arena);
}

int slurm_names_check(struct sched_slurm *s, const struct sched_spec *spec, struct err *err)
{
    char id[SCHED_ID_BYTES];
    struct err why = {0};
    int rc = submit(s, spec, true, id, &why);
    const struct refusal *about = refusal_find(why.text, spec);
    if ((rc != ERR_INPUT && rc != ERR_LIMIT) || !about)
        return 0;
    if (about->of == OF_NODES)
        unknown_nodes_add(s, spec->exclude, &why);
    accounts_add(spec, about, &why);
    return err_set(err, rc, "job '%s' would be refused: %s", spec->name, why.text);
}

static int once_locked(struct sched_slurm *s, const struct sched_spec *spec,
                       char id[SCHED_ID_BYTES], struct err *err)
{
    struct slurm_record record;
    char got[SCHED_ID_BYTES];
    int rc;
    if ((rc = slurm_record_load(s, spec->token, &record, err)) < 0)
        return rc;
    if (record.id[0]) {
        memcpy(id, record.id, sizeof record.id);
        return 0;
    }
    if (!record.exists && (rc = slurm_fits(s, spec, err)) < 0)
        return rc;
    if (!record.exists && (rc = record_save(s, spec->token, "", spec->name, err)) < 0)
        return rc;
    if ((rc = carry_out(s, spec, record.exists, got, err)) < 0) {
        if (rc != ERR_TEMP && rc != ERR_NOMEM)
            record_remove(s, spec->token);
        return rc;
    }
    memcpy(id, got, sizeof got);
    return record_save(s, spec->token, got, spec->name, err);
}

/* Makes the job's log with its folder. A job that begins when the disk is full and its log is not
 * there fails before it runs (signal 53), for slurmstepd cannot make the file then. */
static int log_make(const char *log_path, struct err *err)
{
    char dir[LIMIT_PATH_BYTES];
    snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(log_path, '/') - log_path), log_path);
    int rc = dir[0] ? file_mkdirs(dir, err) : 0;
    if (rc < 0)
        return rc;
    int fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_set_errno(err, ERR_IO, "cannot make '%s'", log_path);
    close(fd);
    return 0;
}

int slurm_submit_once(struct sched_slurm *s, const struct sched_spec *spec,
                      char id[SCHED_ID_BYTES], struct err *err)
{
    char path[LIMIT_PATH_BYTES + 64];
    struct lease *lock = NULL;
    int rc;
    if ((rc = log_make(spec->log_path, err)) < 0)
        goto out;
    snprintf(path, sizeof path, "%s/jobs", s->dir);
    if ((rc = file_mkdirs(path, err)) < 0)
        goto out;
    /* Tokens with the same first two digits share a lock file. */
    snprintf(path, sizeof path, "%s/jobs/lock-%.2s", s->dir, spec->token);
    if ((rc = lease_take(path, LOCK_WAIT_S, &lock, err)) < 0)
        goto out;
    if ((rc = once_locked(s, spec, id, err)) < 0)
        goto out;
    slurm_poll_forget(s);
out:
    lease_drop(lock);
    if (rc < 0)
        err_context(err, "job '%s' (%d nodes, %d cores a node, partition %s)", spec->name,
                    spec->nodes, spec->cores_per_node,
                    spec->partition ? spec->partition : "default");
    return rc;
}
