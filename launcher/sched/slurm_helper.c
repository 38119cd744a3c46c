/* slurm_helper: asks the controller through reel-slurm, the program that links libslurm
 * (slurm_wire.h defines the messages).
 *
 * One process serves several calls: it is started for a call and stays for those that follow within
 * IDLE_S. If libslurm crashes, or a reply does not come before the deadline, that process ends or
 * is killed, and the call returns ERR_TEMP. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/spawn.h"
#include "base/str.h"
#include "launcher/sched/slurm_wire.h"

enum { IDLE_S = 5, MAX_REPLY = 64 << 20 };

struct helper {
    struct slurm_rpc rpc;
    char path[LIMIT_PATH_BYTES];
    pid_t pid; /* 0: none runs */
    int fd;
    double used_at; /* monotonic */
    struct str in;  /* received and not used yet */
};

/* ---- the process ---- */

static void stop(struct helper *h)
{
    struct spawn_exit end;
    if (!h->pid)
        return;
    close(h->fd); /* the process ends at end of file, or is killed if it hangs */
    if (spawn_wait(h->pid, 1, &end, NULL) == ERR_TIMEOUT)
        spawn_stop_group(h->pid, 0, &end, NULL);
    h->pid = 0;
    str_clear(&h->in);
}

/* Reads one line into *line (borrowed until the next call), without its end. */
static int hear(struct helper *h, char **line, struct err *err)
{
    int wait_s = slurm_wait_s();
    double begun_s = clock_mono_s(), end_s = begun_s + wait_s, slow_at = begun_s + SLURM_SLOW_S;
    for (;;) {
        char *newline = h->in.len ? memchr(h->in.p, '\n', h->in.len) : NULL, buf[32 << 10];
        if (newline) {
            *newline = '\0';
            *line = h->in.p;
            return 0;
        }
        double now_s = clock_mono_s(), until_s = now_s < slow_at ? slow_at : end_s;
        struct pollfd p = {.fd = h->fd, .events = POLLIN};
        if (now_s >= end_s)
            return err_set(err, ERR_TEMP, "reel-slurm did not answer within %d s", wait_s);
        if (now_s >= slow_at)
            slurm_slow_tell();
        if (poll(&p, 1, (int)((until_s - now_s) * 1000) + 1) <= 0)
            continue;
        ssize_t n = read(h->fd, buf, sizeof buf);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(err, ERR_TEMP, "reel-slurm ended before it answered");
        str_addn(&h->in, buf, (size_t)n);
        if (h->in.failed || h->in.len > MAX_REPLY)
            return err_set(err, ERR_NOMEM, "reel-slurm's answer is larger than %d MiB",
                           MAX_REPLY >> 20);
    }
}

