#include "launcher/machine/survey.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/num.h"
#include "launcher/sched/hosts.h"

/* Slurm may know of less memory than hwloc sees, because sites reserve some for the system. A share
 * below this one counts as a disagreement. */
static const double MEMORY_SPARED = 0.75;

/* ---- the nodes ---- */

static bool in_commas(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
        if (strncmp(p, word, n) == 0 && (p[n] == ',' || !p[n]))
            return true;
    return false;
}

bool survey_node_usable(const struct slurm_node *n)
{
    static const char *const good[] = {"IDLE",    "ALLOCATED",    "MIXED", "COMPLETING",
                                       "PLANNED", "DYNAMIC_NORM", "CLOUD", NULL};
    const char *p = n->state;
    while (*p) {
        size_t len = strcspn(p, "+");
        bool known = false;
        for (const char *const *g = good; *g; g++)
            known |= strlen(*g) == len && strncmp(p, *g, len) == 0;
        if (!known)
            return false;
        p += len + (p[len] == '+');
    }
    return n->state[0];
}

static int join(struct survey *c, const struct slurm_net *net, const char *partition,
                struct err *err)
{
    const char **names = arena_array(&c->arena, net->n_nodes + 1, sizeof *names);
    struct place_node *placed;
    size_t n = 0;
    for (size_t i = 0; names && i < net->n_nodes; i++)
        if (!partition || in_commas(net->nodes[i].partitions, partition))
            names[n++] = net->nodes[i].name;
    c->nodes = arena_array(&c->arena, n + 1, sizeof *c->nodes);
    if (!names || !c->nodes)
        return err_set(err, ERR_NOMEM, "out of memory for %zu nodes", net->n_nodes);
    int rc;
    if ((rc = place_paths(net, names, n, &c->arena, &placed, err)) < 0)
        return rc;
    if ((rc = place_order(placed, n, NULL, err)) < 0)
        return rc;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < net->n_nodes; k++)
            if (strcmp(placed[i].name, net->nodes[k].name) == 0)
                c->nodes[i] = (struct survey_node){.slurm = &net->nodes[k], .path = placed[i].path};
    c->n = n;
    return 0;
}

int survey_init(struct survey *c, const struct slurm_site *site, const struct slurm_net *net,
                const char *partition, struct err *err)
{
    *c = (struct survey){.site = site, .network = net->kind};
    arena_init(&c->arena, 0);
    int rc;
    if ((rc = join(c, net, partition, err)) < 0)
        goto out;
    if (c->n > 0)
        return 0;
    rc = err_set(err, ERR_INPUT, "Slurm tells of no node%s%s: see 'sinfo'",
                 partition ? " in partition " : "", partition ? partition : "");
out:
    survey_release(c);
    return rc;
}

void survey_release(struct survey *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->nodes[i].topo)
            topo_release((struct topo *)c->nodes[i].topo);
    arena_release(&c->arena);
    *c = (struct survey){0};
}

/* ---- hwloc's data, and how they differ from Slurm's ---- */

static void differ(struct survey *c, struct survey_node *n, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void differ(struct survey *c, struct survey_node *n, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *kept = arena_strdup(&c->arena, text);
    if (kept && n->n_disagree < SURVEY_DISAGREE)
        n->disagree[n->n_disagree++] = kept;
}

static void differ_count(struct survey *c, struct survey_node *n, const char *one, const char *many,
                         int64_t slurm, int64_t hwloc)
{
    if (slurm != hwloc)
        differ(c, n, "Slurm says %lld %s, hwloc sees %lld", (long long)slurm,
               slurm == 1 ? one : many, (long long)hwloc);
}

/* Copies the letters and digits of a name in lower case, so that "NVIDIA A100-SXM4" and
 * "nvidia_a100" can be compared. */
static void name_plain(const char *name, size_t len, char *out, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < len && n + 1 < size; i++)
        if (isalnum((unsigned char)name[i]))
            out[n++] = (char)tolower((unsigned char)name[i]);
    out[n] = 0;
}

/* Compares the type in "gpu:h100:8(S:0-1)" with the GPUs' model. A type without a digit, such as
 * "hopper", is the site's own name and is not compared. */
static void compare_gres(struct survey *c, struct survey_node *n)
{
    const char *type = strstr(n->slurm->gres, "gpu:"), *model;
    char told[64], seen[128];
    if (!type || n->topo->n_gpus == 0 || !*(model = n->topo->devices[0].model))
        return;
    type += strlen("gpu:");
    size_t len = strcspn(type, ":,(");
    name_plain(type, len, told, sizeof told);
    name_plain(model, strlen(model), seen, sizeof seen);
    if (type[len] == ':' && strpbrk(told, "0123456789") && !strstr(seen, told))
        differ(c, n, "Slurm calls the GPUs %.*s, the driver %s", (int)len, type, model);
}

