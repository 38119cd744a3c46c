#include "launcher/sched/slurm_wire.h"

#include <string.h>

/* ---- jobs ---- */

void slurm_wire_job_write(const struct slurm_job *j, struct json_out *o)
{
    json_obj_begin(o, NULL);
    json_put_text(o, "id", j->id);
    json_put_text(o, "handle", j->handle);
    json_put_text(o, "state", j->state);
    json_put_text(o, "base", j->base);
    json_put_text(o, "reason", j->reason);
    json_put_text(o, "comment", j->comment);
    json_put_text(o, "name", j->name);
    json_put_int(o, "restarts", j->restarts);
    json_put_int(o, "nodes", j->nodes);
    json_put_int(o, "cores", j->cores);
    json_put_int(o, "nice", j->nice);
    json_put_int(o, "exit_status", j->exit_status);
    json_put_bool(o, "requeue", j->requeue);
    json_put_num(o, "submitted_at", j->submitted_at);
    json_put_num(o, "started_at", j->started_at);
    json_put_num(o, "ended_at", j->ended_at);
    json_put_num(o, "preempted_at", j->preempted_at);
    json_put_text(o, "partition", j->partition);
    json_put_text(o, "cwd", j->cwd);
    json_obj_end(o);
}

int slurm_wire_job_read(const cJSON *v, struct arena *arena, struct slurm_job *j, struct err *err)
{
    *j = (struct slurm_job){
        .id = arena_strdup(arena, json_text(v, "id", "")),
        .handle = arena_strdup(arena, json_text(v, "handle", json_text(v, "id", ""))),
        .state = arena_strdup(arena, json_text(v, "state", "")),
        .base = arena_strdup(arena, json_text(v, "base", "")),
        .reason = arena_strdup(arena, json_text(v, "reason", "")),
        .comment = arena_strdup(arena, json_text(v, "comment", "")),
        .name = arena_strdup(arena, json_text(v, "name", "")),
        .restarts = (int)json_int(v, "restarts", 0),
        .nodes = (int)json_int(v, "nodes", 0),
        .cores = (int)json_int(v, "cores", 0),
        .nice = (int)json_int(v, "nice", 0),
        .exit_status = (int)json_int(v, "exit_status", -1),
        .requeue = cJSON_IsTrue(json_member(v, "requeue")),
        .submitted_at = json_num(v, "submitted_at", 0),
        .started_at = json_num(v, "started_at", 0),
        .ended_at = json_num(v, "ended_at", 0),
        .preempted_at = json_num(v, "preempted_at", 0),
        .partition = arena_strdup(arena, json_text(v, "partition", "")),
        .cwd = arena_strdup(arena, json_text(v, "cwd", ""))};
    bool all = j->id && j->handle && j->state && j->base && j->reason && j->comment && j->name &&
               j->partition && j->cwd;
    return all ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

int slurm_wire_jobs_read(const cJSON *list, struct arena *arena, struct slurm_jobs *out,
                         struct err *err)
{
    const cJSON *v;
    struct slurm_jobs jobs = {
        .v = arena_array(arena, (size_t)cJSON_GetArraySize(list) + 1, sizeof *jobs.v)};
    int rc;
    if (!jobs.v)
        return err_set(err, ERR_NOMEM, "out of memory");
    cJSON_ArrayForEach(v, list)
        if ((rc = slurm_wire_job_read(v, arena, &jobs.v[jobs.n++], err)) < 0)
            return rc;
    *out = jobs;
    return 0;
}

void slurm_jobs_keep(struct slurm_jobs *jobs, const char *id)
{
    size_t n = 0;
    for (size_t i = 0; i < jobs->n; i++)
        if (strcmp(jobs->v[i].id, id) == 0)
            jobs->v[n++] = jobs->v[i];
    jobs->n = n;
}

/* ---- the site ---- */

void slurm_wire_site_write(const struct slurm_site *s, struct json_out *o)
{
    json_put_text(o, "name", s->site.name);
    json_put_text(o, "version", s->version);
    json_put_text(o, "preempt_type", s->preempt_type);
    json_put_text(o, "proctrack", s->proctrack);
    json_put_text(o, "task", s->task);
    json_put_text(o, "topology", s->topology);
    json_put_text(o, "accounting", s->accounting);
    json_put_bool(o, "job_requeue", s->job_requeue);
    json_put_num(o, "min_job_age_s", s->min_job_age_s);
    json_put_num(o, "kill_wait_s", s->site.kill_wait_s);
    json_put_num(o, "requeue_delay_s", s->site.requeue_delay_s);
    json_put_num(o, "node_timeout_s", s->site.node_timeout_s);
    json_put_bool(o, "user_signal", s->site.user_signal);
    json_arr_begin(o, "partitions");
    for (size_t i = 0; i < s->site.n_partitions; i++) {
        const struct sched_partition *p = &s->site.partitions[i];
        json_obj_begin(o, NULL);
        json_put_text(o, "name", p->name);
        json_put_bool(o, "default", p->is_default);
        json_put_int(o, "preempt", p->preempt);
        json_put_num(o, "grace_s", p->grace_s);
        json_put_num(o, "max_time_s", p->max_time_s);
        json_put_int(o, "nodes", p->nodes);
        json_put_int(o, "cores_per_node", p->cores_per_node);
        json_put_int(o, "gpus_per_node", p->gpus_per_node);
        json_obj_end(o);
    }
    json_arr_end(o);
}

static const char *text_of(const cJSON *v, const char *key, struct arena *arena, bool *failed)
{
    const char *copy = arena_strdup(arena, json_text(v, key, ""));
    *failed |= !copy;
    return copy;
}

int slurm_wire_site_read(const cJSON *v, struct arena *arena, struct slurm_site *out,
                         struct err *err)
{
    const cJSON *list = json_member(v, "partitions"), *item;
    struct sched_partition *p = arena_array(arena, (size_t)cJSON_GetArraySize(list) + 1, sizeof *p);
    bool failed = !p;
    struct slurm_site s = {
        .site = {.kind = "slurm",
                 .name = text_of(v, "name", arena, &failed),
                 .partitions = p,
                 .kill_wait_s = json_num(v, "kill_wait_s", 0),
                 .requeue_delay_s = json_num(v, "requeue_delay_s", 0),
                 .node_timeout_s = json_num(v, "node_timeout_s", 0),
                 .user_signal = cJSON_IsTrue(json_member(v, "user_signal"))},
        .version = text_of(v, "version", arena, &failed),
        .preempt_type = text_of(v, "preempt_type", arena, &failed),
        .proctrack = text_of(v, "proctrack", arena, &failed),
        .task = text_of(v, "task", arena, &failed),
        .topology = text_of(v, "topology", arena, &failed),
        .accounting = text_of(v, "accounting", arena, &failed),
        .job_requeue = cJSON_IsTrue(json_member(v, "job_requeue")),
        .min_job_age_s = json_num(v, "min_job_age_s", 0)};
    cJSON_ArrayForEach(item, list)
        if (!failed)
            p[s.site.n_partitions++] = (struct sched_partition){
                .name = text_of(item, "name", arena, &failed),
                .is_default = cJSON_IsTrue(json_member(item, "default")),
                .preempt = (enum sched_preempt)json_int(item, "preempt", 0),
                .grace_s = json_num(item, "grace_s", 0),
                .max_time_s = json_num(item, "max_time_s", 0),
                .nodes = (int)json_int(item, "nodes", 0),
                .cores_per_node = (int)json_int(item, "cores_per_node", 0),
                .gpus_per_node = (int)json_int(item, "gpus_per_node", 0)};
    if (failed)
        return err_set(err, ERR_NOMEM, "out of memory");
    *out = s;
    return 0;
}

/* ---- nodes and network ---- */

void slurm_wire_net_write(const struct slurm_net *net, struct json_out *o)
{
    json_put_text(o, "kind", net->kind);
    json_arr_begin(o, "nodes");
    for (size_t i = 0; i < net->n_nodes; i++) {
        const struct slurm_node *n = &net->nodes[i];
        json_obj_begin(o, NULL);
        json_put_text(o, "name", n->name);
        json_put_text(o, "state", n->state);
        json_put_text(o, "reason", n->reason);
        json_put_num(o, "reason_at", n->reason_at);
        json_put_num(o, "boot_at", n->boot_at);
        json_put_text(o, "gres", n->gres);
        json_put_text(o, "partitions", n->partitions);
        json_put_int(o, "cpus", n->cpus);
        json_put_int(o, "sockets", n->sockets);
        json_put_int(o, "cores_per_socket", n->cores_per_socket);
        json_put_int(o, "threads_per_core", n->threads_per_core);
        json_put_int(o, "gpus", n->gpus);
        json_put_int(o, "memory_bytes", n->memory_bytes);
        json_obj_end(o);
    }
    json_arr_end(o);
    json_arr_begin(o, "switches");
    for (size_t i = 0; i < net->n_switches; i++) {
        json_obj_begin(o, NULL);
        json_put_text(o, "name", net->switches[i].name);
        json_put_text(o, "nodes", net->switches[i].nodes);
        json_put_text(o, "children", net->switches[i].children);
        json_obj_end(o);
    }
    json_arr_end(o);
}

int slurm_wire_net_read(const cJSON *v, struct arena *arena, struct slurm_net *out,
                        struct err *err)
{
    const cJSON *nodes = json_member(v, "nodes"), *switches = json_member(v, "switches"), *item;
    struct slurm_net net = {
        .nodes = arena_array(arena, (size_t)cJSON_GetArraySize(nodes) + 1, sizeof *net.nodes),
        .switches = arena_array(arena, (size_t)cJSON_GetArraySize(switches) + 1,
                                sizeof *net.switches)};
    bool failed = !net.nodes || !net.switches;
    net.kind = text_of(v, "kind", arena, &failed);
    cJSON_ArrayForEach(item, nodes)
        if (!failed)
            net.nodes[net.n_nodes++] = (struct slurm_node){
                .name = text_of(item, "name", arena, &failed),
                .state = text_of(item, "state", arena, &failed),
                .reason = text_of(item, "reason", arena, &failed),
                .reason_at = json_num(item, "reason_at", 0),
                .boot_at = json_num(item, "boot_at", 0),
                .gres = text_of(item, "gres", arena, &failed),
                .partitions = text_of(item, "partitions", arena, &failed),
                .cpus = (int)json_int(item, "cpus", 0),
                .sockets = (int)json_int(item, "sockets", 0),
                .cores_per_socket = (int)json_int(item, "cores_per_socket", 0),
                .threads_per_core = (int)json_int(item, "threads_per_core", 0),
                .gpus = (int)json_int(item, "gpus", 0),
                .memory_bytes = json_int(item, "memory_bytes", 0)};
    cJSON_ArrayForEach(item, switches)
        if (!failed)
            net.switches[net.n_switches++] = (struct slurm_switch){
                .name = text_of(item, "name", arena, &failed),
                .nodes = text_of(item, "nodes", arena, &failed),
                .children = text_of(item, "children", arena, &failed)};
    if (failed)
        return err_set(err, ERR_NOMEM, "out of memory");
    *out = net;
    return 0;
}

/* ---- bytes ---- */

void slurm_wire_escape(const char *bytes, struct str *out)
{
    for (; *bytes; bytes++)
        if (*bytes >= ' ' && *bytes < 0x7f && *bytes != '%')
            str_addc(out, *bytes);
        else
            str_addf(out, "%%%02X", (unsigned char)*bytes);
}

static int nibble(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

void slurm_wire_unescape(char *text)
{
    char *to = text;
    for (; *text; text++)
        if (text[0] == '%' && nibble(text[1]) >= 0 && nibble(text[2]) >= 0) {
            *to++ = (char)(nibble(text[1]) << 4 | nibble(text[2]));
            text += 2;
        } else {
            *to++ = *text;
        }
    *to = '\0';
}
