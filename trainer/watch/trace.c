/* Writes the file of --trace: trace event format (Duffy and others, "Trace Event Format", the
 * Chromium project), JSON object form:
 *
 *     {"displayTimeUnit": "ms", "otherData": {"schema": "reel.trace/1",
 *       "dropped": [n of rank 0, …]}, "traceEvents": [
 *      {"ph": "M", "pid": 0, "tid": 0, "name": "process_name", "args": {"name": "rank 0"}}, …
 *      {"ph": "X", "pid": 0, "tid": 0, "cat": "op", "name": "gemm", "ts": 12.5, "dur": 310.25}, …
 *      {"ph": "b", "pid": 0, "tid": 1, "cat": "comm", "id": "0.17", "name": "weights of a unit",
 *       "ts": 20, "args": {"kind": "all-gather", "group": "shard", "bytes": 4096,
 *       "wait_ts": 330, "wait_us": 2.5}},
 *      {"ph": "e", "pid": 0, "tid": 1, "cat": "comm", "id": "0.17", "name": "weights of a unit",
 *       "ts": 332.5}, …]}
 *
 * pid is the rank, tid the lane. Lane 0 is computation. Its events of cat "span" (step, forward,
 * backward, layer, …; args.index says which one) enclose those of cat "op" (one call of the tables
 * of operations and device, reading samples, advancing messages) and "wait" (blocked until an
 * operation was over).
 *
 * Lane 1 is communication: an operation lasts from comm_start (b) to the end of comm_wait (e).
 * wait_ts is when the wait was entered and wait_us how long it lasted, so the time between ts and
 * wait_ts was free for computation. late_us is the part of wait_us that tests add to simulate a
 * network's latency (comm_conf.latency_s). bytes is how many bytes this rank sent to others.
 *
 * Lane 2 exists where ranks compute on a device that queues. Its events are of cat "op", and say
 * when the device ran a call or waited; args.queued_ts is when the host queued it. Lane 0 then has
 * what the host did meanwhile.
 *
 * Times are microseconds since the ranks began, by rank 0's clock. Ranks on rank 0's host, in the
 * same boot, share its clock. For another rank the offset is the median, over several barriers, of
 * the difference between its clock and rank 0's right after a barrier, so it is exact to about the
 * latency of a message. The file has the newest METER_SPANS spans of each rank; dropped says how
 * many older ones are missing.
 */
#include "trainer/watch/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"

enum { LANE_DEVICE = 2 };
enum { ROUNDS = 9, PIECE_BYTES = 1 << 16, SPAN_BYTES = 1024, BOOT_BYTES = 64 };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int trace_align(struct comm *world, struct trace_clock *out, struct err *err)
{
    double apart[ROUNDS], zero = 0;
    char boot[BOOT_BYTES] = "", mine[BOOT_BYTES];
    int rc;
    snprintf(mine, sizeof mine, "%s", clock_boot_id());
    memcpy(boot, mine, sizeof boot);
    for (int i = 0; i < ROUNDS; i++) {
        if ((rc = comm_barrier(world, err)) < 0)
            return rc;
        double now = zero = clock_mono_s();
        if ((rc = comm_broadcast_bytes(world, &zero, sizeof zero, 0, err)) < 0)
            return rc;
        apart[i] = now - zero;
    }
    if ((rc = comm_broadcast_bytes(world, boot, sizeof boot, 0, err)) < 0)
        return rc;
    qsort(apart, ROUNDS, sizeof *apart, by_value);
    bool same = strcmp(boot, mine) == 0 && strcmp(boot, "unknown") != 0;
    *out = (struct trace_clock){.zero_s = zero, .offset_s = same ? 0 : apart[ROUNDS / 2]};
    return 0;
}

/* ---- events ---- */

struct writer {
    const struct meter *m;
    const struct trace_clock *clock;
    int rank;
    bool begun;
    int64_t next; /* the next span to write */
};

static double us(const struct writer *w, double at_s)
{
    return 1e6 * (at_s - w->clock->offset_s - w->clock->zero_s);
}