/* Parses the reply, or returns the error in it. */
static int reply_parse(char *line, struct json_doc *doc, struct err *err)
{
    int code = ERR_TEMP;
    if (json_parse(line, strlen(line), "reel-slurm's answer", doc, err) < 0)
        return err_set(err, ERR_TEMP, "reel-slurm answered with something that is no JSON");
    const char *name = json_text(doc->root, "error", "");
    if (!name[0])
        return 0;
#define CODE(name_, value, exit_code, text) \
    if (strcmp(name, #name_) == 0)          \
        code = name_;
    ERR_LIST(CODE)
#undef CODE
    return err_set(err, code, "%s", json_text(doc->root, "text", ""));
}

static int receive(struct helper *h, struct json_doc *doc, struct err *err)
{
    char *line;
    int rc = hear(h, &line, err);
    if (rc < 0) {
        slurm_slow_settle(rc);
        stop(h);
        return rc;
    }
    size_t used = strlen(line) + 1;
    rc = reply_parse(line, doc, err);
    slurm_slow_settle(rc);
    memmove(h->in.p, h->in.p + used, h->in.len - used);
    h->in.len -= used;
    h->used_at = clock_mono_s();
    return rc;
}

static int helper_spawn(struct helper *h, struct err *err)
{
    const char *argv[] = {h->path, NULL};
    struct spawn s = SPAWN_INIT;
    int fds[2], rc;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return err_set_errno(err, ERR_TEMP, "cannot make a socket for reel-slurm");
    s.argv = argv;
    s.fd_in = s.fd_out = fds[1];
    s.die_with_parent = true;
    rc = spawn_start(&s, &h->pid, err);
    close(fds[1]);
    if (rc < 0) {
        close(fds[0]);
        h->pid = 0;
        return rc;
    }
    h->fd = fds[0];
    return 0;
}

/* Checks that the helper uses this version of the protocol. */
static int greeting_check(struct helper *h, struct err *err)
{
    struct json_doc doc = {0};
    int rc;
    if ((rc = receive(h, &doc, err)) < 0)
        goto out;
    if (strcmp(json_text(doc.root, "schema", ""), SLURM_WIRE_SCHEMA) != 0)
        rc = err_set(err, ERR_ENV,
                     "%s speaks '%s', not " SLURM_WIRE_SCHEMA
                     ": install reel and reel-slurm together",
                     h->path, json_text(doc.root, "schema", ""));
out:
    json_release(&doc);
    return rc;
}

static int start(struct helper *h, struct err *err)
{
    int rc;
    if (h->pid && clock_mono_s() - h->used_at > IDLE_S)
        stop(h);
    if (h->pid)
        return 0;
    if ((rc = helper_spawn(h, err)) < 0)
        return rc;
    if ((rc = greeting_check(h, err)) < 0)
        stop(h);
    return rc;
}

static int send_all(struct helper *h, const struct str *request, struct err *err)
{
    for (size_t done = 0; done < request->len;) {
        ssize_t n = send(h->fd, request->p + done, request->len - done, MSG_NOSIGNAL);
        if (n > 0)
            done += (size_t)n;
        else if (errno != EINTR)
            return err_set_errno(err, ERR_TEMP, "reel-slurm takes no requests");
    }
    return 0;
}

/* Sends the request and receives the reply. */
static int ask(struct helper *h, struct str *request, struct json_doc *doc, struct err *err)
{
    int rc;
    str_addc(request, '\n');
    if ((rc = str_check(request, err)) < 0)
        return rc;
    if ((rc = start(h, err)) < 0)
        return rc;
    if ((rc = send_all(h, request, err)) < 0) {
        stop(h);
        return rc;
    }
    return receive(h, doc, err);
}

/* ---- the calls ---- */

static struct helper *helper_of(struct slurm_rpc *r)
{
    return (struct helper *)r;
}

static void request_begin(struct json_out *o, struct str *text, const char *op)
{
    json_out_init(o, text, 0);
    json_obj_begin(o, NULL);
    json_put_text(o, "op", op);
}

static int site(struct slurm_rpc *r, struct arena *arena, struct slurm_site *out,
                struct err *err)
{
    struct str text = STR_INIT;
    struct json_doc doc = {0};
    struct json_out o;
    int rc;
    request_begin(&o, &text, "site");
    json_obj_end(&o);
    if ((rc = ask(helper_of(r), &text, &doc, err)) < 0)
        goto out;
    rc = slurm_wire_site_read(json_member(doc.root, "site"), arena, out, err);
out:
    json_release(&doc);
    str_release(&text);
    return rc;
}

static int net(struct slurm_rpc *r, bool with_nodes, struct arena *arena, struct slurm_net *out,
               struct err *err)
{
    struct str text = STR_INIT;
    struct json_doc doc = {0};
    struct json_out o;
    int rc;
    request_begin(&o, &text, "net");
    json_put_bool(&o, "nodes", with_nodes);
    json_obj_end(&o);
    if ((rc = ask(helper_of(r), &text, &doc, err)) < 0)
        goto out;
    rc = slurm_wire_net_read(json_member(doc.root, "net"), arena, out, err);
out:
    json_release(&doc);
    str_release(&text);
    return rc;
}

static int jobs(struct slurm_rpc *r, const char *id, struct arena *arena, struct slurm_jobs *out,
                struct err *err)
{
    struct str text = STR_INIT;
    struct json_doc doc = {0};
    struct json_out o;
    int rc;
    request_begin(&o, &text, "jobs");
    json_put_text(&o, "id", id);
    json_obj_end(&o);
    if ((rc = ask(helper_of(r), &text, &doc, err)) < 0)
        goto out;
    if ((rc = slurm_wire_jobs_read(json_member(doc.root, "jobs"), arena, out, err)) < 0)
        goto out;
    if (id)
        slurm_jobs_keep(out, id);
out:
    if (rc == ERR_NOT_FOUND) {
        *out = (struct slurm_jobs){0};
        rc = 0;
    }
    json_release(&doc);
    str_release(&text);
    return rc;
}

static void put_bytes(struct json_out *o, const char *key, const char *bytes)
{
    struct str text = STR_INIT;
    slurm_wire_escape(bytes, &text);
    json_put_text(o, key, text.len ? text.p : "");
    o->s->failed |= text.failed;
    str_release(&text);
}

static void submit_write(const struct slurm_submit *w, struct json_out *o)
{
    const struct sched_spec *s = w->spec;
    json_put_text(o, "name", s->name);
    json_put_text(o, "comment", w->comment);
    put_bytes(o, "cwd", s->cwd);
    put_bytes(o, "log", s->log_path);
    put_bytes(o, "script", w->script);
    json_arr_begin(o, "env");
    for (const char *const *e = w->env; *e; e++)
        put_bytes(o, NULL, *e);
    json_arr_end(o);
    json_put_int(o, "nice", w->nice);
    if (w->test_only)
        json_put_bool(o, "test_only", true);
    json_put_bool(o, "requeue", s->requeue);
    json_put_bool(o, "outlives_nodes", s->outlives_nodes);
    json_put_int(o, "nodes", s->nodes);
    json_put_int(o, "cores_per_node", s->cores_per_node);
    json_put_int(o, "gpus_per_node", s->gpus_per_node);
    json_put_text(o, "partition", s->partition);
    json_put_text(o, "account", s->account);
    json_put_text(o, "qos", s->qos);
    json_put_text(o, "exclude", s->exclude);
    json_put_text(o, "after", s->after);
    json_put_int(o, "time_limit_min", (int64_t)((s->time_limit_s + 59) / 60));
    json_put_int(o, "signal", s->signal);
    json_put_int(o, "signal_lead_s", (int64_t)(s->signal_lead_s + 0.5));
}

static int submit(struct slurm_rpc *r, const struct slurm_submit *w, char id[SCHED_ID_BYTES],
                  struct err *err)
{
    struct str text = STR_INIT;
    struct json_doc doc = {0};
    struct json_out o;
    int rc;
    request_begin(&o, &text, "submit");
    submit_write(w, &o);
    json_obj_end(&o);
    if ((rc = ask(helper_of(r), &text, &doc, err)) < 0)
        goto out;
    const char *got = json_text(doc.root, "id", "");
    if (w->test_only)
        goto out;
    if (got[0])
        snprintf(id, SCHED_ID_BYTES, "%s", got);
    else
        rc = err_set(err, ERR_TEMP, "reel-slurm answered a submission without a job id");
out:
    json_release(&doc);
    str_release(&text);
    return rc;
}

/* Sends a request about one job; its reply is empty. signo 0, comment NULL: the request has
 * none. */
static int about(struct slurm_rpc *r, const char *op, const char *handle, int signo, bool all,
                 const char *comment, struct err *err)
{
    struct str text = STR_INIT;
    struct json_doc doc = {0};
    struct json_out o;
    request_begin(&o, &text, op);
    json_put_text(&o, "id", handle);
    if (signo) {
        json_put_int(&o, "signal", signo);
        json_put_bool(&o, "all", all);
    }
    if (comment)
        json_put_text(&o, "comment", comment);
    json_obj_end(&o);
    int rc = ask(helper_of(r), &text, &doc, err);
    json_release(&doc);
    str_release(&text);
    return rc;
}

static int signal_(struct slurm_rpc *r, const char *handle, int signo, bool all, struct err *err)
{
    return about(r, "signal", handle, signo, all, NULL, err);
}

static int requeue(struct slurm_rpc *r, const char *handle, struct err *err)
{
    return about(r, "requeue", handle, 0, false, NULL, err);
}

static int cancel(struct slurm_rpc *r, const char *handle, struct err *err)
{
    return about(r, "cancel", handle, 0, false, NULL, err);
}

static int comment(struct slurm_rpc *r, const char *handle, const char *text, struct err *err)
{
    return about(r, "comment", handle, 0, false, text, err);
}

static void close_(struct slurm_rpc *r)
{
    struct helper *h = helper_of(r);
    stop(h);
    str_release(&h->in);
    free(h);
}

static const struct slurm_rpc_ops ops = {"helper", site, net, submit, jobs, signal_, requeue,
                                         cancel, comment, close_};

int slurm_helper_open(const char *path, struct slurm_rpc **out, struct err *err)
{
    struct helper *h = calloc(1, sizeof *h);
    if (!h)
        return err_set(err, ERR_NOMEM, "out of memory");
    h->rpc.ops = &ops;
    snprintf(h->path, sizeof h->path, "%s", path);
    int rc = start(h, err); /* an unsuitable libslurm is reported now */
    if (rc < 0)
        close_(&h->rpc);
    else
        *out = &h->rpc;
    return rc == ERR_TEMP ? ERR_ENV : rc;
}
