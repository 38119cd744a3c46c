#include "launcher/cmd/calibrate_db.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "db/store.h"
#include "launcher/cmd/queries.h"

/* Names the columns of sql_known_trials. */
enum { LAYOUT, STATE, MEASURED, PEAK, GPUS, TUNED, GBS };

/* Loads the cluster of a tuning. If its description leaves the number of nodes open, the cluster
 * has as many nodes as hold `gpus` GPUs. */
static bool cluster_find(const char *name, int64_t gpus, struct cluster *out)
{
    char sized[LIMIT_PATH_BYTES];
    if (cluster_load(name, out, NULL) == 0)
        return true;
    snprintf(sized, sizeof sized, "%s:1", name);
    if (cluster_load(sized, out, NULL) < 0)
        return false;
    snprintf(sized, sizeof sized, "%s:%lld", name,
             (long long)num_ceil_div(gpus, num_max_i64(1, out->node.devices)));
    return cluster_load(sized, out, NULL) == 0;
}

/* Fills the case from the event that began its tuning. Returns why the tuning's trials are skipped,
 * or NULL. */
static const char *tuned_read(const struct json_doc *tuned, int64_t gpus, struct table_case *c)
{
    const char *cluster = json_text(tuned->root, "cluster", NULL);
    if (!cluster)
        return "its machine was probed, and no cluster described";
    if (strcmp(json_text(tuned->root, "dtype", ""), "bf16") != 0)
        return "its numbers are not bf16";
    if (!json_member(tuned->root, "model_profile"))
        return "an earlier reel recorded it, which did not describe the model";
    if (model_read(tuned, json_member(tuned->root, "model_profile"), "model_profile", &c->model,
                   NULL) < 0 ||
        seq_parse(json_text(tuned->root, "extent", ""), "extent", &c->seq, NULL) < 0)
        return "its model cannot be read";
    if (!cluster_find(cluster, gpus, &c->cluster))
        return "its cluster's description is not there any more";
    return stack_load(json_text(tuned->root, "stack", ""), &c->stack, NULL) < 0
               ? "its stack's description is not there any more" : NULL;
}

static const char *case_read(struct store_query *q, struct table_case *c)
{
    struct json_doc tuned = {0};
    const char *why;
    c->gpus = store_int(q, GPUS);
    c->gbs = store_int(q, GBS);
    c->status = strcmp(store_text(q, STATE), "ok") == 0 ? TABLE_OK : TABLE_OOM;
    c->measured_s = c->status == TABLE_OK ? store_num(q, MEASURED) : 0;
    c->peak_bytes = (double)store_int(q, PEAK);
    if (layout_parse(store_text(q, LAYOUT), &c->layout, NULL) < 0 || c->gbs < 1)
        return "its layout or batch is not on record";
    const char *text = store_text(q, TUNED);
    if (json_parse(text, strlen(text), "tune_started", &tuned, NULL) < 0)
        return "its tuning is not on record";
    why = tuned_read(&tuned, c->gpus, c);
    json_release(&tuned);
    return why;
}

static int rows_read(struct store *db, struct table *out, struct err *err)
{
    struct store_query *q = NULL;
    size_t room = 0;
    int rc = store_ask(db, sql_known_trials, &q, err);
    while (rc == 0 && (rc = store_next(q, err)) > 0) {
        if (out->n == room) {
            room = room ? 2 * room : 16;
            struct table_case *cases = realloc(out->cases, room * sizeof *cases);
            if (!cases) {
                rc = err_set(err, ERR_NOMEM, "out of memory for %zu trials", room);
                break;
            }
            out->cases = cases;
        }
        struct table_case *c = &out->cases[out->n++];
        *c = (struct table_case){.row = (int64_t)out->n};
        c->skipped = case_read(q, c);
        rc = 0;
    }
    store_end(q);
    return rc;
}

/* Prints how many trials are left out, and the reason for the last of them. Returns ERR_NO if all
 * are left out. */
static int used_check(const struct table *t, const char *path, struct err *err)
{
    const char *why = "there is none";
    size_t used = 0;
    for (size_t i = 0; i < t->n; i++) {
        used += !t->cases[i].skipped;
        why = t->cases[i].skipped ? t->cases[i].skipped : why;
    }
    if (used == 0)
        return err_set(err, ERR_NO,
                       "%s: of %zu trials none can be learnt from: %s; those of 'reel tune "
                       "--cluster' with bf16 can", path, t->n, why);
    if (used < t->n)
        fprintf(stderr, "%zu of %zu trials are left out, the last as %s\n", t->n - used, t->n, why);
    return 0;
}

int calibrate_db(const struct cmd_env *env, struct table *out, struct err *err)
{
    struct store *db = NULL;
    int rc;
    cmd_ingest(env);
    if (!(out->name = strdup(env->db_path)))
        return err_set(err, ERR_NOMEM, "out of memory");
    if ((rc = store_open(env->db_path, STORE_READ, &db, err)) < 0)
        return rc;
    if ((rc = rows_read(db, out, err)) == 0)
        rc = used_check(out, env->db_path, err);
    store_close(db);
    return rc;
}
