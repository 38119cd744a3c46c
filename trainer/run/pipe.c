#include "trainer/run/pipe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

int64_t pipe_slots(const struct layout *l, int64_t most_micros, int64_t pp_rank)
{
    return schedule_in_flight(l->pp, l->vpp, most_micros, pp_rank);
}

/* ---- when the device ran a step ---- */

/* Returns how many spans there are: one for each step, and one for what is queued after them. */
static int64_t spans_most(const struct pipe *p)
{
    return schedule_length(p->layout->pp, p->layout->vpp, p->most) + 1;
}

static int spans_open(struct pipe *p, struct err *err)
{
    int64_t n = spans_most(p);
    int rc;
    if (p->dev->host_memory)
        return 0;
    if (!(p->spans = calloc((size_t)n, sizeof *p->spans)))
        return err_set(err, ERR_NOMEM, "out of memory for the times of a schedule");
    for (int64_t i = 0; i < n; i++) {
        if ((rc = p->dev->event_new(p->dev, &p->spans[i].from, err)) < 0)
            return rc;
        if ((rc = p->dev->event_new(p->dev, &p->spans[i].to, err)) < 0)
            return rc;
    }
    return 0;
}

static void spans_close(struct pipe *p)
{
    for (int64_t i = 0; p->spans && i < spans_most(p); i++) {
        if (p->spans[i].from)
            p->dev->event_free(p->dev, p->spans[i].from);
        if (p->spans[i].to)
            p->dev->event_free(p->dev, p->spans[i].to);
    }
    free(p->spans);
}

static void span_begin(struct pipe *p)
{
    if (!p->spans)
        return;
    p->spans[p->n_spans].waited_s = -comm_waited_s(p->group);
    p->dev->event_record(p->dev, p->spans[p->n_spans].from, p->stream);
}

static void span_end(struct pipe *p, int kind)
{
    if (!p->spans)
        return;
    p->dev->event_record(p->dev, p->spans[p->n_spans].to, p->stream);
    p->spans[p->n_spans].waited_s += comm_waited_s(p->group);
    p->spans[p->n_spans++].kind = kind;
}

void pipe_behind_end(struct pipe *p)
{
    span_end(p, -1);
}

/* Adds up the spans, which the device has finished. */
static void spans_read(struct pipe *p)
{
    for (int64_t i = 0; i < p->n_spans; i++) {
        const struct pipe_span *s = &p->spans[i];
        double took = p->dev->event_elapsed_s(p->dev, s->from, s->to) - s->waited_s;
        double *to = s->kind == PIPE_FORWARD    ? &p->times.forward_s
                     : s->kind == PIPE_BACKWARD ? &p->times.backward_s
                                                : &p->times.behind_s;
        *to += fmax(took, 0);
    }
    p->n_spans = 0;
}

int pipe_open(struct pipe *p, struct dit *d, const struct layout *l, struct layout_place place,
              struct comm *pp, struct dev *dev, struct dev_stream *stream, int64_t most_micros,
              struct err *err)
{
    *p = (struct pipe){
        .dit = d, .layout = l, .place = place, .group = pp, .dev = dev, .stream = stream,
        .most = most_micros, .slots = pipe_slots(l, most_micros, place.pp)};
    p->steps = calloc((size_t)schedule_length(l->pp, l->vpp, most_micros), sizeof *p->steps);
    p->holder = calloc((size_t)p->slots, sizeof *p->holder);
    int rc = p->steps && p->holder
                 ? spans_open(p, err)
                 : err_set(err, ERR_NOMEM, "out of memory for the schedule of %lld micro-batches",
                           (long long)most_micros);
    if (rc < 0)
        pipe_close(p);
    return rc;
}

void pipe_close(struct pipe *p)
{
    spans_close(p);
    free(p->steps);
    free(p->holder);
    *p = (struct pipe){0};
}

/* ---- slots ---- */

static int64_t slot_find(const struct pipe *p, int64_t holder)
{
    for (int64_t i = 0; i < p->slots; i++)
        if (p->holder[i] == holder)
            return i;
    BUG_ON(true); /* schedule_in_flight says how many slots suffice */
}

static int64_t holder_of(const struct pipe *p, const struct pipe_step *s)
{
    return s->chunk * p->most + s->micro;
}

/* ---- messages between stages ---- */

static int64_t global_chunk(const struct pipe *p, const struct pipe_step *s)
{
    return s->chunk * p->layout->pp + p->place.pp;
}

/* Tells whether there is another chunk above this step's chunk (after it in the model), or below
 * it. Forward goes up. */
static bool has_neighbour(const struct pipe *p, const struct pipe_step *s, bool above)
{
    int64_t g = global_chunk(p, s);
    return above ? g + 1 < p->layout->pp * p->layout->vpp : g > 0;
}

static int message(struct pipe *p, const struct pipe_step *s, struct tensor t, bool send,
                   struct comm_work **work, struct err *err)
{
    bool up = (s->kind == PIPE_FORWARD) == send;
    struct comm_message m = {
        t.ptr, t.rows * t.cols,
        (int)((p->place.pp + (up ? 1 : p->layout->pp - 1)) % p->layout->pp), send};
    struct comm_op op = {
        .kind = COMM_SEND_RECV, .dtype = t.dtype,
        .messages = &m, .n_messages = 1,
        .what = s->kind == PIPE_FORWARD ? "residual stream between stages"
                                        : "gradient between stages"};
    return comm_start(p->group, &op, p->stream, work, err);
}

