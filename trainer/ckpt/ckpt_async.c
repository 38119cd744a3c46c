#include "trainer/ckpt/ckpt_async.h"

#include <signal.h>
#include <string.h>

int64_t ckpt_async_bytes(const struct optim_conf *c)
{
    static char there;
    struct ckpt_state s = {
        .sh = c->sh, .dtype = c->ops->stat, .moments = c->run->moments,
        .buffers = {&there, &there, &there}
    };
    if (c->run->adamw.ema_decay > 0)
        s.buffers[CKPT_EMA] = &there;
    return ckpt_file_of_rank(c->layout, c->world->rank) >= 0 ? ckpt_state_bytes(&s) : 0;
}

int ckpt_async_open(struct ckpt_async *a, struct optim *o, struct err *err)
{
    int64_t bytes = ckpt_async_bytes(&o->c);
    *a = (struct ckpt_async){.o = o};
    struct dev *dev = o->c.ops->dev;
    return bytes ? dev->alloc_host(dev, "copy for checkpoints", bytes, &a->copy, err) : 0;
}

static void *write_run(void *ctx)
{
    struct ckpt_async *a = ctx;
    a->status = ckpt_save_write(&a->save, &a->state, &a->err);
    atomic_store_explicit(&a->written, true, memory_order_release);
    return NULL;
}

/* Starts the thread with all signals blocked: signals are for the main thread, and for the thread
 * that waits for a request to stop (trainer/run/notice.h). */
static int thread_start(struct ckpt_async *a, struct err *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&a->thread, NULL, write_run, a);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? err_set(err, ERR_NOMEM, "cannot start the thread that writes checkpoints: %s",
                            strerror(failed))
                  : 0;
}

int ckpt_async_begin(struct ckpt_async *a, const struct ckpt_writer *w,
                     const struct ckpt_meta *meta, int64_t keep, struct err *err)
{
    struct ckpt_state state = ckpt_state_of(a->o);
    BUG_ON(a->under_way);
    int rc;
    if ((rc = ckpt_save_begin(w, a->o, meta, keep, &a->save, err)) < 0)
        return rc;
    a->status = 0;
    a->err = (struct err){0};
    atomic_store(&a->written, false);
    rc = a->copy ? ckpt_state_copy(&state, a->copy, &a->state, err) : 0;
    if (rc == 0) /* all ranks agree on it below */
        rc = thread_start(a, err);
    a->under_way = rc == 0;
    return comm_agree(a->o->c.world, rc, err);
}

bool ckpt_async_written(const struct ckpt_async *a)
{
    return a->under_way && atomic_load_explicit(&a->written, memory_order_acquire);
}

int ckpt_async_finish(struct ckpt_async *a, struct ckpt_meta *written, struct err *err)
{
    BUG_ON(!a->under_way);
    pthread_join(a->thread, NULL);
    a->under_way = false;
    if (a->status < 0)
        *err = a->err;
    return ckpt_save_finish(&a->save, a->status, written, err);
}

void ckpt_async_close(struct ckpt_async *a)
{
    if (a->under_way)
        pthread_join(a->thread, NULL);
    ckpt_keep_release(&a->save.keep);
    if (a->copy)
        a->o->c.ops->dev->free_host(a->o->c.ops->dev, a->copy);
    *a = (struct ckpt_async){0};
}
