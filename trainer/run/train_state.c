/* train_state: loads a run's newest checkpoint, or makes the first weights if there is none, and
 * saves checkpoints, at once or in the background. */
#include "trainer/run/train_priv.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/events.h"
#include "base/file.h"
#include "base/num.h"
#include "trainer/ckpt/warm_start.h"

static void damage_told(void *ctx, const char *dir, const char *reason)
{
    struct train *t = ctx;
    char line[1024];
    snprintf(line, sizeof line, "checkpoint %s is not used: %s", dir, reason);
    train_say(t, line);
    record_damaged(&t->record, dir, reason);
}

static void line_said(void *ctx, const char *line) { train_say(ctx, line); }

/* Checks on rank 0 whether the run may begin at step 0 when no checkpoint can be used. It may not
 * if --resume asked for a checkpoint, or if the events say that one was saved. */
static int anew_check(const struct train *t, struct err *err)
{
    const char *dir = t->conf->run_dir;
    int64_t saved = 0;
    int rc;
    if (t->conf->world->rank == 0 && (rc = record_saved_step(dir, &saved, err)) < 0)
        return rc;
    if (saved > 0)
        return err_set(err, ERR_INPUT,
                       "none of the checkpoints in '%s/ckpt' can be used, and %lld steps were "
                       "saved: restore one (damaged ones are there as step-*.damaged), or "
                       TRAIN_ANEW,
                       dir, (long long)saved);
    if (t->conf->resume)
        return err_set(err, ERR_INPUT,
                       "none of the checkpoints in '%s/ckpt' can be used: restore one, or "
                       TRAIN_ANEW,
                       dir);
    return 0;
}

static int ckpt_find(struct train *t, struct ckpt_meta *meta, bool *found, struct err *err)
{
    int rc = ckpt_load(&t->writer, &t->leg.optim, t->config_hash, damage_told, t, meta, found, err);
    if (rc < 0 || *found || t->conf->anew)
        goto out;
    rc = comm_agree(t->conf->world, anew_check(t, err), err);
out:
    if (rc == ERR_INPUT)
        record_refused(&t->record, err->text);
    return rc;
}

static int state_begin(struct train *t, struct err *err)
{
    struct warm_count count;
    const char *from = t->run->warm.from;
    if (!from || t->conf->trial)
        return optim_init(&t->leg.optim, err);
    int rc;
    if ((rc = warm_start(&t->leg.optim, line_said, t, &count, err)) < 0)
        return rc;
    record_warm(&t->record, from, &count);
    return 0;
}

int train_state_load(struct train *t, struct err *err)
{
    struct ckpt_meta meta = {0};
    bool found = false;
    double wall = clock_wall_s(), mono = clock_mono_s();
    train_phase_set(t, "load");
    int rc = t->conf->trial ? 0 : ckpt_find(t, &meta, &found, err);
    if (rc < 0)
        return rc;
    t->next_step = meta.step; /* 0 when there is none */
    t->skips = meta.skips;
    t->spikes = meta.spikes;
    if (!found)
        return state_begin(t, err);
    char dir[64], line[128];
    snprintf(dir, sizeof dir, "ckpt/step-%08lld", (long long)meta.step);
    snprintf(line, sizeof line, "loaded %s", dir);
    train_say(t, line);
    record_ckpt(&t->record, EVENT_NAME(ckpt_loaded), meta.step, dir, meta.bytes, wall,
                clock_mono_s() - mono);
    return 0;
}

static struct ckpt_meta meta_now(const struct train *t)
{
    return (struct ckpt_meta){
        .step = t->next_step, .skips = t->skips, .spikes = t->spikes,
        .ordinal = run_ordinal_at(t->run, t->next_step),
        .config_hash = run_past_hash(t->run, t->next_step)};
}

static void saved_record(struct train *t, const struct ckpt_meta *written, double wall, double mono)
{
    char dir[64];
    snprintf(dir, sizeof dir, "ckpt/step-%08lld", (long long)written->step);
    record_ckpt(&t->record, EVENT_NAME(ckpt_saved), written->step, dir, written->bytes, wall,
                clock_mono_s() - mono);
}