static void compare_driver(struct survey *c, struct survey_node *n)
{
    struct str lines = STR_INIT;
    topo_disagree(n->topo, &lines);
    for (const char *line = lines.p; lines.len && *line; line += strcspn(line, "\n") + 1)
        differ(c, n, "%.*s", (int)strcspn(line, "\n"), line);
    str_release(&lines);
}

static void compare_cpus(struct survey *c, struct survey_node *n)
{
    const struct slurm_node *s = n->slurm;
    int64_t cores = (int64_t)s->sockets * s->cores_per_socket;
    differ_count(c, n, "socket", "sockets", s->sockets, n->topo->packages);
    differ_count(c, n, "core", "cores", cores, n->topo->cores);
    if (n->topo->cores > 0)
        differ_count(c, n, "thread a core", "threads a core", s->threads_per_core,
                     n->topo->pus / n->topo->cores);
    if (s->cpus != n->topo->pus && s->cpus != n->topo->cores)
        differ(c, n, "Slurm gives out %d CPUs, hwloc sees %lld cores and %lld processing units",
               s->cpus, (long long)n->topo->cores, (long long)n->topo->pus);
}

static void compare(struct survey *c, struct survey_node *n)
{
    const struct slurm_node *s = n->slurm;
    char told[32], seen[32];
    compare_cpus(c, n);
    differ_count(c, n, "GPU", "GPUs", s->gpus, n->topo->n_gpus);
    double share = n->topo->memory_bytes > 0
                       ? (double)s->memory_bytes / (double)n->topo->memory_bytes
                       : 1;
    if (share > 1 || share < MEMORY_SPARED)
        differ(c, n, "Slurm says %s of memory, hwloc sees %s",
               num_format_bytes(s->memory_bytes, told, sizeof told),
               num_format_bytes(n->topo->memory_bytes, seen, sizeof seen));
    compare_gres(c, n);
    compare_driver(c, n);
}

/* Notes the nodes whose driver is not of the release that most nodes have: a job on nodes with two
 * releases may hang or lose its NVLinks. */
static void compare_releases(struct survey *c)
{
    const char *most = "";
    size_t best = 0;
    for (size_t i = 0; i < c->n; i++) {
        size_t same = 0;
        for (size_t k = 0; c->nodes[i].topo && k < c->n; k++)
            same += c->nodes[k].topo &&
                    strcmp(c->nodes[i].topo->driver, c->nodes[k].topo->driver) == 0;
        if (same > best && *c->nodes[i].topo->driver) {
            best = same;
            most = c->nodes[i].topo->driver;
        }
    }
    for (size_t i = 0; i < c->n; i++) {
        struct survey_node *n = &c->nodes[i];
        if (n->topo && *n->topo->driver && strcmp(n->topo->driver, most) != 0)
            differ(c, n, "the driver is %s, that of most nodes %s", n->topo->driver, most);
    }
}

static void silent_set(struct survey *c, struct survey_node *n, const char *why)
{
    const char *kept = arena_strdup(&c->arena, why);
    n->why = kept ? kept : "out of memory";
}

/* Reads the XML, or the error, that a node's task wrote to the folder. */
static int node_read(struct survey *c, struct survey_node *n, const char *dir, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct str text = STR_INIT;
    struct err why = {0};
    struct topo *t = arena_alloc(&c->arena, sizeof *t, 0);
    if (!t)
        return err_set(err, ERR_NOMEM, "out of memory");
    snprintf(path, sizeof path, "%s/%s.err", dir, n->slurm->name);
    if (file_read(path, ERR_TEXT_BYTES, &text, NULL) == 0) {
        silent_set(c, n, text.p);
        str_release(&text);
        return 0;
    }
    snprintf(path, sizeof path, "%s/%s.xml", dir, n->slurm->name);
    int rc = file_read(path, LIMIT_CAPTURE_BYTES, &text, &why);
    if (rc == ERR_NOT_FOUND)
        silent_set(c, n, "its task did not end in time, or never began");
    else if (rc < 0 || topo_parse(text.p, text.len, path, t, &why) < 0)
        silent_set(c, n, why.text);
    else
        n->topo = t;
    if (n->topo)
        compare(c, n);
    str_release(&text);
    return 0;
}

int survey_read(struct survey *c, const char *const *asked, size_t n_asked, const char *dir,
                struct err *err)
{
    int rc;
    for (size_t i = 0; i < c->n; i++) {
        for (size_t k = 0; k < n_asked; k++)
            c->nodes[i].asked |= strcmp(asked[k], c->nodes[i].slurm->name) == 0;
        if (c->nodes[i].asked && (rc = node_read(c, &c->nodes[i], dir, err)) < 0)
            return rc;
    }
    compare_releases(c);
    return 0;
}

