#include "launcher/report/report_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/field.h"

/* ---- reel.plans/1 ---- */

struct plans_text {
    const char *model, *cluster, *constants, *adapter, *flags, *environment;
    int64_t gpus, limit_bytes, searched, fit;
    double seconds;
};
#define AT(field) offsetof(struct plans_text, field)
static const struct json_field top_fields[] = {
    {"schema", JSON_ANY, 0},
    {"model", JSON_TEXT, AT(model)},
    {"cluster", JSON_TEXT, AT(cluster)},
    {"gpus", JSON_INT, AT(gpus), .min = 1, .max = LIMIT_RANKS},
    {"constants", JSON_TEXT, AT(constants)},
    {"held_out", JSON_ANY, 0, .optional = true},
    {"held_out_because", JSON_ANY, 0, .optional = true},
    {"held_out_elsewhere", JSON_ANY, 0, .optional = true},
    {"limit_bytes", JSON_INT, AT(limit_bytes), .optional = true, .min = 0, .max = 0x1p50},
    {"searched", JSON_INT, AT(searched)},
    {"fit", JSON_INT, AT(fit)},
    {"seconds", JSON_NUM, AT(seconds)},
    {"layouts", JSON_ANY, 0},
    {"excluded", JSON_ANY, 0},
    {"adapter", JSON_TEXT, AT(adapter), .optional = true},
    {"flags", JSON_TEXT, AT(flags), .optional = true},
    {"environment", JSON_TEXT, AT(environment), .optional = true},
};
#undef AT

struct item_text { struct report_planned p; int64_t gpus; double days, gpu_hours; };
#define AT(field) offsetof(struct item_text, field)
static const struct json_field item_fields[] = {
    {"layout", JSON_ANY, 0},
    {"gpus", JSON_INT, AT(gpus), .optional = true, .min = 1, .max = LIMIT_RANKS},
    {"step_s", JSON_NUM, AT(p.step_s), .min = 0, .max = 1e9},
    {"lo_s", JSON_NUM, AT(p.lo_s), .min = 0, .max = 1e9},
    {"hi_s", JSON_NUM, AT(p.hi_s), .min = 0, .max = 1e9},
    {"tokens_per_s_gpu", JSON_NUM, AT(p.tokens_per_s_gpu), .min = 0, .max = 1e12},
    {"mfu", JSON_NUM, AT(p.mfu), .min = 0, .max = 10},
    {"bytes", JSON_INT, AT(p.bytes), .min = 0, .max = 0x1p50},
    {"p_fits", JSON_NUM, AT(p.p_fits), .min = 0, .max = 1},
    {"twins", JSON_ANY, 0, .optional = true},
    {"days", JSON_NUM, AT(days), .optional = true},
    {"gpu_hours", JSON_NUM, AT(gpu_hours), .optional = true},
    {"terms", JSON_ANY, 0},
    {"memory", JSON_ANY, 0},
};
#undef AT

struct term_text { const char *name; double seconds, hidden_s; };
#define AT(field) offsetof(struct term_text, field)
static const struct json_field term_fields[] = {
    {"name", JSON_TEXT, AT(name)},
    {"seconds", JSON_NUM, AT(seconds), .min = -1e9, .max = 1e9},
    {"hidden_s", JSON_NUM, AT(hidden_s)},
};
#undef AT

/* Returns the array under this key. Returns NULL with an error if it is no array, or has more than
 * `most` members. */
static const cJSON *list_of(const struct json_doc *doc, const cJSON *obj, const char *key, int most,
                            struct err *err)
{
    const cJSON *list = json_member(obj, key);
    if (cJSON_IsArray(list) && cJSON_GetArraySize(list) <= most)
        return list;
    err_set(err, ERR_INPUT, "%s: %s %s: give an array of at most %d", doc->name, key,
            cJSON_IsArray(list) ? "is too long" : "is no array", most);
    return NULL;
}

static int terms_read(const struct json_doc *doc, const cJSON *item, const char *path,
                      struct report_planned *out, struct err *err)
{
    const cJSON *list = list_of(doc, item, "terms", PLAN_TERMS, err), *term;
    int rc;
    if (!list)
        return err->code;
    cJSON_ArrayForEach(term, list)
    {
        struct plan_term *to = &out->terms[out->n_terms++];
        struct term_text t = {0};
        if ((rc = json_read(doc, term, path, term_fields, ARRAY_LEN(term_fields), NULL, &t,
                            err)) < 0)
            return rc;
        to->seconds = t.seconds;
        if ((rc = field_copy_text(to->name, sizeof to->name, t.name, doc, path, "name", err)) < 0)
            return rc;
    }
    return 0;
}

/* Checks that a layout has as many ranks as its file says. */
static int gpus_check(const struct json_doc *doc, size_t i, const struct layout *l, int64_t gpus,
                      struct err *err)
{
    int64_t world = layout_world(l);
    return world == gpus
               ? 0
               : err_set(err, ERR_INPUT,
                         "%s: layouts[%zu].layout is one of %lld ranks, and gpus is %lld: give the "
                         "file as 'reel plan --json' wrote it",
                         doc->name, i, (long long)world, (long long)gpus);
}

