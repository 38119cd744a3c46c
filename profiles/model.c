/* This file reads and writes the format reel.model/1. The table below says what each field means;
 * `reel format model` is made from it.
 *
 * Reading is strict: an unknown key, a wrong type or a broken rule (rules[] below) is one error.
 * The writer writes every field in this order; those of position tables, plain cross-attention and
 * the MLP on text only where the model has them, and tied_head only for gpt and llama. So equal
 * descriptions give one text, however they were written, and model_hash is its hash. A model inside
 * another file ("model" of run.json) is a catalog name or such an object, in which "schema" may be
 * left out.
 *
 * A name may carry a variant: `dit-7b+none`, `+full`, `+lora_separate`, `+lora_fused`,
 * `+lora_single`, `+global`. The lora forms keep the base's rank, or take 256 (the rank of all
 * published models with lora modulation) when the base has none.
 *
 * The sizes come from "Training Video Foundation Models with NVIDIA NeMo" (arXiv 2503.12964), table
 * 1, for dit-7b and dit-28b; from the Cosmos 14B configuration for dit-14b; from Peebles and Xie's
 * DiT for S, B, L, XL. stdit-xl has depth, width and text of Open-Sora 1.2's STDiT3-XL/2. The one
 * modulation that STDiT3 has for all layers is nearest to lora_single; the full attention in each
 * layer is our addition.
 * moviegen-1b is the 1B Llama-shaped MovieGen of NeMo with grouped queries; ours adds its position
 * tables once, to the tokens (NeMo: before every block). It also normalizes queries and keys like
 * the other families, and modulates cross-attention. moviegen-5b and moviegen-30b are NeMo's
 * DiTLlama5BConfig and DiTLlama30BConfig, cross-attention not modulated.
 *
 * cosmos-7b and cosmos-14b are the diffusion models of Cosmos 1.0, which are dit-7b and dit-14b
 * with a padding mask; their learned positions beside the rotary ones (0.02 %) are left out.
 * wan-14b is Wan 2.1 T2V-14B (github.com/Wan-Video/Wan2.1, wan_t2v_14B.py). Biases are left out,
 * and so are the gains of norms over all heads (0.03 % together); its sinusoid of the noise level
 * has width 256 and not D, so ours has 0.18 % more there.
 *
 * llama-3-8b, -70b and -405b are Llama 3.1's (arXiv 2407.21783, table 3); gpt-3-175b is that of
 * "Language Models are Few-Shot Learners" (arXiv 2005.14165, table 2.1), without biases and its
 * 2,048 learned positions (0.02 % together). A vocabulary is what the tokenizer has: trainers pad
 * it, and so does shard.h.
 */
#include "profiles/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "profiles/catalog.h"
#include "profiles/field.h"
#include "profiles/format.h"

const char *const model_family_names[] = {"dit", "moviegen", "stdit", "gpt", "llama", NULL};
const char *const model_adaln_names[] = {
    "none", "full", "lora_separate", "lora_fused", "lora_single", "global", NULL};

static bool adaln_is_lora(enum model_adaln a)
{
    return a == ADALN_LORA_SEPARATE || a == ADALN_LORA_FUSED || a == ADALN_LORA_SINGLE;
}

bool model_shared_modulation(const struct model *m)
{
    return m->adaln == ADALN_LORA_SEPARATE || m->adaln == ADALN_LORA_FUSED;
}

int64_t model_modulations(const struct model *m)
{
    if (m->adaln == ADALN_NONE)
        return 0;
    return model_self_attentions(m) + (model_has_cross(m) && !m->cross_plain ? 1 : 0) + 1;
}

size_t model_names(const char *const **names)
{
    *names = catalog_model_names;
    return catalog_count(&catalog_models);
}

/* ---- rules between fields ---- */

static bool heads_divide_hidden(const struct model *m) { return m->hidden % m->heads == 0; }
static bool head_dim_even(const struct model *m) { return model_head_dim(m) % 2 == 0; }
static bool kv_divide_heads(const struct model *m)
{ return m->kv_heads >= 1 && m->heads % m->kv_heads == 0; }
static bool text_has_length(const struct model *m)
{ return (m->text_width > 0) == (m->text_len > 0); }
static bool text_mlp_with_text(const struct model *m) { return !m->text_in || model_has_cross(m); }
static bool rank_with_lora(const struct model *m)
{ return adaln_is_lora(m->adaln) == (m->adaln_rank > 0); }
static bool video_has_channels(const struct model *m)
{ return model_is_video(m) == (m->latent_channels > 0); }
static bool language_has_vocab(const struct model *m)
{ return model_is_video(m) == (m->vocab == 0); }
static bool tied_with_vocab(const struct model *m) { return !m->tied_head || m->vocab > 0; }
static bool plain_with_modulation(const struct model *m)
{ return !m->cross_plain || (model_has_cross(m) && m->adaln != ADALN_NONE); }
static bool language_is_plain(const struct model *m)
{
    return model_is_video(m) || (m->adaln == ADALN_NONE && m->text_width == 0 &&
                                 m->cond_channels == 0 && model_patch_cells(m) == 1);
}

