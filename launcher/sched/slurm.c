#include "launcher/sched/slurm.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/num.h"
#include "launcher/sched/hosts.h"
#include "launcher/sched/slurm_priv.h"

static const double POLL_S = 30, LOOK_APART_S = 10.5, ABSENCE_S = 300, SETTLE_S = 10;

static struct sched_slurm *slurm_of(struct sched *s)
{
    return (struct sched_slurm *)s;
}

/* ---- the site ---- */

static int describe(struct sched *s, struct sched_site *out, struct err *err)
{
    struct sched_slurm *l = slurm_of(s);
    int rc;
    arena_release(&l->site_arena);
    arena_init(&l->site_arena, 0);
    l->described = false;
    if ((rc = l->rpc->ops->site(l->rpc, &l->site_arena, &l->site, err)) < 0)
        return rc;
    l->described = true;
    *out = l->site.site;
    return 0;
}

int sched_slurm_site(struct sched *s, struct slurm_site *out, struct err *err)
{
    struct sched_site common;
    int rc;
    if ((rc = describe(s, &common, err)) < 0)
        return rc;
    *out = slurm_of(s)->site;
    return 0;
}

int sched_slurm_net(struct sched *s, struct arena *arena, struct slurm_net *out, struct err *err)
{
    return slurm_of(s)->rpc->ops->net(slurm_of(s)->rpc, true, arena, out, err);
}

static int submit(struct sched *s, const struct sched_spec *spec, char id[SCHED_ID_BYTES],
                  struct err *err)
{
    return slurm_submit_once(slurm_of(s), spec, id, err);
}

static int check(struct sched *s, const struct sched_spec *spec, struct err *err)
{
    int rc;
    if ((rc = slurm_fits(slurm_of(s), spec, err)) < 0)
        return rc;
    return slurm_names_check(slurm_of(s), spec, err);
}

/* ---- polling ---- */

static bool in_list(const char *const *list, const char *text)
{
    for (; list && *list; list++)
        if (strcmp(*list, text) == 0)
            return true;
    return false;
}

static int by_id(const void *a, const void *b)
{
    long long x = atoll(((const struct slurm_job *)a)->id),
              y = atoll(((const struct slurm_job *)b)->id);
    return (x > y) - (x < y);
}

static void keep_only(struct slurm_jobs *jobs, const struct sched_filter *f)
{
    size_t n = 0;
    for (size_t i = 0; i < jobs->n; i++)
        if (!f || (!f->ids && !f->tokens) || in_list(f->ids, jobs->v[i].id) ||
            in_list(f->tokens, slurm_token(jobs->v[i].comment)))
            jobs->v[n++] = jobs->v[i];
    jobs->n = n;
    qsort(jobs->v, n, sizeof *jobs->v, by_id);
}

/* Returns the filter's ids that the controller did not list; NULL if there are none, or when out of
 * memory. */
static const char **absent_ids(const struct sched_filter *f, const struct slurm_jobs *jobs,
                               struct arena *arena)
{
    size_t n = 0, k = 0;
    while (f && f->ids && f->ids[n])
        n++;
    const char **ids = n ? arena_array(arena, n + 1, sizeof *ids) : NULL;
    for (size_t i = 0; ids && i < n; i++) {
        bool there = !f->ids[i][0] || strspn(f->ids[i], "0123456789") != strlen(f->ids[i]);
        for (size_t j = 0; j < jobs->n; j++)
            there |= strcmp(jobs->v[j].id, f->ids[i]) == 0;
        if (!there)
            ids[k++] = f->ids[i];
    }
    return k ? ids : NULL;
}

static bool has_accounting(struct sched_slurm *l)
{
    struct sched_site site;
    if (!l->described && sched_describe(&l->base, &site, NULL) < 0)
        return false;
    return l->site.accounting[0] && strcmp(l->site.accounting, "accounting_storage/none") != 0;
}

/* Adds jobs that the controller has forgotten and accounting remembers; accounting is asked no more
 * often than the controller. If accounting is missing or does not answer, the jobs stay absent. */
static void recall(struct sched_slurm *l, const char *const *ids, struct slurm_jobs *jobs,
                   struct arena *arena)
{
    if (!has_accounting(l))
        return;
    if (l->history_at == 0 || clock_mono_s() - l->history_at >= l->poll_s) {
        l->history_at = clock_mono_s();
        arena_release(&l->history_arena);
        arena_init(&l->history_arena, 0);
        l->history = (struct slurm_jobs){0};
        slurm_history(ids, &l->history_arena, &l->history, NULL);
    }
    struct slurm_jobs both = {arena_array(arena, jobs->n + l->history.n + 1, sizeof *both.v), 0};
    if (!both.v)
        return;
    for (size_t i = 0; i < jobs->n; i++)
        both.v[both.n++] = jobs->v[i];
    for (size_t i = 0; i < l->history.n; i++)
        if (in_list(ids, l->history.v[i].id) &&
            sched_state_ended(slurm_state(&l->history.v[i], clock_wall_s())))
            both.v[both.n++] = l->history.v[i];
    *jobs = both;
}

