#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/num.h"
#include "trainer/ckpt/ckpt_priv.h"

struct manifest_head {
    int64_t step, updates, skips;
    int64_t condition_frames;
    uint64_t ordinal, seed;
    const char *config_hash, *layout;
    int dtype, run_dtype, moments, residual, objective;
    bool ema;
};
static const struct json_field head_fields[] = {
    {"schema", JSON_ANY},
    {"step", JSON_INT, offsetof(struct manifest_head, step), .min = 0, .max = 1e15},
    {"updates", JSON_INT, offsetof(struct manifest_head, updates), .min = 0, .max = 1e15},
    {"skips", JSON_INT, offsetof(struct manifest_head, skips), .optional = true, .min = 0,
     .max = 1e15},
    {"ordinal", JSON_U64TEXT, offsetof(struct manifest_head, ordinal)},
    {"config_hash", JSON_TEXT, offsetof(struct manifest_head, config_hash)},
    {"model", JSON_ANY},
    {"layout", JSON_TEXT, offsetof(struct manifest_head, layout)},
    {"dtype", JSON_ENUM, offsetof(struct manifest_head, dtype), .names = dtype_names},
    {"run_dtype", JSON_ENUM, offsetof(struct manifest_head, run_dtype), .optional = true,
     .names = dtype_names},
    {"moments", JSON_ENUM, offsetof(struct manifest_head, moments), .optional = true,
     .names = moments_names},
    {"residual", JSON_ENUM, offsetof(struct manifest_head, residual), .optional = true,
     .names = residual_names},
    {"objective", JSON_ENUM, offsetof(struct manifest_head, objective), .optional = true,
     .names = objective_names},
    {"condition_frames", JSON_INT, offsetof(struct manifest_head, condition_frames),
     .optional = true, .min = 0, .max = 1e15},
    {"seed", JSON_U64TEXT, offsetof(struct manifest_head, seed), .optional = true},
    {"ema", JSON_BOOL, offsetof(struct manifest_head, ema)},
    {"groups", JSON_ANY, .optional = true},
    {"lora", JSON_ANY, .optional = true},
    {"spikes", JSON_ANY, .optional = true},
    {"tensors", JSON_ANY},
    {"files", JSON_ANY},
    {"checksum", JSON_ANY},
};

struct tensor_row { const char *name; };
static const struct json_field tensor_fields[] = {
    {"name", JSON_TEXT, offsetof(struct tensor_row, name)},
    {"shape", JSON_ANY},
};

struct file_row { const char *name, *hash; int64_t n, trained, bytes; };
static const struct json_field file_fields[] = {
    {"name", JSON_TEXT, offsetof(struct file_row, name)},
    {"n", JSON_INT, offsetof(struct file_row, n), .min = 1, .max = 1e15},
    {"trained", JSON_INT, offsetof(struct file_row, trained), .optional = true, .min = 0,
     .max = 1e15},
    {"bytes", JSON_INT, offsetof(struct file_row, bytes), .min = 1, .max = 1e16},
    {"hash", JSON_TEXT, offsetof(struct file_row, hash)},
};

static int hash_parse(const char *text, struct hash128 *out, struct err *err)
{
    unsigned long long hi, lo;
    if (strlen(text) != HASH_TEXT_BYTES - 1 || sscanf(text, "%16llx%16llx", &hi, &lo) != 2)
        return err_set(err, ERR_INPUT, "'%s' is not a hash of 32 hex digits", text);
    *out = (struct hash128){hi, lo};
    return 0;
}