static bool tables_together(const struct model *m)
{
    return (m->pos_t > 0) == (m->pos_h > 0) && (m->pos_t > 0) == (m->pos_w > 0) &&
           (model_is_video(m) || m->pos_t == 0);
}

static bool sizes_positive(const struct model *m)
{
    return m->layers >= 1 && m->hidden >= 1 && m->heads >= 1 && m->ffn >= 1 && m->patch_t >= 1 &&
           m->patch_h >= 1 && m->patch_w >= 1 && m->text_width >= 0 && m->cond_channels >= 0;
}

static const struct {
    bool (*holds)(const struct model *m);
    const char *sentence;
} rules[] = {
    {sizes_positive, "layers, hidden, heads, ffn and the patch must be 1 or more"},
    {heads_divide_hidden, "heads must divide hidden: give a hidden that is a multiple of heads"},
    {head_dim_even, "hidden / heads must be even, rotary positions turn pairs: give fewer heads or "
                    "a larger hidden"},
    {kv_divide_heads, "kv_heads must divide heads: give a divisor of heads"},
    {text_has_length,
     "text_width and text_len go together: give both above 0 (cross-attention) or both 0 (none)"},
    {text_mlp_with_text, "text_in needs text_width: leave it out, or give both"},
    {rank_with_lora, "adaln_rank belongs to the lora forms of adaln and to them only: give 1 or "
                     "more there, 0 elsewhere"},
    {video_has_channels, "latent_channels belongs to the video families and to them only: give the "
                         "tokenizer's channels"},
    {language_has_vocab, "vocab belongs to gpt and llama and to them only: give the vocabulary's "
                         "size there, 0 elsewhere"},
    {tied_with_vocab, "tied_head belongs to gpt and llama and to them only: leave it out"},
    {plain_with_modulation,
     "cross_plain needs cross-attention and an adaln other than none: leave it out"},
    {tables_together, "pos_t, pos_h and pos_w go together, in the video families: give all above 0 "
                      "(learned tables) or leave them out"},
    {language_is_plain, "gpt and llama have no AdaLN, text conditioning, conditioning channels or "
                        "patches: leave them out"},
};

int model_check(const struct model *m, const char *where, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        if (!rules[i].holds(m))
            return err_set(err, ERR_INPUT,
                           "%s: %s (layers %lld, hidden %lld, heads %lld, kv_heads %lld, text %lld "
                           "x %lld, adaln %s rank %lld, latent_channels %lld, vocab %lld)",
                           where, rules[i].sentence, (long long)m->layers, (long long)m->hidden,
                           (long long)m->heads, (long long)m->kv_heads, (long long)m->text_len,
                           (long long)m->text_width, model_adaln_names[m->adaln],
                           (long long)m->adaln_rank, (long long)m->latent_channels,
                           (long long)m->vocab);
    return 0;
}

/* ---- reading and writing ---- */

struct model_text {
    const char *name; /* borrowed from the parsed tree */
    struct model m;
};