static int receive(struct pipe *p, const struct pipe_step *s, struct tensor t, struct err *err)
{
    struct comm_work *work = NULL;
    int rc;
    if ((rc = message(p, s, t, false, &work, err)) < 0)
        return rc;
    return comm_wait(p->group, work, p->stream, err);
}

/* Waits for the last send out of this kind of buffer, before the buffer is written again. It waits
 * for this kind only: a step that waited for a send of the other kind could wait for a rank that
 * waits for this step. */
static int sent_wait(struct pipe *p, int kind, struct err *err)
{
    struct comm_work *work = p->sent[kind];
    p->sent[kind] = NULL;
    return comm_wait(p->group, work, p->stream, err);
}

/* ---- steps ---- */

/* Returns the clock less the time spent on communication. Only differences of it have a meaning. */
static double busy_s(const struct pipe *p) { return clock_mono_s() - comm_waited_s(p->group); }

static int forward_step(struct pipe *p, const struct pipe_step *s, const struct pipe_task *w,
                        struct err *err)
{
    int64_t slot = slot_find(p, -1);
    struct batch b = {0};
    int rc = w->batch(w->ctx, s->micro, &b, err);
    double started = busy_s(p);
    span_begin(p);
    if (rc < 0 || (rc = dit_begin(p->dit, slot, global_chunk(p, s), &b, w->inv_norm, err)) < 0)
        return rc;
    p->times.stage_s += busy_s(p) - started;
    p->holder[slot] = holder_of(p, s);
    if (has_neighbour(p, s, false))
        rc = receive(p, s, dit_boundary_in(p->dit, slot), err);
    if (rc < 0 || (rc = sent_wait(p, PIPE_FORWARD, err)) < 0)
        return rc;
    started = busy_s(p);
    dit_chunk_forward(p->dit, slot);
    if ((rc = dit_failed(p->dit, err)) < 0)
        return rc;
    p->times.forward_s += busy_s(p) - started;
    span_end(p, PIPE_FORWARD);
    return has_neighbour(p, s, true)
               ? message(p, s, dit_boundary_out(p->dit, slot), true, &p->sent[PIPE_FORWARD], err)
               : 0;
}

/* Does a forward step of a validation. Without backward steps the slot is free as soon as the send
 * of its output has begun; the send is awaited before the buffer is written again. */
static int validate_step(struct pipe *p, const struct pipe_step *s, const struct pipe_task *w,
                         struct err *err)
{
    int rc;
    if (s->kind != PIPE_FORWARD)
        return 0;
    if ((rc = forward_step(p, s, w, err)) < 0)
        return rc;
    p->holder[slot_find(p, holder_of(p, s))] = -1;
    return 0;
}

static int backward_step(struct pipe *p, const struct pipe_step *s, struct err *err)
{
    int64_t slot = slot_find(p, holder_of(p, s));
    int rc = 0;
    if (has_neighbour(p, s, true))
        rc = receive(p, s, dit_gradient_in(p->dit, slot), err);
    if (rc < 0 || (rc = sent_wait(p, PIPE_BACKWARD, err)) < 0)
        return rc;
    double started = busy_s(p);
    span_begin(p);
    dit_chunk_backward(p->dit, slot);
    if ((rc = dit_failed(p->dit, err)) < 0)
        return rc;
    p->times.backward_s += busy_s(p) - started;
    span_end(p, PIPE_BACKWARD);
    p->holder[slot] = -1;
    return has_neighbour(p, s, false)
               ? message(p, s, dit_gradient_out(p->dit, slot), true, &p->sent[PIPE_BACKWARD], err)
               : 0;
}

static int step_do(struct pipe *p, const struct pipe_step *s, const struct pipe_task *w,
                   struct err *err)
{
    if (w->forward_only)
        return validate_step(p, s, w, err);
    return s->kind == PIPE_FORWARD ? forward_step(p, s, w, err) : backward_step(p, s, err);
}

int pipe_run(struct pipe *p, const struct pipe_task *w, struct err *err)
{
    const struct layout *l = p->layout;
    int rc;
    p->times = (struct pipe_times){0};
    p->n_spans = 0;
    BUG_ON(w->micros < 1 || w->micros > p->most);
    schedule_build(l->pp, l->vpp, w->micros, p->place.pp, p->steps);
    for (int64_t i = 0; i < p->slots; i++)
        p->holder[i] = -1;
    for (int64_t i = 0, n = schedule_length(l->pp, l->vpp, w->micros); i < n; i++)
        if ((rc = step_do(p, &p->steps[i], w, err)) < 0)
            return rc;
    for (int kind = 0; kind < 2; kind++)
        if ((rc = sent_wait(p, kind, err)) < 0)
            return rc;
    dit_results_queue(p->dit);
    span_begin(p);
    return 0;
}

int pipe_wait(struct pipe *p, struct pipe_result *out, struct err *err)
{
    struct dev *dev = p->dev;
    struct dit_result done;
    int rc;
    if ((rc = dev->stream_sync(dev, p->stream, err)) < 0)
        return rc;
    if (p->spans) {
        p->times = (struct pipe_times){0}; /* drops the times of the host, which only queued */
        spans_read(p);
    }
    dit_results_take(p->dit, &done);
    *out = (struct pipe_result){done.loss_sum, done.loss_x0_sum, p->times};
    return 0;
}