static int tensors_read(const struct json_doc *doc, struct arena *arena, struct ckpt_manifest *m,
                        struct err *err)
{
    const cJSON *list = json_member(doc->root, "tensors"), *item;
    m->tensors = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *m->tensors);
    if (!m->tensors)
        return err_set(err, ERR_NOMEM, "out of memory");
    cJSON_ArrayForEach(item, list) {
        struct ckpt_tensor *t = &m->tensors[m->n_tensors];
        struct tensor_row row;
        char path[32];
        snprintf(path, sizeof path, "tensors[%lld]", (long long)m->n_tensors);
        int rc;
        if ((rc = json_read(doc, item, path, tensor_fields, ARRAY_LEN(tensor_fields), arena, &row,
                            err)) < 0)
            return rc;
        snprintf(t->name, sizeof t->name, "%s", row.name);
        t->count = 1;
        const cJSON *dim;
        cJSON_ArrayForEach(dim, json_member(item, "shape")) {
            if (t->nd == 4 || !cJSON_IsNumber(dim) ||
                !(dim->valuedouble >= 1 && dim->valuedouble <= 0x1p53) ||
                !num_mul_i64(t->count, (int64_t)dim->valuedouble, &t->count))
                return err_set(err, ERR_INPUT, "%s: %s.shape is not one of 1 to 4 dimensions",
                               doc->name, path);
            t->dim[t->nd++] = (int64_t)dim->valuedouble;
        }
        m->n_tensors++;
    }
    return 0;
}

static int files_read(const struct json_doc *doc, struct arena *arena, struct ckpt_manifest *m,
                      struct err *err)
{
    const cJSON *list = json_member(doc->root, "files"), *item;
    m->files = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *m->files);
    if (!m->files)
        return err_set(err, ERR_NOMEM, "out of memory");
    cJSON_ArrayForEach(item, list) {
        struct ckpt_file *f = &m->files[m->n_files];
        struct file_row row = {.trained = -1};
        char path[32];
        snprintf(path, sizeof path, "files[%lld]", (long long)m->n_files);
        int rc = json_read(doc, item, path, file_fields, ARRAY_LEN(file_fields), arena, &row, err);
        if (rc < 0 || (rc = hash_parse(row.hash, &f->hash, err)) < 0)
            return rc;
        if (strchr(row.name, '/'))
            return err_set(err, ERR_INPUT, "%s: %s.name '%s' is no file of this folder",
                           doc->name, path, row.name);
        snprintf(f->name, sizeof f->name, "%s", row.name);
        f->n = row.n, f->trained = row.trained < 0 ? row.n : row.trained, f->bytes = row.bytes;
        m->n_files++;
    }
    if (m->n_files != ckpt_files(&m->layout))
        return err_set(err, ERR_INPUT, "%s: names %lld files, its layout has %lld", doc->name,
                       (long long)m->n_files, (long long)ckpt_files(&m->layout));
    return 0;
}

/* Reads a list of at most SPIKE_STEPS numbers. Returns how many there are; -1: it is no such
 * list. */
static int64_t numbers_read(const cJSON *list, double out[SPIKE_STEPS])
{
    const cJSON *item;
    int64_t n = 0;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) > SPIKE_STEPS)
        return -1;
    cJSON_ArrayForEach(item, list) {
        if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble))
            return -1;
        out[n++] = item->valuedouble;
    }
    return n;
}

static int spikes_read(const struct json_doc *doc, struct spike_history *h, struct err *err)
{
    const cJSON *obj = json_member(doc->root, "spikes");
    if (!obj)
        return 0;
    h->n = numbers_read(json_member(obj, "loss"), h->loss);
    if (h->n < 0 || numbers_read(json_member(obj, "norm"), h->norm) != h->n)
        return err_set(err, ERR_INPUT,
                       "%s: spikes.loss and spikes.norm are not as many numbers each, %d at most",
                       doc->name, SPIKE_STEPS);
    return 0;
}

/* Parses a layout and checks that it is legal for the model, as far as this decides where tensors
 * lie. The check is given numbers of tokens and samples that suit every layout. */
static int layout_read_text(const struct json_doc *doc, const char *text, const struct model *m,
                            struct layout *out, struct err *err)
{
    int rc;
    if ((rc = layout_parse(text, out, err)) < 0)
        return rc;
    int rule = layout_broken_rule(out, m, (struct seq){1, 1, out->tp * out->cp},
                                  out->dp * out->mbs, layout_world(out));
    return rule < 0 ? 0
                    : err_set(err, ERR_INPUT, "%s: layout '%s': %s", doc->name, text,
                              layout_rule_sentence(rule));
}

