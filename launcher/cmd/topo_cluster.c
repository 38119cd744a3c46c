/* reel topo --cluster: shows the nodes of a Slurm cluster. Inside an allocation it starts a step
 * with a task on each node, which captures the node's topology. Outside an allocation it submits a
 * short job that does so.
 *
 *     <home>/topo/<cluster>/<node>.xml    the newest XML of a node, from which an agent that
 *                                         places ranks there reads the GPUs and cores
 *     <home>/topo/<cluster>/step-<id>/    the files that the tasks of one step write
 */
#include "launcher/cmd/topo_cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/start/command.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/id.h"
#include "base/log.h"
#include "launcher/machine/survey.h"
#include "launcher/cmd/job.h"
#include "launcher/cmd/lead.h"
#include "launcher/cmd/topo_profile.h"
#include "launcher/sched/hosts.h"
#include "launcher/sched/slurm.h"

extern char **environ;
static const double STEP_BEYOND_S = 10, JOB_BEYOND_S = 180;

struct look {
    const struct opt_values *v;
    struct cmd_env *env;
    struct sched *s;
    struct slurm_site site;
    struct slurm_net net;
    struct survey survey;
    struct arena arena;
    /* <home>/topo/<cluster>, and the folder of this step in it */
    char home[LIMIT_PATH_BYTES - 256], dir[LIMIT_PATH_BYTES];
};

/* ---- the task on a node ---- */

int topo_probe(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *node = getenv("SLURMD_NODENAME");
    char path[LIMIT_PATH_BYTES];
    struct str xml = STR_INIT;
    struct err why = {0};
    int rc = topo_live_xml(env, true, opt_num(v, "deadline"), &xml, &why);
    snprintf(path, sizeof path, "%s/%s.%s", opt_text(v, "probe"),
             node && *node ? node : clock_host(), rc == 0 ? "xml" : "err");
    rc = rc == 0 ? file_publish(path, xml.p, xml.len, err)
                 : file_publish(path, why.text, strlen(why.text), err);
    str_release(&xml);
    return rc;
}

/* ---- the step ---- */

static int step_run(struct look *l, struct err *err)
{
    const char **env = NULL,
               *argv[] = {arena_printf(&l->arena, "%s/reel", l->env->bin_dir), "topo",
                          arena_printf(&l->arena, "--probe=%s", l->dir),
                          arena_printf(&l->arena, "--deadline=%.17gs", opt_num(l->v, "deadline")),
                          NULL};
    struct sched_step_spec spec = SCHED_STEP_SPEC_INIT;
    struct sched_step_status end;
    struct sched_step *step = NULL;
    if (!argv[0] || !argv[2] || !argv[3])
        return err_set(err, ERR_NOMEM, "out of memory");
    int rc;
    if ((rc = command_environment((const char *const *)environ, NULL, &l->arena, &env, err)) < 0)
        return rc;
    spec.argv = argv;
    spec.env = (const char *const *)env;
    spec.log_path = arena_printf(&l->arena, "%s/log", l->dir);
    spec.per_node = true;
    spec.deadline_s = opt_num(l->v, "deadline") + STEP_BEYOND_S;
    if ((rc = sched_step_start(l->s, &spec, &step, err)) < 0)
        return rc;
    rc = sched_step_poll(step, -1, &end, err); /* the nodes' files show how the tasks ended */
    sched_step_free(step);
    return rc;
}

/* Moves each node's XML to the path of its newest one. Removes the step's folder if all nodes
 * answered. */
static void files_keep(struct look *l)
{
    char from[LIMIT_PATH_BYTES + 256], to[LIMIT_PATH_BYTES + 256];
    struct str silent = STR_INIT;
    for (size_t i = 0; i < l->survey.n; i++)
        if (l->survey.nodes[i].topo) {
            snprintf(from, sizeof from, "%s/%s.xml", l->dir, l->survey.nodes[i].slurm->name);
            snprintf(to, sizeof to, "%s/%s.xml", l->home, l->survey.nodes[i].slurm->name);
            if (rename(from, to) < 0)
                log_msg(LOG_WARN, "cannot keep '%s'", to);
        }
    if (survey_silent(&l->survey, &silent) == 0)
        file_remove_tree(l->dir, NULL);
    str_release(&silent);
}

static int nodes_ask(struct look *l, struct err *err)
{
    const char *list = getenv("SLURM_JOB_NODELIST"), **asked;
    char hex[ID_TEXT_BYTES];
    struct id id;
    size_t n;
    int rc;
    if ((rc = hosts_expand(list ? list : "", &l->arena, &asked, &n, err)) < 0)
        return rc;
    if ((rc = id_random(&id, err)) < 0)
        return rc;
    snprintf(l->dir, sizeof l->dir, "%s/step-%s", l->home, id_format(id, hex));
    if ((rc = file_mkdirs(l->dir, err)) < 0)
        return rc;
    if ((rc = step_run(l, err)) < 0)
        return rc;
    if ((rc = survey_read(&l->survey, asked, n, l->dir, err)) < 0)
        return rc;
    files_keep(l);
    return 0;
}

/* ---- output ---- */

static int show(struct look *l, struct err *err)
{
    struct str text = STR_INIT;
    if (opt_bool(l->v, "json")) {
        struct json_out o;
        json_out_init(&o, &text, 2);
        survey_write(&l->survey, &o);
        str_addc(&text, '\n');
    } else {
        survey_format(&l->survey, &text);
    }
    int rc;
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    rc = opt_given(l->v, "result") ? file_publish(opt_text(l->v, "result"), text.p, text.len, err)
                                   : cmd_print(&text, err);
out:
    str_release(&text);
    return rc;
}

