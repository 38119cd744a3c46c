/* This file reads and writes the format reel.plan/1: a chosen layout with its predictions and
 * measurements. The tables below say what each field means; `reel format plan` is made from them.
 *
 * A plan written by hand needs schema, layout, model, seq, gbs and dtype. peak_flops 0 means
 * unknown; then no MFU is given.
 */
#include "profiles/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "profiles/field.h"
#include "profiles/format.h"

static const char plan_schema[] = "reel.plan/1";

struct plan_text {
    const char *model, *model_hash, *model_file, *device, *peak_source;
    const char *cluster, *stack, *constants, *adapter, *flags, *environment;
    struct plan p;
};

#define AT(field) offsetof(struct plan_text, p.field)
static const struct json_field top_fields[] = {
    {"schema", JSON_ANY, 0, .optional = false, .help = "\"reel.plan/1\""},
    {"layout", JSON_ANY, 0, .optional = false,
     .help = "the layout, as tp=1,dp=2; or an object, described below"},
    {"model", JSON_TEXT, offsetof(struct plan_text, model), .optional = false,
     .help = "name of the model"},
    {"model_hash", JSON_TEXT, offsetof(struct plan_text, model_hash), .optional = true,
     .help = "of the model's canonical text; left out: not checked"},
    {"model_file", JSON_TEXT, offsetof(struct plan_text, model_file), .optional = true,
     .help = "of reel plan: the file that describes it; left out: a compiled-in model"},
    {"seq", JSON_ANY, 0, .optional = false, .help = "object: tokens of one sample"},
    {"gbs", JSON_INT, AT(gbs), .min = 1, .max = 1 << 30, .help = "samples of a step"},
    {"dtype", JSON_ENUM, AT(dtype), .names = dtype_names, .help = "of weights and activations"},
    {"device", JSON_TEXT, offsetof(struct plan_text, device), .optional = true,
     .help = "what it was predicted for"},
    {"peak_flops", JSON_NUM, AT(peak_flops), .optional = true, .min = 0, .max = 1e20,
     .help = "dense peak of one rank's device, FLOP/s; 0: unknown, and no MFU is given"},
    {"peak_source", JSON_TEXT, offsetof(struct plan_text, peak_source), .optional = true,
     .help = "where that is from"},
    {"cluster", JSON_TEXT, offsetof(struct plan_text, cluster), .optional = true,
     .help = "described, not probed: the cluster, as dgx-h100:8, or its file"},
    {"stack", JSON_TEXT, offsetof(struct plan_text, stack), .optional = true,
     .help = "on which it was planned: the software that trains"},
    {"constants", JSON_TEXT, offsetof(struct plan_text, constants), .optional = true,
     .help = "with it: the constants that predicted, a name or a file"},
    {"adapter", JSON_TEXT, offsetof(struct plan_text, adapter), .optional = true,
     .help = "of another trainer: the adapter that knows it"},
    {"flags", JSON_TEXT, offsetof(struct plan_text, flags), .optional = true,
     .help = "of another trainer: the layout in its own flags"},
    {"environment", JSON_TEXT, offsetof(struct plan_text, environment), .optional = true,
     .help = "of another trainer: what its environment needs for them, as words of env(1)"},
    {"predicted", JSON_ANY, 0, .optional = true, .help = "object; left out: nothing was predicted"},
    {"terms", JSON_ANY, 0, .optional = true,
     .help = "array of at most 16: what the prediction is made of; their sum is "
             "predicted.step_s"},
    {"stage", JSON_INT, AT(stage), .optional = true, .min = 0, .max = LIMIT_RANKS,
     .help = "of a probed machine: the pipeline's busiest stage, which the terms are of"},
    {"memory", JSON_ANY, 0, .optional = true,
     .help = "of a probed machine: array of at most 16, what predicted.bytes are made of"},
    {"measured_step_s", JSON_NUM, AT(measured_step_s), .optional = true, .min = 0,
     .max = PLAN_STEP_S,
     .help = "the winning trial's, s; 0: not measured"},
    {"scaled_dp", JSON_INT, AT(scaled_dp), .optional = true, .min = 0, .max = LIMIT_RANKS,
     .help = "the trial had so many replicas, and what the others add is predicted; 0: it ran this "
             "layout"},
    {"encoder_bytes", JSON_INT, AT(encoder_bytes), .optional = true, .min = 0, .max = 0x1p50,
     .help = "of predicted.bytes, those of frozen encoders beside the model"},
    {"ema", JSON_BOOL, AT(ema), .optional = true,
     .help = "it was predicted for a run that keeps an average of the weights (adamw.ema_decay)"},
    {"residual_f32", JSON_BOOL, AT(residual_wide), .optional = true,
     .help = "it was predicted for a run whose numerics.residual is f32"},
    {"moments_bf16", JSON_BOOL, AT(moments_bf16), .optional = true,
     .help = "it was predicted for a run whose numerics.moments is bf16"},
    {"evidence", JSON_ANY, 0, .optional = true,
     .help = "array of at most 32 ids of trials on which the plan rests"},
};
#undef AT
#define AT(field) offsetof(struct plan, field)
static const struct json_field seq_fields[] = {
    {"t", JSON_INT, AT(seq.t), .min = 1, .max = SEQ_SIDE_MAX, .help = "frames"},
    {"h", JSON_INT, AT(seq.h), .min = 1, .max = SEQ_SIDE_MAX, .help = "rows"},
    {"w", JSON_INT, AT(seq.w), .min = 1, .max = INT32_MAX, .help = "columns"},
};
static const struct json_field predicted_fields[] = {
    {"step_s", JSON_NUM, AT(predicted_step_s), .min = 0, .max = PLAN_STEP_S,
     .help = "seconds of a step"},
    {"at", JSON_NUM, AT(predicted_at), .min = 0, .max = 1e12,
     .help = "when it was predicted, UTC s"},
    {"bytes", JSON_INT, AT(predicted_bytes), .min = 0, .max = 0x1p50, .help = "of a rank"},
    {"limit_bytes", JSON_INT, AT(limit_bytes), .optional = true, .min = 0, .max = 0x1p50,
     .help = "that its GPU could hold; 0: not recorded"},
};
#undef AT