/* Reads a manifest whose checksum fits. What cannot be read of it was written so, by another
 * version: it is no damage. */
static int manifest_read(const struct json_doc *doc, struct arena *arena, struct ckpt_manifest *m,
                         struct err *err)
{
    struct manifest_head head = {.run_dtype = -1, .objective = -1};
    int rc;
    if ((rc = json_check_schema(doc, CKPT_SCHEMA, err)) < 0)
        return rc;
    if ((rc = json_read(doc, doc->root, "", head_fields, ARRAY_LEN(head_fields), arena, &head,
                        err)) < 0)
        return rc;
    m->meta = (struct ckpt_meta){
        .step = head.step, .updates = head.updates, .skips = head.skips,
        .ordinal = head.ordinal
    };
    m->dtype = (enum dtype)head.dtype;
    m->run_dtype = head.run_dtype < 0 ? m->dtype : (enum dtype)head.run_dtype;
    m->moments = (enum run_moments)head.moments;
    m->residual = (enum run_residual)head.residual;
    m->says_objective = head.objective >= 0;
    m->objective = m->says_objective ? (enum objective)head.objective : OBJECTIVE_EDM;
    m->condition_frames = head.condition_frames;
    m->seed = head.seed;
    m->ema = head.ema;
    if (m->dtype > DTYPE_F32 || dtype_stat(m->run_dtype) != m->dtype)
        return err_set(err, ERR_INPUT,
                       "%s: numbers of %s from a run of %s: it is not a checkpoint of this "
                       "program's",
                       doc->name, dtype_names[m->dtype], dtype_names[m->run_dtype]);
    if ((rc = model_read(doc, json_member(doc->root, "model"), "model", &m->model, err)) < 0)
        return rc;
    if ((rc = layout_read_text(doc, head.layout, &m->model, &m->layout, err)) < 0)
        return rc;
    if ((rc = finetune_read(doc, doc->root, &m->finetune, err)) < 0)
        return rc;
    if ((rc = hash_parse(head.config_hash, &m->meta.config_hash, err)) < 0)
        return rc;
    if ((rc = tensors_read(doc, arena, m, err)) < 0)
        return rc;
    if ((rc = files_read(doc, arena, m, err)) < 0)
        return rc;
    return spikes_read(doc, &m->meta.spikes, err);
}

/* Says whether a text without our checksum is whole JSON of another version. Its version may have
 * another checksum, or none. */
static bool is_other_version(const struct str *text, const char *path, struct err *err)
{
    static const char ours[] = CKPT_SCHEMA, family[] = "reel.ckpt/";
    struct json_doc doc = {0};
    struct err none;
    const char *schema = "";
    if (json_parse(text->p, text->len, path, &doc, &none) == 0)
        schema = json_text(doc.root, "schema", "");
    bool other = strncmp(schema, family, sizeof family - 1) == 0 && strcmp(schema, ours) != 0;
    if (other)
        json_check_schema(&doc, ours, err);
    json_release(&doc);
    return other;
}

/* Checks that the text up to the comma before "checksum" hashes to its value. */
static int checksum_check(const struct str *text, const char *path, struct err *err)
{
    static const char key[] = "\"checksum\"";
    struct hash128 want, got;
    char value[HASH_TEXT_BYTES];
    const char *at = NULL;
    for (const char *p = text->p; (p = strstr(p, key)); p++)
        at = p;
    int end = 0;
    if (!at || sscanf(at + sizeof key - 1, ": \"%32[0-9a-f]\"%n", value, &end) != 1 ||
        hash_parse(value, &want, NULL) < 0 || strcmp(at + sizeof key - 1 + end, "\n}\n") != 0 ||
        text->len != strlen(text->p))
        return is_other_version(text, path, err)
                   ? ERR_INPUT
                   : err_set(err, ERR_CORRUPT, "'%s' has no checksum at its end", path);
    while (at > text->p && *at != ',')
        at--;
    got = hash_128(text->p, (size_t)(at - text->p));
    return memcmp(&got, &want, sizeof got) == 0
               ? 0
               : err_set(err, ERR_CORRUPT, "'%s' is damaged: its checksum does not fit", path);
}

