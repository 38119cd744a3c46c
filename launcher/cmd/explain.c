/* reel explain: says why a run was not training, gap by gap; or what a plan is made of; or how the
 * trials of a tuning ended. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "launcher/cmd/cmd.h"
#include "launcher/cmd/explain_plan.h"
#include "launcher/cmd/tune_told.h"
#include "launcher/state/gap.h"
#include "launcher/state/space.h"
#include "launcher/state/untold.h"
#include "launcher/submit/launch.h"
#include "launcher/submit/waits.h"
#include "launcher/wrap/wrap.h"

static const struct opt opts[] = {
    CMD_OPT_JSON,
    {"against", 0, OPT_TEXT, "LAYOUT|FILE",
     "with plan: say where this layout, or that of another plan, loses"},
};
const struct opt_cmd cmd_explain = {
    "explain",
    "say why a run was not training: each gap with its cause and its parts; or what a plan is made "
    "of, or what became of a tuning",
    "RUN | plan FILE | tune TUNE", opts, ARRAY_LEN(opts), 1, 2,
    "With 'plan', FILE is a plan that 'reel plan -o' wrote. Each term of its step is shown with "
    "the work that it does, the rate at which that goes on, and the constant on which the rate "
    "depends most, with the bounds between which nine of ten lie, and its source. Then comes what "
    "binds. With 'tune', TUNE is the id of a tuning, or how it begins: each trial is shown with "
    "how it ended and why, and whether the tuning goes on, ended or died."};

/* Says whether a gap follows attempt i. No gap follows the end of a run that is done, unless the
 * run was extended. */
static bool has_gap(const struct run_state *s, int64_t i)
{
    enum attempt_cause cause = s->attempts[i].cause;
    return cause != CAUSE_NONE && (cause != CAUSE_DONE || i + 1 < s->n_attempts || !s->done);
}

static void seconds_add(struct str *out, const char *label, double s)
{
    char buf[32];
    if (isfinite(s))
        str_addf(out, "%s %s", label, num_format_seconds(s, buf, sizeof buf));
}

/* Says since when and for how long the run was not training. Of an end that nobody saw only the
 * earliest time is known, that of the attempt's last event. */
static void total_text(const struct run_attempt *a, double total, struct str *out)
{
    double end = a->heard_at > 0 ? a->heard_at : a->ended_at;
    char when[32];
    str_addf(out, "  %s ",
             clock_format_utc(a->signal_at > 0 ? a->signal_at : end, when, sizeof when));
    seconds_add(out, "not training for", total);
    if (!isfinite(total))
        str_add(out, "not training since");
    else if (a->heard_at > 0 && a->signal_at <= 0)
        str_add(out, " at most, since it was last heard of");
}

/* Says how many ranks of which nodes have not heard a notice that others have; returns whether
 * there are such ranks. */
static bool silent_text(const struct run_attempt *a, const char *before, struct str *out)
{
    const char *join = before;
    if (!run_attempt_silent(a))
        return false;
    for (int i = 0; i < a->n_silent; i++)
        if (a->silent[i].ranks) {
            str_addf(out, "%s%lld of node %s", join, (long long)a->silent[i].ranks,
                     a->silent[i].node);
            join = ", ";
        }
    if (a->silent_more)
        str_add(out, ", and some of other nodes");
    return true;
}