/* Reads a layout with its prediction. One that does not say its GPUs has those of the file. */
static int item_read(const struct json_doc *doc, const cJSON *item, size_t i, int64_t gpus,
                     struct report_planned *out, struct err *err)
{
    struct item_text t = {.p = {.measured_s = NAN}, .gpus = gpus};
    char path[48];
    int rc;
    snprintf(path, sizeof path, "layouts[%zu]", i);
    if ((rc = json_read(doc, item, path, item_fields, ARRAY_LEN(item_fields), NULL, &t, err)) < 0)
        return rc;
    if ((rc = layout_read(doc, json_member(item, "layout"), path, &t.p.layout, err)) < 0)
        return rc;
    if ((rc = gpus_check(doc, i, &t.p.layout, t.gpus, err)) < 0)
        return rc;
    if ((rc = terms_read(doc, item, path, &t.p, err)) < 0)
        return rc;
    *out = t.p;
    return 0;
}

static int texts_read(const struct json_doc *doc, const struct plans_text *t,
                      struct report_plans *p, struct err *err)
{
    int rc;
    if ((rc = field_copy_text(p->model, sizeof p->model, t->model, doc, "", "model", err)) < 0)
        return rc;
    if ((rc = field_copy_text(p->cluster, sizeof p->cluster, t->cluster, doc, "", "cluster",
                              err)) < 0)
        return rc;
    return field_copy_text(p->constants, sizeof p->constants, t->constants, doc, "", "constants",
                           err);
}

static int plans_read(const struct json_doc *doc, struct report_plans *p, struct err *err)
{
    struct plans_text t = {0};
    const cJSON *list, *item;
    int rc;
    if ((rc = json_read(doc, doc->root, "", top_fields, ARRAY_LEN(top_fields), NULL, &t, err)) < 0)
        return rc;
    if ((rc = texts_read(doc, &t, p, err)) < 0)
        return rc;
    p->gpus = t.gpus, p->limit_bytes = t.limit_bytes;
    if (!(list = list_of(doc, doc->root, "layouts", 1024, err)))
        return err->code;
    if (!(p->items = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *p->items)))
        return err_set(err, ERR_NOMEM, "out of memory for the layouts of %s", doc->name);
    cJSON_ArrayForEach(item, list)
    {
        if ((rc = item_read(doc, item, p->n, p->gpus, &p->items[p->n], err)) < 0)
            return rc;
        p->n++;
    }
    return 0;
}

/* ---- reel.plan/1 ---- */

/* Takes a plan's layout with its prediction. A plan that was written by hand has no prediction, and
 * its layout is not shown. */
static int plan_take(const struct plan *plan, struct report_plans *p, struct err *err)
{
    double gpus = (double)layout_world(&plan->layout);
    memcpy(p->model, plan->model, sizeof p->model);
    snprintf(p->cluster, sizeof p->cluster, "%s", *plan->cluster ? plan->cluster : plan->device);
    memcpy(p->constants, plan->constants, sizeof p->constants);
    p->gpus = layout_world(&plan->layout);
    if (!(p->items = calloc(1, sizeof *p->items)))
        return err_set(err, ERR_NOMEM, "out of memory for a plan");
    if (!(plan->predicted_step_s > 0))
        return 0;
    double tokens = (double)(seq_tokens(plan->seq) * plan->gbs);
    p->items[p->n++] = (struct report_planned){
        .layout = plan->layout, .step_s = plan->predicted_step_s, .lo_s = NAN, .hi_s = NAN,
        .tokens_per_s_gpu = tokens / plan->predicted_step_s / gpus, .mfu = NAN, .p_fits = NAN,
        .measured_s = plan->measured_step_s > 0 ? plan->measured_step_s : NAN,
        .bytes = plan->predicted_bytes, .n_terms = plan->n_terms};
    memcpy(p->items[0].terms, plan->terms, sizeof p->items[0].terms);
    return 0;
}

/* ---- both formats ---- */

static int file_read(const char *path, const struct json_doc *doc, struct report_plans *p,
                     struct err *err)
{
    struct plan plan;
    const char *schema = json_text(doc->root, "schema", "");
    int rc;
    if (strcmp(schema, "reel.plans/1") == 0)
        return plans_read(doc, p, err);
    if (strcmp(schema, "reel.plan/1") != 0)
        return err_set(err, ERR_INPUT,
                       "%s: schema is '%s': give a plan, as 'reel plan -o' or 'reel plan --json' "
                       "writes it (reel.plan/1, reel.plans/1)", path, schema);
    if ((rc = plan_load(path, &plan, err)) < 0)
        return rc;
    return plan_take(&plan, p, err);
}

int report_plans_load(const char *path, struct report_plans **out, struct err *err)
{
    struct report_plans *p = calloc(1, sizeof *p);
    struct json_doc doc = {0};
    int rc;
    if (!p)
        return err_set(err, ERR_NOMEM, "out of memory for plans");
    if ((rc = json_load(path, &doc, err)) < 0)
        goto out;
    if ((rc = file_read(path, &doc, p, err)) < 0)
        goto out;
    *out = p, p = NULL;
out:
    report_plans_free(p);
    json_release(&doc);
    return rc;
}

void report_plans_free(struct report_plans *p)
{
    if (p)
        free(p->items);
    free(p);
}