int ckpt_manifest_load(const char *dir, struct ckpt_manifest *out, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct json_doc doc = {0};
    struct ckpt_manifest m = {0};
    struct str text = STR_INIT;
    struct arena arena;
    arena_init(&arena, 0);
    snprintf(path, sizeof path, "%s/manifest.json", dir);
    int rc;
    if ((rc = file_read(path, LIMIT_JSON_BYTES, &text, err)) < 0)
        goto out;
    if ((rc = checksum_check(&text, path, err)) < 0)
        goto out;
    if ((rc = json_parse(text.p, text.len, path, &doc, err)) < 0)
        goto out;
    if ((rc = manifest_read(&doc, &arena, &m, err)) < 0)
        goto out;
    for (int64_t i = 0; i < m.n_files; i++)
        m.meta.bytes += m.files[i].bytes;
    *out = m;
    m = (struct ckpt_manifest){0}; /* the caller owns it now */
out:
    ckpt_manifest_release(&m);
    str_release(&text);
    json_release(&doc);
    arena_release(&arena);
    return rc;
}

void ckpt_manifest_release(struct ckpt_manifest *m)
{
    free(m->tensors);
    free(m->files);
    *m = (struct ckpt_manifest){0};
}

int64_t ckpt_tensor_find(const struct ckpt_manifest *m, const char *name)
{
    for (int64_t i = 0; i < m->n_tensors; i++)
        if (strcmp(m->tensors[i].name, name) == 0)
            return i;
    return -1;
}

int64_t ckpt_buffer_first(const struct ckpt_manifest *m, const struct ckpt_file *f,
                          enum ckpt_buffer buffer)
{
    int64_t bytes = 0;
    for (int b = 0; b < (int)buffer; b++)
        if (b != CKPT_EMA || m->ema)
            bytes += (b == CKPT_WEIGHTS ? f->n : f->trained) *
                     dtype_bytes(ckpt_buffer_dtype(m->dtype, m->moments, (enum ckpt_buffer)b));
    return bytes;
}

static int sizes_check(const char *dir, const struct ckpt_manifest *m, int part, int n_parts,
                       struct err *err)
{
    for (int64_t i = part; i < m->n_files; i += n_parts) {
        char path[LIMIT_PATH_BYTES];
        struct stat st;
        const struct ckpt_file *f = &m->files[i];
        snprintf(path, sizeof path, "%s/%s", dir, f->name);
        if (stat(path, &st) < 0)
            return err_set_errno(err, errno == ENOENT ? ERR_CORRUPT : ERR_IO, "cannot read '%s'",
                                 path);
        if (st.st_size != f->bytes || f->bytes != ckpt_buffer_first(m, f, CKPT_BUFFERS))
            return err_set(err, ERR_CORRUPT, "'%s' has %lld bytes, the manifest says %lld", path,
                           (long long)st.st_size, (long long)f->bytes);
    }
    return 0;
}

int ckpt_verify(const char *dir, const struct ckpt_manifest *m, int part, int n_parts,
                struct err *err)
{
    int rc;
    if ((rc = sizes_check(dir, m, part, n_parts, err)) < 0)
        return rc;
    for (int64_t i = part; i < m->n_files; i += n_parts) {
        char path[LIMIT_PATH_BYTES];
        struct hash128 hash;
        snprintf(path, sizeof path, "%s/%s", dir, m->files[i].name);
        if ((rc = hash_file(path, &hash, err)) < 0)
            return rc;
        if (memcmp(&hash, &m->files[i].hash, sizeof hash) != 0)
            return err_set(err, ERR_CORRUPT,
                           "'%s' is damaged: its checksum is not the manifest's", path);
    }
    return 0;
}