static const struct json_field fields[] = {
    {"schema", JSON_ANY, 0, .optional = true,
     .help = "\"reel.model/1\"; may be left out inside another file"},
    {"name", JSON_TEXT, offsetof(struct model_text, name), .optional = false,
     .help = "of the model"},
    {"family", JSON_ENUM, offsetof(struct model_text, m.family), .names = model_family_names,
     .help = "kind of network; gpt and llama are for planning only"},
    {"layers", JSON_INT, offsetof(struct model_text, m.layers), .min = 1, .max = 4096,
     .help = "blocks"},
    {"hidden", JSON_INT, offsetof(struct model_text, m.hidden), .min = 2, .max = 1 << 20,
     .help = "width D"},
    {"heads", JSON_INT, offsetof(struct model_text, m.heads), .min = 1, .max = 1 << 16,
     .help = "of attention; they divide hidden"},
    {"kv_heads", JSON_INT, offsetof(struct model_text, m.kv_heads), .optional = true, .min = 1,
     .max = 1 << 16,
     .help = "of keys and values; left out: heads. Fewer is grouped-query attention"},
    {"ffn", JSON_INT, offsetof(struct model_text, m.ffn), .optional = true, .min = 1,
     .max = 1 << 22,
     .help = "width of the MLP; left out: 4 hidden"},
    {"gated_mlp", JSON_BOOL, offsetof(struct model_text, m.gated_mlp), .optional = true,
     .help = "SwiGLU; left out: true for moviegen and llama, else false"},
    {"text_width", JSON_INT, offsetof(struct model_text, m.text_width), .optional = true, .min = 0,
     .max = 1 << 20,
     .help = "of the text embeddings; 0: no cross-attention"},
    {"text_len", JSON_INT, offsetof(struct model_text, m.text_len), .optional = true, .min = 0,
     .max = 1 << 20,
     .help = "most text tokens that the model attends to; needs text_width"},
    {"text_in", JSON_INT, offsetof(struct model_text, m.text_in), .optional = true, .min = 0,
     .max = 1 << 20,
     .help = "width of the encoder's tokens, where an MLP widens them to text_width; 0: none; "
             "planning only"},
    {"adaln", JSON_ENUM, offsetof(struct model_text, m.adaln), .optional = true,
     .names = model_adaln_names,
     .help = "modulation by the noise level; left out: full, for gpt and llama none"},
    {"adaln_rank", JSON_INT, offsetof(struct model_text, m.adaln_rank), .optional = true, .min = 0,
     .max = 1 << 20,
     .help = "of the lora forms, and only there"},
    {"cross_plain", JSON_BOOL, offsetof(struct model_text, m.cross_plain), .optional = true,
     .help = "cross-attention is not modulated; planning only"},
    {"patch_t", JSON_INT, offsetof(struct model_text, m.patch_t), .optional = true, .min = 1,
     .max = 64,
     .help = "latent cells of a token, along time"},
    {"patch_h", JSON_INT, offsetof(struct model_text, m.patch_h), .optional = true, .min = 1,
     .max = 64,
     .help = "along height"},
    {"patch_w", JSON_INT, offsetof(struct model_text, m.patch_w), .optional = true, .min = 1,
     .max = 64,
     .help = "along width"},
    {"latent_channels", JSON_INT, offsetof(struct model_text, m.latent_channels), .optional = true,
     .min = 0, .max = 4096,
     .help = "the tokenizer's; video families only"},
    {"cond_channels", JSON_INT, offsetof(struct model_text, m.cond_channels), .optional = true,
     .min = 0, .max = 4096,
     .help = "extra input channels: 1 for a padding mask, latent_channels + 1 for first frames "
             "and their mask, latent_channels + 2 for both"},
    {"vocab", JSON_INT, offsetof(struct model_text, m.vocab), .optional = true, .min = 0,
     .max = 1 << 30,
     .help = "gpt and llama only"},
    {"tied_head", JSON_BOOL, offsetof(struct model_text, m.tied_head), .optional = true,
     .help = "the head multiplies by the token embedding; left out: true for gpt, else false"},
    {"rope_theta", JSON_NUM, offsetof(struct model_text, m.rope_theta), .optional = true, .min = 1,
     .max = 1e12,
     .help = "base of the rotary positions"},
    {"pos_t", JSON_INT, offsetof(struct model_text, m.pos_t), .optional = true, .min = 0,
     .max = 1 << 20,
     .help = "learned position tables in place of rotary ones: most tokens along time; 0: none"},
    {"pos_h", JSON_INT, offsetof(struct model_text, m.pos_h), .optional = true, .min = 0,
     .max = 1 << 20,
     .help = "along height"},
    {"pos_w", JSON_INT, offsetof(struct model_text, m.pos_w), .optional = true, .min = 0,
     .max = 1 << 20,
     .help = "along width"},
};

static const struct model_text defaults = {
    .m = {.patch_t = 1, .patch_h = 1, .patch_w = 1, .rope_theta = 10000}};

/* Fills in the defaults that depend on other fields, where the text left the field out. */
static void defaults_fill(struct model_text *t, const cJSON *obj)
{
    struct model *m = &t->m;
    if (!json_member(obj, "adaln"))
        m->adaln = model_is_video(m) ? ADALN_FULL : ADALN_NONE;
    if (!json_member(obj, "kv_heads"))
        m->kv_heads = m->heads;
    if (!json_member(obj, "ffn"))
        m->ffn = 4 * m->hidden;
    if (!json_member(obj, "tied_head"))
        m->tied_head = m->family == MODEL_GPT;
    if (!json_member(obj, "gated_mlp"))
        m->gated_mlp = model_gated_family(m->family);
}

