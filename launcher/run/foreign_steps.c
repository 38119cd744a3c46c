#include "launcher/run/foreign_steps.h"

#include <math.h>

#include "base/clock.h"
#include "base/events.h"
#include "base/log.h"

/* Adds a text field to the event train_started, unless the value is NULL. */
#define text_put(e, field, value) \
    do { \
        if (value) \
            event_text(e, train_started, field, value); \
    } while (0)

static void event_train_started(const struct foreign_steps *s)
{
    const struct wrap *w = s->wrap;
    struct evlog_event e;
    event_begin(s->attempt->log, &e, train_started);
    event_bool(&e, train_started, foreign, true);
    if (w->total_steps > 0)
        event_int(&e, train_started, total_steps, w->total_steps);
    text_put(&e, model, w->model);
    text_put(&e, device, w->device);
    if (w->gpus > 0)
        event_int(&e, train_started, world, w->gpus);
    if (w->peak_flops > 0)
        event_num(&e, train_started, peak_flops, w->peak_flops);
    text_put(&e, peak_source, w->peak_source);
    text_put(&e, flops_formula, w->flops_formula);
    text_put(&e, no_mfu, w->no_mfu);
    attempt_event(s->attempt, &e);
    if (w->no_mfu)
        log_msg(LOG_INFO, "no MFU: %s", w->no_mfu);
}

int foreign_steps_open(struct foreign_steps *s, const struct wrap *w,
                       const struct run_state *state, struct attempt *attempt, struct err *err)
{
    *s = (struct foreign_steps){.wrap = w, .attempt = attempt, .rows.highest = -1};
    if (!w->step_pattern && !w->format)
        return 0;
    int rc = step_reader_new(w->step_pattern, w->format, w->total_steps, &s->reader, err);
    if (rc < 0)
        return rc;
    step_rows_init(&s->rows, step_reader_loss(s->reader), state->max_step + 1,
                   clock_mono_s());
    event_train_started(s);
    return 0;
}

void foreign_steps_close(struct foreign_steps *s)
{
    step_reader_free(s->reader);
    *s = (struct foreign_steps){0};
}

void foreign_steps_begin(struct foreign_steps *s)
{
    s->now = clock_mono_s();
}

void foreign_steps_line(void *steps, char *line, size_t n)
{
    struct foreign_steps *s = steps;
    struct step_line found;
    if (step_reader_take(s->reader, line, &n, &found))
        step_rows_add(&s->rows, &found, s->now);
}

/* Returns the number of tokens of all steps of the row: as printed, else as the settings say, else
 * from the printed tokens per second. NaN: unknown. */
static double row_tokens(const struct wrap *w, const struct step_row *row)
{
    double steps = (double)(row->done - row->from);
    if (!isnan(row->line.tokens))
        return row->line.tokens * steps;
    if (w->tokens_per_step > 0)
        return w->tokens_per_step * steps;
    return w->gpus > 0 ? round(row->line.tps * (double)w->gpus * row->step_s) : NAN;
}

static void event_went_back(const struct foreign_steps *s, const struct step_row *row)
{
    struct evlog_event e;
    event_begin(s->attempt->log, &e, went_back);
    event_int(&e, went_back, from, row->back_from);
    event_int(&e, went_back, to, row->from);
    attempt_event_soon(s->attempt, &e);
    log_msg(LOG_INFO, "the trainer went back from %lld steps to %lld by itself",
            (long long)row->back_from, (long long)row->from);
}

static void event_step(void *steps, const struct step_row *row)
{
    const struct foreign_steps *s = steps;
    double ago = clock_mono_s() - row->ended_at,
           flops = s->wrap->flops_per_step * (double)(row->done - row->from),
           tokens = row_tokens(s->wrap, row);
    struct evlog_event e;
    if (row->back_from)
        event_went_back(s, row);
    event_begin(s->attempt->log, &e, step);
    event_int(&e, step, step, row->done - 1);
    event_int(&e, step, steps, row->done - row->from);
    event_num(&e, step, started_at, clock_wall_s() - ago - (isnan(row->step_s) ? 0 : row->step_s));
    event_num(&e, step, step_s, row->step_s);
    event_num(&e, step, ended_ago_s, ago);
    event_num(&e, step, loss, row->line.loss);
    if (row->line.loss_nonfinite)
        event_bool(&e, step, loss_nonfinite, true);
    event_num(&e, step, grad_norm, row->line.grad_norm);
    event_num(&e, step, lr, row->line.lr);
    if (!isnan(tokens))
        event_count(&e, step, tokens, (int64_t)fmax(0, fmin(tokens, 1e18)));
    if (flops > 0)
        event_num(&e, step, model_flops, flops);
    if (flops > 0 && s->wrap->peak_flops > 0 && row->step_s > 0)
        event_num(&e, step, mfu, flops / (row->step_s * s->wrap->peak_flops));
    event_bool(&e, step, again, row->replayed);
    attempt_event_soon(s->attempt, &e);
}

/* Writes that steps are printed, if the first line's row waits for the second line. */
static void first_tell(struct foreign_steps *s)
{
    struct evlog_event e;
    if (s->seen || s->rows.done < 0)
        return;
    s->seen = true;
    if (s->rows.n == 0 || s->rows.waiting[0].from >= 0)
        return;
    event_begin(s->attempt->log, &e, step_seen);
    event_int(&e, step_seen, step, s->rows.done);
    attempt_event_soon(s->attempt, &e);
}

void foreign_steps_end(struct foreign_steps *s, bool last)
{
    if (!s->reader)
        return;
    step_rows_tell(&s->rows, s->now, last, event_step, s);
    first_tell(s);
}

int64_t foreign_steps_done(const struct foreign_steps *s)
{
    return s->reader ? s->rows.highest : -1;
}
