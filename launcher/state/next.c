#include "launcher/state/next.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/lease.h"
#include "base/num.h"

static const char schema[] = "reel.next/1";

static char *path_in(const char *run_dir, const char *name, char buf[LIMIT_PATH_BYTES])
{
    snprintf(buf, LIMIT_PATH_BYTES, "%s/%s", run_dir, name);
    return buf;
}

/* ---- reading ---- */

static int part_text(const struct json_doc *doc, const char *key, char **text, struct err *err)
{
    const cJSON *part = json_member(doc->root, key);
    *text = part ? cJSON_PrintUnformatted(part) : NULL;
    return *text ? 0
                 : err_set(err, ERR_CORRUPT,
                           "%s: holds no %s: remove it, and give the change again", doc->name, key);
}

static int parts_parse(struct next *n, struct err *err)
{
    char *run = NULL, *plan = NULL;
    int rc;
    if ((rc = json_check_schema(&n->doc, schema, err)) < 0)
        goto out;
    if ((rc = part_text(&n->doc, "run", &run, err)) < 0)
        goto out;
    if ((rc = part_text(&n->doc, "plan", &plan, err)) < 0)
        goto out;
    if ((rc = run_parse(run, strlen(run), n->doc.name, &n->run, err)) < 0)
        goto out;
    if ((rc = plan_parse(plan, strlen(plan), n->doc.name, &n->plan, err)) < 0) {
        run_release(&n->run);
        goto out;
    }
    n->waits = true;
    n->revision = json_int(n->doc.root, "revision", 0);
    n->job_revision = json_int(n->doc.root, "job_revision", 0);
    n->extended_from = json_int(n->doc.root, "extended_from", 0);
out:
    cJSON_free(run);
    cJSON_free(plan);
    return rc;
}

static int present_load(const char *run_dir, struct next *n, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    int rc;
    if ((rc = run_load(path_in(run_dir, "run.json", path), &n->run, err)) < 0)
        return rc;
    if ((rc = plan_load(path_in(run_dir, "plan.json", path), &n->plan, err)) < 0)
        run_release(&n->run);
    return rc;
}

int next_load(const char *run_dir, struct next *out, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct err why = {0};
    int rc = json_load(path_in(run_dir, "next.json", path), &out->doc, &why);
    if (rc == ERR_NOT_FOUND)
        return present_load(run_dir, out, err);
    if (rc < 0)
        return err_set(err, rc, "%s", why.text);
    if ((rc = parts_parse(out, err)) < 0)
        json_release(&out->doc);
    return rc;
}

void next_release(struct next *n)
{
    run_release(&n->run);
    json_release(&n->doc);
    *n = (struct next){0};
}

/* ---- writing ---- */

/* Adds a value that is formatted as JSON text to the object under this key. */
static int tree_put(struct json_out *o, const char *key, const struct str *text, struct err *err)
{
    struct json_doc doc = {0};
    int rc;
    if ((rc = str_check(text, err)) < 0)
        return rc;
    if ((rc = json_parse(text->p, text->len, key, &doc, err)) < 0)
        return rc;
    json_put_tree(o, key, doc.root);
    json_release(&doc);
    return 0;
}

static int next_write(const struct next *n, const struct str *changes, struct json_out *o,
                      struct err *err)
{
    struct str run = STR_INIT, plan = STR_INIT;
    struct json_out part;
    int rc;
    json_out_init(&part, &run, 0);
    run_write(&n->run, &part);
    json_out_init(&part, &plan, 0);
    plan_write(&n->plan, &part);
    json_obj_begin(o, NULL);
    json_put_text(o, "schema", schema);
    json_put_int(o, "revision", n->revision);
    json_put_int(o, "job_revision", n->job_revision);
    json_put_int(o, "extended_from", n->extended_from);
    if ((rc = tree_put(o, "changes", changes, err)) < 0)
        goto out;
    if ((rc = tree_put(o, "run", &run, err)) < 0)
        goto out;
    if ((rc = tree_put(o, "plan", &plan, err)) < 0)
        goto out;
    json_obj_end(o);
    str_addc(o->s, '\n');
    rc = str_check(o->s, err);
out:
    str_release(&run);
    str_release(&plan);
    return rc;
}

