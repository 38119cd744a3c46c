#include "trainer/run/train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/num.h"
#include "trainer/run/train_priv.h"

/* ---- being asked to stop ---- */

/* Says, on rank 0, whether a newer attempt was seen to write into the run's folder. This attempt
 * then ends at the next step and saves nothing. */
bool train_is_replaced(const struct train *t)
{
    return t->writer.lease && lease_is_lost(t->writer.lease);
}

static void stop_record(struct train *t)
{
    if (!train_is_replaced(t))
        record_stop_seen(&t->record, *t->conf->stop, t->conf->stop_heard);
}

/* Returns ERR_BUSY if this attempt was replaced by a newer one, else `status`. All ranks call it at
 * the very end: a newer attempt may be the reason why something failed, and an attempt that was
 * replaced has not ended by itself. */
static int replaced_judge(struct train *t, int status, struct err *err)
{
    struct err why = {0};
    struct comm *world = t->conf->world;
    if (t->conf->trial || world->broken)
        return status;
    int lost = comm_agree(world, t->writer.lease ? ckpt_writer_check(&t->writer, &why) : 0, &why);
    return lost == ERR_BUSY ? err_set(err, lost, "%s", why.text) : status;
}

/* Finds, between steps, whether any rank was asked to stop. At a step's end this is part of the
 * step's last exchange. */
static int stop_agree(struct train *t, bool *stop, struct err *err)
{
    double asked = *t->conf->stop || train_is_replaced(t) ? 1 : 0;
    int rc;
    if ((rc = comm_max(t->conf->world, &asked, 1, err)) < 0)
        return rc;
    if ((*stop = asked > 0))
        stop_record(t);
    return 0;
}

/* ---- validation ---- */

/* Measures the loss. Returns 1 if the measurement was given up because a rank was asked to stop. */
static int loss_measure(struct train *t, struct validate_loss *out, struct err *err)
{
    /* Without sequence parallelism all tp ranks have the same loss, and only one of them counts. */
    bool counted = t->leg.layout->tp == 1 || t->leg.layout->sp || t->leg.sh.place.tp == 0;
    return validate_run(&t->leg.validate, &t->leg.pipe, t->conf->world, counted, t->conf->stop, out,
                        err);
}

static int average_measure(struct train *t, struct validate_loss *out, struct err *err)
{
    train_phase_set(t, "validate average");
    int rc = optim_average_swap(&t->leg.optim, err), back = 0;
    units_forget(&t->leg.units);
    if (rc == 0) /* the weights must be swapped back below in any case */
        rc = loss_measure(t, out, err);
    if (rc >= 0)
        back = optim_average_swap(&t->leg.optim, err);
    units_forget(&t->leg.units);
    return back < 0 ? back : rc;
}

static int validation(struct train *t, bool *stop, struct err *err)
{
    struct validate_loss loss, average;
    double wall = clock_wall_s(), mono = clock_mono_s();
    char line[160];
    train_phase_set(t, "validate");
    int rc = loss_measure(t, &loss, err);
    if (rc == 0 && t->leg.optim.ema) /* 1: it was given up */
        rc = average_measure(t, &average, err);
    train_phase_set(t, "step");
    t->owed = *stop = rc == 1;
    if (rc == 1)
        stop_record(t);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    int n = snprintf(line, sizeof line, "step %lld: validation loss %.6g", (long long)t->next_step,
                     loss.mean);
    if (t->leg.optim.ema)
        snprintf(line + n, sizeof line - (size_t)n, ", of the average %.6g", average.mean);
    train_say(t, line);
    record_validation(&t->record, t->next_step, &t->run->validation, loss.bins,
                      t->leg.optim.ema ? average.bins : NULL, wall, clock_mono_s() - mono);
    return 0;
}

static bool validation_due(const struct train *t)
{
    int64_t every = t->run->validation.every_steps;
    return t->leg.validate.loader && t->next_step > 0 &&
           (t->next_step % every == 0 || t->next_step == run_total_steps(t->run));
}

/* Validates after the step just done, if that is due. If the attempt is asked to stop, the
 * validation is owed, and the next attempt begins with it. */
static int validation_try(struct train *t, bool *stop, struct err *err)
{
    t->owed = validation_due(t);
    return t->owed && !*stop ? validation(t, stop, err) : 0;
}

/* Does, at the beginning of an attempt, the validation that is due after the last step, unless the
 * events contain it: the earlier attempt may have been asked to stop before it had validated. */
static int validation_owed(struct train *t, bool *stop, struct err *err)
{
    struct comm *world = t->conf->world;
    bool found = false;
    int rc = 0;
    if (!validation_due(t))
        return 0;
    if (world->rank == 0)
        rc = record_has(t->conf->run_dir, "validation", t->next_step, &found, err);
    if ((rc = comm_agree(world, rc, err)) < 0)
        return rc;
    double told = found;
    if ((rc = comm_max(world, &told, 1, err)) < 0)
        return rc;
    return told > 0 ? 0 : validation_try(t, stop, err);
}