static void gap_text(const struct run_attempt *a, const struct run_attempt *b, struct str *out)
{
    struct run_gap g = run_gap_of(a, b);
    total_text(a, g.total, out);
    str_addf(out, ": attempt %lld ended by %s", (long long)a->number,
             attempt_cause_names[a->cause]);
    if (a->signal_at > 0)
        str_addf(out, " (%s at the %s)", a->signal, a->signal_at_step ? "trainer's step" : "agent");
    if (g.stopping > 0)
        seconds_add(out, a->heard_at > 0 ? ", last heard of after" : ", stopped within",
                    g.stopping);
    else if (a->signal_at > 0 && a->ended_at > 0 && a->heard_at <= 0)
        str_add(out, ", stopped at once");
    if (a->saved_step >= 0)
        str_addf(out, ", %lld step%s saved", (long long)a->saved_step,
                 a->saved_step == 1 ? "" : "s");
    seconds_add(out, ", waited", g.waiting);
    seconds_add(out, ", started in", g.starting);
    if (isfinite(g.starting))
        seconds_add(out, " of which loading", g.load);
    if (g.replayed >= 0)
        str_addf(out, ", replayed %lld step%s", (long long)g.replayed, g.replayed == 1 ? "" : "s");
    if (run_attempt_unheard(a))
        str_add(out, "; no rank had a handler for the notice");
    else if (run_attempt_still(a))
        str_add(out, "; no rank answered the notice");
    else if (silent_text(a, "; ranks without a handler for the notice, or that stood still: ", out))
        str_add(out, "; others were told");
    if (a->agents_mended[0])
        str_addf(out, "; of its node agents, %s", a->agents_mended);
    if (a->told_by_srun[0])
        str_addf(out, "; node %s did not say that its ranks were told, srun was used too",
                 a->told_by_srun);
    if (a->withheld)
        str_addf(out, "; it was being ended, and the scheduler does not say who by: so its job was "
                      "not requeued, for who cancels, ends. If it is to go on, submit it again");
    if (a->cause == CAUSE_CRASH || a->cause == CAUSE_NODE_FAIL || a->cause == CAUSE_HANG ||
        a->cause == CAUSE_EARLY_EXIT || a->cause == CAUSE_CANCEL || a->cause == CAUSE_DISK_FULL)
        str_addf(out, "; %s", a->detail);
    if (a->done)
        str_add(out, "; the run was done, and was extended");
    str_addc(out, '\n');
}

/* Says how many checkpoints an attempt could not use, damaged or unreadable ones, and from which it
 * continued, if from any. */
static void damage_text(const struct run_attempt *a, struct str *out)
{
    if (a->damaged)
        str_addf(out, "  attempt %lld found %lld checkpoint%s damaged or not readable and ",
                 (long long)a->number, (long long)a->damaged, a->damaged == 1 ? "" : "s");
    else if (a->refused[0])
        str_addf(out, "  attempt %lld ", (long long)a->number);
    else
        return;
    if (a->loaded_step >= 0)
        str_addf(out, "used an older one, of %lld steps\n", (long long)a->loaded_step);
    else if (a->refused[0])
        str_addf(out, "ended: %s\n", a->refused);
    else
        str_addf(out, "%s\n", a->first_step == 0 ? "began anew, at step 0" : "came no further");
}

/* Says what an attempt did about a nearly full disk, and whether it waits for room now. */
static void space_text(const struct run_attempt *a, struct str *out)
{
    char say[SPACE_SAY_BYTES], when[32];
    space_say(a, say);
    if (a->space.any)
        str_addf(out, "  attempt %lld, after %lld steps: %s: %lld folder%s removed, %s\n",
                 (long long)a->number, (long long)a->space.step, say,
                 (long long)a->space.removed, a->space.removed == 1 ? " was" : "s were",
                 a->space.enough || a->saved_step > a->space.step ? "saved" : "not saved");
    if (a->held_until > 0 && a->trainer_started_at == 0 && a->cause == CAUSE_NONE)
        str_addf(out, "  attempt %lld waits for room on the disk, until %s at most\n",
                 (long long)a->number, clock_format_utc(a->held_until, when, sizeof when));
}

static void suspended_text(const struct run_attempt *a, struct str *out)
{
    char text[32];
    if (a->suspended_s > 0)
        str_addf(out, "  attempt %lld was suspended by the scheduler for %s\n",
                 (long long)a->number, num_format_seconds(a->suspended_s, text, sizeof text));
}

/* Says how often the trainer went back without a new attempt. */
static void back_text(const struct run_attempt *a, struct str *out)
{
    if (a->went_back)
        str_addf(out,
                 "  attempt %lld: its trainer went back by itself, %lld time%s, by %lld step%s in "
                 "all\n",
                 (long long)a->number, (long long)a->went_back, a->went_back == 1 ? "" : "s",
                 (long long)a->back_steps, a->back_steps == 1 ? "" : "s");
}

