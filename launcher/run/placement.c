#include "launcher/run/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/events.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"

/* ---- CPUs ---- */

/* Returns the name of the NIC nearest to GPU i, allocated in the arena; "": there is none. */
static const char *nic_of(const struct topo *t, int64_t i, struct arena *arena)
{
    int64_t nic = i < t->n_gpus ? t->devices[i].near : -1;
    return nic < 0 ? "" : arena_strdup(arena, t->devices[nic].name);
}

bool placement_cpus(const struct topo *t, int64_t ranks, int64_t cpus, struct arena *arena,
                    const char **out, const char **nics, bool *gpus)
{
    int64_t n_gpus = t->n_gpus;
    const char **near = arena_array(arena, (size_t)ranks, sizeof *near);
    bool fill = n_gpus ? ranks == n_gpus : t->n_numa > 0 && ranks % t->n_numa == 0;
    if (!near || !fill || (cpus != t->pus && cpus != t->cores))
        return false;
    for (int64_t i = 0; i < ranks; i++)
        near[i] = n_gpus ? t->devices[i].cpus : t->numa[i / (ranks / t->n_numa)].cpus;
    if (place_cpus(near, (size_t)ranks, arena, out, NULL) < 0)
        return false;
    for (int64_t i = 0; i < ranks; i++)
        if (!out[i][0] || !(nics[i] = nic_of(t, i, arena)))
            return false;
    *gpus = n_gpus > 0;
    return true;
}

/* Finds the CPUs and NICs of the ranks on one host, from the host's newest XML. */
static bool host_cpus(const char *dir, const char *host, int64_t ranks, int64_t cpus,
                      struct arena *arena, const char **out, const char **nics, bool *gpus)
{
    char path[LIMIT_PATH_BYTES];
    struct str xml = STR_INIT;
    struct topo t = {0};
    snprintf(path, sizeof path, "%s/%s.xml", dir, host);
    bool good = file_read(path, LIMIT_CAPTURE_BYTES, &xml, NULL) == 0 &&
                topo_parse(xml.p, xml.len, path, &t, NULL) == 0 &&
                placement_cpus(&t, ranks, cpus, arena, out, nics, gpus);
    topo_release(&t);
    str_release(&xml);
    return good;
}

static void cpus_find(struct placement *p, const char *home, int64_t cpus, struct arena *arena)
{
    const char *cluster = getenv("SLURM_CLUSTER_NAME");
    char dir[LIMIT_PATH_BYTES];
    size_t ranks = (size_t)p->on.ranks / p->on.n;
    const char **first = arena_array(arena, ranks + 1, sizeof *first),
               **other = arena_array(arena, ranks + 1, sizeof *other),
               **nics = arena_array(arena, ranks + 1, sizeof *nics),
               **its = arena_array(arena, ranks + 1, sizeof *its);
    if (!cluster || !first || !other || !nics || !its || (size_t)p->on.ranks % p->on.n)
        return;
    snprintf(dir, sizeof dir, "%.3000s/topo/%.500s", home, cluster);
    for (size_t i = 0; i < p->on.n; i++) {
        bool gpus;
        if (!host_cpus(dir, p->on.nodes[i].name, (int64_t)ranks, cpus, arena, i ? other : first,
                       i ? its : nics, &gpus) ||
            (i && gpus != p->gpus))
            return;
        p->gpus = gpus;
        for (size_t k = 0; i && k < ranks; k++)
            if (strcmp(first[k], other[k]) != 0 || strcmp(nics[k], its[k]) != 0)
                return;
    }
    p->cpus = first;
    p->near = nics;
}

/* ---- nodes ---- */

static const char *leaves_list(const struct sched_placement *on, struct arena *arena)
{
    struct str text = STR_INIT;
    for (size_t i = 0; i < on->n; i++)
        if (on->nodes[i].path[0] &&
            (i == 0 || strcmp(on->nodes[i].path, on->nodes[i - 1].path) != 0))
            str_addf(&text, "%s%s", text.len ? "," : "", on->nodes[i].path);
    const char *list = text.failed ? NULL : arena_strdup(arena, text.p);
    str_release(&text);
    return list;
}

void placement_find(struct placement *p, struct sched *s, const char *home,
                    const struct sched_self *self, const struct sched_step_spec *spec,
                    struct arena *arena)
{
    *p = (struct placement){0};
    if (sched_place(s, spec, arena, &p->on, NULL) < 0 ||
        !(p->switches = leaves_list(&p->on, arena)))
        return;
    p->known = true;
    cpus_find(p, home, self->cores_per_node, arena);
    if (p->on.n == 1 && !p->cpus)
        *p = (struct placement){0};
}

/* ---- the file: reel.placement/1 ---- */

static void node_write(const struct placement *p, size_t i, struct json_out *o)
{
    const struct place_node *n = &p->on.nodes[i];
    int64_t first = place_first_rank(p->on.ranks, p->on.n, i),
            end = place_first_rank(p->on.ranks, p->on.n, i + 1);
    for (int64_t rank = first; rank < end; rank++) {
        json_obj_begin(o, NULL);
        json_put_int(o, "rank", rank);
        json_put_text(o, "host", n->name);
        json_put_text(o, "switches", n->path);
        json_put_int(o, "local_rank", rank - first);
        if (p->cpus && p->gpus)
            json_put_int(o, "gpu", rank - first);
        if (p->cpus && p->near[rank - first][0])
            json_put_text(o, "nic", p->near[rank - first]);
        if (p->cpus)
            json_put_text(o, "cpus", p->cpus[rank - first]);
        json_obj_end(o);
    }
}

static int placement_save(const struct placement *p, const char *run_dir, int64_t attempt,
                          struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct str text = STR_INIT;
    struct json_out o;
    int rc;
    if (!p->known)
        return 0;
    json_out_init(&o, &text, 1);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", "reel.placement/1");
    json_put_int(&o, "attempt", attempt);
    json_put_text(&o, "network", p->on.network);
    json_put_bool(&o, "cpus_bound", p->cpus != NULL);
    json_arr_begin(&o, "ranks");
    for (size_t i = 0; i < p->on.n; i++)
        node_write(p, i, &o);
    json_arr_end(&o);
    json_obj_end(&o);
    str_addc(&text, '\n');
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    snprintf(path, sizeof path, "%.4000s/placement", run_dir);
    if ((rc = file_mkdirs(path, err)) < 0)
        goto out;
    snprintf(path, sizeof path, "%.4000s/placement/attempt-%lld.json", run_dir,
             (long long)attempt);
    rc = file_publish(path, text.p, text.len, err);
out:
    str_release(&text);
    return rc;
}

void placement_record(const struct placement *p, struct attempt *attempt)
{
    struct evlog_event e;
    struct err err = {0};
    if (!p->known)
        return;
    if (placement_save(p, attempt->run_dir, attempt->number, &err) < 0)
        log_msg(LOG_WARN, "the placement is not written down: %s", err.text);
    event_begin(attempt->log, &e, placed);
    event_int(&e, placed, nodes, (int64_t)p->on.n);
    event_text(&e, placed, network, p->on.network);
    event_text(&e, placed, switches, p->switches);
    event_bool(&e, placed, cpus_bound, p->cpus != NULL);
    attempt_event(attempt, &e);
}
