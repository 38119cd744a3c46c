#include "launcher/state/space.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/events.h"
#include "base/file.h"
#include "base/num.h"
#include "launcher/wrap/last_words.h"

enum { FULL_WITH_ROOM_MOST = 8 };

/* Returns the last attempt for which space was low; NULL: there is none. */
static const struct run_attempt *last_low(const struct run_state *s)
{
    for (int64_t i = s->n_attempts - 1; i >= 0; i--)
        if (s->attempts[i].space.any)
            return &s->attempts[i];
    return NULL;
}

int64_t space_needed(const struct run_state *s)
{
    const struct run_attempt *a = last_low(s);
    return a ? a->space.needed_bytes : 0;
}

int64_t space_least(const struct run_state *s)
{
    return last_low(s) ? num_max_i64(space_needed(s), STATE_LEAST_BYTES) : 0;
}

bool space_was_low(const struct run_state *s)
{
    const struct run_attempt *a = last_low(s);
    return a && run_attempt_low_bytes(a);
}

void space_say(const struct run_attempt *a, char out[SPACE_SAY_BYTES])
{
    char needed[32], left[32];
    num_format_bytes(a->space.needed_bytes, needed, sizeof needed);
    num_format_bytes(a->space.free_bytes, left, sizeof left);
    if (run_attempt_low_files(a) && !run_attempt_low_bytes(a))
        snprintf(out, SPACE_SAY_BYTES, "inodes ran out, %lld were free (and %s)",
                 (long long)a->space.free_files, left);
    else if (a->space.needed_bytes > 0 && run_attempt_low_bytes(a))
        snprintf(out, SPACE_SAY_BYTES, "space was low, a checkpoint needs %s and %s were free",
                 needed, left);
    else if (run_attempt_low_bytes(a))
        snprintf(out, SPACE_SAY_BYTES, "space was low, %s were free", left);
    else
        snprintf(out, SPACE_SAY_BYTES, "there was no space for a write, although %s were free%s%s",
                 a->space.free_bytes >= 0 ? left : "how many bytes",
                 a->space.needed_bytes > 0 ? " and a checkpoint needs " : "",
                 a->space.needed_bytes > 0 ? needed : "");
}

/* Returns the lesser of two counts, of which a negative one is not known. */
static int64_t lesser(int64_t a, int64_t b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

int64_t space_left(const char *run_dir, const char *saves)
{
    return lesser(file_space(run_dir), saves ? file_space(saves) : -1);
}

int64_t space_files_left(const char *run_dir, const char *saves)
{
    return lesser(file_inodes(run_dir), saves ? file_inodes(saves) : -1);
}

void space_event_held(struct attempt *a, double until, int64_t needed_bytes, int64_t free_bytes)
{
    struct evlog_event e;
    event_begin(a->log, &e, held);
    event_text(&e, held, reason, attempt_cause_names[CAUSE_DISK_FULL]);
    event_num(&e, held, until, until);
    event_int(&e, held, needed_bytes, needed_bytes);
    event_int(&e, held, free_bytes, free_bytes);
    attempt_event(a, &e);
}

bool space_is_out(const char *run_dir)
{
    int64_t left = file_space(run_dir);
    return left >= 0 && left < STATE_LEAST_BYTES;
}

const char *space_shut(const char *run_dir)
{
    if (file_is_read_only(run_dir))
        return "is mounted read-only";
    if (space_is_out(run_dir))
        return "is on a full disk";
    if (file_inodes(run_dir) == 0)
        return "is on a disk without a free inode";
    return "";
}

bool space_for_words(struct attempt *a)
{
    struct evlog_event e;
    if (space_is_out(a->run_dir))
        return false;
    event_begin(a->log, &e, silence);
    attempt_event(a, &e);
    return attempt_flush(a) != ERR_FULL;
}

bool space_missed(struct attempt *a, const struct run_attempt *told, int exit_code)
{
    if (told && told->disk_full)
        return true;
    return exit_code == err_exit_code(ERR_FULL) &&
           (space_is_out(a->run_dir) || attempt_flush(a) == ERR_FULL);
}

void space_foreign_begin(struct space_foreign *f, const char *run_dir, const struct wrap *w,
                         const struct run_state *before)
{
    int64_t left = space_left(run_dir, w->saves);
    *f = (struct space_foreign){.needed_bytes = wrap_save_bytes(w), .free_bytes = left};
    f->doubted = run_state_full_with_room(before) >= FULL_WITH_ROOM_MOST;
    f->tight = left >= 0 && left < num_max_i64(f->needed_bytes, STATE_LEAST_BYTES) &&
               run_state_not_before(before, clock_wall_s()) <= 0;
}

bool space_foreign_missed(struct space_foreign *f, const char *run_dir, const struct wrap *w,
                          const struct sched_step_status *end, const char *log)
{
    bool failed = end->exit_code != 0 || end->exit_signal,
         by_signal = end->exit_signal || end->exit_code > 128;
    int64_t left = space_left(run_dir, w->saves);
    f->needed_bytes = num_max_i64(f->needed_bytes, wrap_save_bytes(w));
    f->free_bytes = left;
    f->free_files = space_files_left(run_dir, w->saves);
    bool low = left >= 0 && left < num_max_i64(f->needed_bytes, STATE_LEAST_BYTES),
         files_out = f->free_files >= 0 && f->free_files < STATE_LEAST_FILES;
    bool told = failed && last_words_tell_full(log);
    f->disbelieved = told && f->doubted && left >= 0 && !low && !files_out;
    return (told && !f->disbelieved) || (failed && low && !f->tight && !by_signal);
}

void space_event_low(struct attempt *a, int64_t needed_bytes, int64_t free_bytes,
                     int64_t free_files, int64_t steps)
{
    struct evlog_event e;
    event_begin(a->log, &e, space_low);
    event_int(&e, space_low, step, num_max_i64(steps, 0));
    event_int(&e, space_low, needed_bytes, needed_bytes);
    event_int(&e, space_low, free_bytes, free_bytes);
    event_int(&e, space_low, free_files, free_files);
    event_int(&e, space_low, removed, 0);
    event_bool(&e, space_low, enough, false);
    attempt_event(a, &e);
}
