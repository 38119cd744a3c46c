/* Checks NCCL on one GPU, by a communicator of one rank. Every call of coll.h gives the right
 * result. An operation that waits for other work is late, and ends with its communicator.
 * Afterwards the GPU goes on computing.
 *
 *     nccl ELEMENTS BYTES    operations of ELEMENTS elements; one waits for copies of BYTES bytes
 *
 * It prints one JSON object. Exit status: 0, 1 when something is wrong, 2 usage, 4 no device or no
 * NCCL, 5 a failure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/gpu/desk.h"
#include "trainer/ops/cuda_load.h"

enum { COPIES_MAX = 100000 };
static const double blocked_s = 4, late_s = 1, opens_s = 60;

struct bench {
    struct desk d;
    const struct coll_ops *coll;
    struct coll *c;
    int64_t n, bytes;
    int wrong;
};

static void opened(struct bench *b)
{
    struct coll_id id = {{0}};
    double until = clock_mono_s() + opens_s;
    bool ready = false;
    desk_must(&b->d, b->coll->id(&id, &b->d.err));
    desk_must(&b->d, b->coll->open(b->d.c.dev, &id, 1, 0, "visit", &b->c, &b->d.err));
    while (!ready && clock_mono_s() < until)
        desk_must(&b->d, b->coll->ready(b->c, &ready, &b->d.err));
    if (!ready)
        fprintf(stderr, "nccl: the communicator is not open after %.0f s\n", opens_s), exit(1);
}

/* Waits until the last operation was passed to the device. */
static void passed(struct bench *b, int rc)
{
    bool ready = false;
    while (desk_must(&b->d, rc), !ready)
        rc = b->coll->ready(b->c, &ready, &b->d.err);
}

/* ---- what operations give ---- */

static int gather(struct bench *b, const struct tensor *x, struct tensor *y)
{
    return b->coll->all_gather(b->c, x->ptr, y->ptr, b->n, x->dtype, b->d.c.stream, &b->d.err);
}

static int scatter(struct bench *b, const struct tensor *x, struct tensor *y)
{
    return b->coll->reduce_scatter(b->c, x->ptr, y->ptr, b->n, x->dtype, b->d.c.stream, &b->d.err);
}

static int reduce(struct bench *b, const struct tensor *x, struct tensor *y)
{
    return b->coll->all_reduce(b->c, x->ptr, y->ptr, b->n, x->dtype, b->d.c.stream, &b->d.err);
}

/* Queues a message of the rank to itself. */
static int message(struct bench *b, const struct tensor *x, struct tensor *y)
{
    struct dev_stream *s = b->d.c.stream;
    int rc;
    if ((rc = b->coll->group_begin(b->c, &b->d.err)) < 0)
        return rc;
    if ((rc = b->coll->recv(b->c, y->ptr, b->n, x->dtype, 0, s, &b->d.err)) < 0)
        return rc;
    if ((rc = b->coll->send(b->c, x->ptr, b->n, x->dtype, 0, s, &b->d.err)) < 0)
        return rc;
    return b->coll->group_end(b->c, &b->d.err);
}

static const struct {
    const char *name;
    int (*queue)(struct bench *b, const struct tensor *x, struct tensor *y);
} operations[] = {{"all-gather", gather}, {"reduce-scatter", scatter}, {"all-reduce", reduce},
                  {"send and receive", message}};
enum { OPERATIONS = sizeof operations / sizeof *operations };

static void operation_check(struct bench *b, int which, const struct tensor *x, struct tensor *y)
{
    int64_t bytes = b->n * dtype_bytes(x->dtype);
    b->d.c.dev->fill(b->d.c.dev, y->ptr, 0xff, bytes, b->d.c.stream);
    passed(b, operations[which].queue(b, x, y));
    void *want = desk_get(&b->d, x), *got = desk_get(&b->d, y);
    if (memcmp(want, got, (size_t)bytes) != 0) {
        fprintf(stderr, "nccl: %s of %s: numbers are other ones\n", operations[which].name,
                dtype_names[x->dtype]);
        b->wrong++;
    }
    free(want), free(got);
}

