#include "launcher/cmd/follow.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "base/progress.h"
#include "launcher/submit/waits.h"

enum { WAITS_EVERY_S = 5 };

static volatile int interrupted;
static bool left; /* the user interrupted cmd_follow, and the run goes on */

static void on_interrupt(int signo)
{
    (void)signo;
    interrupted = 1;
}

struct view {
    const char *home;
    bool quiet, started;
    bool for_owner;    /* the run goes on only if its owner does something */
    double asked_mono; /* when the view last asked why the job waits, in monotonic seconds; 0:
                        * never */
    char waits[STATE_TEXT_BYTES];
    char word[16];
    int64_t attempts, step;
    struct progress progress;
};

static void attempt_said(const struct run_attempt *a)
{
    char steps[64] = "no step known", saved[32] = "";
    if (a->first_step >= 0)
        snprintf(steps, sizeof steps, "steps %lld..%lld", (long long)a->first_step,
                 (long long)a->last_step);
    if (a->saved_step >= 0)
        snprintf(saved, sizeof saved, ", %lld saved", (long long)a->saved_step);
    fprintf(stderr, "attempt %lld ended: %s (%s%s)\n", (long long)a->number,
            attempt_cause_names[a->cause], steps, saved);
}

static void begin(struct progress *p, const struct run_state *s)
{
    progress_start(p, "train", s->total_steps, false);
    progress_from(p, s->last.step + 1);
}

/* Says why a waiting job waits, whenever the reason changes. */
static void waits_show(struct view *v, const struct run_state *s, const struct run_budget *budget)
{
    char why[STATE_TEXT_BYTES];
    if (v->asked_mono > 0 && clock_mono_s() - v->asked_mono < WAITS_EVERY_S)
        return;
    v->asked_mono = clock_mono_s();
    waits_why(v->home, s, budget, NULL, why);
    if (*why && strcmp(why, v->waits) != 0)
        fprintf(stderr, "  %s\n", why);
    snprintf(v->waits, sizeof v->waits, "%s", why);
}

/* Shows the state of the run. The state's name changes seldom and gets its own line; steps are
 * shown in the progress line. */
static void show(void *ctx, const struct run_state *s, const struct run_budget *budget,
                 const char *job_state)
{
    struct view *v = ctx;
    const char *word = run_state_word(s, budget);
    char note[128];
    v->for_owner = waits_for_owner(s, budget);
    if (v->quiet)
        return;
    if (strcmp(word, v->word) != 0) {
        if (v->started) {
            v->progress.done = s->last.step + 1; /* steps were done since the last look */
            progress_end(&v->progress, v->word);
        }
        v->started = false;
        fprintf(stderr, "run %s (%.8s): %s%s%s%s\n", s->name, s->run, word,
                *job_state ? " [job " : "", job_state, *job_state ? "]" : "");
        snprintf(v->word, sizeof v->word, "%s", word);
    }
    waits_show(v, s, budget);
    for (int64_t i = 0; i < s->n_attempts; i++)
        if (s->attempts[i].number > v->attempts && s->attempts[i].cause != CAUSE_NONE) {
            attempt_said(&s->attempts[i]);
            v->attempts = s->attempts[i].number;
        }
    if (s->last.step >= 0 && s->last.step != v->step && strcmp(word, "training") == 0) {
        if (!v->started)
            begin(&v->progress, s);
        v->started = true;
        v->step = s->last.step;
        int n = 0;
        if (s->loss.step >= 0 && isfinite(s->loss.value)) /* a wrapped trainer may print none */
            n = snprintf(note, sizeof note, "loss %.4f, ", s->loss.value);
        else if (s->loss.step >= 0)
            n = snprintf(note, sizeof note, "loss not finite, ");
        n += snprintf(note + n, sizeof note - (size_t)n, "%.3f s/step", s->last.step_s);
        if (isfinite(s->last.mfu))
            snprintf(note + n, sizeof note - (size_t)n, ", MFU %.1f %%", 100 * s->last.mfu);
        progress_step(&v->progress, s->last.step + 1, note);
    }
}

static int end_print(const struct launch *l, enum run_next next, struct err *err)
{
    static const char *const words[] = {"created", "running",   "waiting", "done",
                                        "failed",  "cancelled", "paused"};
    struct str text = STR_INIT;
    struct json_out o;
    json_out_init(&o, &text, 2);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", "reel.launch/1");
    json_put_text(&o, "run", l->run_id);
    json_put_text(&o, "run_dir", l->run_dir);
    json_put_text(&o, "state", words[next]);
    json_obj_end(&o);
    str_addc(&text, '\n');
    int rc = cmd_print(&text, err);
    str_release(&text);
    return rc;
}

int cmd_follow_verdict(const struct launch *l, enum run_next next, struct err *err)
{
    char why[STATE_TEXT_BYTES] = "";
    struct run_state state;
    run_state_init(&state);
    if (next != RUN_NEXT_FAILED && next != RUN_NEXT_CANCELLED && next != RUN_NEXT_PAUSED)
        return 0;
    if (run_state_load(l->run_dir, &state, NULL) == 0)
        run_state_next(&state, &l->budget, why);
    run_state_release(&state);
    if (next == RUN_NEXT_PAUSED)
        return err_set(err, ERR_NO, "run %s is paused: 'reel resume %.8s' lets it go on", l->run_id,
                       l->run_id);
    if (next == RUN_NEXT_CANCELLED)
        return err_set(err, ERR_NO, "run %s was cancelled: 'reel retry %.8s' lets it go on",
                       l->run_id, l->run_id);
    return err_set(err, ERR_NO,
                   "run %s failed: %s (logs in %s/logs); 'reel retry %.8s' lets it go on",
                   l->run_id, why, l->run_dir, l->run_id);
}

int cmd_follow(const struct launch *l, struct sched *s, bool json, bool quiet, struct err *err)
{
    struct view view = {.home = l->home, .quiet = quiet, .step = -1};
    struct sigaction action = {.sa_handler = on_interrupt}, before;
    enum run_next next = RUN_NEXT_WAIT;
    sigaction(SIGINT, &action, &before);
    int rc = launch_follow(l, s, &interrupted, show, &view, &next, err);
    sigaction(SIGINT, &before, NULL);
    if (rc < 0)
        return rc;
    if (view.started)
        progress_end(&view.progress, NULL);
    if (next == RUN_NEXT_WAIT || next == RUN_NEXT_REQUEUE || next == RUN_NEXT_SUBMIT) {
        if (!view.for_owner)
            fprintf(stderr, "run %s goes on by itself: 'reel watch %.8s' follows it again\n",
                    l->run_id, l->run_id);
        next = RUN_NEXT_WAIT;
        left = interrupted;
    } else if (!quiet) {
        fprintf(stderr, "run %s: %s\n", l->run_id, next == RUN_NEXT_DONE ? "done" : "over");
    }
    if (json && (rc = end_print(l, next, err)) < 0)
        return rc;
    return cmd_follow_verdict(l, next, err);
}

void cmd_follow_leave(void)
{
    if (left)
        cmd_interrupt_end();
}

void cmd_interrupt_end(void)
{
    fflush(NULL);
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
}
