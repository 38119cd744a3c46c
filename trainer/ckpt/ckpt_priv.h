/* ckpt_priv: declares what the files of trainer/ckpt share among themselves and with the
 * commands. */
#ifndef TRAINER_CKPT_CKPT_PRIV_H
#define TRAINER_CKPT_CKPT_PRIV_H

#include "trainer/ckpt/ckpt.h"

#define CKPT_SCHEMA "reel.ckpt/1"

struct ckpt_list { int64_t *steps; int64_t n; }; /* newest first; the caller frees steps */
/* Lists the checkpoints of a folder. A missing folder gives an empty list. */
int ckpt_list_load(const char *ckpt_dir, struct ckpt_list *out, struct err *err);
/* Gives rank 0's list to every rank, because a network file system may show different lists to
 * different ranks. All ranks call it. */
int ckpt_list_share(const char *ckpt_dir, struct comm *world, struct ckpt_list *out,
                    struct err *err);
bool ckpt_is_run(const char *dir); /* Tells whether this is a run's folder, with ckpt in it. */
/* Finds the checkpoint that a command-line argument names. It may be the folder of a checkpoint, or
 * that of a run, whose newest checkpoint is then used. */
int ckpt_dir_find(const char *dir, char out[LIMIT_PATH_BYTES], struct err *err);
void ckpt_dir_format(const char *ckpt_dir, int64_t step, char out[LIMIT_PATH_BYTES]);
/* Returns the index of a tensor; -1 if there is none of that name. */
int64_t ckpt_tensor_find(const struct ckpt_manifest *m, const char *name);

/* Says whether rc, the result of reading a checkpoint, proves that it is not whole. Other errors do
 * not tell whether it is: no memory, a failing file system, or a manifest whose checksum fits but
 * that this program cannot read (ERR_INPUT: a newer schema, an unknown key). */
bool ckpt_is_damage(int rc);
int ckpt_set_aside(const struct ckpt_writer *w, const char *dir, struct err *err);

/* The functions of ckpt_writer.c that check or remove are for rank 0. Every name that others can
 * see is changed by one of them, or after ckpt_writer_check. Each of them first checks that the
 * run's folder still belongs to this attempt. */
/* Checks that the run's folder still belongs to this attempt. ERR_BUSY: a newer attempt has it. */
int ckpt_writer_check(const struct ckpt_writer *w, struct err *err);
/* Writes <ckpt>/.tmp-<what>-<step>.a<attempt>.<token>, a name that no other attempt or process
 * uses. */
void ckpt_tmp_format(const struct ckpt_writer *w, const char *what, int64_t step,
                     char out[LIMIT_PATH_BYTES]);
/* Removes what killed saves and removals of this attempt and older ones left behind. An older
 * attempt may still be running, but the folder is no longer its own. */
int ckpt_tmp_clear(const struct ckpt_writer *w, const char *ckpt_dir, struct err *err);
/* Removes a checkpoint by one rename, so that nobody sees a part of it. Returns 0 also when there
 * is none. */
int ckpt_remove(const struct ckpt_writer *w, const char *dir, int64_t step, struct err *err);

struct ckpt_state ckpt_state_of(const struct optim *o);
/* Returns the bytes of this rank's file. */
int64_t ckpt_state_bytes(const struct ckpt_state *s);
/* Copies the content of this rank's file to `to`, which is host memory. *out then views this copy,
 * which holds only this rank's own pieces, and is valid as long as that memory. */
int ckpt_state_copy(const struct ckpt_state *s, char *to, struct ckpt_state *out, struct err *err);

/* Decides which checkpoints stay when step `step` has been saved. All ranks call begin and finish
 * together. check reads files, and each rank calls it by itself. In finish a checkpoint counts as
 * whole if every rank found its own part whole. */
struct ckpt_keep {
    const struct ckpt_writer *w; /* borrowed, with ckpt_dir */
    const char *ckpt_dir;
    struct comm *world;
    int64_t step, keep;
    struct ckpt_list list; /* includes the new checkpoint */
    bool *whole;           /* [list.n] this rank's part is whole; false also if it was not read */
};
int ckpt_keep_begin(struct ckpt_keep *k, const struct ckpt_writer *w, const char *ckpt_dir,
                    int64_t step, int64_t keep, struct comm *world, struct err *err);
void ckpt_keep_check(struct ckpt_keep *k);
/* Deletes the checkpoints that do not stay. A folder that cannot be deleted is left alone, because
 * one old checkpoint too many does no harm. */
int ckpt_keep_finish(struct ckpt_keep *k, struct err *err);
void ckpt_keep_release(struct ckpt_keep *k);

/* Says whether this rank's part of a step's checkpoint is whole. */
bool ckpt_part_whole(const char *ckpt_dir, int64_t step, const struct comm *world);
/* Removes the set-aside folders of steps before `below`. Returns how many it removed. */
int ckpt_damaged_remove(const struct ckpt_writer *w, const char *ckpt_dir, int64_t below);

/* Holds a save between its three calls. All ranks call begin and finish together, and each calls
 * write by itself in between. finish gets the result of write as `status`. */
struct ckpt_save {
    const struct ckpt_writer *w; /* borrowed, with o */
    const struct optim *o;
    char ckpt_dir[LIMIT_PATH_BYTES], tmp[LIMIT_PATH_BYTES];
    struct ckpt_meta meta;
    struct ckpt_keep keep;
    struct ckpt_file own;
};
int ckpt_save_begin(const struct ckpt_writer *w, const struct optim *o,
                    const struct ckpt_meta *meta, int64_t keep, struct ckpt_save *s,
                    struct err *err);
int ckpt_save_write(struct ckpt_save *s, const struct ckpt_state *state, struct err *err);
int ckpt_save_finish(struct ckpt_save *s, int status, struct ckpt_meta *written, struct err *err);
/* Returns the byte at which a buffer begins in a file; for CKPT_BUFFERS the file's size. */
int64_t ckpt_buffer_first(const struct ckpt_manifest *m, const struct ckpt_file *f,
                          enum ckpt_buffer buffer);
/* Says whether this buffer holds whole units; else it holds this rank's own pieces. */
bool ckpt_whole(int64_t zero, enum ckpt_buffer buffer);

#endif