/* ---- reading ---- */

/* Returns the number of members of an optional array, or ERR_INPUT if there are more than `max`. */
static int array_length(const struct json_doc *doc, const char *key, int max, struct err *err)
{
    const cJSON *list = json_member(doc->root, key);
    int n = list ? cJSON_GetArraySize(list) : 0;
    if ((list && !cJSON_IsArray(list)) || n > max)
        return err_set(err, ERR_INPUT, "%s: %s %s: give an array of at most %d", doc->name, key,
                       cJSON_IsArray(list) ? "is too long" : "is no array", max);
    return n;
}

struct term_text { const char *name, *rate; double seconds, work, value; };
static const struct json_field term_fields[] = {
    {"name", JSON_TEXT, offsetof(struct term_text, name), .optional = false, .help = "of the term"},
    {"seconds", JSON_NUM, offsetof(struct term_text, seconds), .min = -1e9, .max = 1e9,
     .help = "what it adds to the prediction"},
    {"work", JSON_NUM, offsetof(struct term_text, work), .optional = true, .min = 0, .max = 1e30,
     .help = "of a probed machine: what a rank does in that time, as 'reel explain plan' shows it"},
    {"rate", JSON_TEXT, offsetof(struct term_text, rate), .optional = true,
     .help = "of a probed machine: the measured rate that tells the time"},
    {"value", JSON_NUM, offsetof(struct term_text, value), .optional = true, .min = 0, .max = 1e30,
     .help = "of that rate"},
};
struct memory_text { const char *name; int64_t bytes; };
static const struct json_field memory_fields[] = {
    {"name", JSON_TEXT, offsetof(struct memory_text, name), .optional = false,
     .help = "of the category"},
    {"bytes", JSON_INT, offsetof(struct memory_text, bytes), .min = -0x1p50, .max = 0x1p50,
     .help = "of a rank; what trials held beside their plans may be less than 0"},
};

static int term_read(const struct json_doc *doc, int i, struct plan *p, struct err *err)
{
    const cJSON *item = cJSON_GetArrayItem(json_member(doc->root, "terms"), i);
    struct term_text t = {0};
    char path[32];
    int rc;
    snprintf(path, sizeof path, "terms[%d]", i);
    if ((rc = json_read(doc, item, path, term_fields, ARRAY_LEN(term_fields), NULL, &t, err)) < 0)
        return rc;
    struct plan_term *to = &p->terms[i];
    to->seconds = t.seconds, to->work = t.work, to->value = t.value;
    if (t.rate && (rc = field_copy_text(to->rate, sizeof to->rate, t.rate, doc, path, "rate",
                                        err)) < 0)
        return rc;
    return field_copy_text(to->name, sizeof to->name, t.name, doc, path, "name", err);
}

