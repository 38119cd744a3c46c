/* reel topo: the machine as hwloc sees it, live or from a captured XML. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/spawn.h"
#include "launcher/cmd/cmd.h"
#include "launcher/topo.h"

enum { DISCOVERY_DEADLINE_S = 20 }; /* some hwloc backends can hang on a broken driver; a healthy machine takes < 1 s */

static const struct opt opts[] = {
    CMD_OPT_JSON,
    {"xml", 0, OPT_TEXT, "FILE", "read a machine captured with --dump-xml or lstopo instead of this one"},
    {"dump-xml", 0, OPT_BOOL, NULL, "print this machine's topology as hwloc XML, to be read elsewhere with --xml"},
};
const struct opt_cmd cmd_topo = {
    "topo", "show the machine: NUMA nodes, GPUs, NICs and what is near what", "", opts, ARRAY_LEN(opts), 0, 0,
    "Discovery runs in a child with a deadline, so that a hanging driver costs seconds, not the session.",
};

/* This machine's XML, discovered by a child of the same program. */
static int live_xml(const struct cmd_env *env, struct str *xml, struct err *err)
{
    struct spawn_exit end;
    struct str errors = STR_INIT;
    char *program = file_join(env->bin_dir, "reel");
    if (!program)
        return err_set(err, ERR_NOMEM, "out of memory");
    const char *argv[] = {program, "topo", "--dump-xml", NULL};
    struct spawn spawn = SPAWN_INIT;
    spawn.argv = argv;
    int rc = spawn_run(&spawn, NULL, DISCOVERY_DEADLINE_S, xml, &errors, &end, err);
    if (rc == 0 && end.timed_out)
        rc = err_set(err, ERR_TIMEOUT, "hwloc did not finish within %d s: a device driver may hang; look with 'lstopo'",
                     DISCOVERY_DEADLINE_S);
    else if (rc == 0 && spawn_status(&end) != 0)
        rc = err_set(err, ERR_ENV, "discovery failed with exit status %d: %s", spawn_status(&end), errors.p);
    free(program);
    str_release(&errors);
    return rc;
}

static int topo_show(const struct topo *t, const struct topo_allowed *allowed, bool json, struct err *err)
{
    struct str text = STR_INIT;
    if (json) {
        struct json_out o;
        json_out_init(&o, &text, 2);
        topo_write(t, allowed, &o);
        str_addc(&text, '\n');
    } else {
        topo_format(t, allowed, &text);
    }
    int rc = cmd_print(&text, err);
    str_release(&text);
    return rc;
}

int cmd_topo_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *path = opt_text(v, "xml");
    struct str xml = STR_INIT;
    struct topo t = {0};
    struct topo_allowed allowed;
    int rc;

    if (opt_bool(v, "dump-xml")) {
        if (path || opt_bool(v, "json"))
            return err_set(err, ERR_USAGE, "--dump-xml prints this machine as XML: give it without --xml and --json");
        rc = topo_capture(&xml, err);
        rc = rc < 0 ? rc : cmd_print(&xml, err);
        goto out;
    }
    rc = path ? file_read(path, LIMIT_CAPTURE_BYTES, &xml, err) : live_xml(env, &xml, err);
    if (rc < 0 || (rc = topo_parse(xml.p, xml.len, path ? path : "live", &t, err)) < 0 || (rc = topo_check(&t, err)) < 0)
        goto out;
    topo_allowed_read(&allowed);
    rc = topo_show(&t, path ? NULL : &allowed, opt_bool(v, "json"), err);
out:
    topo_release(&t);
    str_release(&xml);
    return rc;
}
