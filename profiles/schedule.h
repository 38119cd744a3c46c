/* schedule: gives the order in which a pipeline stage does the forwards and backwards of its
 * micro-batches. It makes lists, replays them and has a formula, all without side effects.
 *
 * The model's layers are cut into pp·vpp global chunks; global chunk g = chunk·pp + rank is virtual
 * stage `chunk` of stage `rank`. Forward of g needs forward of g-1, backward of g needs backward of
 * g+1 (the last chunk: its own forward), each of the same micro-batch. vpp 1 gives 1F1B, vpp > 1
 * the interleaved schedule of Narayanan et al. 2021, section 2.2.2. When pp does not divide the
 * number of micro-batches, the schedule is that of the next multiple, without the micro-batches
 * that do not exist. schedule.c proves that none of these can deadlock.
 *
 *     steps = malloc(schedule_length(pp, vpp, m) * sizeof *steps);   // set-up
 *     schedule_build(pp, vpp, m, rank, steps);
 *     for each step:                                                  // the step's protocol
 *         start the receive of its input, unless it has none
 *             // from (rank-1) mod pp; backward: (rank+1) mod pp
 *         wait for it, and for the send that last left the buffer which this step writes
 *         compute
 *         start the send of its output, unless nobody needs it
 *             // to (rank+1) mod pp; backward: (rank-1) mod pp
 *     wait for the sends
 *
 * One send buffer for forwards and one for backwards suffice, even where a send ends only after the
 * peer began to receive. Starting a receive earlier is always allowed; waiting for a send before
 * the step's receive is started is not. Between two ranks messages are received in the order in
 * which they are sent, both kinds taken together, so no tags are needed to tell them apart.
 *
 * Where messages wait in queues that run in order, like the operations of a NCCL communicator, one
 * that was started earlier blocks those after it. Each directed edge between two stages then needs
 * its own queue: with one queue for all messages of a rank, or one for each direction, most
 * schedules deadlock (tests/unit/test_profiles_schedule.c counts them).
 */
#ifndef PROFILES_SCHEDULE_H
#define PROFILES_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

enum { PIPE_FORWARD, PIPE_BACKWARD };
struct pipe_step {
    int kind;
    int64_t chunk; /* virtual stage on this rank */
    int64_t micro; /* micro-batch */
};

/* Returns the number of steps of a rank, 2·vpp·m. pp, vpp and m are at least 1; vpp is 1 when pp is
 * 1. */
int64_t schedule_length(int64_t pp, int64_t vpp, int64_t m);
void schedule_build(int64_t pp, int64_t vpp, int64_t m, int64_t rank, struct pipe_step *out);
/* Walks through the same steps without a list. */
struct schedule_walk {
    int64_t pp, vpp, m;
    /* forwards before the first pair; all forwards, absent micro-batches included */
    int64_t warm, total;
    int64_t forwards, backwards; /* done so far, absent micro-batches included */
};
struct schedule_walk schedule_walk(int64_t pp, int64_t vpp, int64_t m, int64_t rank);
/* Writes the next step to *out. Returns false at the end and leaves *out untouched. */
bool schedule_next(struct schedule_walk *w, struct pipe_step *out);
/* Returns the largest number of (chunk, micro) whose forward has begun and whose backward is not
 * done: the activations that a rank must hold. It is at most pp - rank for vpp 1, else 2·(pp - rank
 * - 1) + (vpp - 1)·pp + 1, and never above vpp·m. */
int64_t schedule_in_flight(int64_t pp, int64_t vpp, int64_t m, int64_t rank);

/* Returns the seconds from the first forward to the end of the last backward, when global chunk g
 * takes forward_s[g] and backward_s[g] for a micro-batch and a message takes send_s. Under the
 * protocol above a message starts when the sender has its data and the receiver has started its
 * receive. -1: out of memory. */
double schedule_replay(int64_t pp, int64_t vpp, int64_t m, const double *forward_s,
                       const double *backward_s, double send_s);
/* Returns the idle time of a stage as a share of its busy time, (pp - 1) / (vpp · m). The replay
 * gives the same with equal chunks and messages of no time when vpp is 1 or pp divides m. Otherwise
 * it gives more, up to (pp - 1) / m, the value for vpp 1. */
double schedule_bubble(int64_t pp, int64_t vpp, int64_t m);

#endif