static int terms_read(const struct json_doc *doc, struct plan *p, struct err *err)
{
    int rc, n = array_length(doc, "terms", PLAN_TERMS, err);
    if (n < 0)
        return n;
    for (int i = 0; i < n; i++)
        if ((rc = term_read(doc, i, p, err)) < 0)
            return rc;
    p->n_terms = n;
    return 0;
}

static int memory_read(const struct json_doc *doc, struct plan *p, struct err *err)
{
    int rc, n = array_length(doc, "memory", PLAN_MEMORY, err);
    if (n < 0)
        return n;
    for (int i = 0; i < n; i++) {
        const cJSON *item = cJSON_GetArrayItem(json_member(doc->root, "memory"), i);
        struct memory_text t = {0};
        char path[32];
        snprintf(path, sizeof path, "memory[%d]", i);
        if ((rc = json_read(doc, item, path, memory_fields, ARRAY_LEN(memory_fields), NULL, &t,
                            err)) < 0)
            return rc;
        p->memory[i].bytes = t.bytes;
        if ((rc = field_copy_text(p->memory[i].name, sizeof p->memory[i].name, t.name, doc, path,
                                  "name", err)) < 0)
            return rc;
    }
    p->n_memory = n;
    return 0;
}

static int evidence_read(const struct json_doc *doc, struct plan *p, struct err *err)
{
    int rc, n = array_length(doc, "evidence", PLAN_EVIDENCE, err);
    if (n < 0)
        return n;
    for (int i = 0; i < n; i++) {
        const cJSON *item = cJSON_GetArrayItem(json_member(doc->root, "evidence"), i);
        char path[32];
        snprintf(path, sizeof path, "evidence[%d]", i);
        if (!cJSON_IsString(item))
            return err_set(err, ERR_INPUT, "%s: %s is no text: give a trial id", doc->name, path);
        if ((rc = field_copy_text(p->evidence[i], sizeof p->evidence[i], item->valuestring, doc, "",
                                  path, err)) < 0)
            return rc;
    }
    p->n_evidence = n;
    return 0;
}

static int texts_read(const struct json_doc *doc, struct plan_text *t, struct err *err)
{
    struct plan *p = &t->p;
    int rc;
    if ((rc = field_copy_text(p->model, sizeof p->model, t->model, doc, "", "model", err)) < 0)
        return rc;
    if (t->model_hash && (rc = field_read_hash(t->model_hash, doc, "", "model_hash",
                                               &p->model_hash, err)) < 0)
        return rc;
    const struct { const char *text, *key; char *to; size_t size; } rest[] = {
        {t->model_file, "model_file", p->model_file, sizeof p->model_file},
        {t->device, "device", p->device, sizeof p->device},
        {t->peak_source, "peak_source", p->peak_source, sizeof p->peak_source},
        {t->cluster, "cluster", p->cluster, sizeof p->cluster},
        {t->stack, "stack", p->stack, sizeof p->stack},
        {t->constants, "constants", p->constants, sizeof p->constants},
        {t->adapter, "adapter", p->adapter, sizeof p->adapter},
        {t->flags, "flags", p->flags, sizeof p->flags},
        {t->environment, "environment", p->environment, sizeof p->environment},
    };
    for (size_t i = 0; i < ARRAY_LEN(rest); i++)
        if (rest[i].text && (rc = field_copy_text(rest[i].to, rest[i].size, rest[i].text, doc, "",
                                                  rest[i].key, err)) < 0)
            return rc;
    return 0;
}

/* Reads the objects and lists inside the plan. */
static int parts_read(const struct json_doc *doc, struct plan *p, struct err *err)
{
    const cJSON *seq = json_member(doc->root, "seq"),
                *predicted = json_member(doc->root, "predicted");
    int rc;
    if ((rc = layout_read(doc, json_member(doc->root, "layout"), "layout", &p->layout, err)) < 0)
        return rc;
    if ((rc = json_read(doc, seq, "seq", seq_fields, ARRAY_LEN(seq_fields), NULL, p, err)) < 0)
        return rc;
    if (predicted && (rc = json_read(doc, predicted, "predicted", predicted_fields,
                                     ARRAY_LEN(predicted_fields), NULL, p, err)) < 0)
        return rc;
    if ((rc = terms_read(doc, p, err)) < 0)
        return rc;
    if ((rc = memory_read(doc, p, err)) < 0)
        return rc;
    return evidence_read(doc, p, err);
}