/* ---- the attempt ---- */

/* Saves a checkpoint of the step just done; in the background if checkpoint.async is set and
 * training goes on. */
static int save_due(struct train *t, bool last, struct err *err)
{
    struct meter_start at = meter_begin(t->leg.compute.dev->meter);
    train_phase_set(t, "save");
    int rc = t->run->ckpt_async && !last ? train_save_begin(t, err) : train_state_save(t, err);
    train_phase_set(t, "step");
    meter_span(t->leg.compute.dev->meter, at, "checkpoint", t->next_step);
    return rc;
}

/* Decides how often to save, by the time that steps and saves took. */
static int cadence_try(struct train *t, struct err *err)
{
    bool changed = false;
    int rc;
    if (t->conf->trial || t->run->ckpt_every_steps != 0 || !cadence_is_due(&t->cadence))
        return 0;
    if ((rc = cadence_decide(&t->cadence, t->conf->world, &changed, err)) < 0)
        return rc;
    if (changed)
        train_cadence_tell(t);
    return 0;
}

/* Tells whether a checkpoint of the step just done is due. `saved` is the step of the newest
 * checkpoint, or that at which training began if there is none since. */
static bool save_is_due(const struct train *t, int64_t saved)
{
    int64_t every = t->run->ckpt_every_steps;
    if (every == 0)
        return t->cadence.every_steps > 0 && t->next_step - saved >= t->cadence.every_steps;
    return every > 0 && t->next_step % every == 0;
}

/* Does what is due after the step just done: a validation, a checkpoint. Saving takes time, so
 * after it the ranks agree once more whether one of them was asked to stop. */
static int between_steps(struct train *t, int64_t end, int64_t *saved, bool *stop, struct err *err)
{
    struct err why = {0};
    int rc;
    if (t->leg.all_written && (rc = train_save_finish(t, err)) < 0)
        return rc;
    if ((rc = validation_try(t, stop, err)) < 0)
        return rc;
    bool last = *stop || t->next_step == end;
    if (!last && (rc = cadence_try(t, err)) < 0)
        return rc;
    if (*saved == t->next_step || !(last || t->leg.space_back || save_is_due(t, *saved)))
        return 0;
    double begun = clock_mono_s();
    rc = save_due(t, last, &why);
    if (rc == ERR_FULL && !last)
        train_save_put_off(t, &why);
    else if (rc < 0)
        return err_set(err, rc, "%s", why.text);
    *saved = t->next_step;
    if (!t->save_owed)
        cadence_saved(&t->cadence, clock_mono_s() - begun);
    return last ? 0 : stop_agree(t, stop, err); /* last: no further step, no further save */
}

/* Trains the next step, which is before `end`, and does what is due after it. */
static int step_do(struct train *t, int64_t end, int64_t *saved, struct train_report *out,
                   bool *stop, struct record_step *s, struct err *err)
{
    int rc;
    if ((rc = train_step_run(t, t->next_step, stop, s, err)) < 0)
        return rc;
    record_step(&t->record, s);
    if (*stop)
        stop_record(t);
    t->next_step++;
    out->steps++;
    train_step_line(t, s, out->steps == 1 || *stop || t->next_step == end);
    train_phases_add(t, s);
    cadence_step(&t->cadence, s->step_s);
    if ((rc = train_health_check(t, s, err)) < 0)
        return rc;
    return between_steps(t, end, saved, stop, err);
}

/* Appends a byte to the file `pulse` of a trial, as a sign of life. If it cannot be written, the
 * trial goes on without a sign. */
static void beat(const struct train *t)
{
    char path[LIMIT_PATH_BYTES];
    if (!t->conf->trial || t->conf->world->rank != 0)
        return;
    snprintf(path, sizeof path, "%s/pulse", t->conf->run_dir);
    FILE *f = fopen(path, "a");
    if (!f)
        return;
    fputc('.', f);
    fclose(f);
}

