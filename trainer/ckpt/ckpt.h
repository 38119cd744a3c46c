/* ckpt: saves and loads checkpoints (`reel.ckpt/1`). A checkpoint is published whole or not at all,
 * is verified, and can be loaded under another layout than it was written under.
 *
 * A checkpoint is a folder <run>/ckpt/step-<8 digits>: manifest.json and tp · pp · (shard group)
 * files, one for each rank whose data rank is below the size of the shard group (layout.h). The
 * essay at the top of ckpt.c gives the format. A checkpoint is written as .tmp-step-…, every file
 * is synced, and the folder is renamed; a reader never sees a part. Loading takes the newest
 * checkpoint that verifies. One counts as damaged only if a checksum, a size or a missing file
 * proves it. A damaged one is set aside (renamed *.damaged, never deleted by loading) and the next
 * older one is used. A whole checkpoint that this program cannot read is an error, and is left as
 * it is. When the disk is full, saving fails with ERR_FULL, leaves the older checkpoints as they
 * were and removes the unfinished folder.
 *
 *     // all ranks of the world call these
 *     ckpt_load(&writer, &optim, config_hash, on_damage, ctx, &meta, &found, err);
 *     ckpt_save(&writer, &optim, &meta, keep, &written, err);
 *
 * What one rank writes and reads (struct ckpt_state) needs no other rank: ckpt_file_write,
 * ckpt_state_load.
 *
 * Errors, the same on all ranks: ERR_BUSY (a newer attempt has the folder), ERR_FULL (the disk is
 * full or read-only), ERR_IO (a file cannot be read or written for another reason), ERR_INPUT (the
 * checkpoint of another run, dtype or version).
 */
#ifndef TRAINER_CKPT_CKPT_H
#define TRAINER_CKPT_CKPT_H

#include "base/hash.h"
#include "base/owner.h"
#include "trainer/state/optim.h"
#include "trainer/state/spike.h"

struct ckpt_meta {
    int64_t step;    /* optimizer steps contained */
    int64_t updates; /* how many of them were not skipped */
    int64_t skips;   /* how many of the last steps in a row had a gradient that was not finite */
    struct spike_history spikes;
    uint64_t ordinal;           /* draw ordinal of the next step's first sample */
    struct hash128 config_hash; /* run_past_hash at `step` */
    int64_t bytes;
};

/* Says who writes: an attempt, with rank 0's lease on the run's folder (base/owner.h). After a
 * newer attempt has taken the folder over, the next change that others would see fails with
 * ERR_BUSY, and the message names that attempt. lease is NULL on ranks other than 0, and where no
 * other attempt can exist. passed_over is the newest step whose checkpoint was passed over in
 * loading because the file system did not give it; 0: none. When that step is saved again, the
 * new folder takes the old one's place, if that still cannot be read. */
struct ckpt_writer {
    const char *run_dir;
    int64_t attempt;
    struct lease *lease;
    int64_t passed_over;
};

/* Saves a checkpoint; all ranks of the world call it. Keeps the `keep` newest whole checkpoints,
 * this one included, and every folder that is newer than the oldest of these. */
int ckpt_save(const struct ckpt_writer *w, const struct optim *o, const struct ckpt_meta *meta,
              int64_t keep, struct ckpt_meta *written, struct err *err);

struct ckpt_room {
    /* needed: the checkpoint's files (saved.h) and what is written beside them. free: before
     * anything was removed; -1: not known */
    int64_t needed_bytes, free_bytes;
    int64_t free_files; /* files that could still be made then; -1: not known */
    int64_t removed; /* folders */
    bool enough;
};
/* Makes room on the disk for a checkpoint; all ranks call it. If there is too little room, it
 * removes folders of killed saves and, if any checkpoint is whole, damaged folders that were set
 * aside and then checkpoints older than the newest whole one, the oldest first, until there is
 * room. full: the last save failed for want of space, whatever the file system reports as free;
 * then all of these are removed. Returns ERR_FULL if there is still no room, or, with full, if
 * nothing but folders of killed saves was there to remove; *room is filled in that case too. */
int ckpt_room_make(const struct ckpt_writer *w, const struct optim *o, bool full,
                   struct ckpt_room *room, struct err *err);

/* Returns the step of the newest checkpoint folder, without verifying it; 0 if there is none. */
int64_t ckpt_newest_step(const char *run_dir);
typedef void ckpt_damage_fn(void *ctx, const char *dir, const char *reason);
/* Loads the newest good checkpoint; *found is false if there is none. All ranks call it. on_damage
 * is called on rank 0 for each checkpoint that is set aside or passed over. Returns ERR_IO if none
 * can be loaded and one was passed over, and ERR_INPUT if the checkpoint's steps are not the
 * beginning of this run. A checkpoint of an earlier version of this program carries the hash of its
 * run's whole configuration, which must be config_hash. */
int ckpt_load(struct ckpt_writer *w, struct optim *o, struct hash128 config_hash,
              ckpt_damage_fn *on_damage, void *ctx, struct ckpt_meta *out, bool *found,
              struct err *err);