static int poll_(struct sched *s, const struct sched_filter *filter, struct sched_jobs *out,
                 struct err *err)
{
    struct arena arena;
    struct slurm_jobs jobs = {0};
    int rc;
    arena_init(&arena, 0);
    if ((rc = slurm_poll_shared(slurm_of(s), &arena, &jobs, err)) < 0)
        goto out;
    keep_only(&jobs, filter);
    const char **absent = absent_ids(filter, &jobs, &arena);
    if (absent)
        recall(slurm_of(s), absent, &jobs, &arena);
    if ((rc = slurm_comments_mend(slurm_of(s), &jobs, &arena, err)) < 0)
        goto out;
    arena_init(&out->arena, 0);
    rc = slurm_to_sched(&jobs, clock_wall_s(), out, err);
out:
    arena_release(&arena);
    return rc;
}

static bool is_number(const char *id)
{
    return id[0] && strspn(id, "0123456789") == strlen(id);
}

static int look(struct sched *s, const char *id, struct sched_jobs *out, struct err *err)
{
    struct arena arena;
    struct slurm_jobs jobs = {0};
    struct slurm_rpc *rpc = slurm_of(s)->rpc;
    int rc;
    arena_init(&arena, 0);
    if (is_number(id) && (rc = rpc->ops->jobs(rpc, id, &arena, &jobs, err)) < 0)
        goto out;
    if ((rc = slurm_comments_mend(slurm_of(s), &jobs, &arena, err)) < 0)
        goto out;
    arena_init(&out->arena, 0);
    rc = slurm_to_sched(&jobs, clock_wall_s(), out, err);
out:
    arena_release(&arena);
    return rc;
}

/* ---- acting on a job of reel's ---- */

/* Tells whether this process runs in this job, which then is its user's, whoever submitted it. */
static bool is_own(const char *id)
{
    const char *own = getenv("SLURM_JOB_ID");
    return own && strcmp(own, id) == 0;
}

static bool is_bound(const struct sched_slurm *l, const char *token, const char *id)
{
    struct slurm_record record;
    return token[0] && slurm_record_load(l, token, &record, NULL) == 0 && record.exists &&
           (!record.id[0] || strcmp(record.id, id) == 0);
}

static bool is_noted(const struct slurm_job *job, const char *run)
{
    char noted[ID_TEXT_BYTES];
    return run && *run && strcmp(slurm_noted(job->comment, noted), run) == 0;
}

/* Finds a job that reel submitted, or the job in which this process runs. Ids are reused after a
 * controller lost its state, so the comment of any other job must have a token that is bound to
 * this id, or the note that the job has this run; NULL: no note counts. */
static int job_of(struct sched_slurm *l, const char *id, const char *run, struct arena *arena,
                  struct slurm_job *out, struct err *err)
{
    struct slurm_jobs jobs = {0};
    int rc;
    if (!is_number(id))
        return err_set(err, ERR_NOT_FOUND, "'%s' is not the id of a Slurm job", id);
    if ((rc = l->rpc->ops->jobs(l->rpc, id, arena, &jobs, err)) < 0)
        return rc;
    if ((rc = slurm_comments_mend(l, &jobs, arena, err)) < 0)
        return rc;
    if (!jobs.n)
        return err_set(err, ERR_NOT_FOUND, "Slurm knows no job %s", id);
    if (!is_own(id) && !is_bound(l, slurm_token(jobs.v[0].comment), id) &&
        !is_noted(&jobs.v[0], run))
        return err_set(err, ERR_NOT_FOUND, "job %s ('%s') was not submitted from %s", id,
                       jobs.v[0].name, l->home);
    *out = jobs.v[0];
    return 0;
}

static int job_ours(struct sched_slurm *l, const char *id, struct arena *arena,
                    struct slurm_job *out, struct err *err)
{
    return job_of(l, id, NULL, arena, out, err);
}

int slurm_job_ours(struct sched_slurm *l, const char *id, struct slurm_ours *out, struct err *err)
{
    struct arena arena;
    struct slurm_job job;
    int rc;
    arena_init(&arena, 0);
    if ((rc = job_ours(l, id, &arena, &job, err)) < 0)
        goto out;
    out->state = slurm_state(&job, clock_wall_s());
    snprintf(out->handle, sizeof out->handle, "%s", job.handle);
out:
    arena_release(&arena);
    return rc;
}

