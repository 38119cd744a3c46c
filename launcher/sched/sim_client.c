/* This file implements the scheduler "sim" for other processes, which ask the server of a simulated
 * cluster with real programs. The caller runs its steps itself, as with the local scheduler. */
#include "launcher/sched/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "launcher/sched/local_priv.h"
#include "launcher/sched/sim_wire.h"

struct client {
    struct sched base;
    struct sockaddr_un server;
    struct local_spool spool;
    struct local_steps steps;
    struct arena site; /* owns the texts that the last describe returned */
    struct str site_text;
};

static struct client *client_of(struct sched *s)
{
    return (struct client *)s;
}

/* ---- a request and its reply ---- */

static int exchange(const struct client *c, const struct str *request, struct str *reply,
                    struct err *err)
{
    int rc, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_set_errno(err, ERR_TEMP, "cannot make a socket");
    if (connect(fd, (const struct sockaddr *)&c->server, sizeof c->server) < 0)
        rc = err_set_errno(err, ERR_TEMP, "no simulated cluster answers at '%s'",
                           c->server.sun_path);
    else if ((rc = sim_send(fd, request, err)) == 0)
        rc = sim_receive(fd, reply, err);
    close(fd);
    return rc;
}

/* Sends the request and receives the reply; *w is then positioned after the error in the reply. */
static int ask(const struct client *c, const struct str *request, struct arena *arena,
               struct str *reply, struct sim_wire *w, struct err *err)
{
    int rc = exchange(c, request, reply, err);
    if (rc < 0)
        return rc;
    *w = (struct sim_wire){reply->p, reply->p + reply->len, arena, false};
    rc = sim_take_int(w);
    const char *text = sim_take_text(w);
    if (w->bad)
        return err_set(err, ERR_TEMP, "the simulated cluster ended before it answered");
    return rc < 0 ? err_set(err, rc, "%s", text ? text : "") : 0;
}

/* Sends a request about one job, and releases the request's text. */
static int ask_plain(struct sched *s, struct str *request, struct sched_ending *out,
                     struct err *err)
{
    struct str reply = STR_INIT;
    struct sim_wire w;
    int rc = ask(client_of(s), request, NULL, &reply, &w, err);
    if (rc == 0 && out)
        sim_take_ending(&w, out);
    str_release(&reply);
    str_release(request);
    return rc;
}

static struct str request_of(const char *op, const char *id)
{
    struct str request = STR_INIT;
    sim_put_text(&request, op);
    if (id)
        sim_put_text(&request, id);
    return request;
}

/* ---- the calls ---- */

static int describe(struct sched *s, struct sched_site *out, struct err *err)
{
    struct client *c = client_of(s);
    struct str request = request_of("describe", NULL);
    struct sim_wire w;
    arena_reset(&c->site);
    str_clear(&c->site_text);
    int rc = ask(c, &request, &c->site, &c->site_text, &w, err);
    if (rc == 0)
        sim_take_site(&w, out);
    str_release(&request);
    return rc;
}

static int submit(struct sched *s, const struct sched_spec *spec, char id[SCHED_ID_BYTES],
                  struct err *err)
{
    struct str request = request_of("submit", NULL), reply = STR_INIT;
    struct sim_wire w;
    sim_put_spec(&request, spec);
    int rc = ask(client_of(s), &request, NULL, &reply, &w, err);
    if (rc == 0)
        snprintf(id, SCHED_ID_BYTES, "%s", sim_take_text(&w));
    str_release(&request);
    str_release(&reply);
    return rc;
}

static int check(struct sched *s, const struct sched_spec *spec, struct err *err)
{
    struct str request = request_of("check", NULL);
    sim_put_spec(&request, spec);
    return ask_plain(s, &request, NULL, err);
}

static void script(const struct sched_spec *spec, struct str *out)
{
    for (const char *const *a = spec->argv; *a; a++)
        str_addf(out, "%s%s", a == spec->argv ? "" : " ", *a);
    str_addc(out, '\n');
}

