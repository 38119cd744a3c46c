#include "launcher/sched/sim_wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- numbers, texts, lists ---- */

static void put(struct str *out, const char *text)
{
    str_addn(out, text, strlen(text) + 1);
}

void sim_put_num(struct str *out, double number)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", number);
    put(out, text);
}

void sim_put_text(struct str *out, const char *text)
{
    str_addc(out, text ? '+' : '-');
    put(out, text ? text : "");
}

void sim_put_list(struct str *out, const char *const *list)
{
    size_t n = 0;
    while (list && list[n])
        n++;
    sim_put_num(out, list ? (double)n : -1);
    for (size_t i = 0; i < n; i++)
        put(out, list[i]);
}

/* Takes one text exactly as it was sent. */
static const char *take(struct sim_wire *w)
{
    const char *text = w->p, *end = w->p < w->end ? memchr(text, 0, (size_t)(w->end - text)) : NULL;
    if (!end) {
        w->bad = true;
        return "-";
    }
    w->p = end + 1;
    return text;
}

double sim_take_num(struct sim_wire *w)
{
    return strtod(take(w), NULL);
}

int sim_take_int(struct sim_wire *w)
{
    return (int)sim_take_num(w);
}

const char *sim_take_text(struct sim_wire *w)
{
    const char *text = take(w);
    return text[0] == '+' ? text + 1 : NULL;
}

const char *const *sim_take_list(struct sim_wire *w)
{
    int n = sim_take_int(w);
    if (n < 0 || n > w->end - w->p)
        return NULL;
    const char **list = arena_array(w->arena, (size_t)n + 1, sizeof *list);
    w->bad |= !list;
    for (int i = 0; list && i < n; i++)
        list[i] = take(w);
    return list;
}

/* ---- the structs of sched.h ---- */

void sim_put_spec(struct str *out, const struct sched_spec *s)
{
    const char *const texts[] = {s->token, s->name, s->cwd, s->log_path, s->partition, s->exclude,
                                 s->after};
    const double numbers[] = {s->priority, s->nodes, s->ranks_per_node, s->cores_per_node,
                              s->gpus_per_node, s->time_limit_s, s->requeue, s->signal,
                              s->signal_lead_s};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        sim_put_text(out, texts[i]);
    sim_put_list(out, s->argv);
    sim_put_list(out, s->env);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        sim_put_num(out, numbers[i]);
}

void sim_take_spec(struct sim_wire *w, struct sched_spec *s)
{
    *s = (struct sched_spec)SCHED_SPEC_INIT;
    s->token = sim_take_text(w);
    s->name = sim_take_text(w);
    s->cwd = sim_take_text(w);
    s->log_path = sim_take_text(w);
    s->partition = sim_take_text(w);
    s->exclude = sim_take_text(w);
    s->after = sim_take_text(w);
    s->argv = sim_take_list(w);
    s->env = sim_take_list(w);
    s->priority = sim_take_int(w);
    s->nodes = sim_take_int(w);
    s->ranks_per_node = sim_take_int(w);
    s->cores_per_node = sim_take_int(w);
    s->gpus_per_node = sim_take_int(w);
    s->time_limit_s = sim_take_num(w);
    s->requeue = sim_take_int(w) != 0;
    s->signal = sim_take_int(w);
    s->signal_lead_s = sim_take_num(w);
}

void sim_put_site(struct str *out, const struct sched_site *site)
{
    const double numbers[] = {site->kill_wait_s, site->user_signal, site->requeue_delay_s,
                              site->node_timeout_s, (double)site->n_partitions};
    sim_put_text(out, site->name);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        sim_put_num(out, numbers[i]);
    for (size_t i = 0; i < site->n_partitions; i++) {
        const struct sched_partition *p = &site->partitions[i];
        const double of[] = {p->is_default, p->preempt, p->grace_s, p->max_time_s,
                             p->nodes, p->cores_per_node, p->gpus_per_node};
        sim_put_text(out, p->name);
        for (size_t k = 0; k < sizeof of / sizeof of[0]; k++)
            sim_put_num(out, of[k]);
    }
}