size_t survey_silent(const struct survey *c, struct str *names)
{
    const char **v = calloc(c->n + 1, sizeof *v);
    size_t n = 0;
    for (size_t i = 0; v && i < c->n; i++)
        if (c->nodes[i].asked && !c->nodes[i].topo)
            v[n++] = c->nodes[i].slurm->name;
    hosts_fold(v ? v : (const char *const[]){NULL}, n, names);
    free(v);
    return n;
}

/* ---- for people ---- */

/* Writes a node's line of a section, or nothing if the node has none there. `which` counts the
 * lines of a section that has several for a node. */
typedef void line_fn(const struct survey_node *n, int which, struct str *out);

static void line_shape(const struct survey_node *n, int which, struct str *out)
{
    const struct topo *t = n->topo;
    const struct slurm_node *s = n->slurm;
    char bytes[32];
    (void)which;
    if (n->asked && !t) {
        str_addf(out, "no answer: %s", n->why);
        return;
    }
    if (!t) {
        str_addf(out, "%d core%s, %s", s->sockets * s->cores_per_socket,
                 s->sockets * s->cores_per_socket == 1 ? "" : "s",
                 num_format_bytes(s->memory_bytes, bytes, sizeof bytes));
        str_addf(out,
                 s->gres[0] ? ", %s (Slurm's word; not asked)" : "%s (Slurm's word; not asked)",
                 s->gres);
        return;
    }
    int64_t gpus = t->n_gpus, nics = t->n_devices - gpus;
    str_addf(out, "%lld core%s, %lld NUMA node%s, %s", (long long)t->cores,
             t->cores == 1 ? "" : "s", (long long)t->n_numa, t->n_numa == 1 ? "" : "s",
             num_format_bytes(t->memory_bytes, bytes, sizeof bytes));
    if (gpus)
        str_addf(out, ", %lld GPU%s (%s)", (long long)gpus, gpus == 1 ? "" : "s",
                 t->devices[0].model);
    if (t->links.kind)
        str_addf(out, " linked by %s%s", t->links.kind, t->links.switched ? " switches" : "");
    str_addf(out, ", %lld NIC%s", (long long)nics, nics == 1 ? "" : "s");
    if (*t->cpu_model)
        str_addf(out, ", %s", t->cpu_model);
}

static void line_state(const struct survey_node *n, int which, struct str *out)
{
    (void)which;
    str_addf(out, n->slurm->reason[0] ? "%s: %s" : "%s", n->slurm->state, n->slurm->reason);
}

static void line_disagree(const struct survey_node *n, int which, struct str *out)
{
    if (which < n->n_disagree)
        str_add(out, n->disagree[which]);
}

struct said {
    const char *text, *name;
};

static int by_text(const void *a, const void *b)
{
    const struct said *x = a, *y = b;
    int order = strcmp(x->text, y->text);
    return order ? order : hosts_compare(x->name, y->name);
}

/* Writes a section, in which nodes with the same text share a line. */
static void section(const struct survey *c, const char *title, line_fn *line, int times,
                    struct str *out)
{
    struct arena arena = {0};
    struct said *v = arena_array(&arena, c->n * (size_t)times + 1, sizeof *v);
    const char **names = arena_array(&arena, c->n + 1, sizeof *names);
    struct str text = STR_INIT;
    size_t n = 0, k, m;
    for (size_t i = 0; v && names && i < c->n * (size_t)times; i++) {
        str_clear(&text);
        line(&c->nodes[i % c->n], (int)(i / c->n), &text);
        if (text.len && (v[n].text = arena_strdup(&arena, text.p)))
            v[n++].name = c->nodes[i % c->n].slurm->name;
    }
    out->failed |= !v || !names || text.failed;
    if (n) {
        qsort(v, n, sizeof *v, by_text);
        str_addf(out, "%s\n", title);
    }
    for (size_t i = 0; i < n; i = k) {
        for (k = i, m = 0; k < n && strcmp(v[k].text, v[i].text) == 0; k++)
            names[m++] = v[k].name;
        str_add(out, "  ");
        hosts_fold(names, m, out);
        str_addf(out, ": %s\n", v[i].text);
    }
    str_release(&text);
    arena_release(&arena);
}

/* Returns how many components two paths have in common at their beginnings. */
static int shared(const char *a, const char *b)
{
    int n = 0;
    while (*a && *b) {
        size_t i = strcspn(a, "/"), k = strcspn(b, "/");
        if (i != k || strncmp(a, b, i) != 0)
            break;
        n++;
        a += i + (a[i] == '/');
        b += k + (b[k] == '/');
    }
    return n;
}

