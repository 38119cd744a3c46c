/* This file serves a simulated cluster with real programs: its clock is the machine's, jobs are
 * processes of this machine, and every process that knows the state folder can send it requests.
 * Each execution is a step of the local scheduler (local_step.c), whose watcher leaves no process
 * behind. */
#include "launcher/sched/sim.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "launcher/sched/local_priv.h"
#include "launcher/sched/sim_wire.h"

/* ---- the programs of jobs ---- */

struct program {
    struct program *next;
    char job[24];
    struct sched_step *step;
};
struct server {
    struct sched *sched;
    struct local_spool spool;
    struct local_steps steps;
    struct program *programs; /* those that run now */
};

static struct program **program_of(struct server *v, const char *job)
{
    struct program **p = &v->programs;
    while (*p && strcmp((*p)->job, job) != 0)
        p = &(*p)->next;
    return p;
}

static void program_drop(struct program **p)
{
    struct program *gone = *p;
    *p = gone->next;
    local_step_free(gone->step);
    free(gone);
}

static int program_start(struct server *v, const struct sim_exec *exec, struct program *p,
                         struct err *err)
{
    struct sched_self self = {.restarts = exec->restarts,
                              .nodes = exec->nodes,
                              .cores_per_node = exec->cores};
    struct sched_step_spec spec = SCHED_STEP_SPEC_INIT;
    struct arena texts = {0};
    const char **env = NULL;
    char folder[LIMIT_PATH_BYTES];
    int rc;
    snprintf(self.id, sizeof self.id, "%s", exec->job);
    snprintf(self.token, sizeof self.token, "%s", exec->token);
    snprintf(folder, sizeof folder, "%s", exec->log_path);
    *strrchr(folder, '/') = '\0';
    spec.argv = exec->argv;
    spec.cwd = exec->cwd;
    spec.log_path = exec->log_path;
    spec.cores = 1;
    if ((rc = file_mkdirs(folder[0] ? folder : "/", err)) == 0 &&
        (rc = local_step_env("sim", &self, exec->env, &texts, &env, err)) == 0)
        rc = local_step_start(&v->steps, &spec, env, &p->step, err);
    free(env);
    arena_release(&texts);
    return rc;
}

static void run(void *ctx, const struct sim_exec *exec, struct sim_outcome *out)
{
    struct server *v = ctx;
    struct err err = {0};
    struct program *p = calloc(1, sizeof *p);
    if (!p || program_start(v, exec, p, &err) < 0) {
        log_msg(LOG_WARN, "job %s does not start: %s", exec->job, err.text);
        free(p);
        *out = (struct sim_outcome){0, 127, 0};
        return;
    }
    snprintf(p->job, sizeof p->job, "%s", exec->job);
    p->next = v->programs;
    v->programs = p;
    *out = (struct sim_outcome){INFINITY, 0, 0};
}

static void hear(void *ctx, const struct sim_exec *exec, int signo, struct sim_outcome *out)
{
    struct program **p = program_of(ctx, exec->job);
    (void)out; /* reap() reports its end */
    if (!*p)
        return;
    if (signo == SIGKILL) {
        program_drop(p);
    } else if (exec->to_all) {
        local_step_signal_all((*p)->step, signo);
    } else {
        local_step_signal((*p)->step, SIGCONT, NULL);
        local_step_signal((*p)->step, signo, NULL);
    }
}

/* Reports to the simulation which programs have ended. */
static void reap(struct server *v)
{
    for (struct program **p = &v->programs; *p;) {
        struct sched_step_status st = {0};
        char job[24];
        local_step_poll((*p)->step, 0, &st, NULL);
        if (!st.ended) {
            p = &(*p)->next;
            continue;
        }
        memcpy(job, (*p)->job, sizeof job);
        program_drop(p);
        sched_sim_end(v->sched, job, st.exit_code, st.lost ? SIGKILL : st.exit_signal);
    }
}

/* ---- requests ---- */

typedef int serve_fn(struct server *v, struct sim_wire *w, struct str *out, struct err *err);

static int serve_describe(struct server *v, struct sim_wire *w, struct str *out, struct err *err)
{
    struct sched_site site;
    int rc = sched_describe(v->sched, &site, err);
    (void)w;
    if (rc == 0)
        sim_put_site(out, &site);
    return rc;
}

static int serve_submit(struct server *v, struct sim_wire *w, struct str *out, struct err *err)
{
    struct sched_spec spec;
    char id[SCHED_ID_BYTES];
    sim_take_spec(w, &spec);
    int rc = sched_submit(v->sched, &spec, id, err);
    if (rc == 0)
        sim_put_text(out, id);
    return rc;
}

static int serve_check(struct server *v, struct sim_wire *w, struct str *out, struct err *err)
{
    struct sched_spec spec;
    (void)out;
    sim_take_spec(w, &spec);
    return sched_check(v->sched, &spec, err);
}