static int memory_check(const struct plan *p, const char *where, struct err *err)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < p->n_memory; i++)
        sum += p->memory[i].bytes;
    return !p->n_memory || sum == p->predicted_bytes
               ? 0 : err_set(err, ERR_INPUT, "%s: the bytes of memory add up to %lld, and "
                             "predicted.bytes are %lld: they must be equal", where, (long long)sum,
                             (long long)p->predicted_bytes);
}

static int plan_check(const struct plan *p, const char *where, struct err *err)
{
    double sum = 0, scale = p->predicted_step_s;
    if (p->n_terms < 0 || p->n_terms > PLAN_TERMS || p->n_evidence < 0 ||
        p->n_evidence > PLAN_EVIDENCE || p->n_memory < 0 || p->n_memory > PLAN_MEMORY)
        return err_set(err, ERR_INPUT,
                       "%s: %lld terms and %lld trials of evidence: give at most %d and %d", where,
                       (long long)p->n_terms, (long long)p->n_evidence, PLAN_TERMS, PLAN_EVIDENCE);
    for (int64_t i = 0; i < p->n_terms; i++) {
        sum += p->terms[i].seconds;
        /* A file may have negative terms, which cancel others, so the sum may be small. */
        scale = fmax(scale, fabs(p->terms[i].seconds));
    }
    if (p->n_terms && !(fabs(sum - p->predicted_step_s) <= 1e-6 * scale))
        return err_set(err, ERR_INPUT,
                       "%s: the terms add up to %.9g s, predicted.step_s is %.9g s: they must be "
                       "equal",
                       where, sum, p->predicted_step_s);
    if (layout_world(&p->layout) < 0)
        return err_set(err, ERR_INPUT,
                       "%s: the layout's tp x cp x pp x dp is above %d ranks: give smaller ones",
                       where, LIMIT_RANKS);
    return memory_check(p, where, err);
}

static int plan_read(const struct json_doc *doc, struct plan *out, struct err *err)
{
    struct plan_text t = {.p.layout = layout_default()};
    int rc;
    if ((rc = json_check_schema(doc, plan_schema, err)) < 0)
        return rc;
    if ((rc = json_read(doc, doc->root, "", top_fields, ARRAY_LEN(top_fields), NULL, &t, err)) < 0)
        return rc;
    if ((rc = texts_read(doc, &t, err)) < 0)
        return rc;
    if ((rc = parts_read(doc, &t.p, err)) < 0)
        return rc;
    if ((rc = plan_check(&t.p, doc->name, err)) < 0)
        return rc;
    *out = t.p;
    return 0;
}

int plan_parse(const char *text, size_t len, const char *name, struct plan *out, struct err *err)
{
    struct json_doc doc = {0};
    int rc;
    if ((rc = json_parse(text, len, name, &doc, err)) < 0)
        return rc;
    rc = plan_read(&doc, out, err);
    json_release(&doc);
    return rc;
}

int plan_load(const char *path, struct plan *out, struct err *err)
{
    struct json_doc doc = {0};
    int rc;
    if ((rc = json_load(path, &doc, err)) < 0)
        return rc;
    rc = plan_read(&doc, out, err);
    json_release(&doc);
    return rc;
}

/* ---- writing ---- */

static void terms_write(const struct plan *p, struct json_out *o)
{
    json_arr_begin(o, "terms");
    for (int64_t i = 0; i < p->n_terms; i++) {
        json_obj_begin(o, NULL);
        json_put_text(o, "name", p->terms[i].name);
        json_put_num(o, "seconds", p->terms[i].seconds);
        if (p->terms[i].work > 0)
            json_put_num(o, "work", p->terms[i].work);
        if (*p->terms[i].rate) {
            json_put_text(o, "rate", p->terms[i].rate);
            json_put_num(o, "value", p->terms[i].value);
        }
        json_obj_end(o);
    }
    json_arr_end(o);
}

/* Writes what a prediction for a probed machine has besides its terms. */
static void probed_write(const struct plan *p, struct json_out *o)
{
    if (p->n_memory == 0)
        return;
    json_put_int(o, "stage", p->stage);
    json_arr_begin(o, "memory");
    for (int64_t i = 0; i < p->n_memory; i++) {
        json_obj_begin(o, NULL);
        json_put_text(o, "name", p->memory[i].name);
        json_put_int(o, "bytes", p->memory[i].bytes);
        json_obj_end(o);
    }
    json_arr_end(o);
}

