/* ckpt: checkpoints (`reel.ckpt/1`): published whole or not at all, verified, loadable under any data-parallel layout.
 *
 * A checkpoint is a folder <run>/ckpt/step-<8 digits>: manifest.json and one file a rank. The format's essay is at the
 * top of ckpt.c. It is written as .tmp-step-…, every file synced, and renamed; a reader never sees a part. Loading takes the
 * newest that verifies; a damaged one is set aside (renamed *.damaged, never deleted) and the next older one is used.
 * Saving under a full disk leaves the older checkpoints as they were and removes what was begun.
 *
 *     ckpt_load(run_dir, &optim, config_hash, told, ctx, &meta, &found, err);   // all ranks of optim.dp
 *     ckpt_save(run_dir, &optim, &meta, layout_text, keep, &written, err);
 *
 * Errors: ERR_IO (disk full, not writable), ERR_INPUT (another run's, or another dtype's checkpoint), all ranks alike.
 */
#ifndef TRAINER_CKPT_H
#define TRAINER_CKPT_H

#include "base/hash.h"
#include "trainer/optim.h"

struct ckpt_meta {
    int64_t step;              /* optimizer steps contained */
    int64_t updates;           /* of them not skipped */
    uint64_t ordinal;          /* draw ordinal of the next step's first sample */
    struct hash128 config_hash;
    int64_t bytes;
};

/* Collective over o->dp. Keeps the newest `keep` checkpoints, this one included. `layout`: text for the record. */
int ckpt_save(const char *run_dir, const struct optim *o, const struct ckpt_meta *meta, const char *layout, int64_t keep,
              struct ckpt_meta *written, struct err *err);

/* Collective. Loads the newest good one; *found false if there is none. on_damage (rank 0) is told of each set aside.
 * ERR_INPUT when its configuration is not this run's. */
typedef void ckpt_damage_fn(void *ctx, const char *dir, const char *reason);
int ckpt_load(const char *run_dir, struct optim *o, struct hash128 config_hash, ckpt_damage_fn *on_damage, void *ctx,
              struct ckpt_meta *out, bool *found, struct err *err);

/* ---- one folder, for the commands ---- */
struct ckpt_tensor { char name[LIMIT_NAME_BYTES]; int64_t offset, count; int nd; int64_t dim[4]; };
struct ckpt_file { char name[32]; int64_t first, n, bytes; struct hash128 hash; };
struct ckpt_manifest {
    struct ckpt_meta meta;
    char model[LIMIT_NAME_BYTES], layout[256];
    enum dtype dtype;
    bool ema;
    int64_t n_tensors, n_files, padded;
    struct ckpt_tensor *tensors;
    struct ckpt_file *files;
};
int ckpt_manifest_load(const char *dir, struct ckpt_manifest *out, struct err *err);
void ckpt_manifest_release(struct ckpt_manifest *m);
/* Sizes, and sizes and checksums, of the files i with i mod n_parts = part. ERR_CORRUPT names the file. */
int ckpt_sizes_check(const char *dir, const struct ckpt_manifest *m, int part, int n_parts, struct err *err);
int ckpt_verify(const char *dir, const struct ckpt_manifest *m, int part, int n_parts, struct err *err);

enum ckpt_buffer { CKPT_WEIGHTS, CKPT_M, CKPT_V, CKPT_EMA, CKPT_BUFFERS };
extern const char *const ckpt_buffer_names[];
/* Elements of tensor t of one buffer, first .. first+n-1, in the checkpoint's dtype. */
int ckpt_read(const char *dir, const struct ckpt_manifest *m, enum ckpt_buffer buffer, int64_t tensor, int64_t first, int64_t n,
              void *out, struct err *err);

#endif