static int serve_poll(struct server *v, struct sim_wire *w, struct str *out, struct err *err)
{
    struct sched_jobs jobs = {0};
    struct sched_filter filter = {.ids = sim_take_list(w)};
    filter.tokens = sim_take_list(w);
    int rc = sched_poll(v->sched, &filter, &jobs, err);
    if (rc == 0)
        sim_put_num(out, (double)jobs.n);
    for (size_t i = 0; rc == 0 && i < jobs.n; i++)
        sim_put_job(out, &jobs.jobs[i]);
    sched_jobs_release(&jobs);
    return rc;
}

static int serve_signal(struct server *v, struct sim_wire *w, struct str *out, struct err *err)
{
    const char *id = sim_take_text(w);
    int signo = sim_take_int(w), to = sim_take_int(w);
    (void)out;
    return sched_signal(v->sched, id ? id : "", signo, (enum sched_to)to, err);
}

static int serve_requeue(struct server *v, struct sim_wire *w, struct str *out, struct err *err)
{
    const char *id = sim_take_text(w);
    (void)out;
    return sched_requeue(v->sched, id ? id : "", err);
}

static int serve_cancel(struct server *v, struct sim_wire *w, struct str *out, struct err *err)
{
    const char *id = sim_take_text(w);
    (void)out;
    return sched_cancel(v->sched, id ? id : "", err);
}

static int serve_ending(struct server *v, struct sim_wire *w, struct str *out, struct err *err)
{
    struct sched_ending end;
    const char *id = sim_take_text(w);
    int rc = sched_ending(v->sched, id ? id : "", &end, err);
    if (rc == 0)
        sim_put_ending(out, &end);
    return rc;
}

static const struct {
    const char *op;
    serve_fn *fn;
} requests[] = {
    {"describe", serve_describe}, {"submit", serve_submit},   {"check", serve_check},
    {"poll", serve_poll},         {"signal", serve_signal},   {"requeue", serve_requeue},
    {"cancel", serve_cancel},     {"ending", serve_ending},
};

/* Carries out a request, and writes the reply. */
static void serve(struct server *v, const struct str *request, struct str *reply)
{
    struct arena arena = {0};
    struct str result = STR_INIT;
    struct err err = {0};
    struct sim_wire w = {request->p, request->p + request->len, &arena, false};
    const char *op = sim_take_text(&w);
    int rc = err_set(&err, ERR_INPUT, "the simulated cluster has no call '%s'", op ? op : "");
    for (size_t i = 0; op && i < sizeof requests / sizeof requests[0]; i++)
        if (strcmp(op, requests[i].op) == 0) {
            err = (struct err){0};
            rc = requests[i].fn(v, &w, &result, &err);
        }
    sim_put_num(reply, rc);
    sim_put_text(reply, err.text);
    str_addn(reply, result.p, result.len);
    str_release(&result);
    arena_release(&arena);
}

static void serve_one(struct server *v, int listener)
{
    const struct timeval patience = {.tv_sec = 5}; /* for a client that sends nothing */
    struct str request = STR_INIT, reply = STR_INIT;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (sim_receive(fd, &request, NULL) == 0) {
        serve(v, &request, &reply);
        sim_send(fd, &reply, NULL);
    }
    close(fd);
    str_release(&request);
    str_release(&reply);
}

/* ---- the server ---- */

int sched_sim_listen(const char *home, int *out, struct err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int rc, fd;
    if ((rc = sim_socket_path(home, a.sun_path, err)) < 0 || (rc = file_mkdirs(home, err)) < 0)
        return rc;
    if ((fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) < 0)
        return err_set_errno(err, ERR_IO, "cannot make a socket");
    if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 64) < 0) {
        rc = err_set_errno(err, ERR_IO, "cannot listen at '%s'", a.sun_path);
        close(fd);
        return rc;
    }
    *out = fd;
    return 0;
}

int sched_sim_serve(const struct sim_conf *conf, const char *home, int listener,
                    const volatile sig_atomic_t *stop, struct err *err)
{
    enum { LOOK_MS = 10 };
    struct server v = {0};
    struct sim_conf real = *conf;
    int rc;
    real.run = run, real.hear = hear, real.ctx = &v;
    real.start_s = clock_wall_s();
    if ((rc = local_spool_init(&v.spool, home, err)) < 0 ||
        (rc = sched_sim_open(&real, &v.sched, err)) < 0)
        return rc;
    v.steps = (struct local_steps){.spool = &v.spool, .cores = INT_MAX};
    while (!*stop) {
        struct pollfd fd = {.fd = listener, .events = POLLIN};
        if (poll(&fd, 1, LOOK_MS) > 0)
            serve_one(&v, listener);
        reap(&v);
        sched_sim_advance(v.sched, clock_wall_s() - sched_sim_now(v.sched));
    }
    while (v.programs)
        program_drop(&v.programs);
    sched_close(v.sched);
    local_spool_release(&v.spool);
    return 0;
}