int next_save(const struct next *n, const struct str *changes, const char *run_dir,
              struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct str text = STR_INIT;
    struct json_out o;
    int rc;
    json_out_init(&o, &text, 2);
    if ((rc = run_check(&n->run, path_in(run_dir, "next.json", path), err)) < 0)
        return rc;
    if ((rc = next_write(n, changes, &o, err)) < 0)
        goto out;
    rc = file_publish(path, text.p, text.len, err);
out:
    str_release(&text);
    return rc;
}

/* ---- the agent's part ---- */

/* Returns the step of the newest checkpoint folder, which may be newer than any event. */
static int64_t newest_folder(const char *run_dir)
{
    char path[LIMIT_PATH_BYTES];
    long long step = 0, most = 0;
    DIR *dir = opendir(path_in(run_dir, "ckpt", path));
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (sscanf(d->d_name, "step-%lld", &step) == 1 && step > most)
            most = step;
    if (dir)
        closedir(dir);
    return most;
}

static int take(const char *run_dir, int64_t steps, struct next *n, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct run now = {0};
    int rc;
    if ((rc = run_load(path_in(run_dir, "run.json", path), &now, err)) < 0)
        return rc;
    rc = run_past_take(&n->run, &now, num_max_i64(steps, newest_folder(run_dir)), err);
    run_release(&now);
    if (rc < 0)
        return rc;
    if ((rc = plan_save(&n->plan, path_in(run_dir, "plan.json", path), err)) < 0)
        return rc;
    if ((rc = run_save(&n->run, path_in(run_dir, "run.json", path), err)) < 0)
        return rc;
    if (unlink(path_in(run_dir, "next.json", path)) < 0)
        return err_set_errno(err, ERR_IO, "cannot remove '%s'", path);
    return 0;
}

/* Takes the change of the run that waits, if one does; then *revision is its number. */
static int waiting_take(const char *run_dir, int64_t steps, struct next *n, int64_t *revision,
                        struct err *err)
{
    int rc;
    if ((rc = next_load(run_dir, n, err)) < 0 || !n->waits)
        return rc;
    if ((rc = take(run_dir, steps, n, err)) < 0)
        return rc;
    *revision = n->revision;
    return 0;
}

int next_take(const char *run_dir, int64_t steps, int64_t *revision, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct lease *lock = NULL;
    *revision = 0;
    if (!file_exists(path_in(run_dir, "next.json", path)))
        return 0;
    struct next *n = calloc(1, sizeof *n); /* with its run and plan it is too large for the stack */
    if (!n)
        return err_set(err, ERR_NOMEM, "out of memory for a change of the run");
    int rc = lease_take(path_in(run_dir, "claims/submit.lock", path), 30, &lock, err);
    if (rc < 0)
        goto out;
    rc = waiting_take(run_dir, steps, n, revision, err);
out:
    next_release(n);
    lease_drop(lock);
    free(n);
    return rc;
}

bool next_needs_job(const char *run_dir, int64_t revision)
{
    char path[LIMIT_PATH_BYTES];
    struct json_doc doc = {0};
    bool needs = file_exists(path_in(run_dir, "next.json", path)) &&
                 json_load(path, &doc, NULL) == 0 &&
                 json_int(doc.root, "job_revision", 0) > revision;
    json_release(&doc);
    return needs;
}

int64_t next_revision_here(void)
{
    const char *text = getenv(NEXT_REVISION_ENV);
    int64_t n = 0;
    return text && num_parse_i64(text, NEXT_REVISION_ENV, &n, NULL) == 0 ? n : 0;
}
