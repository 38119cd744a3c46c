#include "launcher/state/untold.h"

#include <stdarg.h>
#include <stdio.h>

struct untold {
    untold_fn *say;
    void *ctx;
    int n;
};

__attribute__((format(printf, 2, 3))) static void tell(struct untold *u, const char *format, ...)
{
    char text[STATE_TEXT_BYTES];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    u->n++;
    if (u->say)
        u->say(u->ctx, text);
}

/* Reports attempts without a log, which show as gaps in the attempts' numbers. */
static void numbers_tell(struct untold *u, int64_t before, int64_t number)
{
    if (number == before + 2)
        tell(u, "attempt %lld left no log", (long long)before + 1);
    else if (number > before + 2)
        tell(u, "attempts %lld to %lld left no logs", (long long)before + 1, (long long)number - 1);
}

/* Reports attempts that were claimed after the last one with a log. The newest may be about to
 * write its first event. */
static void claimed_tell(struct untold *u, int64_t known, int64_t claimed)
{
    if (claimed == known + 1)
        tell(u, "attempt %lld has begun, and no log tells of it", (long long)claimed);
    else if (claimed > known)
        tell(u, "attempts %lld to %lld have begun, and no log tells of them",
             (long long)known + 1, (long long)claimed);
}

/* Reports what an agent's log does not contain. over: another attempt has begun. Otherwise the
 * agent may still write the end of the attempt. */
static void attempt_tell(struct untold *u, const struct run_attempt *a, bool over)
{
    bool no_end = over && a->cause == CAUSE_NONE;
    if (a->started_at == 0 || no_end)
        tell(u, "attempt %lld: its agent's log does not tell %s%s%s", (long long)a->number,
             a->started_at == 0 ? "when it began" : "",
             a->started_at == 0 && no_end ? " and " : "", no_end ? "how it ended" : "");
}

int untold_each(const struct run_state *s, untold_fn *say, void *ctx)
{
    const struct run_attempt *last = s->n_attempts ? &s->attempts[s->n_attempts - 1] : NULL;
    struct untold u = {say, ctx, 0};
    if (s->damaged_records)
        tell(&u, "%lld damaged place%s in its logs: what stood there is not told",
             (long long)s->damaged_records, s->damaged_records == 1 ? "" : "s");
    if (s->last_event_at == 0)
        tell(&u, "there is no event in its logs");
    if (last && last->token[0] && s->created_at == 0)
        tell(&u, "no log tells how it was made");
    for (int64_t i = 0; i < s->n_attempts; i++) {
        numbers_tell(&u, i ? s->attempts[i - 1].number : 0, s->attempts[i].number);
        attempt_tell(&u, &s->attempts[i], i + 1 < s->n_attempts);
    }
    claimed_tell(&u, last ? last->number : 0, s->claimed);
    if (last && last->cause == CAUSE_DONE && !last->done && !s->done)
        tell(&u, "attempt %lld was done, and its trainer's log does not tell with which step",
             (long long)last->number);
    return u.n;
}