int model_read(const struct json_doc *doc, const cJSON *obj, const char *path, struct model *out,
               struct err *err)
{
    struct model_text t = defaults;
    char where[LIMIT_NAME_BYTES + 64];
    int rc;
    if ((rc = json_read(doc, obj, path, fields, ARRAY_LEN(fields), NULL, &t, err)) < 0)
        return rc;
    if ((rc = catalog_check_inner_schema(&catalog_models, doc, obj, path, err)) < 0)
        return rc;
    if ((rc = field_copy_text(t.m.name, sizeof t.m.name, t.name, doc, path, "name", err)) < 0)
        return rc;
    defaults_fill(&t, obj);
    snprintf(where, sizeof where, "%s%s%s", doc->name, *path ? ": " : "", path);
    if ((rc = model_check(&t.m, where, err)) < 0)
        return rc;
    *out = t.m;
    return 0;
}

void model_write(const struct model *m, struct json_out *o, const char *key)
{
    json_obj_begin(o, key);
    json_put_text(o, "schema", catalog_models.schema);
    json_put_text(o, "name", m->name);
    json_put_text(o, "family", model_family_names[m->family]);
    json_put_int(o, "layers", m->layers);
    json_put_int(o, "hidden", m->hidden);
    json_put_int(o, "heads", m->heads);
    json_put_int(o, "kv_heads", m->kv_heads);
    json_put_int(o, "ffn", m->ffn);
    json_put_bool(o, "gated_mlp", m->gated_mlp);
    json_put_int(o, "text_width", m->text_width);
    json_put_int(o, "text_len", m->text_len);
    if (m->text_in)
        json_put_int(o, "text_in", m->text_in);
    json_put_text(o, "adaln", model_adaln_names[m->adaln]);
    json_put_int(o, "adaln_rank", m->adaln_rank);
    if (m->cross_plain)
        json_put_bool(o, "cross_plain", true);
    json_put_int(o, "patch_t", m->patch_t);
    json_put_int(o, "patch_h", m->patch_h);
    json_put_int(o, "patch_w", m->patch_w);
    json_put_int(o, "latent_channels", m->latent_channels);
    json_put_int(o, "cond_channels", m->cond_channels);
    json_put_int(o, "vocab", m->vocab);
    if (!model_is_video(m))
        json_put_bool(o, "tied_head", m->tied_head);
    json_put_num(o, "rope_theta", m->rope_theta);
    if (model_has_tables(m)) {
        json_put_int(o, "pos_t", m->pos_t);
        json_put_int(o, "pos_h", m->pos_h);
        json_put_int(o, "pos_w", m->pos_w);
    }
    json_obj_end(o);
}

struct hash128 model_hash(const struct model *m)
{
    struct str s = STR_INIT;
    struct json_out o;
    json_out_init(&o, &s, 0);
    model_write(m, &o, NULL);
    /* the text is below 1 KiB: a process without memory for it cannot continue anyway */
    BUG_ON(s.failed);
    struct hash128 h = hash_128(s.p, s.len);
    str_release(&s);
    return h;
}

/* ---- names, variants ---- */

static int variant_apply(struct model *m, const char *variant, struct err *err)
{
    for (int i = 0; model_adaln_names[i]; i++) {
        if (strcmp(variant, model_adaln_names[i]) != 0)
            continue;
        m->adaln = (enum model_adaln)i;
        if (!adaln_is_lora(m->adaln))
            m->adaln_rank = 0;
        else if (m->adaln_rank == 0)
            m->adaln_rank = MODEL_ADALN_RANK;
        return model_check(m, m->name, err);
    }
    const char *near = str_nearest(variant, model_adaln_names);
    return err_set(err, ERR_NOT_FOUND,
                   "model %s: '%s' is no AdaLN variant%s%s: give none, full, lora_separate, "
                   "lora_fused, lora_single or global",
                   m->name, variant, near ? ", did you mean " : "", near ? near : "");
}

/* Loads the model of a file, or of the catalog, without a variant. */
static int plain_load(const char *operand, struct model *out, struct err *err)
{
    struct json_doc doc = {0};
    int rc;
    if ((rc = catalog_open(&catalog_models, operand, &doc, err)) < 0)
        return rc;
    rc = model_read(&doc, doc.root, "", out, err);
    json_release(&doc);
    return rc;
}