/* Writes the inputs of the prediction, and the layout as another trainer's flags. */
static void planned_write(const struct plan *p, struct json_out *o)
{
    if (*p->cluster) {
        json_put_text(o, "cluster", p->cluster);
        json_put_text(o, "stack", p->stack);
        json_put_text(o, "constants", p->constants);
    }
    if (*p->adapter) {
        json_put_text(o, "adapter", p->adapter);
        json_put_text(o, "flags", p->flags);
    }
    if (*p->environment)
        json_put_text(o, "environment", p->environment);
}

/* Writes for which run the plan was predicted, where that is not the usual one. */
static void settings_write(const struct plan *p, struct json_out *o)
{
    if (p->scaled_dp > 0)
        json_put_int(o, "scaled_dp", p->scaled_dp);
    if (p->encoder_bytes > 0)
        json_put_int(o, "encoder_bytes", p->encoder_bytes);
    if (p->ema)
        json_put_bool(o, "ema", p->ema);
    if (p->residual_wide)
        json_put_bool(o, "residual_f32", p->residual_wide);
    if (p->moments_bf16)
        json_put_bool(o, "moments_bf16", p->moments_bf16);
}

void plan_write(const struct plan *p, struct json_out *o)
{
    char hex[HASH_TEXT_BYTES];
    json_obj_begin(o, NULL);
    json_put_text(o, "schema", plan_schema);
    layout_write(&p->layout, o, "layout");
    json_put_text(o, "model", p->model);
    if (p->model_hash.hi || p->model_hash.lo)
        json_put_text(o, "model_hash", hash_format(p->model_hash, hex));
    if (*p->model_file)
        json_put_text(o, "model_file", p->model_file);
    json_obj_begin(o, "seq");
    field_write_table(o, seq_fields, ARRAY_LEN(seq_fields), p);
    json_obj_end(o);
    json_put_int(o, "gbs", p->gbs);
    json_put_text(o, "dtype", dtype_names[p->dtype]);
    if (*p->device)
        json_put_text(o, "device", p->device);
    json_put_num(o, "peak_flops", p->peak_flops);
    if (*p->peak_source)
        json_put_text(o, "peak_source", p->peak_source);
    planned_write(p, o);
    json_obj_begin(o, "predicted");
    field_write_table(o, predicted_fields, ARRAY_LEN(predicted_fields) - !(p->limit_bytes > 0), p);
    json_obj_end(o);
    terms_write(p, o);
    probed_write(p, o);
    json_put_num(o, "measured_step_s", p->measured_step_s);
    settings_write(p, o);
    json_arr_begin(o, "evidence");
    for (int64_t i = 0; i < p->n_evidence; i++)
        json_put_text(o, NULL, p->evidence[i]);
    json_arr_end(o);
    json_obj_end(o);
}

/* Loads the text again before it is written, so that there is no file that loading refuses. */
int plan_save(const struct plan *p, const char *path, struct err *err)
{
    struct str s = STR_INIT;
    struct json_out o;
    struct plan again;
    int rc;
    if ((rc = plan_check(p, path, err)) < 0)
        return rc;
    json_out_init(&o, &s, 2);
    plan_write(p, &o);
    str_addc(&s, '\n');
    if ((rc = str_check(&s, err)) < 0)
        goto out;
    if ((rc = plan_parse(s.p, s.len, path, &again, err)) < 0)
        goto out;
    rc = file_publish(path, s.p, s.len, err);
out:
    str_release(&s);
    return rc;
}

size_t plan_format(struct format_part *out)
{
    static const struct plan_text t;
    size_t n = 0;
    out[n++] = (struct format_part){"", top_fields, ARRAY_LEN(top_fields), &t};
    n += layout_format_part(&out[n]);
    out[n++] = (struct format_part){"seq", seq_fields, ARRAY_LEN(seq_fields), NULL};
    out[n++] = (struct format_part){"predicted", predicted_fields, ARRAY_LEN(predicted_fields),
                                    NULL};
    out[n++] = (struct format_part){"terms[]", term_fields, ARRAY_LEN(term_fields), NULL};
    out[n++] = (struct format_part){"memory[]", memory_fields, ARRAY_LEN(memory_fields), NULL};
    return n;
}
