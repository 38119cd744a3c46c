/* ckpt_async: writes a checkpoint while training goes on.
 *
 * Each rank copies what it would write, and a thread of its own writes, syncs and hashes the file
 * from the copy; training waits only for the copy. The thread does not communicate. The callers
 * tell each other when their ranks' files are written, and then all ranks publish the checkpoint
 * together. One checkpoint is under way at a time. A run that is killed before the publication
 * still has its earlier checkpoints.
 *
 *     ckpt_async_open(&a, &optim, err);                // takes the copy's memory
 *     ckpt_async_begin(&a, &writer, &meta, keep, err); // by all ranks, while none is under way
 *     ckpt_async_written(&a)                           // true: this rank's file has been written
 *     ckpt_async_finish(&a, &written, err);            // by all ranks, when all files are written;
 *                                                      // waits for this rank's thread if it must
 *     ckpt_async_close(&a);      // waits for the thread; an unfinished checkpoint is not published
 */
#ifndef TRAINER_CKPT_CKPT_ASYNC_H
#define TRAINER_CKPT_CKPT_ASYNC_H

#include <pthread.h>
#include <stdatomic.h>

#include "trainer/ckpt/ckpt_priv.h"

struct ckpt_async {
    struct optim *o;        /* borrowed */
    void *copy;             /* pinned; NULL on ranks that write nothing */
    bool under_way;
    struct ckpt_save save;
    struct ckpt_state state;
    pthread_t thread;
    atomic_bool written;
    int status;             /* the thread's result, with err; valid after the thread ended */
    struct err err;
};

/* Returns the bytes of the copy, for the memory plan. */
int64_t ckpt_async_bytes(const struct optim_conf *c);
int ckpt_async_open(struct ckpt_async *a, struct optim *o, struct err *err);
void ckpt_async_close(struct ckpt_async *a); /* Is safe on a zeroed struct. */
int ckpt_async_begin(struct ckpt_async *a, const struct ckpt_writer *w,
                     const struct ckpt_meta *meta, int64_t keep, struct err *err);
bool ckpt_async_written(const struct ckpt_async *a);
int ckpt_async_finish(struct ckpt_async *a, struct ckpt_meta *written, struct err *err);

#endif
