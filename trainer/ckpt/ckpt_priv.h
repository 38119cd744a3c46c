/* ckpt_priv: what ckpt.c (saving), ckpt_load.c (loading into a run), ckpt_read.c (manifest), ckpt_reshard.c and the commands share. */
#ifndef TRAINER_CKPT_CKPT_PRIV_H
#define TRAINER_CKPT_CKPT_PRIV_H

#include "trainer/ckpt/ckpt.h"

struct ckpt_list { int64_t *steps; int64_t n; }; /* newest first; steps from malloc */
int ckpt_list_load(const char *ckpt_dir, struct ckpt_list *out, struct err *err); /* a missing folder is an empty list */
/* Collective: rank 0's list on every rank, as a network file system may show each rank another one. */
int ckpt_list_share(const char *ckpt_dir, struct comm *world, struct ckpt_list *out, struct err *err);
void ckpt_dir_format(const char *ckpt_dir, int64_t step, char out[LIMIT_PATH_BYTES]);
int64_t ckpt_tensor_find(const struct ckpt_manifest *m, const char *name); /* -1 if absent */

/* Whole by manifest, file sizes and content. */
int ckpt_folder_check(const char *dir, struct err *err);
/* Of a look at a checkpoint: it is proved not to be whole. Anything else says nothing about its worth: no memory, a failing file system, or a
 * manifest whose checksum fits and that this program cannot read (ERR_INPUT: a newer schema, a key more). */
bool ckpt_is_damage(int rc);
int ckpt_set_aside(const struct ckpt_writer *w, const char *dir, struct err *err);

/* ckpt_writer.c: rank 0's. Every name that others know is changed through these, or after a check: each asks whether the folder is still ours. */
int ckpt_writer_check(const struct ckpt_writer *w, struct err *err); /* ERR_BUSY: a newer attempt has it */
/* <ckpt>/.tmp-<what>-<step>.a<attempt>.<token>: a name that no other attempt or process uses. */
void ckpt_tmp_format(const struct ckpt_writer *w, const char *what, int64_t step, char out[LIMIT_PATH_BYTES]);
/* Removes what saves and removals left that were killed, of this attempt and older ones; theirs may still live, and are no longer heeded. */
int ckpt_tmp_clear(const struct ckpt_writer *w, const char *ckpt_dir, struct err *err);
/* A checkpoint is gone with one rename, and never seen in part; 0, too, when there is none. */
int ckpt_remove(const struct ckpt_writer *w, const char *dir, int64_t step, struct err *err);

struct ckpt_state ckpt_state_of(const struct optim *o);
/* Bytes of this rank's file, and its content copied there: a state of own pieces that lasts as long as the memory. */
int64_t ckpt_state_bytes(const struct ckpt_state *s);
struct ckpt_state ckpt_state_copy(const struct ckpt_state *s, char *to);

/* What stays when step `step` has been saved. begin and finish are collective; check looks at files, and is each rank's own: in finish a
 * checkpoint counts that was whole in every rank's part. */
struct ckpt_keep {
    const struct ckpt_writer *w; /* borrowed, with ckpt_dir */
    const char *ckpt_dir;
    struct comm *world;
    int64_t step, keep;
    struct ckpt_list list; /* with the new one */
    bool *whole;           /* [list.n] in this rank's part; false: not looked at, too */
};
int ckpt_keep_begin(struct ckpt_keep *k, const struct ckpt_writer *w, const char *ckpt_dir, int64_t step, int64_t keep, struct comm *world, struct err *err);
void ckpt_keep_check(struct ckpt_keep *k);
/* Deletes; a folder that cannot be deleted is left alone: an old checkpoint too many harms nobody. */
int ckpt_keep_finish(struct ckpt_keep *k, struct err *err);
void ckpt_keep_release(struct ckpt_keep *k);

/* Is this rank's part of the checkpoint of this step whole? */
bool ckpt_part_whole(const char *ckpt_dir, int64_t step, const struct comm *world);
/* Removes folders set aside of steps before this one; how many. */
int ckpt_damaged_remove(const struct ckpt_writer *w, const char *ckpt_dir, int64_t below);

/* Saving in parts: begin and finish are collective, what lies between is each rank's own. status: what write gave. */
struct ckpt_save {
    const struct ckpt_writer *w; /* borrowed, with o */
    const struct optim *o;
    char ckpt_dir[LIMIT_PATH_BYTES], tmp[LIMIT_PATH_BYTES];
    struct ckpt_meta meta;
    struct ckpt_keep keep;
    struct ckpt_file own;
};
int ckpt_save_begin(const struct ckpt_writer *w, const struct optim *o, const struct ckpt_meta *meta, int64_t keep, struct ckpt_save *s, struct err *err);
int ckpt_save_write(struct ckpt_save *s, const struct ckpt_state *state, struct err *err);
int ckpt_save_finish(struct ckpt_save *s, int status, struct ckpt_meta *written, struct err *err);
/* Elements of a whole buffer. */
int64_t ckpt_elements(const struct shards *sh, enum ckpt_buffer buffer);
/* Where a buffer begins in a file, in bytes; CKPT_BUFFERS: the file's size. */
int64_t ckpt_buffer_first(const struct ckpt_manifest *m, const struct ckpt_file *f, enum ckpt_buffer buffer);
/* Does this buffer hold whole units, or own pieces? */
bool ckpt_whole(int64_t zero, enum ckpt_buffer buffer);

#endif
