/* reel topo: shows the machine as hwloc sees it, live or from a captured XML. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/spawn.h"
#include "launcher/cmd/cmd.h"
#include "launcher/cmd/topo_cluster.h"
#include "launcher/cmd/topo_profile.h"
#include "launcher/machine/topo.h"

static const struct opt opts[] = {
    CMD_OPT_JSON,
    {"xml", 0, OPT_TEXT, "FILE",
     "read a machine captured with --dump-xml or lstopo instead of this one"},
    {"dump-xml", 0, OPT_BOOL, NULL,
     "print this machine's topology as hwloc XML, to be read elsewhere with --xml"},
    {"whole", 0, OPT_BOOL, NULL, "with what a cgroup keeps from this process", .flags = OPT_HIDDEN},
    /* Some hwloc backends can hang on a broken driver. A healthy machine takes less than 1 s. */
    {"deadline", 0, OPT_SECONDS, "TIME", "longest time discovery may take, here or on a node",
     .fallback = "20s", .min = 0.1, .max = 3600},
    {"cluster", 0, OPT_BOOL, NULL,
     "every node of the Slurm cluster and its switches: inside an allocation its nodes are asked, "
     "else a job's"},
    {"partition", 0, OPT_TEXT, "NAME", "with --cluster: the nodes of this partition",
     .flags = OPT_SETTING},
    {"nodes", 0, OPT_INT, "N", "with --cluster: nodes of the job (default: all that may be had)",
     .min = 1, .max = 1 << 20},
    {"no-step", 0, OPT_BOOL, NULL, "with --cluster: Slurm's data alone, nothing runs anywhere"},
    {"out", 'o', OPT_TEXT, "FILE",
     "write the profile reel.cluster/1 of what is seen there, to plan for"},
    {"device", 0, OPT_TEXT, "NAME|FILE",
     "with -o: the device, where it is a processor or its profile is not found by its PCI id"},
    {"nic-gbits", 0, OPT_NUM, "N", "with -o: Gbit/s of a NIC's port, where none tells its rate",
     .min = 0.001, .max = 1e6},
    {"result", 0, OPT_TEXT, "FILE", "print to this file", .flags = OPT_HIDDEN},
    {"probe", 0, OPT_TEXT, "DIR", "leave this machine's topology there, for --cluster",
     .flags = OPT_HIDDEN},
};
const struct opt_cmd cmd_topo = {
    "topo",
    "show the machine: NUMA nodes, GPUs, NICs and what is near what",
    "", opts, ARRAY_LEN(opts), 0, 0,
    "Discovery runs in a child with a deadline, so that a hanging driver costs seconds, not the "
    "session.\n\n"
    "With --cluster a task on every node of an allocation does so, and what hwloc saw is joined "
    "with what Slurm tells of nodes and switches: equal nodes share a line, and what disagrees is "
    "named. Exit status 5 when a node gave no answer; the rest is printed.\n\n"
    "-o joins the machines, their links and NICs and the switches above them into the profile of a "
    "cluster, of the nodes that may be had and are most alike. What it had to take from a "
    "datasheet, or leave out, is said on standard error. With --no-step it is made of what was "
    "seen before.",
};

/* Reads this machine's XML, which a child process that runs the same program captures. */
int topo_live_xml(const struct cmd_env *env, bool whole, double deadline_s, struct str *xml,
                  struct err *err)
{
    struct spawn_exit end;
    struct str errors = STR_INIT;
    char *program = file_join(env->bin_dir, "reel");
    if (!program)
        return err_set(err, ERR_NOMEM, "out of memory");
    const char *argv[] = {program, "topo", "--dump-xml", whole ? "--whole" : NULL, NULL};
    struct spawn spawn = SPAWN_INIT;
    spawn.argv = argv;
    spawn.die_with_parent = true;
    int rc;
    if ((rc = spawn_run(&spawn, NULL, deadline_s, xml, &errors, &end, err)) < 0)
        goto out;
    if (end.timed_out)
        rc = err_set(
            err, ERR_TIMEOUT,
            "hwloc did not finish within %g s: a device driver may hang; look with 'lstopo'",
            deadline_s);
    else if (spawn_status(&end) != 0)
        rc = err_set(err, ERR_ENV, "discovery failed with exit status %d: %s", spawn_status(&end),
                     errors.p);
out:
    free(program);
    str_release(&errors);
    return rc;
}

static int topo_show(const struct opt_values *v, const struct topo *t,
                     const struct topo_allowed *allowed, struct err *err)
{
    struct str text = STR_INIT, told = STR_INIT;
    int rc = opt_given(v, "out") ? topo_profile_machine(v, t, &told, err) : 0;
    if (rc < 0)
        goto out;
    if (opt_bool(v, "json")) {
        struct json_out o;
        json_out_init(&o, &text, 2);
        topo_write(t, allowed, NULL, &o);
        str_addc(&text, '\n');
    } else {
        topo_format(t, allowed, &text);
        str_addn(&text, told.p, told.len);
    }
    rc = cmd_print(&text, err);
out:
    str_release(&text);
    str_release(&told);
    return rc;
}

int cmd_topo_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *path = opt_text(v, "xml");
    struct str xml = STR_INIT;
    struct topo t = {0};
    struct topo_allowed allowed;
    int rc;

    if (opt_given(v, "probe"))
        return topo_probe(v, env, err);
    if ((rc = topo_profile_check(v, err)) < 0)
        return rc;
    if (opt_bool(v, "cluster"))
        return topo_cluster_run(v, env, err);
    if (opt_given(v, "nodes") || opt_bool(v, "no-step"))
        return err_set(err, ERR_USAGE,
                       "--nodes and --no-step are about a cluster: give --cluster too");
    if (opt_bool(v, "dump-xml")) {
        if (path || opt_bool(v, "json") || opt_given(v, "out"))
            return err_set(
                err, ERR_USAGE,
                "--dump-xml prints this machine as XML: give it without --xml, --json and -o");
        rc = topo_capture(opt_bool(v, "whole"), &xml, err);
        rc = rc < 0 ? rc : cmd_print(&xml, err);
        goto out;
    }
    rc = path ? file_read(path, LIMIT_CAPTURE_BYTES, &xml, err)
              : topo_live_xml(env, false, opt_num(v, "deadline"), &xml, err);
    if (rc < 0 || (rc = topo_parse(xml.p, xml.len, path ? path : "live", &t, err)) < 0 ||
        (rc = topo_check(&t, err)) < 0)
        goto out;
    topo_allowed_read(&allowed);
    rc = topo_show(v, &t, path ? NULL : &allowed, err);
out:
    topo_release(&t);
    str_release(&xml);
    return rc;
}