/* Says that a notice came to an attempt that has not ended, and whether ranks were told. */
static void notice_text(const struct run_attempt *a, struct str *out)
{
    char when[32];
    if (a->cause != CAUSE_NONE || !(a->signal_at > 0))
        return;
    str_addf(out, "  attempt %lld was told to stop at %s (%s at the %s)", (long long)a->number,
             clock_format_utc(a->signal_at, when, sizeof when), a->signal,
             a->signal_at_step ? "trainer's step" : "agent");
    if (silent_text(a, ": ranks were told to save, but for ", out))
        str_add(out, ": these have no handler for that, or stand still, and are told when that "
                     "changes");
    else
        str_add(out, run_attempt_unheard(a)
                         ? ": no rank has a handler for that, so none saves; one that gets a "
                           "handler is told then"
                     : run_attempt_still(a)
                         ? ": no rank has answered: those that stand still, as stopped ones do, "
                           "are told when they go on"
                     : a->ranks_heard ? ": its ranks were told to save" : "");
    str_addc(out, '\n');
}

/* Says which request of the attempt's agent the scheduler refused or did not answer. */
static void vain_text(const struct run_attempt *a, struct str *out)
{
    char within[32];
    if (!a->vain.what[0])
        return;
    str_addf(out, "  attempt %lld asked the scheduler %s (job %s)", (long long)a->number,
             a->vain.what, a->job_id);
    if (a->vain.refused)
        str_addf(out, ", which it refused: %s\n", a->vain.why);
    else
        str_addf(out, ", %lld time%s or more within %s, in vain%s: %s\n",
                 (long long)a->vain.tries, a->vain.tries == 1 ? "" : "s",
                 num_format_seconds(a->vain.for_s, within, sizeof within),
                 a->requeued_at > 0 ? " until it took the job back" : "", a->vain.why);
}

static void gap_json(const struct run_attempt *a, const struct run_attempt *b, struct json_out *o)
{
    struct run_gap g = run_gap_of(a, b);
    json_obj_begin(o, NULL);
    json_put_int(o, "after_attempt", a->number);
    json_put_text(o, "cause", attempt_cause_names[a->cause]);
    json_put_text(o, "signal", a->signal);
    json_put_num(o, "seconds", g.total);
    json_put_num(o, "stopping_s", g.stopping);
    json_put_num(o, "waiting_s", g.waiting);
    json_put_num(o, "starting_s", g.starting);
    json_put_num(o, "load_s", g.load);
    if (g.replayed >= 0)
        json_put_int(o, "replayed_steps", g.replayed);
    json_put_int(o, "damaged_checkpoints", b ? b->damaged : 0);
    json_put_int(o, "loaded_step", b ? b->loaded_step : -1);
    json_put_text(o, "refused", b ? b->refused : "");
    json_put_bool(o, "unheard", run_attempt_unheard(a));
    json_put_int(o, "silent_ranks", run_attempt_silent(a));
    json_put_text(o, "detail", a->detail);
    json_obj_end(o);
}

static void suspended_json(const struct run_state *s, struct json_out *o)
{
    json_arr_begin(o, "suspended");
    for (const struct run_attempt *a = s->attempts; a < s->attempts + s->n_attempts; a++) {
        if (!(a->suspended_s > 0))
            continue;
        json_obj_begin(o, NULL);
        json_put_int(o, "attempt", a->number);
        json_put_num(o, "seconds", a->suspended_s);
        json_obj_end(o);
    }
    json_arr_end(o);
}

static void back_json(const struct run_state *s, struct json_out *o)
{
    json_arr_begin(o, "went_back");
    for (const struct run_attempt *a = s->attempts; a < s->attempts + s->n_attempts; a++) {
        if (!a->went_back)
            continue;
        json_obj_begin(o, NULL);
        json_put_int(o, "attempt", a->number);
        json_put_int(o, "times", a->went_back);
        json_put_int(o, "back_steps", a->back_steps);
        json_obj_end(o);
    }
    json_arr_end(o);
}

