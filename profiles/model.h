/* model: describes a network (`reel.model/1`), in the one form that trainer, tuner and planner
 * agree on.
 *
 * A profile is looked up by name among the compiled-in files (profiles/models/NAME.json) or read
 * from a path (an operand with a slash or ending in .json). `NAME+VARIANT` is the named model with
 * another AdaLN: `dit-7b+lora_fused`. The format is the table of fields in model.c.
 */
#ifndef PROFILES_MODEL_H
#define PROFILES_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/limits.h"

enum model_family { MODEL_DIT, MODEL_MOVIEGEN, MODEL_STDIT, MODEL_GPT, MODEL_LLAMA };
enum model_adaln {
    ADALN_NONE,          /* no modulation, and no conditioning on the noise level */
    ADALN_FULL,          /* D -> 9D per layer */
    /* three pairs D -> r -> 3D, with a shared branch D -> 3D outside the layers (Cosmos) */
    ADALN_LORA_SEPARATE,
    ADALN_LORA_FUSED,    /* one D -> 3r -> 9D, the same shared branch (NeMo) */
    ADALN_LORA_SINGLE,   /* one D -> r -> 9D, no shared branch (DFM) */
    /* one D -> 9D outside the layers, to which each layer adds a learned table of 9D (Wan, PixArt);
     * planning only */
    ADALN_GLOBAL,
};
extern const char *const model_family_names[];
extern const char *const model_adaln_names[];

/* These are the width of the frame rate's sinusoid, and the default rank of `+lora_*`. */
enum { MODEL_FPS_WIDTH = 256, MODEL_ADALN_RANK = 256 };

struct model {
    char name[LIMIT_NAME_BYTES];
    enum model_family family;
    int64_t layers, hidden, heads, kv_heads, ffn; /* head dim = hidden / heads */
    bool gated_mlp;                               /* SwiGLU: three matrices instead of two */
    /* text embedding: tokens x width; 0 = no cross-attention */
    int64_t text_width, text_len;
    /* width of the encoder's tokens, which an MLP text_in -> text_width -> text_width widens; 0:
     * they have text_width; planning only */
    int64_t text_in;
    enum model_adaln adaln;
    int64_t adaln_rank;
    /* cross-attention is not modulated, so the 9D above become 6D; planning only */
    bool cross_plain;
    int64_t patch_t, patch_h, patch_w; /* latent cells per token */
    int64_t latent_channels, cond_channels;
    int64_t vocab;         /* gpt, llama (planning only) */
    bool tied_head;        /* gpt, llama: the head's matrix is the token embedding */
    double rope_theta;     /* 3D RoPE base, default 10000 */
    /* rows of the learned position tables that replace rotary positions; 0: none */
    int64_t pos_t, pos_h, pos_w;
};

static inline int64_t model_head_dim(const struct model *m) { return m->hidden / m->heads; }
static inline bool model_is_video(const struct model *m)
{ return m->family != MODEL_GPT && m->family != MODEL_LLAMA; }
/* Says whether the trainer and its buffer list support the model; others are for planning only. */
static inline bool model_is_trainable(const struct model *m)
{ return model_is_video(m) && m->adaln != ADALN_GLOBAL && !m->cross_plain && !m->text_in; }
static inline bool model_has_cross(const struct model *m) { return m->text_width > 0; }
/* Says whether positions come from learned tables, added to the patch embedding, instead of rotary
 * embeddings. */
static inline bool model_has_tables(const struct model *m) { return m->pos_t > 0; }
/* Returns the latent cells in one token: patch_t * patch_h * patch_w. */
static inline int64_t model_patch_cells(const struct model *m)
{ return m->patch_t * m->patch_h * m->patch_w; }
/* Returns the self-attentions of a layer: 3 for stdit (spatial, temporal, full), else 1. */
static inline int64_t model_self_attentions(const struct model *m)
{ return m->family == MODEL_STDIT ? 3 : 1; }
/* Says whether a layer's norms, and the last one, are RMS norms. Otherwise they are LayerNorms.
 * Neither has affine parameters. */
static inline bool model_rms_norm(const struct model *m) { return m->family == MODEL_MOVIEGEN; }
/* Says whether an MLP of the family is gated where nothing says so. */
static inline bool model_gated_family(enum model_family f)
{ return f == MODEL_MOVIEGEN || f == MODEL_LLAMA; }
/* Returns how many sub-blocks of a layer take a shift, a scale and a gate of width D each: 0
 * without AdaLN. */
int64_t model_modulations(const struct model *m);
/* Tell whether the conditioning channels hold the first frames' latents [C] with their mask (C + 1
 * in all), and whether a padding mask (1) follows. */
static inline bool model_cond_frames(const struct model *m)
{ return m->cond_channels > m->latent_channels; }
static inline bool model_cond_padding(const struct model *m)
{ return m->cond_channels == 1 || m->cond_channels == m->latent_channels + 2; }
/* Says whether the time MLP ends in the branch u [3D] that every modulation adds (separate and
 * fused), or in D (full, single). */
bool model_shared_modulation(const struct model *m);

/* Loads a model by name or path. ERR_NOT_FOUND names the nearest known model. */
int model_load(const char *name_or_path, struct model *out, struct err *err);
int model_read(const struct json_doc *doc, const cJSON *obj, const char *path, struct model *out,
               struct err *err);
/* Reads the value of "model" in run.json: a name or an object. */
int model_read_ref(const struct json_doc *doc, const cJSON *value, const char *path,
                   struct model *out, struct err *err);
void model_write(const struct model *m, struct json_out *o, const char *key);
/* Returns 0, or ERR_INPUT with the first broken rule (heads divide hidden, kv_heads divide heads,
 * even head dim ...). The sentence begins with `where`. */
int model_check(const struct model *m, const char *where, struct err *err);
/* Returns the hash of the canonical text. Equal descriptions have equal hashes, however they were
 * written. */
struct hash128 model_hash(const struct model *m);
/* Sets *names to the names of the compiled-in models, ended by NULL; returns their number. */
size_t model_names(const char *const **names);

/* Holds a sample's extent in tokens (after patching): frames x height x width. `--seq 8192` means
 * {1, 1, 8192}; `--seq 5x8x8` means {5, 8, 8}. */
struct seq { int64_t t, h, w; };
enum { SEQ_SIDE_MAX = 1 << 20 }; /* frames or rows; the columns have no limit of their own */
static inline int64_t seq_tokens(struct seq s) { return s.t * s.h * s.w; }
/* Returns the tokens of the longest segment of spatial or temporal attention: a frame, or one place
 * over all frames. */
static inline int64_t seq_longest_segment(struct seq s)
{ return s.t > s.h * s.w ? s.t : s.h * s.w; }
/* Says whether every place of the extent has a row in the model's position tables. It is true
 * if the model has none. */
static inline bool model_places(const struct model *m, struct seq s)
{
    return !model_has_tables(m) || (s.t <= m->pos_t && s.h <= m->pos_h && s.w <= m->pos_w);
}
int seq_parse(const char *text, const char *what, struct seq *out, struct err *err);
/* Rounds latent cells up to whole patches. */
void model_pad_latent(const struct model *m, const int64_t thw[3], int64_t out[3]);
/* Converts latent cells (t, h, w) to tokens. Returns ERR_INPUT if the patch does not divide them,
 * or a position table is too short. */
int seq_from_latent(const struct model *m, int64_t t, int64_t h, int64_t w, struct seq *out,
                    struct err *err);

#endif
