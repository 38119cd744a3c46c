/* coll: declares stream-ordered communication between devices of one kind; for CUDA this is NCCL.
 *
 * A communicator joins `size` devices, one per rank. One rank makes an id, the others receive it by
 * other means, and all ranks open a communicator with it. open only begins; poll coll_ops.ready
 * until it is complete. Operations are queued on a stream of the rank's device and return at once;
 * they begin when all ranks concerned have come to them. A communicator's operations run in the
 * order in which they were queued, so all ranks must queue the same ones in the same order, and on
 * one stream: a send blocks everything queued after it until its peer receives it.
 *
 * Sends and receives between group_begin and group_end are one operation and run at the same time;
 * a group belongs to one communicator. After every operation `ready` must be polled until it is
 * true, before the stream is used again, because the library may first have to connect to a peer.
 *
 * Errors. ERR_TEMP: a peer, the network or a device failed; the communicator can only be aborted.
 * ERR_ENV: the library cannot be used; err says why. An error that occurs later is returned by
 * `ready`.
 *
 *     coll->id(&id, err);                              // on one rank; then sent to the others
 *     coll->open(dev, &id, size, rank, "tp", &c, err); // on all
 *     do rc = coll->ready(c, &is, err); while (rc == 0 && !is);
 *     coll->all_gather(c, send, recv, n, DTYPE_BF16, stream, err);
 *     ...
 *     dev->stream_sync(dev, stream, err);
 *     coll->close(c);
 */
#ifndef TRAINER_DEV_COLL_H
#define TRAINER_DEV_COLL_H

#include "base/dtype.h"
#include "trainer/dev/dev.h"

#ifdef __cplusplus
extern "C" {
#endif

struct coll_id { char bytes[128]; };
struct coll;

/* n counts elements. Buffers are device memory; they are borrowed until the operation is over. */
/* A build without the library has only name and check, which fails. */
struct coll_ops {
    const char *name; /* "NCCL" */
    /* Checks whether the library can be used. ERR_ENV: it cannot; err says why. */
    int (*check)(struct err *err);
    /* Makes an id that no other communicator has. */
    int (*id)(struct coll_id *out, struct err *err);
    /* Begins to join as `rank`; `what` is a literal, for errors. */
    int (*open)(struct dev *dev, const struct coll_id *id, int size, int rank, const char *what,
                struct coll **out, struct err *err);
    /* Tells whether the opening, or the last operation, has been passed to the device. Returns the
     * communicator's error, whichever operation caused it. */
    int (*ready)(struct coll *c, bool *ready, struct err *err);

    int (*group_begin)(struct coll *c, struct err *err);
    int (*group_end)(struct coll *c, struct err *err);
    int (*send)(struct coll *c, const void *buf, int64_t n, enum dtype dtype, int peer,
                struct dev_stream *s, struct err *err);
    int (*recv)(struct coll *c, void *buf, int64_t n, enum dtype dtype, int peer,
                struct dev_stream *s, struct err *err);

    /* Gathers n elements of every rank; those of rank r are written at r·n of recv. send may be
     * this rank's part of recv. */
    int (*all_gather)(struct coll *c, const void *send, void *recv, int64_t n, enum dtype dtype,
                      struct dev_stream *s, struct err *err);
    /* reduce_scatter writes the sum over ranks of the n elements at rank·n of their send;
     * all_reduce writes the sum of all n elements. The numbers are f64, f32 or bf16. The library
     * decides the order of adding, and with bf16 how often it rounds. */
    int (*reduce_scatter)(struct coll *c, const void *send, void *recv, int64_t n,
                          enum dtype dtype, struct dev_stream *s, struct err *err);
    int (*all_reduce)(struct coll *c, const void *send, void *recv, int64_t n, enum dtype dtype,
                      struct dev_stream *s, struct err *err);

    /* Queues out[i] = sum over p of parts[p·stride + i], 0 <= i < n, in the order of p; but part
     * `own` is read from `mine`, so that it need not be copied. Numbers of f64 are added in f64,
     * those of f32 and bf16 in f32, and the sum is rounded once, to nearest even. out may be mine.
     * It is a kernel of the device and needs no communicator. */
    void (*sum_parts)(struct dev *dev, const void *parts, int64_t stride, int n_parts,
                      const void *mine, int own, void *out, int64_t n, enum dtype dtype,
                      struct dev_stream *s);

    /* Ends the communicator and all that is queued or runs in it, without telling the peers. */
    void (*abort)(struct coll *c);
    /* Ends a communicator whose operations are over. */
    void (*close)(struct coll *c);
};

#ifdef __cplusplus
}
#endif
#endif
