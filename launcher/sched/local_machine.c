/* This file reads and writes the machine's settings.
 *
 * <spool>/machine.json holds how many cores jobs may use, and how much time a job gets to end.
 * Without the file the defaults apply. The environment of a submitter (REEL_LOCAL_CORES,
 * REEL_LOCAL_GRACE, REEL_LOCAL_KILL_WAIT) overrides the file, and is saved in it with the next
 * job. */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"
#include "base/num.h"
#include "base/process.h"
#include "base/str.h"
#include "launcher/sched/local_priv.h"

#define MACHINE_SCHEMA "reel.sched-local/1"

static const struct json_field machine_fields[] = {
    {.name = "schema", .type = JSON_ANY},
    {.name = "cores", .type = JSON_INT, .offset = offsetof(struct local_machine, cores),
     .min = 1, .max = LIMIT_RANKS},
    {.name = "grace_s", .type = JSON_NUM, .offset = offsetof(struct local_machine, grace_s),
     .min = 0, .max = 1e6},
    {.name = "kill_wait_s", .type = JSON_NUM, .offset = offsetof(struct local_machine, kill_wait_s),
     .min = 0, .max = 1e6},
};

int local_machine_load(const struct local_spool *sp, struct local_machine *out, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct json_doc doc = {0};
    struct local_machine m = {.cores = proc_cpus(), .grace_s = 30, .kill_wait_s = 10};
    int rc;
    if ((rc = local_spool_path(sp, "machine.json", path, err)) < 0)
        return rc;
    if (!file_exists(path)) {
        *out = m;
        return 0;
    }
    if ((rc = json_load(path, &doc, err)) < 0)
        return rc;
    if ((rc = json_check_schema(&doc, MACHINE_SCHEMA, err)) < 0)
        goto out;
    if ((rc = json_read(&doc, doc.root, "", machine_fields, ARRAY_LEN(machine_fields), NULL, &m,
                        err)) < 0)
        goto out;
    *out = m;
out:
    json_release(&doc);
    return rc;
}

int local_machine_save(const struct local_spool *sp, const struct local_machine *m,
                       struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct str text = STR_INIT;
    struct json_out o;
    int rc;
    json_out_init(&o, &text, 1);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", MACHINE_SCHEMA);
    json_put_int(&o, "cores", m->cores);
    json_put_num(&o, "grace_s", m->grace_s);
    json_put_num(&o, "kill_wait_s", m->kill_wait_s);
    json_obj_end(&o);
    str_addc(&text, '\n');
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    if ((rc = local_spool_path(sp, "machine.json", path, err)) < 0)
        goto out;
    rc = file_publish(path, text.p, text.len, err);
out:
    str_release(&text);
    return rc;
}

/* ---- the environment ---- */

static int env_seconds(const char *name, double *out, struct err *err)
{
    const char *text = getenv(name);
    double v;
    int rc;
    if (!text || !text[0])
        return 0;
    if ((rc = num_parse_seconds(text, name, &v, err)) < 0)
        return rc;
    if (v < 0 || v > 1e6)
        return err_set(err, ERR_INPUT, "%s is %s: give 0 to 1000000 seconds", name, text);
    *out = v;
    return 0;
}

static int env_cores(int64_t *out, struct err *err)
{
    const char *text = getenv("REEL_LOCAL_CORES");
    int64_t v;
    int rc;
    if (!text || !text[0])
        return 0;
    if ((rc = num_parse_i64(text, "REEL_LOCAL_CORES", &v, err)) < 0)
        return rc;
    if (v < 1 || v > LIMIT_RANKS)
        return err_set(err, ERR_INPUT, "REEL_LOCAL_CORES is %s: give 1 to %d", text, LIMIT_RANKS);
    *out = v;
    return 0;
}

int local_machine_now(const struct local_spool *sp, struct local_machine *out, bool *changed,
                      struct err *err)
{
    struct local_machine kept, m;
    int rc;
    if ((rc = local_machine_load(sp, &kept, err)) < 0)
        return rc;
    m = kept;
    if ((rc = env_cores(&m.cores, err)) < 0)
        return rc;
    if ((rc = env_seconds("REEL_LOCAL_GRACE", &m.grace_s, err)) < 0)
        return rc;
    if ((rc = env_seconds("REEL_LOCAL_KILL_WAIT", &m.kill_wait_s, err)) < 0)
        return rc;
    *changed = m.cores != kept.cores || m.grace_s != kept.grace_s ||
               m.kill_wait_s != kept.kill_wait_s;
    *out = m;
    return 0;
}