/* Formats a span. A comma stands before every event, because names come first in the file. */
static void span_format(const struct writer *w, const struct meter_span *s, int64_t id,
                        struct str *out)
{
    char args[64] = "", late[40] = "";
    if (s->device)
        snprintf(args, sizeof args, ", \"args\": {\"queued_ts\": %.3f}", us(w, s->queued_s));
    else if (s->arg >= 0)
        snprintf(args, sizeof args, ", \"args\": {\"index\": %lld}", (long long)s->arg);
    if (!s->group) {
        str_addf(out,
                 ",\n{\"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"cat\": \"%s\", "
                 "\"name\": \"%s\", \"ts\": %.3f, \"dur\": %.3f%s}",
                 w->rank, s->device ? LANE_DEVICE : 0, s->kind < 0 ? "span" : "op", s->name,
                 us(w, s->start_s),
                 1e6 * (s->end_s - s->start_s), args);
        return;
    }
    if (s->late_s > 0)
        snprintf(late, sizeof late, ", \"late_us\": %.3f", 1e6 * s->late_s);
    str_addf(out,
             ",\n{\"ph\": \"b\", \"pid\": %d, \"tid\": 1, \"cat\": \"comm\", \"id\": \"%d.%lld\", "
             "\"name\": \"%s\", \"ts\": %.3f, \"args\": {\"kind\": \"%s\", \"group\": \"%s\", "
             "\"bytes\": %lld, \"wait_ts\": %.3f, \"wait_us\": %.3f%s}}",
             w->rank, w->rank, (long long)id, s->name, us(w, s->start_s),
             comm_kind_names[s->kind - METER_COMM], s->group, (long long)s->bytes,
             us(w, s->wait_s), 1e6 * (s->end_s - s->wait_s), late);
    str_addf(out,
             ",\n{\"ph\": \"e\", \"pid\": %d, \"tid\": 1, \"cat\": \"comm\", \"id\": \"%d.%lld\", "
             "\"name\": \"%s\", \"ts\": %.3f}",
             w->rank, w->rank, (long long)id, s->name, us(w, s->end_s));
    str_addf(out,
             ",\n{\"ph\": \"X\", \"pid\": %d, \"tid\": 0, \"cat\": \"wait\", "
             "\"name\": \"wait: %s\", \"ts\": %.3f, \"dur\": %.3f}",
             w->rank, s->name, us(w, s->wait_s), 1e6 * (s->end_s - s->wait_s));
}

static int64_t dropped(const struct meter *m) { return m->n > m->room ? m->n - m->room : 0; }

/* Names a rank's lanes, and the device's lane if the device queues. */
static void names_format(int rank, bool devices, struct str *out)
{
    static const char *const lanes[] = {"compute", "comm", [LANE_DEVICE] = "device"};
    str_addf(out,
             "%s\n{\"ph\": \"M\", \"pid\": %d, \"tid\": 0, \"name\": \"process_name\", "
             "\"args\": {\"name\": \"rank %d\"}}",
             rank ? "," : "", rank, rank);
    for (int lane = 0; lane < (devices ? LANE_DEVICE + 1 : LANE_DEVICE); lane++)
        str_addf(out,
                 ",\n{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"thread_name\", "
                 "\"args\": {\"name\": \"%s\"}}",
                 rank, lane, lanes[lane]);
}

/* Formats the next piece of this rank's events. An empty piece says that there are no more. */
static void piece_format(struct writer *w, struct str *out)
{
    str_clear(out);
    if (!w->begun) {
        w->begun = true;
        w->next = dropped(w->m);
        names_format(w->rank, w->m->queues, out);
    }
    for (; w->next < w->m->n && out->len + SPAN_BYTES < PIECE_BYTES; w->next++)
        span_format(w, &w->m->spans[w->next % w->m->room], w->next, out);
}

/* ---- the file ---- */

/* Passes a piece from rank r to rank 0: its length goes to all ranks, so that they count the same
 * pieces, then its bytes go to rank 0. */