static void take_partition(struct sim_wire *w, struct sched_partition *p)
{
    p->name = sim_take_text(w);
    p->is_default = sim_take_int(w) != 0;
    p->preempt = (enum sched_preempt)sim_take_int(w);
    p->grace_s = sim_take_num(w);
    p->max_time_s = sim_take_num(w);
    p->nodes = sim_take_int(w);
    p->cores_per_node = sim_take_int(w);
    p->gpus_per_node = sim_take_int(w);
}

void sim_take_site(struct sim_wire *w, struct sched_site *site)
{
    *site = (struct sched_site){.kind = "sim", .name = sim_take_text(w)};
    site->kill_wait_s = sim_take_num(w);
    site->user_signal = sim_take_int(w) != 0;
    site->requeue_delay_s = sim_take_num(w);
    site->node_timeout_s = sim_take_num(w);
    site->n_partitions = (size_t)sim_take_num(w);
    struct sched_partition *p = arena_array(w->arena, site->n_partitions, sizeof *p);
    w->bad |= !p;
    for (size_t i = 0; p && i < site->n_partitions; i++)
        take_partition(w, &p[i]);
    site->partitions = p;
}

void sim_put_job(struct str *out, const struct sched_job *j)
{
    const char *const texts[] = {j->id, j->token, j->name, j->reason};
    const double numbers[] = {j->state, j->priority, j->restarts, j->nodes,
                              j->cores_per_node, j->submitted_at, j->started_at, j->ended_at,
                              j->exit_code, j->exit_signal};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        sim_put_text(out, texts[i]);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        sim_put_num(out, numbers[i]);
}

/* Copies a text into the arena. Texts of a job are never NULL: a missing one becomes "". */
static const char *take_kept(struct sim_wire *w)
{
    const char *text = sim_take_text(w), *kept = arena_strdup(w->arena, text ? text : "");
    w->bad |= !kept;
    return kept ? kept : "";
}

void sim_take_job(struct sim_wire *w, struct sched_job *j)
{
    *j = (struct sched_job){.run = ""};
    j->id = take_kept(w);
    j->token = take_kept(w);
    j->name = take_kept(w);
    j->reason = take_kept(w);
    j->state = (enum sched_state)sim_take_int(w);
    j->priority = sim_take_int(w);
    j->restarts = sim_take_int(w);
    j->nodes = sim_take_int(w);
    j->cores_per_node = sim_take_int(w);
    j->submitted_at = sim_take_num(w);
    j->started_at = sim_take_num(w);
    j->ended_at = sim_take_num(w);
    j->exit_code = sim_take_int(w);
    j->exit_signal = sim_take_int(w);
}

void sim_put_ending(struct str *out, const struct sched_ending *e)
{
    const double numbers[] = {e->why, e->limit_at, e->limit_s, e->is_killed, e->ended_at};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        sim_put_num(out, numbers[i]);
}

void sim_take_ending(struct sim_wire *w, struct sched_ending *e)
{
    *e = (struct sched_ending){.why = (enum sched_end)sim_take_int(w)};
    e->limit_at = sim_take_num(w);
    e->limit_s = sim_take_num(w);
    e->is_killed = sim_take_int(w) != 0;
    e->ended_at = sim_take_num(w);
}

/* ---- the socket ---- */

int sim_send(int fd, const struct str *text, struct err *err)
{
    int rc = str_check(text, err);
    for (size_t sent = 0; rc == 0 && sent < text->len;) {
        ssize_t n = send(fd, text->p + sent, text->len - sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            rc = err_set_errno(err, ERR_TEMP, "cannot write to the simulated cluster's socket");
        sent += n > 0 ? (size_t)n : 0;
    }
    shutdown(fd, SHUT_WR);
    return rc;
}

int sim_receive(int fd, struct str *text, struct err *err)
{
    char part[65536];
    for (;;) {
        ssize_t n = recv(fd, part, sizeof part, 0);
        if (n == 0)
            return str_check(text, err);
        if (n < 0 && errno != EINTR)
            return err_set_errno(err, ERR_TEMP, "cannot read from the simulated cluster's socket");
        if (n > 0)
            str_addn(text, part, (size_t)n);
    }
}

int sim_socket_path(const char *home, char out[108], struct err *err)
{
    if (snprintf(out, 108, "%s/sim", home) >= 108)
        return err_set(err, ERR_LIMIT,
                       "the path of the state folder '%s' is too long for a socket in it", home);
    return 0;
}