/* Finds who cancelled a job. Only accounting has it: "CANCELLED by 1000". */
static void canceller(struct sched_slurm *l, const char *id, struct arena *arena,
                      char who[SCHED_ID_BYTES])
{
    const char *ids[] = {id, NULL};
    struct slurm_jobs jobs = {0};
    int64_t uid;
    if (!has_accounting(l) || slurm_history(ids, arena, &jobs, NULL) < 0)
        return;
    slurm_jobs_keep(&jobs, id);
    if (!jobs.n)
        return;
    const char *by = strstr(jobs.v[0].reason, " by ");
    if (!by || num_parse_i64(by + strlen(" by "), "the user", &uid, NULL) < 0)
        return;
    const struct passwd *user = getpwuid((uid_t)uid);
    snprintf(who, SCHED_ID_BYTES, user ? "%s" : "user %s",
             user ? user->pw_name : by + strlen(" by "));
}

/* Finds why the job ends. The partition's settings are read only if the job's own data leave this
 * open; an error of that request is returned. */
static int end_find(struct sched_slurm *l, const struct slurm_job *job, double now,
                    enum sched_end *out, struct err *err)
{
    struct sched_site site;
    bool is_open = !job->base[0] && slurm_ended_as_preempted(job);
    int rc;
    if (is_open && !l->described && (rc = sched_describe(&l->base, &site, err)) < 0)
        return rc;
    *out = slurm_end(job, is_open ? &l->site : NULL, now);
    return 0;
}

static int ending_of(struct sched *s, const char *id, const char *run, struct sched_ending *out,
                     struct err *err)
{
    struct arena arena;
    struct slurm_job job;
    enum sched_end why = SCHED_END_UNKNOWN;
    double now = clock_wall_s();
    int rc;
    arena_init(&arena, 0);
    if ((rc = job_of(slurm_of(s), id, run, &arena, &job, err)) < 0)
        goto out;
    if ((rc = end_find(slurm_of(s), &job, now, &why, err)) < 0)
        goto out;
    bool over = sched_state_ended(slurm_state(&job, now));
    *out = (struct sched_ending){.why = why,
                                 .is_killed = slurm_state(&job, now) == SCHED_STOPPING,
                                 .ended_at = over ? job.ended_at : 0};
    if (out->why == SCHED_END_NONE && slurm_state(&job, now) == SCHED_RUNNING)
        out->limit_at = job.ended_at, out->limit_s = job.ended_at - job.started_at;
    if (out->why == SCHED_END_CANCELLED)
        canceller(slurm_of(s), id, &arena, out->who);
out:
    arena_release(&arena);
    return rc;
}

static int ending(struct sched *s, const char *id, struct sched_ending *out, struct err *err)
{
    return ending_of(s, id, NULL, out, err);
}

static int signal_(struct sched *s, const char *id, int signo, enum sched_to to, struct err *err)
{
    struct sched_slurm *l = slurm_of(s);
    struct slurm_ours job;
    int rc;
    if ((rc = slurm_job_ours(l, id, &job, err)) < 0)
        return rc;
    if (job.state != SCHED_RUNNING && job.state != SCHED_UNKNOWN)
        return err_set(err, ERR_STATE, "job %s is %s: only a running job takes a signal", id,
                       sched_state_name(job.state));
    rc = l->rpc->ops->signal(l->rpc, job.handle, signo, to == SCHED_TO_ALL, err);
    bool ended = rc == ERR_TEMP && slurm_job_ours(l, id, &job, NULL) == 0 &&
                 job.state != SCHED_RUNNING && job.state != SCHED_UNKNOWN;
    if (rc == ERR_NOT_FOUND || ended) /* scancel fails without a message if a job has just ended */
        rc = err_set(err, ERR_STATE, "job %s has ended just now", id);
    return rc;
}

struct requeue_look {
    enum sched_state state;
    enum sched_end end;
    char handle[SCHED_ID_BYTES];
    bool may; /* Slurm may requeue it */
    int restarts;
};

static int requeue_look(struct sched_slurm *l, const char *id, struct requeue_look *out,
                        struct err *err)
{
    struct arena arena;
    struct slurm_job job;
    int rc;
    arena_init(&arena, 0);
    if ((rc = job_ours(l, id, &arena, &job, err)) < 0)
        goto out;
    out->state = slurm_state(&job, clock_wall_s());
    snprintf(out->handle, sizeof out->handle, "%s", job.handle);
    out->may = job.requeue;
    out->restarts = job.restarts;
    rc = end_find(l, &job, clock_wall_s(), &out->end, err);
out:
    arena_release(&arena);
    return rc;
}