static void vain_json(const struct run_state *s, struct json_out *o)
{
    json_arr_begin(o, "asked_in_vain");
    for (const struct run_attempt *a = s->attempts; a < s->attempts + s->n_attempts; a++) {
        if (!a->vain.what[0])
            continue;
        json_obj_begin(o, NULL);
        json_put_int(o, "attempt", a->number);
        json_put_text(o, "job_id", a->job_id);
        json_put_text(o, "what", a->vain.what);
        json_put_int(o, "tries", a->vain.tries);
        json_put_num(o, "for_s", a->vain.for_s);
        json_put_bool(o, "refused", a->vain.refused);
        json_put_bool(o, "taken_back", a->requeued_at > 0);
        json_put_text(o, "why", a->vain.why);
        json_obj_end(o);
    }
    json_arr_end(o);
}

/* Says how often the run saves, if its run file leaves that open. */
static void every_text(const struct run_state *s, struct str *out)
{
    char every[32], save[32], mtbf[32];
    str_addf(out,
             "  a checkpoint every %lld steps (%s): one takes %s%s, a failure comes every %s%s\n",
             (long long)s->every.steps,
             num_format_seconds((double)s->every.steps * s->every.step_s, every, sizeof every),
             num_format_seconds(s->every.save_s, save, sizeof save),
             s->every.save_measured ? "" : ", it is guessed",
             num_format_seconds(s->every.mtbf_s, mtbf, sizeof mtbf),
             s->every.mtbf_measured ? ", measured"
                                    : ", as published for nodes like these; none was seen");
}

static void untold_text(void *out, const char *text)
{
    str_addf(out, "  %s\n", text);
}

static void untold_json(void *o, const char *text)
{
    json_put_text(o, NULL, text);
}

/* Holds the checkpoint folder of a wrapped command, and in `how` what is wrong with it. `how` is
 * WRAP_SAVES_GOOD too while that is unknown because the newest attempt has not ended. */
struct saves {
    enum wrap_saves how;
    char folder[LIMIT_PATH_BYTES];
};

/* Tells whether the attempt ended in such a way that its trainer should have saved something. */
static bool ended_in_order(const struct run_attempt *a)
{
    return a->cause == CAUSE_DONE || a->cause == CAUSE_PREEMPT || a->cause == CAUSE_TIME_LIMIT ||
           a->cause == CAUSE_PAUSE || a->cause == CAUSE_EARLY_EXIT;
}

static void saves_look(const struct launch *l, const struct run_state *s, struct saves *out)
{
    struct wrap w = {0};
    const struct run_attempt *last = s->n_attempts ? &s->attempts[s->n_attempts - 1] : NULL;
    *out = (struct saves){.how = WRAP_SAVES_GOOD};
    if (!last || last->cause == CAUSE_NONE || !l->wrapped || wrap_load(l->run_dir, &w, NULL) < 0)
        return;
    out->how = wrap_saves_look(&w, ended_in_order(last));
    snprintf(out->folder, sizeof out->folder, "%s", w.saves ? w.saves : "");
    wrap_release(&w);
}

static const char *folder_if(const struct saves *saves, enum wrap_saves how)
{
    return saves->how == how ? saves->folder : "";
}