void train_cadence_tell(struct train *t)
{
    const struct cadence *c = &t->cadence;
    char line[256], every[32], save[32], mtbf[32];
    snprintf(
        line, sizeof line,
        "a checkpoint every %lld steps (%s): one takes %s%s, a failure comes every %s%s",
        (long long)c->every_steps,
        num_format_seconds((double)c->every_steps * c->step_s, every, sizeof every),
        num_format_seconds(c->save_s, save, sizeof save), c->save_measured ? "" : ", it is guessed",
        num_format_seconds(c->mtbf_s, mtbf, sizeof mtbf),
        c->mtbf_measured ? ", measured" : ", as published for nodes like these; none was seen");
    train_say(t, line);
    record_cadence(&t->record, t->next_step, c);
}

/* ---- saving: a disk without room for a save does not end the training ---- */

/* Makes room for a save if there is too little; full: the disk refused the last one, as for
 * ckpt_room_make. Records what was removed for it, or that there is no room. */
static int room_find(struct train *t, bool full, struct err *err)
{
    int rc = ckpt_room_make(&t->writer, &t->leg.optim, full, &t->room, err);
    if (rc == ERR_FULL || (rc == 0 && t->room.removed > 0))
        record_space_low(&t->record, t->next_step, &t->room);
    return rc;
}

static int owe(struct train *t, int rc)
{
    t->save_owed = rc == ERR_FULL || (rc < 0 && t->save_owed);
    return rc;
}

int train_save_put_off(const struct train *t, const struct err *why)
{
    char line[ERR_TEXT_BYTES + 64];
    snprintf(line, sizeof line, "step %lld is not saved, training goes on: %s",
             (long long)t->next_step, why->text);
    train_say(t, line);
    return 0;
}

bool train_space_back(const struct train *t)
{
    return t->save_owed && t->room.free_bytes >= 0 && t->room.free_bytes < t->room.needed_bytes &&
           file_space(t->conf->run_dir) >= t->room.needed_bytes;
}

int train_save_finish(struct train *t, struct err *err)
{
    struct ckpt_meta written;
    if (!t->leg.async.under_way)
        return 0;
    int rc = ckpt_async_finish(&t->leg.async, &written, err);
    if (rc == 0)
        saved_record(t, &written, t->leg.async_wall, t->leg.async_mono);
    if (owe(t, rc) == ERR_FULL)
        rc = room_find(t, true, err);
    return rc == ERR_FULL ? 0 : rc;
}

int train_save_begin(struct train *t, struct err *err)
{
    struct ckpt_meta meta = meta_now(t);
    int rc;
    if ((rc = train_save_finish(t, err)) < 0)
        return owe(t, rc);
    if ((rc = room_find(t, false, err)) < 0)
        return owe(t, rc);
    t->leg.async_wall = clock_wall_s(), t->leg.async_mono = clock_mono_s();
    return owe(t, ckpt_async_begin(&t->leg.async, &t->writer, &meta, t->run->ckpt_keep, err));
}

/* Makes room for a checkpoint, as room_find does, and saves it. */
static int room_save(struct train *t, bool full, struct ckpt_meta *written, struct err *err)
{
    struct ckpt_meta meta = meta_now(t);
    int rc;
    if ((rc = room_find(t, full, err)) < 0)
        return rc;
    return ckpt_save(&t->writer, &t->leg.optim, &meta, t->run->ckpt_keep, written, err);
}

int train_state_save(struct train *t, struct err *err)
{
    struct ckpt_meta written;
    int rc;
    if (t->conf->trial)
        return 0;
    if ((rc = train_save_finish(t, err)) < 0)
        return owe(t, rc);
    double wall = clock_wall_s(), mono = clock_mono_s();
    rc = room_save(t, false, &written, err);
    /* Room was found, so the reason is a quota, or another process used the room first. */
    if (rc == ERR_FULL && t->room.enough)
        rc = room_save(t, true, &written, err);
    if (rc == 0)
        saved_record(t, &written, wall, mono);
    return owe(t, rc);
}
