/* reel check-site: says which of reel's promises hold on this Slurm site, and what to change if
 * they do not. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/lease.h"
#include "base/spawn.h"
#include "launcher/cmd/cmd.h"
#include "launcher/cmd/lead.h"
#include "launcher/machine/site.h"
#include "launcher/sched/slurm.h"

static const struct opt opts[] = {
    CMD_OPT_JSON,
    {"partition", 0, OPT_TEXT, "NAME", "partition the runs go to (default: Slurm's)",
     .flags = OPT_SETTING},
    {"second-node", 0, OPT_BOOL, NULL,
     "start a task on a node (srun) and see from there that a lease in REEL_HOME is held"},
    {"lease", 0, OPT_TEXT, "PATH",
     "what --second-node asks there: status 0 when somebody holds this lease, 1 when nobody does"},
    {"save", 0, OPT_SECONDS, "TIME", "how long a save takes (default: the longest on record)",
     .min = 0, .max = 1e6},
};
const struct opt_cmd cmd_check_site = {
    "check-site",
    "say which promises hold on this Slurm site and what to change",
    "", opts, ARRAY_LEN(opts), 0, 0,
    "Reads the site's configuration, tries locks in REEL_HOME, and changes nothing. Exit status 1 "
    "when a promise is broken here.",
};

/* Lists the kinds of MPI start-up that srun knows; "" if srun gives no answer. */
static void mpi_list(struct str *out)
{
    static const char *const argv[] = {"srun", "--mpi=list", NULL};
    struct spawn s = SPAWN_INIT;
    struct spawn_exit end;
    struct str said = STR_INIT;
    s.argv = argv;
    if (spawn_run(&s, NULL, 20, out, &said, &end, NULL) == 0 && said.len)
        str_add(out, said.p); /* older releases print the list on stderr */
    str_release(&said);
}

static void text_format(const struct site_facts *f, const struct site_promise *p, struct str *out)
{
    str_addf(out, "cluster %s, Slurm %s, partition %s\n", f->site->site.name, f->site->version,
             f->partition->name);
    for (int i = 0; i < SITE_PROMISES; i++) {
        str_addf(out, "  %-7s %-16s %s\n", site_verdict_names[p[i].verdict], p[i].name, p[i].found);
        if (p[i].change[0])
            str_addf(out, "  %-7s %-16s -> %s\n", "", "", p[i].change);
    }
}

static void json_format(const struct site_facts *f, const struct site_promise *p, struct str *out)
{
    struct json_out o;
    double lead_s = site_lead_s(f->site, f->partition);
    json_out_init(&o, out, 2);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", "reel.site/1");
    json_put_text(&o, "cluster", f->site->site.name);
    json_put_text(&o, "slurm", f->site->version);
    json_put_text(&o, "partition", f->partition->name);
    json_put_num(&o, "lead_s", isinf(lead_s) ? NAN : lead_s);
    json_put_num(&o, "save_s", f->save_s);
    json_arr_begin(&o, "promises");
    for (int i = 0; i < SITE_PROMISES; i++) {
        json_obj_begin(&o, NULL);
        json_put_text(&o, "name", p[i].name);
        json_put_text(&o, "verdict", site_verdict_names[p[i].verdict]);
        json_put_text(&o, "found", p[i].found);
        json_put_text(&o, "change", p[i].change);
        json_obj_end(&o);
    }
    json_arr_end(&o);
    json_obj_end(&o);
    str_addc(out, '\n');
}

static int verdict(const struct site_promise *p, struct err *err)
{
    int broken = 0;
    const char *first = "";
    for (int i = SITE_PROMISES - 1; i >= 0; i--)
        if (p[i].verdict == SITE_BROKEN) {
            broken++;
            first = p[i].name;
        }
    return broken ? err_set(err, ERR_NO, "%d promise%s broken on this site: %s%s", broken,
                            broken == 1 ? " is" : "s are", first, broken == 1 ? "" : " and others")
                  : 0;
}

/* Runs on the other node: prints its host name, and says whether it sees the lease as taken. */
static int lease_answer(const char *path, struct err *err)
{
    struct lease *l = NULL;
    struct str host = STR_INIT;
    str_addf(&host, "%s\n", clock_host());
    int rc = cmd_print(&host, err);
    str_release(&host);
    if (rc < 0 || lease_take(path, 0, &l, NULL) == ERR_BUSY)
        return rc;
    lease_drop(l);
    return err_set(err, ERR_NO, "nobody holds the lease '%s', as host %s sees it", path,
                   clock_host());
}

static int locks_ask(const struct opt_values *v, const struct cmd_env *env, struct locks_facts *f,
                     struct err *err)
{
    char reel[LIMIT_PATH_BYTES];
    int rc;
    if ((rc = locks_probe(env->home, f, err)) < 0)
        return rc;
    if (!f->tried || !opt_bool(v, "second-node"))
        return 0;
    snprintf(reel, sizeof reel, "%s/reel", env->bin_dir);
    return locks_probe_elsewhere(env->home, reel, opt_text(v, "partition"), f, err);
}

/* Returns how long saves of any model take, s; NaN if none is on record. */
static double saves_find(const struct cmd_env *env)
{
    struct pace_model pace;
    pace_model_find(env->home, NULL, &pace);
    return pace.save_s > 0 ? pace.save_s : NAN;
}

int cmd_check_site_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    struct sched *s = NULL;
    struct slurm_site site;
    struct site_promise promises[SITE_PROMISES];
    struct str text = STR_INIT, mpi = STR_INIT;
    if (opt_text(v, "lease"))
        return lease_answer(opt_text(v, "lease"), err);
    int rc;
    if ((rc = sched_open("slurm", env->home, &s, err)) < 0)
        return rc;
    if ((rc = sched_slurm_site(s, &site, err)) < 0)
        goto out;
    struct site_facts f = {.site = &site,
                           .save_s = opt_given(v, "save") ? opt_num(v, "save")
                                                          : saves_find(env),
                           .file_system = site_file_system(env->home)};
    if ((rc = lead_partition(&site.site, opt_text(v, "partition"), &f.partition, err)) < 0)
        goto out;
    if ((rc = locks_ask(v, env, &f.locks, err)) < 0)
        goto out;
    mpi_list(&mpi);
    f.mpi = mpi.len ? mpi.p : "";
    site_check(&f, promises);
    opt_bool(v, "json") ? json_format(&f, promises, &text) : text_format(&f, promises, &text);
    if ((rc = cmd_print(&text, err)) < 0)
        goto out;
    rc = verdict(promises, err);
out:
    str_release(&text);
    str_release(&mpi);
    sched_close(s);
    return rc;
}