static int jobs_take(struct sim_wire *w, struct sched_jobs *out, struct err *err)
{
    size_t n = (size_t)sim_take_num(w);
    out->jobs = arena_array(&out->arena, n + 1, sizeof *out->jobs);
    if (!out->jobs)
        return err_set(err, ERR_NOMEM, "out of memory for %zu jobs", n);
    for (; out->n < n && !w->bad; out->n++)
        sim_take_job(w, &out->jobs[out->n]);
    return w->bad ? err_set(err, ERR_TEMP, "the simulated cluster ended amid its answer") : 0;
}

static int poll_(struct sched *s, const struct sched_filter *filter, struct sched_jobs *out,
                 struct err *err)
{
    struct str request = request_of("poll", NULL), reply = STR_INIT;
    struct sched_jobs jobs = {0};
    struct sim_wire w;
    sim_put_list(&request, filter ? filter->ids : NULL);
    sim_put_list(&request, filter ? filter->tokens : NULL);
    int rc = ask(client_of(s), &request, &jobs.arena, &reply, &w, err);
    if (rc == 0) {
        w.arena = &jobs.arena;
        rc = jobs_take(&w, &jobs, err);
    }
    if (rc < 0)
        sched_jobs_release(&jobs);
    else
        *out = jobs;
    str_release(&request);
    str_release(&reply);
    return rc;
}

static int signal_(struct sched *s, const char *id, int signo, enum sched_to to, struct err *err)
{
    struct str request = request_of("signal", id);
    sim_put_num(&request, signo);
    sim_put_num(&request, to);
    return ask_plain(s, &request, NULL, err);
}

static int requeue(struct sched *s, const char *id, struct err *err)
{
    struct str request = request_of("requeue", id);
    return ask_plain(s, &request, NULL, err);
}

static int cancel(struct sched *s, const char *id, struct err *err)
{
    struct str request = request_of("cancel", id);
    return ask_plain(s, &request, NULL, err);
}

static int ending(struct sched *s, const char *id, struct sched_ending *out, struct err *err)
{
    struct str request = request_of("ending", id);
    return ask_plain(s, &request, out, err);
}

static int step_start(struct sched *s, const struct sched_step_spec *spec, struct sched_step **out,
                      struct err *err)
{
    struct client *c = client_of(s);
    struct sched_self self = {0};
    struct sched_site site;
    struct arena texts = {0};
    const char **env = NULL;
    int rc = describe(s, &site, err);
    if (rc < 0)
        return rc;
    c->steps.machine.kill_wait_s = site.kill_wait_s;
    c->steps.cores = sched_self(s, &self, NULL) == 0 ? self.cores_per_node
                                                     : site.partitions[0].cores_per_node;
    if ((rc = local_step_env("sim", &self, spec->env, &texts, &env, err)) == 0)
        rc = local_step_start(&c->steps, spec, env, out, err);
    free(env);
    arena_release(&texts);
    return rc;
}

static void close_(struct sched *s)
{
    struct client *c = client_of(s);
    local_spool_release(&c->spool);
    arena_release(&c->site);
    str_release(&c->site_text);
    free(c);
}

static const struct sched_ops client_ops = {
    .kind = "sim",
    .describe = describe,
    .submit = submit,
    .check = check,
    .script = script,
    .poll = poll_,
    .signal = signal_,
    .requeue = requeue,
    .ending = ending,
    .cancel = cancel,
    .step_start = step_start,
    .step_poll = local_step_poll,
    .step_signal = local_step_signal,
    .step_free = local_step_free,
    .close = close_,
};

int sched_sim_attach(const char *home, struct sched **out, struct err *err)
{
    struct client *c = calloc(1, sizeof *c);
    int rc;
    if (!c)
        return err_set(err, ERR_NOMEM, "out of memory for the simulated cluster");
    c->base.ops = &client_ops;
    c->base.absence_s = 1.5;
    c->server.sun_family = AF_UNIX;
    c->site_text = (struct str)STR_INIT;
    c->steps = (struct local_steps){.spool = &c->spool, .ops = &client_ops};
    if ((rc = sim_socket_path(home, c->server.sun_path, err)) < 0 ||
        (rc = local_spool_init(&c->spool, home, err)) < 0)
        close_(&c->base);
    else
        *out = &c->base;
    return rc;
}