static int verdict(const struct look *l, struct err *err)
{
    struct str names = STR_INIT;
    size_t n = survey_silent(&l->survey, &names);
    int rc = n ? err_set(err, ERR_CHILD, "no answer from %zu node%s: %s; see %s/log", n,
                         n == 1 ? "" : "s", names.p, l->dir)
               : 0;
    str_release(&names);
    return rc;
}

/* ---- the job ---- */

/* Fills in a job on all usable nodes, or on --nodes of them. On each node the job asks for as many
 * GPUs as the usable node with the fewest has. */
static int spec_fill(struct look *l, struct sched_spec *spec, struct err *err)
{
    const struct sched_partition *p;
    struct survey usable;
    int64_t n = 0, gpus = -1;
    int rc;
    if ((rc = lead_partition(&l->site.site, opt_text(l->v, "partition"), &p, err)) < 0)
        return rc;
    if ((rc = survey_init(&usable, &l->site, &l->net, p->name, err)) < 0)
        return rc;
    for (size_t i = 0; i < usable.n; i++)
        if (survey_node_usable(usable.nodes[i].slurm)) {
            n++;
            gpus = gpus < 0 || usable.nodes[i].slurm->gpus < gpus ? usable.nodes[i].slurm->gpus
                                                                  : gpus;
        }
    survey_release(&usable);
    if (n == 0)
        return err_set(err, ERR_STATE,
                       "no node of partition %s may be had: see 'reel topo --cluster --no-step'",
                       p->name);
    spec->name = "reel-topo";
    spec->partition = p->name;
    spec->nodes = (int)(opt_given(l->v, "nodes") ? opt_int(l->v, "nodes") : n);
    spec->gpus_per_node = (int)gpus;
    spec->time_limit_s = opt_num(l->v, "deadline") + JOB_BEYOND_S;
    return 0;
}

static int job_ask(struct look *l, struct err *err)
{
    const char *partition = opt_text(l->v, "partition"), *argv[8] = {"topo", "--cluster"};
    char dir[LIMIT_PATH_BYTES];
    struct job_question q = {.dir = dir, .argv = argv, .spec = SCHED_SPEC_INIT};
    struct str key = STR_INIT;
    int n = 2, rc;
    if ((rc = spec_fill(l, &q.spec, err)) < 0)
        return rc;
    argv[n++] = arena_printf(&l->arena, "--deadline=%.17gs", opt_num(l->v, "deadline"));
    if (opt_bool(l->v, "json"))
        argv[n++] = "--json";
    if (partition)
        argv[n++] = arena_printf(&l->arena, "--partition=%s", partition);
    for (int i = 0; i < n; i++)
        str_addf(&key, "%s\n", argv[i] ? argv[i] : "");
    str_addf(&key, "%s, %d nodes of %s\n", l->site.site.name, q.spec.nodes,
             q.spec.partition ? q.spec.partition : "");
    if ((rc = str_check(&key, err)) < 0)
        goto out;
    for (int i = 0; i < n; i++)
        if (!argv[i]) {
            rc = err_set(err, ERR_NOMEM, "out of memory");
            goto out;
        }
    job_dir(l->env->home, "topo", &key, dir);
    rc = job_run(&q, l->env, err);
out:
    str_release(&key);
    return rc;
}

/* ---- the command ---- */

static int load(struct look *l, struct err *err)
{
    const char *partition = opt_text(l->v, "partition");
    int rc;
    if ((rc = sched_open("slurm", l->env->home, &l->s, err)) < 0)
        return rc;
    if ((rc = sched_slurm_site(l->s, &l->site, err)) < 0)
        return rc;
    if ((rc = sched_slurm_net(l->s, &l->arena, &l->net, err)) < 0)
        return rc;
    if ((rc = survey_init(&l->survey, &l->site, &l->net, partition, err)) < 0)
        return rc;
    if ((size_t)snprintf(l->home, sizeof l->home, "%s/topo/%s", l->env->home, l->site.site.name) >=
        sizeof l->home)
        return err_set(err, ERR_LIMIT,
                       "the state folder's path is too long: choose a shorter REEL_HOME");
    return 0;
}

/* Writes the profile if -o is given, even if some nodes gave no answer. `so`: the result of reading
 * the nodes; if it is an error, that is returned. */
static int profile(struct look *l, int so, struct err *err)
{
    struct err why = {0};
    struct str told = STR_INIT;
    if (!opt_given(l->v, "out") || (so < 0 && so != ERR_CHILD))
        return so;
    struct err *says = so < 0 ? &why : err;
    int rc;
    if ((rc = topo_profile_cluster(l->v, &l->survey, l->home, &told, says)) < 0 ||
        opt_bool(l->v, "json"))
        goto out;
    rc = cmd_print(&told, says);
out:
    str_release(&told);
    if (so < 0 && rc < 0)
        log_msg(LOG_WARN, "no profile is written: %s", why.text);
    return so < 0 ? so : rc;
}

int topo_cluster_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    struct look l = {.v = v, .env = env};
    bool alone = opt_bool(v, "no-step");
    if (opt_given(v, "xml") || opt_bool(v, "dump-xml"))
        return err_set(
            err, ERR_USAGE,
            "--cluster looks at the nodes themselves: give it without --xml and --dump-xml");
    int rc;
    if ((rc = load(&l, err)) < 0)
        goto out;
    if (!alone && !getenv("SLURM_JOB_ID")) {
        rc = job_ask(&l, err);
        rc = profile(&l, rc, err);
        goto out;
    }
    if (!alone && (rc = nodes_ask(&l, err)) < 0)
        goto out;
    if ((rc = show(&l, err)) < 0)
        goto out;
    rc = verdict(&l, err);
    rc = profile(&l, rc, err);
out:
    survey_release(&l.survey);
    sched_close(l.s);
    arena_release(&l.arena);
    return rc;
}