/* Runs to the end of the leg or of the attempt. */
static int steps_run(struct train *t, struct train_report *out, bool *stop, struct record_step *s,
                     struct err *err)
{
    int64_t end = num_min_i64(t->end_step, run_stage_first(t->run, t->leg.end_stage)),
            saved = t->next_step;
    int rc;
    /* If a rank was asked to stop while the attempt was starting, there is not even one step. */
    if ((rc = stop_agree(t, stop, err)) < 0)
        return rc;
    train_phase_set(t, "step");
    if (out->steps == 0 && (rc = validation_owed(t, stop, err)) < 0)
        return rc;
    beat(t);
    while (t->next_step < end && !*stop) {
        if ((rc = step_do(t, end, &saved, out, stop, s, err)) < 0)
            return rc;
        beat(t);
    }
    /* A save may still be under way if the attempt was asked to stop meanwhile. */
    if ((rc = train_save_finish(t, err)) < 0)
        return rc;
    if (t->save_owed && (rc = train_state_save(t, err)) < 0)
        return rc;
    if ((rc = train_report_make(t, s, out, err)) < 0)
        return rc;
    if (!t->conf->trial || *stop)
        return 0;
    if ((rc = train_classes_run(t, out, err)) < 0)
        return rc;
    return train_activity_run(t, out, err); /* last, because it takes memory */
}

static bool in_leg(const struct train *t, int64_t step)
{
    int64_t stage = run_stage_at(t->run, step);
    return stage >= t->leg.first_stage && stage < t->leg.end_stage;
}

static void attempt_bounds(struct train *t)
{
    int64_t total = run_total_steps(t->run), most = t->conf->max_steps;
    if (t->end_step < 0)
        t->end_step = most > 0 && t->next_step + most < total ? t->next_step + most : total;
    if (t->conf->trial) /* without a checkpoint there is no next leg */
        t->end_step = num_min_i64(t->end_step, run_stage_first(t->run, t->leg.end_stage));
}

/* Handles a failure of this rank's device. The other ranks do not know of it and wait for messages
 * that will not come, so they are ended at once, not after the deadline. */
static void device_judge(const struct train *t, const struct err *why)
{
    const struct dev *dev = t->leg.compute.dev;
    if (dev && dev->failed && t->conf->world->size > 1)
        comm_give_up(t->conf->world, why);
}

/* Writes the run's choices of algorithms into its folder, once the operations were opened with
 * them. */
static int pins_keep(struct train *t, struct err *err)
{
    int rc;
    if ((rc = gemm_pin_keep(&t->gemm, err)) < 0)
        return rc;
    return attn_pin_keep(&t->attn, err);
}

/* Runs the leg of the next step. *more: there are steps left to do, in another leg. */
static int leg_run(struct train *t, struct train_report *out, bool *stop, bool *more,
                   struct err *err)
{
    struct record_step s = {
        .loss = NAN, .grad_norm = NAN,
        .weight_norm = NAN, .update_norm = NAN,
        .tokens = NAN, .model_flops = NAN};
    int rc = train_open(t, t->next_step, err);
    /* The memory plan is reported after a failure, too, because it may have been too large. */
    out->planned_bytes = num_max_i64(out->planned_bytes, t->leg.memory.total);
    out->process_bytes = num_max_i64(out->process_bytes, t->leg.process_bytes);
    out->device_bytes = t->leg.memory.sides[BUFFER_ON_DEVICE];
    out->pinned_bytes = t->leg.memory.sides[BUFFER_PINNED];
    if (rc < 0)
        goto out;
    if ((rc = comm_agree(t->conf->world, pins_keep(t, err), err)) < 0)
        goto out;
    if ((rc = train_state_load(t, err)) < 0)
        goto out;
    /* If the step is in another leg, the newest checkpoint was damaged and an older one was loaded.
     * That leg is run next. */
    if (in_leg(t, t->next_step)) {
        attempt_bounds(t);
        record_started(&t->record, t->run, t->leg.plan, t->next_step, t->peak_flops);
        if ((rc = steps_run(t, out, stop, &s, err)) < 0)
            goto out;
    }
    *more = !*stop && (t->end_step < 0 || t->next_step < t->end_step);
out:
    if (rc < 0)
        device_judge(t, err);
    train_close(t);
    return rc;
}

/* Takes the step of the newest checkpoint, without verifying it: the leg of that step is tried
 * first. */
static int newest_step(struct train *t, struct err *err)
{
    double step = !t->conf->trial && t->conf->world->rank == 0
                      ? (double)ckpt_newest_step(t->conf->run_dir)
                      : 0;
    int rc = comm_max(t->conf->world, &step, 1, err);
    t->next_step = (int64_t)step;
    return rc;
}

/* Makes the run's folder if need be, and takes it for this attempt; on rank 0. */
static int folder_take(struct train *t, struct err *err)
{
    const struct train_conf *c = t->conf;
    int rc;
    if ((rc = file_mkdirs(c->run_dir, err)) < 0)
        return rc;
    if ((rc = owner_take(c->run_dir, c->attempt, &t->writer.lease, err)) < 0)
        return rc;
    return record_open(&t->record, c->run_dir, c->attempt, err);
}

/* Allocates and opens what this rank needs for the attempt. */
static int attempt_take(struct train *t, struct err *err)
{
    int rc;
    if ((rc = train_plans_check(t, err)) < 0)
        return rc;
    if (!(t->times = calloc(TRAIN_TIMES_MAX, sizeof *t->times)))
        return err_set(err, ERR_NOMEM, "out of memory");
    return !t->conf->trial && t->conf->world->rank == 0 ? folder_take(t, err) : 0;
}