/* ---- one folder ---- */

struct ckpt_tensor { char name[LIMIT_NAME_BYTES]; int64_t count; int nd; int64_t dim[4]; };
/* n is the number of the weights' elements in the file; trained is that of each other buffer. */
struct ckpt_file { char name[32]; int64_t n, trained, bytes; struct hash128 hash; };
struct ckpt_manifest {
    struct ckpt_meta meta;
    struct model model;
    struct layout layout;
    struct finetune finetune;
    enum dtype dtype;     /* of the files' numbers: dtype_stat(run_dtype) */
    enum dtype run_dtype; /* numerics.dtype of the run that wrote */
    enum run_moments moments;
    enum run_residual residual; /* of the run that wrote */
    /* Samples depend on these values of the run that wrote the checkpoint. A checkpoint of an
     * earlier version of this program does not hold them, and says_objective is false. */
    bool says_objective;
    enum objective objective;
    int64_t condition_frames;
    uint64_t seed;
    bool ema;
    int64_t n_tensors, n_files;
    struct ckpt_tensor *tensors;
    struct ckpt_file *files; /* in the order of ckpt_file_of */
};
int ckpt_manifest_load(const char *dir, struct ckpt_manifest *out, struct err *err);
void ckpt_manifest_release(struct ckpt_manifest *m);
/* Checks sizes and checksums of the files i with i mod n_parts = part. ERR_CORRUPT names the
 * file. */
int ckpt_verify(const char *dir, const struct ckpt_manifest *m, int part, int n_parts,
                struct err *err);

enum ckpt_buffer { CKPT_WEIGHTS, CKPT_M, CKPT_V, CKPT_EMA, CKPT_BUFFERS };
extern const char *const ckpt_buffer_names[];
/* Returns the type of a buffer's numbers: dtype, or that of the moments. */
enum dtype ckpt_buffer_dtype(enum dtype dtype, enum run_moments moments, enum ckpt_buffer buffer);

/* ---- one rank's state, and one rank's file ---- */

/* Views a rank's state; everything is borrowed. The buffers are in host memory, or in memory of a
 * device that `slab` reaches. They hold whole units or only this rank's own pieces, as zero says
 * (optim.h). ema is NULL if there is none. If the weights have another type than the files, saving
 * writes the master of a trained weight, and a frozen weight widened; loading rounds the weights
 * from the numbers that it reads. */
struct ckpt_state {
    const struct param_list *params;
    const struct shards *sh;
    int64_t zero;
    enum dtype dtype;    /* of the files' numbers */
    enum dtype act;      /* of buffers[CKPT_WEIGHTS]: `dtype`, or bf16 beside f32 */
    enum run_moments moments;
    char *buffers[CKPT_BUFFERS];
    char *master;        /* masters of trained weights, laid out like m; NULL: none */
    struct slab *slab;   /* NULL: memory of the host */
};
/* Returns how many files a layout has: tp · pp · shard group. */
int64_t ckpt_files(const struct layout *l);
/* Returns the index of the file of place (tp, pp) and piece `piece`. */
int64_t ckpt_file_of(const struct layout *l, int64_t tp, int64_t piece, int64_t pp);
/* Returns the index of a rank's file; -1 if the rank writes none. */
int64_t ckpt_file_of_rank(const struct layout *l, int64_t rank);
/* Writes a rank's file and syncs it. The hash is computed from memory during the writing. */
int ckpt_file_write(const char *dir, const struct ckpt_state *s, int64_t rank,
                    struct ckpt_file *out, struct err *err);
/* Writes the manifest. It uses meta, model, layout, finetune, dtype, run_dtype, moments, residual,
 * objective, condition_frames, seed, ema and files of *m; the tensors are those of `params`. */
int ckpt_manifest_write(const char *dir, const struct ckpt_manifest *m,
                        const struct param_list *params, struct err *err);
/* Fills this rank's buffers from the files that hold its elements, whichever layout they were
 * written under. Padding in the buffers is left as it is. */
int ckpt_state_load(const char *dir, const struct ckpt_manifest *m, const struct ckpt_state *to,
                    struct err *err);

/* ---- whole tensors, one at a time, for the commands ---- */

struct ckpt_source;
/* Opens a checkpoint for reading tensors. dir and m are borrowed until the source is closed. */
int ckpt_source_open(const char *dir, const struct ckpt_manifest *m, struct ckpt_source **out,
                     struct err *err);
void ckpt_source_close(struct ckpt_source *s); /* NULL is fine. */
/* Says whether the buffer has this tensor. A frozen tensor has no moments; its average is the
 * tensor itself. */
bool ckpt_source_has(const struct ckpt_source *s, enum ckpt_buffer buffer, int64_t t);
/* Reads all elements of tensor number t of the manifest, in row-major order and the buffer's
 * type. */
int ckpt_source_read(struct ckpt_source *s, enum ckpt_buffer buffer, int64_t t, void *out,
                     struct err *err);

#endif