static void explain_text(const struct run_state *s, const struct run_budget *budget,
                         const char *word, const char *waits, const struct saves *saves,
                         struct str *out)
{
    char buf[32], why[STATE_TEXT_BYTES];
    run_state_next(s, budget, why);
    str_addf(out, "run %s (%.8s): %s, ", s->name, s->run, word);
    if (s->total_steps > 0)
        str_addf(out, "%lld of %lld steps, ", (long long)(s->max_step + 1),
                 (long long)s->total_steps);
    else if (s->max_step >= 0) /* the owner of a wrapped command may not have said how many steps it
                                * has */
        str_addf(out, "%lld step%s, ", (long long)(s->max_step + 1), s->max_step == 0 ? "" : "s");
    str_addf(out, "%lld attempt%s\n", (long long)s->n_attempts, s->n_attempts == 1 ? "" : "s");
    if (*why)
        str_addf(out, "  %s\n", why);
    if (s->n_attempts && s->attempts[0].number == 1 && s->attempts[0].first_step >= 0 &&
        s->attempts[0].first_step_at > 0 && s->submitted_at > 0 && s->created_at > 0)
        str_addf(out, "  first step %s after the run was made\n",
                 num_format_seconds(fmax(0, s->attempts[0].first_step_at - s->created_at), buf,
                                    sizeof buf));
    if (*waits)
        str_addf(out, "  %s\n", waits);
    if (saves->how != WRAP_SAVES_GOOD)
        str_addf(out, "  %s '%s' (--saves): what its trainer saves is not seen\n",
                 wrap_saves_say(saves->how), saves->folder);
    untold_each(s, untold_text, out);
    if (s->every.steps)
        every_text(s, out);
    for (int64_t i = 0; i < s->n_attempts; i++)
        if (has_gap(s, i))
            gap_text(&s->attempts[i], i + 1 < s->n_attempts ? &s->attempts[i + 1] : NULL, out);
    for (int64_t i = 0; i < s->n_attempts; i++)
        damage_text(&s->attempts[i], out), space_text(&s->attempts[i], out),
            suspended_text(&s->attempts[i], out), back_text(&s->attempts[i], out),
            notice_text(&s->attempts[i], out), vain_text(&s->attempts[i], out);
}

static void explain_json(const struct run_state *s, const char *word, const char *waits,
                         const struct saves *saves, struct json_out *o)
{
    json_obj_begin(o, NULL);
    json_put_text(o, "schema", "reel.explain/1");
    json_put_text(o, "run", s->run);
    json_put_text(o, "name", s->name);
    json_put_text(o, "state", word);
    json_put_text(o, "waits", waits);
    json_put_text(o, "saves_missing", folder_if(saves, WRAP_SAVES_MISSING));
    json_put_text(o, "saves_empty", folder_if(saves, WRAP_SAVES_EMPTY));
    json_arr_begin(o, "untold");
    untold_each(s, untold_json, o);
    json_arr_end(o);
    json_arr_begin(o, "gaps");
    for (int64_t i = 0; i < s->n_attempts; i++)
        if (has_gap(s, i))
            gap_json(&s->attempts[i], i + 1 < s->n_attempts ? &s->attempts[i + 1] : NULL, o);
    json_arr_end(o);
    suspended_json(s, o);
    back_json(s, o);
    vain_json(s, o);
    json_obj_end(o);
}

static int run_explain(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *const *operands;
    struct launch l;
    struct run_state state;
    struct str text = STR_INIT;
    struct json_out o;
    char why[STATE_TEXT_BYTES];
    struct saves saves;
    int rc;
    opt_operands(v, &operands);
    run_state_init(&state);
    if ((rc = launch_open(env->home, env->bin_dir, operands[0], &l, err)) < 0)
        goto out;
    if ((rc = launch_state_load(&l, &state, err)) < 0)
        goto out;
    const char *word = waits_why(env->home, &state, &l.budget, NULL, why);
    saves_look(&l, &state, &saves);
    if (opt_bool(v, "json")) {
        json_out_init(&o, &text, 2);
        explain_json(&state, word, why, &saves, &o);
        str_addc(&text, '\n');
    } else {
        explain_text(&state, &l.budget, word, why, &saves, &text);
        str_addf(&text, "  its folder, with logs: %s\n", l.run_dir);
    }
    rc = cmd_print(&text, err);
out:
    run_state_release(&state);
    str_release(&text);
    return rc;
}

int cmd_explain_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *const *operands;
    size_t n = opt_operands(v, &operands);
    bool plan = n == 2 && strcmp(operands[0], "plan") == 0;
    if (plan)
        return explain_plan(env, operands[1], opt_text(v, "against"), opt_bool(v, "json"), err);
    if (opt_given(v, "against"))
        return err_set(err, ERR_USAGE, "--against compares plans: give 'plan' and a FILE");
    if (n == 2 && strcmp(operands[0], "tune") == 0)
        return explain_tune(env->home, operands[1], opt_bool(v, "json"), err);
    if (n == 2)
        return err_set(err, ERR_USAGE,
                       "'%s %s' are two operands: give a RUN, 'plan' and a FILE, or 'tune' and a "
                       "TUNE", operands[0], operands[1]);
    return run_explain(v, env, err);
}