/* Writes the switches on a path from depth `from` on, each on its own line. */
static void path_format(const char *path, int from, struct str *out)
{
    for (int depth = 0; *path; depth++) {
        int len = (int)strcspn(path, "/");
        if (depth >= from)
            str_addf(out, "%s%*s%.*s", depth > from ? "\n" : "", 2 + 2 * depth, "", len, path);
        path += len + (path[len] == '/');
    }
}

static void tree_format(const struct survey *c, struct str *out)
{
    const char **names = calloc(c->n + 1, sizeof *names), *before = "";
    for (size_t i = 0, k; names && i < c->n; i = k) {
        const char *path = c->nodes[i].path;
        for (k = i; k < c->n && strcmp(c->nodes[k].path, path) == 0; k++)
            names[k - i] = c->nodes[k].slurm->name;
        path_format(path, shared(before, path), out);
        str_add(out, *path ? "  " : "  under no switch: ");
        hosts_fold(names, k - i, out);
        str_addc(out, '\n');
        before = path;
    }
    out->failed |= !names;
    free(names);
}

void survey_format(const struct survey *c, struct str *out)
{
    bool tree = strcmp(c->network, "tree") == 0 || strcmp(c->network, "block") == 0;
    const char *plugin = c->site->topology[0] ? c->site->topology : "topology/none";
    str_addf(out, "cluster %s, Slurm %s, %zu node%s\n", c->site->site.name, c->site->version, c->n,
             c->n == 1 ? "" : "s");
    if (tree)
        str_addf(out, "%s (%s)\n", strcmp(c->network, "tree") == 0 ? "switches" : "blocks", plugin);
    else if (strcmp(c->network, "none") == 0)
        str_addf(out, "switches: Slurm tells of none (%s)\n", plugin);
    else
        str_addf(out, "switches: %s is not known here, the nodes are shown flat\n", plugin);
    if (tree)
        tree_format(c, out);
    section(c, "nodes", line_shape, 1, out);
    section(c, "states", line_state, 1, out);
    section(c, "disagreements", line_disagree, SURVEY_DISAGREE, out);
}

/* ---- for programs ---- */

static void path_write(const char *path, struct json_out *o)
{
    char name[LIMIT_NAME_BYTES];
    json_arr_begin(o, "switches");
    for (size_t len; *path; path += len + (path[len] == '/')) {
        len = strcspn(path, "/");
        snprintf(name, sizeof name, "%.*s", (int)len, path);
        json_put_text(o, NULL, name);
    }
    json_arr_end(o);
}

static void slurm_write(const struct slurm_node *s, struct json_out *o)
{
    json_obj_begin(o, "slurm");
    json_put_int(o, "sockets", s->sockets);
    json_put_int(o, "cores", (int64_t)s->sockets * s->cores_per_socket);
    json_put_int(o, "threads_per_core", s->threads_per_core);
    json_put_int(o, "cpus", s->cpus);
    json_put_int(o, "memory_bytes", s->memory_bytes);
    json_put_int(o, "gpus", s->gpus);
    json_put_text(o, "gres", s->gres);
    json_obj_end(o);
}

static void node_write(const struct survey_node *n, struct json_out *o)
{
    json_obj_begin(o, NULL);
    json_put_text(o, "name", n->slurm->name);
    json_put_text(o, "state", n->slurm->state);
    json_put_text(o, "reason", n->slurm->reason);
    json_put_text(o, "partitions", n->slurm->partitions);
    path_write(n->path, o);
    slurm_write(n->slurm, o);
    json_put_text(o, "answer", n->topo ? "ok" : n->asked ? "no answer" : "not asked");
    if (n->asked && !n->topo)
        json_put_text(o, "why", n->why);
    if (n->topo)
        topo_write(n->topo, NULL, "hwloc", o);
    json_arr_begin(o, "disagreements");
    for (int i = 0; i < n->n_disagree; i++)
        json_put_text(o, NULL, n->disagree[i]);
    json_arr_end(o);
    json_obj_end(o);
}

void survey_write(const struct survey *c, struct json_out *o)
{
    json_obj_begin(o, NULL);
    json_put_text(o, "schema", "reel.topo-cluster/1");
    json_put_text(o, "cluster", c->site->site.name);
    json_put_text(o, "slurm", c->site->version);
    json_put_text(o, "topology", c->site->topology);
    json_put_text(o, "network", c->network);
    json_arr_begin(o, "nodes");
    for (size_t i = 0; i < c->n; i++)
        node_write(&c->nodes[i], o);
    json_arr_end(o);
    json_obj_end(o);
}