static int piece_pass(struct comm *world, int r, struct str *piece, char *in, int64_t *n,
                      struct err *err)
{
    *n = world->rank == r ? (int64_t)piece->len : 0;
    int rc = comm_broadcast_bytes(world, n, sizeof *n, r, err);
    if (rc < 0 || *n == 0 || r == 0 || (world->rank != r && world->rank != 0))
        return rc;
    struct comm_message m = {
        world->rank == r ? (void *)piece->p : in, *n,
        world->rank == r ? 0 : r, world->rank == r
    };
    return comm_do(world, &(struct comm_op){
        .kind = COMM_SEND_RECV, .what = "a trace", .dtype = DTYPE_BYTE,
        .messages = &m, .n_messages = 1
    }, NULL, err);
}

static int rank_write(struct file_pub *file, struct writer *w, int r, struct comm *world, char *in,
                      int *io, struct err *err)
{
    struct str piece = STR_INIT;
    struct err lost = {0};
    int64_t n;
    int rc;
    do {
        if (world->rank == r)
            piece_format(w, &piece);
        if ((rc = piece_pass(world, r, &piece, in, &n, err)) < 0)
            goto out;
        if (world->rank == 0 && n > 0 && *io == 0 &&
            (*io = file_pub_write(file, r == 0 ? piece.p : in, (size_t)n, &lost)) < 0)
            *err = lost; /* the ranks go on together, and agree at the end */
    } while (n > 0);
out:
    str_release(&piece);
    return rc;
}

static int head_write(struct file_pub *file, const struct meter *m, struct comm *world,
                      struct err *err)
{
    struct str head = STR_INIT;
    double *all = calloc((size_t)world->size, sizeof *all), mine = (double)dropped(m);
    struct comm_op gather = {
        .kind = COMM_ALL_GATHER, .what = "a trace", .dtype = DTYPE_F64,
        .send = &mine, .recv = all, .n = 1
    };
    int rc = all ? 0 : err_set(err, ERR_NOMEM, "out of memory writing a trace");
    if ((rc = comm_agree(world, rc, err)) < 0)
        goto out;
    if ((rc = comm_do(world, &gather, NULL, err)) < 0)
        goto out;
    str_add(&head, "{\"displayTimeUnit\": \"ms\", "
                   "\"otherData\": {\"schema\": \"reel.trace/1\", \"dropped\": [");
    for (int r = 0; r < world->size; r++)
        str_addf(&head, "%s%.0f", r ? ", " : "", all[r]);
    str_add(&head, "]}, \"traceEvents\": [");
    if (world->rank != 0)
        goto out;
    if ((rc = str_check(&head, err)) < 0)
        goto out;
    rc = file_pub_write(file, head.p, head.len, err);
out:
    str_release(&head);
    free(all);
    return rc;
}

/* Writes the whole file, one rank after the other. It may succeed on this rank and fail on
 * others. */
static int file_write(struct file_pub *file, const struct meter *m, const struct trace_clock *clock,
                      struct comm *world, char *in, struct err *err)
{
    static const char tail[] = "\n]}\n";
    int io = 0, rc;
    if ((rc = comm_agree(world, head_write(file, m, world, err), err)) < 0)
        return rc;
    for (int r = 0; r < world->size; r++) {
        struct writer w = {.m = m, .clock = clock, .rank = r};
        if ((rc = rank_write(file, &w, r, world, in, &io, err)) < 0)
            return rc;
    }
    if (world->rank != 0 || io < 0)
        return io;
    if ((rc = file_pub_write(file, tail, strlen(tail), err)) < 0)
        return rc;
    return file_pub_commit(file, err);
}

int trace_write(const char *path, const struct meter *m, const struct trace_clock *clock,
                struct comm *world, struct err *err)
{
    struct file_pub file = {.fd = -1};
    char *in = world->rank == 0 ? malloc(PIECE_BYTES) : NULL;
    bool root = world->rank == 0;
    int rc = root && !in ? err_set(err, ERR_NOMEM, "out of memory writing a trace")
             : root      ? file_pub_open(&file, path, err)
                         : 0;
    bool open = root && rc == 0; /* whatever the other ranks say */
    if ((rc = comm_agree(world, rc, err)) < 0)
        goto out;
    rc = file_write(&file, m, clock, world, in, err);
out:
    if (open && rc < 0)
        file_pub_abort(&file);
    free(in);
    return comm_agree(world, rc, err);
}
