/* pipe: runs the micro-batches of a step through this rank's pipeline chunks, in the order of
 * profiles/schedule.h.
 *
 * Every rank lays out every micro-batch itself (extents follow from metadata). So only the residual
 * stream [rows, D] and its gradient are sent between stages, to the next and the previous rank on
 * the ring of stages. A receive is started and awaited where its data is needed, and a send is
 * awaited when its buffer is to be written again: schedule.c shows that this protocol is free from
 * deadlock. Without a pipeline each micro-batch does its forward and its backward in turn. All of
 * it is queued: apart from messages, and from the staging of micro-batches (dit.h), the host waits
 * for the device only in pipe_wait, once for all micro-batches.
 *
 *     pipe_open(&p, dit, layout, place, grid.pp, dev, stream, most_micros, err);
 *     // micro-batches 0 .. step.micros-1, the gradients into the dit's units
 *     pipe_run(&p, &step, err);
 *     ...                           // queue other work after it
 *     pipe_behind_end(&p);          // ends the measurement of that work
 *     ...                           // anything else the host can do meanwhile
 *     pipe_wait(&p, &result, err);
 *     pipe_close(&p);
 */
#ifndef TRAINER_RUN_PIPE_H
#define TRAINER_RUN_PIPE_H

#include "profiles/schedule.h"
#include "trainer/dit/dit.h"

/* Says when a device that queues ran a chunk, and how long the host waited for messages in that
 * time. */
struct pipe_span {
    struct dev_event *from, *to;
    double waited_s;
    int kind; /* of a pipe_step; -1: work queued after all steps */
};

struct pipe {
    struct dit *dit; /* borrowed, like layout, group, dev, stream */
    const struct layout *layout;
    struct layout_place place;
    struct comm *group; /* pp */
    struct dev *dev;
    struct dev_stream *stream;
    int64_t slots, most; /* chunks in flight at a time; the greatest number of micro-batches */
    struct pipe_step *steps;
    int64_t *holder;           /* [slots] chunk · most + micro, or -1 */
    struct comm_work *sent[2]; /* the last send of each kind */
    /* times of the current run; behind_s is what was queued between pipe_run and pipe_behind_end */
    struct pipe_times { double stage_s, forward_s, backward_s, behind_s; } times;
    /* [schedule_length + 1]; the last is for work that was queued after all steps. NULL if the
     * device runs every call at once. */
    struct pipe_span *spans;
    int64_t n_spans;
};

/* Gives micro-batch `micro` of this replica; n 0: it is empty. It is called again for each chunk.
 * *out is borrowed until the next call or the end of pipe_run. */
typedef int pipe_batch_fn(void *ctx, int64_t micro, struct batch *out, struct err *err);
struct pipe_task {
    /* The number of micro-batches is the same on all ranks of the replica and, if replicas have
     * collectives together, on all ranks. */
    int64_t micros;
    double inv_norm;
    pipe_batch_fn *batch;
    void *ctx;
    bool forward_only; /* compute losses only; gradients are left as they are */
};
struct pipe_result {
    double loss_sum, loss_x0_sum; /* as dit_result; 0 on all but the last stage */
    /* These are times of this rank, on the host or on a device that queues. They leave out the time
     * that comm_waited_s counted meanwhile. On a device that queues, stage_s is 0 and forward_s
     * contains the staging; elsewhere behind_s is 0. */
    struct pipe_times times;
};

/* Returns the value for dit_config.slots. */
int64_t pipe_slots(const struct layout *l, int64_t most_micros, int64_t pp_rank);
int pipe_open(struct pipe *p, struct dit *d, const struct layout *l, struct layout_place place,
              struct comm *pp, struct dev *dev, struct dev_stream *stream, int64_t most_micros,
              struct err *err);
void pipe_close(struct pipe *p); /* safe on a zeroed struct */
int pipe_run(struct pipe *p, const struct pipe_task *w, struct err *err);
/* Ends the measurement of behind_s. */
void pipe_behind_end(struct pipe *p);
/* Waits for the stream, with one sync, and returns the result. */
int pipe_wait(struct pipe *p, struct pipe_result *out, struct err *err);

#endif