static void operations_check(struct bench *b)
{
    static const enum dtype types[] = {DTYPE_F64, DTYPE_F32, DTYPE_BF16};
    for (int t = 0; t < 3; t++) {
        struct tensor x = desk_draw(&b->d, types[t], 1, b->n),
                      y = desk_new(&b->d, types[t], 1, b->n);
        for (int i = 0; i < OPERATIONS; i++)
            operation_check(b, i, &x, &y);
    }
}

/* ---- one that is late ---- */

/* Queues copies that take `blocked_s` on a GPU. */
static int copies_queue(struct bench *b, struct dev_event *from, struct dev_event *to)
{
    struct dev *dev = b->d.c.dev;
    char *at = desk_block(&b->d, "copies", 2 * b->bytes);
    double once = 0;
    for (int warm = 0; warm < 2; warm++) {
        dev->event_record(dev, from, b->d.c.stream);
        dev->copy(dev, at + b->bytes, at, b->bytes, DEV_D2D, b->d.c.stream);
        dev->event_record(dev, to, b->d.c.stream);
        desk_sync(&b->d);
        once = dev->event_elapsed_s(dev, from, to);
    }
    int n = once > blocked_s / COPIES_MAX ? (int)(blocked_s / once) + 1 : COPIES_MAX;
    for (int i = 0; i < n; i++)
        dev->copy(dev, at + b->bytes, at, b->bytes, DEV_D2D, b->d.c.stream);
    return n;
}

/* Queues an operation after copies, checks that it is not over in time, and aborts. The stand-in
 * for a GPU computes nothing meanwhile; there the operation itself hangs. */
static int late_check(struct bench *b, struct tensor *x)
{
    struct dev *dev = b->d.c.dev;
    struct dev_event *from, *to;
    desk_must(&b->d, dev->event_new(dev, &from, &b->d.err));
    desk_must(&b->d, dev->event_new(dev, &to, &b->d.err));
    int copies = copies_queue(b, from, to);
    setenv("REEL_SHIM_FAIL", "ncclHang:1:1", true);
    passed(b, reduce(b, x, x));
    dev->event_record(dev, to, b->d.c.stream);
    double until = clock_mono_s() + late_s;
    while (!dev->event_done(dev, to) && clock_mono_s() < until)
        ;
    if (dev->event_done(dev, to))
        b->wrong++, fprintf(stderr, "nccl: an operation behind %d copies is not late\n", copies);
    b->coll->abort(b->c);
    unsetenv("REEL_SHIM_FAIL");
    desk_sync(&b->d);
    dev->event_free(dev, from), dev->event_free(dev, to);
    return copies;
}

int main(int argc, char **argv)
{
    struct bench b = {.n = argc == 3 ? strtoll(argv[1], NULL, 10) : 0,
                      .bytes = argc == 3 ? strtoll(argv[2], NULL, 10) : 0};
    const struct cuda_backend *cuda;
    if (b.n < 1 || b.bytes < 1) {
        fputs("usage: nccl ELEMENTS BYTES\n", stderr);
        return 2;
    }
    desk_open(&b.d, DTYPE_F32);
    desk_must(&b.d, cuda_load(&cuda, &b.d.err));
    b.coll = cuda->coll;
    if (b.coll->check(&b.d.err) < 0) {
        fprintf(stderr, "nccl: %s\n", b.d.err.text);
        return 4;
    }
    opened(&b);
    operations_check(&b);
    struct tensor x = desk_draw(&b.d, DTYPE_F32, 1, b.n), y = desk_new(&b.d, DTYPE_F32, 1, b.n);
    int copies = late_check(&b, &x);
    opened(&b);
    operation_check(&b, 2, &x, &y);
    b.coll->close(b.c);
    printf("{\"operations\": %d, \"types\": 3, \"copies\": %d, \"wrong\": %d}\n", OPERATIONS,
           copies, b.wrong);
    desk_close(&b.d);
    return b.wrong > 0;
}
