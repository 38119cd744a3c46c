#include "launcher/space.h"

#include "base/file.h"

enum { A_WORD_BYTES = 64 << 10 };

int64_t space_needed(const struct run_state *s)
{
    for (int64_t i = s->n_attempts - 1; i >= 0; i--)
        if (s->attempts[i].space.any)
            return s->attempts[i].space.needed_bytes;
    return 0;
}

void space_event_held(struct attempt *a, double until, int64_t needed_bytes)
{
    struct evlog_event e;
    evlog_begin(a->log, &e, "held");
    json_put_text(&e.out, "reason", attempt_cause_names[CAUSE_DISK_FULL]);
    json_put_num(&e.out, "until", until);
    json_put_int(&e.out, "needed_bytes", needed_bytes);
    json_put_int(&e.out, "free_bytes", file_space(a->run_dir));
    attempt_event(a, &e);
}

bool space_missed(const char *run_dir, const struct run_attempt *told, int exit_code)
{
    int64_t left = file_space(run_dir);
    return (told && told->disk_full) || (exit_code == err_exit_code(ERR_FULL) && left >= 0 && left < A_WORD_BYTES);
}