int model_load(const char *name_or_path, struct model *out, struct err *err)
{
    char base[LIMIT_NAME_BYTES];
    const char *plus = catalog_is_path(name_or_path) ? NULL : strchr(name_or_path, '+');
    struct model m;
    int rc;
    if (!plus)
        return plain_load(name_or_path, out, err);
    if (strlen(name_or_path) >= sizeof base)
        return err_set(err, ERR_NOT_FOUND,
                       "there is no model '%.40s...': the name is longer than %d bytes",
                       name_or_path, LIMIT_NAME_BYTES - 1);
    snprintf(base, sizeof base, "%.*s", (int)(plus - name_or_path), name_or_path);
    if ((rc = plain_load(base, &m, err)) < 0)
        return rc;
    snprintf(m.name, sizeof m.name, "%s", name_or_path);
    if ((rc = variant_apply(&m, plus + 1, err)) < 0)
        return rc;
    *out = m;
    return 0;
}

int model_read_ref(const struct json_doc *doc, const cJSON *value, const char *path,
                   struct model *out, struct err *err)
{
    if (!cJSON_IsString(value))
        return model_read(doc, value, path, out, err);
    int rc = model_load(value->valuestring, out, err);
    return rc < 0 ? err_context(err, "%s: %s", doc->name, path) : 0;
}

/* ---- extents ---- */

/* Reads "8192" or "32x16x16" into v. Returns the number of extents; 0: the text is anything
 * else. */
static int extents_scan(const char *text, int64_t v[3])
{
    for (int n = 0; n < 3 && *text >= '0' && *text <= '9';) {
        char *end;
        v[n] = strtoll(text, &end, 10); /* it saturates, and the bound below refuses that too */
        if (v[n] < 1 || v[n] > INT32_MAX)
            return 0;
        n++;
        if (!*end)
            return n;
        if (*end != 'x')
            return 0;
        text = end + 1;
    }
    return 0;
}

int seq_parse(const char *text, const char *what, struct seq *out, struct err *err)
{
    int64_t v[3] = {1, 1, 1}, plane, tokens;
    int n = extents_scan(text, v);
    struct seq s = n == 3 ? (struct seq){v[0], v[1], v[2]} : (struct seq){1, 1, v[0]};
    if ((n != 1 && n != 3) || !num_mul_i64(s.h, s.w, &plane) || !num_mul_i64(s.t, plane, &tokens) ||
        tokens > INT32_MAX)
        return err_set(err, ERR_INPUT,
                       "%s is '%s': give tokens as one number (8192) or as frames x height x width "
                       "(32x16x16), 1 to %d in all",
                       what, text, INT32_MAX);
    if (s.t > SEQ_SIDE_MAX || s.h > SEQ_SIDE_MAX)
        return err_set(err, ERR_INPUT,
                       "%s is '%s': give at most %d frames and as many rows (height)", what, text,
                       SEQ_SIDE_MAX);
    *out = s;
    return 0;
}

void model_pad_latent(const struct model *m, const int64_t thw[3], int64_t out[3])
{
    out[0] = num_round_up(thw[0], m->patch_t);
    out[1] = num_round_up(thw[1], m->patch_h);
    out[2] = num_round_up(thw[2], m->patch_w);
}

int seq_from_latent(const struct model *m, int64_t t, int64_t h, int64_t w, struct seq *out,
                    struct err *err)
{
    if (t < 1 || h < 1 || w < 1 || t % m->patch_t || h % m->patch_h || w % m->patch_w)
        return err_set(err, ERR_INPUT,
                       "latent of %lld x %lld x %lld cells (frames, height, width) does not divide "
                       "into patches of %lld x %lld "
                       "x %lld of model %s: give multiples of the patch",
                       (long long)t, (long long)h, (long long)w, (long long)m->patch_t,
                       (long long)m->patch_h, (long long)m->patch_w, m->name);
    struct seq s = {t / m->patch_t, h / m->patch_h, w / m->patch_w};
    if (!model_places(m, s))
        return err_set(err, ERR_INPUT,
                       "%lld x %lld x %lld tokens (time, height, width) are past the position "
                       "tables of model %s (%lld x %lld x %lld): give smaller samples, or a model "
                       "with larger pos_t, pos_h, pos_w",
                       (long long)s.t, (long long)s.h, (long long)s.w, m->name, (long long)m->pos_t,
                       (long long)m->pos_h, (long long)m->pos_w);
    *out = s;
    return 0;
}

size_t model_format(struct format_part *out)
{
    out[0] = (struct format_part){"", fields, ARRAY_LEN(fields), &defaults};
    return 1;
}