/* Finds out what a refused request means. A preemption may have requeued the job already, which
 * succeeds. A job that runs on as before cannot be requeued. */
static int refusal_judge(struct sched_slurm *l, const char *id, const struct requeue_look *before,
                         struct err *err)
{
    struct requeue_look now;
    if (requeue_look(l, id, &now, NULL) < 0 || sched_state_ended(now.state) ||
        now.end == SCHED_END_CANCELLED)
        return ERR_STATE;
    if (now.state != SCHED_RUNNING || now.restarts > before->restarts)
        return 0;
    return now.may ? ERR_STATE
                   : err_set(err, ERR_STATE, "job %s may not be requeued: submit it with --requeue",
                             id);
}

static int requeue(struct sched *s, const char *id, struct err *err)
{
    struct sched_slurm *l = slurm_of(s);
    struct requeue_look look;
    int rc;
    if ((rc = requeue_look(l, id, &look, err)) < 0)
        return rc;
    if (sched_state_ended(look.state))
        return err_set(err, ERR_STATE, "job %s has ended (%s): it cannot run again", id,
                       sched_state_name(look.state));
    if (look.end == SCHED_END_CANCELLED)
        return err_set(err, ERR_STATE, "job %s is being cancelled and does not run again", id);
    if (look.state == SCHED_PENDING || look.state == SCHED_REQUEUED)
        return 0;
    rc = l->rpc->ops->requeue(l->rpc, look.handle, err);
    return rc == ERR_STATE ? refusal_judge(l, id, &look, err) : rc;
}

static int cancel(struct sched *s, const char *id, struct err *err)
{
    struct sched_slurm *l = slurm_of(s);
    struct slurm_ours job;
    int rc = slurm_job_ours(l, id, &job, err);
    if (rc < 0 || sched_state_ended(job.state))
        return rc;
    rc = l->rpc->ops->cancel(l->rpc, job.handle, err);
    return rc == ERR_STATE ? 0 : rc; /* the job has ended meanwhile */
}

/* ---- the table ---- */

static int step_start(struct sched *s, const struct sched_step_spec *spec,
                      struct sched_step **out, struct err *err)
{
    return slurm_step_start(slurm_of(s), spec, out, err);
}

static int place(struct sched *s, const struct sched_step_spec *spec, struct arena *arena,
                 struct sched_placement *out, struct err *err)
{
    return slurm_place(slurm_of(s), spec, arena, out, err);
}

static void close_(struct sched *s)
{
    struct sched_slurm *l = slurm_of(s);
    if (l->rpc)
        l->rpc->ops->close(l->rpc);
    arena_release(&l->site_arena);
    arena_release(&l->history_arena);
    arena_release(&l->alone_arena);
    arena_release(&l->net_arena);
    free(l);
}

static const double BOOT_S = 1800; /* longest time from a node's loss until it has booted */

/* Tells whether the node was lost as `loss` defines it. A lost node is DOWN, perhaps with flags
 * after it (sinfo(1) NODE STATE CODES). For a node that is back, Slurm keeps the boot time,
 * but not when and why it was down. SlurmdStartTime does not help: jobs outlive a restart of their
 * slurmd. */
static bool was_lost(const struct slurm_node *n, const struct sched_loss *loss)
{
    bool down = strncasecmp(n->state, "DOWN", strlen("DOWN")) == 0;
    return (down && n->reason_at <= loss->down_by) ||
           (n->boot_at > loss->booted_after && n->boot_at <= loss->down_by + BOOT_S);
}

static int lost_node(struct sched *s, const char *nodes, const struct sched_loss *loss,
                     char node[SCHED_ID_BYTES], struct err *err)
{
    const char *own = getenv("SLURM_JOB_NODELIST"), *list = nodes ? nodes : own, **names;
    size_t n, least = nodes ? 1 : 2; /* if its only node is lost, the asking process ends too */
    struct slurm_net net = {0};
    struct arena arena;
    int rc;
    arena_init(&arena, 0);
    if ((rc = hosts_expand(list ? list : "", &arena, &names, &n, err)) < 0)
        goto out;
    if (n >= least && (rc = sched_slurm_net(s, &arena, &net, err)) < 0)
        goto out;
    for (size_t i = 0; i < net.n_nodes; i++)
        if (was_lost(&net.nodes[i], loss) && in_list(names, net.nodes[i].name))
            snprintf(node, SCHED_ID_BYTES, "%s", net.nodes[i].name);
out:
    arena_release(&arena);
    return rc;
}