/* Finds which algorithms are fixed for a run on GPUs. */
static int pins_find(struct train *t, struct err *err)
{
    const struct train_conf *conf = t->conf;
    int rc;
    if (conf->compute.device != COMPUTE_CUDA || conf->trial)
        return 0;
    if ((rc = gemm_pin_find(conf->world, conf->run_dir, &t->gemm, err)) < 0)
        return rc;
    return attn_pin_find(conf->world, conf->run_dir, &t->attn, err);
}

static int attempt_open(struct train *t, struct err *err)
{
    int rc;
    if ((rc = comm_agree(t->conf->world, attempt_take(t, err), err)) < 0)
        return rc;
    if ((rc = train_profile_open(t, err)) < 0)
        return rc;
    if ((rc = pins_find(t, err)) < 0)
        return rc;
    return newest_step(t, err);
}

/* Says, of a run that was already done before this attempt, how it can be made longer. */
static void done_say(const struct train *t)
{
    char line[200];
    snprintf(line, sizeof line,
             "nothing to do: the run is done, its %lld steps are saved; it goes on when it gets "
             "more of them (stages[].steps of its file, or --steps with --model)",
             (long long)t->next_step);
    train_say(t, line);
}

static int legs_run(struct train *t, struct train_report *out, bool *stop, struct err *err)
{
    int rc;
    if ((rc = attempt_open(t, err)) < 0)
        return rc;
    if ((rc = train_memory_check(t, err)) < 0)
        return rc;
    for (bool more = true; more;)
        if ((rc = leg_run(t, out, stop, &more, err)) < 0)
            return rc;
    return 0;
}

/* Writes to the run's events and to the log how the attempt ended. */
static void end_tell(struct train *t, const struct train_report *out, int rc, const struct err *err)
{
    const struct train_conf *conf = t->conf;
    /* Damaged data would still be damaged in another attempt. A damaged checkpoint does not lead
     * here, because an older one is loaded. */
    bool refused = (rc == ERR_INPUT || rc == ERR_CORRUPT) && out->steps == 0;
    const char *failed = rc == ERR_FULL ? "disk_full" : refused ? "refused" : "error";
    const char *reason = rc < 0 ? failed : out->end == TRAIN_DONE ? "done" : "stop";
    if (rc == 0 && out->end == TRAIN_DONE && out->steps == 0 && !conf->trial)
        done_say(t);
    if (refused && !t->record.log && conf->world->rank == 0 && !conf->trial)
        record_rejected(conf->run_dir, conf->attempt, err->text);
    record_ended(&t->record, t->next_step, reason, rc < 0 ? err->text : "");
}

/* Writes to the run's events that MPI does not return; its own thread has said it in the log. */
static void lost_tell(void *train, const struct err *why)
{
    struct train *t = train;
    record_ended(&t->record, t->next_step, "error", why->text);
}

int train_run(const struct train_conf *conf, struct train_report *out, struct err *err)
{
    struct train t = {
        .conf = conf, .run = conf->run, .end_step = -1,
        .config_hash = run_config_hash(conf->run),
        .writer = {.run_dir = conf->run_dir, .attempt = conf->attempt}};
    bool stop = false;
    *out = (struct train_report){
        .loss = NAN, .grad_norm = NAN,
        .tokens = NAN, .model_flops = NAN, .mfu = NAN,
        .median_step_s = NAN, .min_step_s = NAN, .max_step_s = NAN, .named_share = NAN,
        .phases = {NAN, NAN, NAN, NAN, NAN, NAN}};
    conf->world->conf->lost = lost_tell, conf->world->conf->lost_ctx = &t;
    cadence_init(&t.cadence, conf->mtbf_s, conf->save_s, conf->run->resources.nodes);
    int rc = replaced_judge(&t, legs_run(&t, out, &stop, err), err);
    train_means_report(&t, out);
    out->mfu = t.peak_flops > 0 ? out->model_flops / out->median_step_s / t.peak_flops : NAN;
    if (rc == 0)
        out->end = t.next_step == run_total_steps(t.run) && !t.owed ? TRAIN_DONE
                   : stop                                          ? TRAIN_STOPPED
                                                                   : TRAIN_LIMIT;
    conf->world->conf->lost = NULL;
    end_tell(&t, out, rc, err);
    if (rc < 0)
        goto out;
    rc = train_profile_end(&t, out, err);
out:
    train_profile_close(&t);
    gemm_pin_release(&t.gemm);
    record_close(&t.record);
    lease_drop(t.writer.lease);
    free(t.times);
    return rc;
}