static const struct sched_ops slurm_ops = {
    .kind = "slurm",
    .starts_ranks = true,
    .describe = describe,
    .submit = submit,
    .check = check,
    .script = slurm_script,
    .poll = poll_,
    .look = look,
    .signal = signal_,
    .requeue = requeue,
    .ending = ending,
    .ending_of = ending_of,
    .cancel = cancel,
    .note = slurm_note,
    .step_start = step_start,
    .place = place,
    .lost_node = lost_node,
    .step_poll = slurm_step_poll,
    .step_signal = slurm_step_signal,
    .step_reach = slurm_step_reach,
    .step_free = slurm_step_free,
    .close = close_,
};

/* Returns the helper's path: REEL_SLURM_HELPER, or reel-slurm beside this program. */
static void helper_path(char out[LIMIT_PATH_BYTES])
{
    const char *given = getenv("REEL_SLURM_HELPER");
    char *slash;
    if (given && *given) {
        snprintf(out, LIMIT_PATH_BYTES, "%s", given);
        return;
    }
    char self[LIMIT_PATH_BYTES - 32];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    if ((slash = strrchr(self, '/')))
        *slash = '\0';
    snprintf(out, LIMIT_PATH_BYTES, "%s/reel-slurm", self);
}

static int rpc_open(struct sched_slurm *l, struct err *err)
{
    const char *via = getenv("REEL_SLURM_VIA");
    char helper[LIMIT_PATH_BYTES];
    helper_path(helper);
    if (!via || !*via || strcmp(via, "auto") == 0)
        via = access(helper, X_OK) == 0 && slurm_helper_open(helper, &l->rpc, NULL) == 0
                  ? ""
                  : "commands";
    if (strcmp(via, "helper") == 0)
        return slurm_helper_open(helper, &l->rpc, err);
    if (strcmp(via, "commands") == 0)
        return slurm_commands_open(&l->rpc, err);
    return *via ? err_set(err, ERR_INPUT,
                          "REEL_SLURM_VIA is '%s': give auto, commands or helper", via)
                : 0;
}

static int seconds_from_env(const char *name, double fallback, double *out, struct err *err)
{
    const char *text = getenv(name);
    int rc;
    *out = fallback;
    if (!text || !*text)
        return 0;
    if ((rc = num_parse_f64(text, name, out, err)) < 0)
        return rc;
    if (*out < 0)
        return err_set(err, ERR_INPUT, "%s is %s: give 0 or more seconds", name, text);
    return 0;
}

static int settings_take(struct sched_slurm *l, const char *home, struct err *err)
{
    int rc;
    if (getenv("SLURM_CLUSTERS") || getenv("SBATCH_CLUSTERS"))
        return err_set(err, ERR_ENV,
                       "SLURM_CLUSTERS or SBATCH_CLUSTERS is set: a job could go to one cluster "
                       "and be looked for on another; unset it, and choose the cluster by "
                       "SLURM_CONF");
    if ((rc = seconds_from_env("REEL_SLURM_POLL_S", POLL_S, &l->poll_s, err)) < 0)
        return rc;
    if ((rc = seconds_from_env("REEL_SLURM_LOOK_S", LOOK_APART_S, &l->look_apart_s, err)) < 0)
        return rc;
    if ((rc = seconds_from_env("REEL_SLURM_ABSENCE_S", ABSENCE_S, &l->base.absence_s, err)) < 0)
        return rc;
    if ((rc = seconds_from_env("REEL_SLURM_SETTLE_S", SETTLE_S, &l->base.settle_s, err)) < 0)
        return rc;
    if ((size_t)snprintf(l->home, sizeof l->home, "%s", home) >= sizeof l->home ||
        (size_t)snprintf(l->dir, sizeof l->dir, "%s/sched/slurm", home) >= sizeof l->dir - 128)
        return err_set(err, ERR_LIMIT,
                       "the state folder's path is too long: choose a shorter REEL_HOME");
    return 0;
}

int sched_slurm_open(const char *home, struct sched **out, struct err *err)
{
    struct sched_slurm *l = calloc(1, sizeof *l);
    int rc;
    if (!l)
        return err_set(err, ERR_NOMEM, "out of memory for the scheduler");
    l->base.ops = &slurm_ops;
    if ((rc = settings_take(l, home, err)) < 0 || (rc = slurm_wait_check(err)) < 0)
        goto out;
    if ((rc = rpc_open(l, err)) < 0)
        goto out;
    *out = &l->base;
    l = NULL; /* now owned by the caller */
out:
    if (l)
        close_(&l->base);
    return rc;
}
