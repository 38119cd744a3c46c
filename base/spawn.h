/* spawn: start programs by argument vector, with deadline and process group. Never a shell built from user text.
 *
 * The child gets exactly the environment given, its own process group (or session), default signal handlers and mask,
 * and no descriptor but 0, 1, 2. Failure to exec is reported to the caller as ERR_ENV, not as exit code 127.
 */
#ifndef BASE_SPAWN_H
#define BASE_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"

struct spawn {
    const char *const *argv; /* NULL-ended; argv[0] looked up on PATH of the parent when it has no slash */
    const char *const *env;  /* NULL-ended; NULL: inherit the parent's */
    const char *cwd;         /* NULL: the parent's */
    int fd_in, fd_out, fd_err; /* -1: /dev/null for in, inherit for out and err. Kept open in the parent */
    bool new_session;        /* setsid instead of a mere process group */
    bool die_with_parent;    /* PR_SET_PDEATHSIG SIGKILL */
    double slow_s;           /* spawn_run calls `slow` once when the child has run so long */
    void (*slow)(void);      /* NULL: nothing */
};
#define SPAWN_INIT {.fd_in = -1, .fd_out = -1, .fd_err = -1}

struct spawn_exit {
    int code;    /* exit code, or -1 if killed */
    int signal;  /* killing signal or 0 */
    bool timed_out;
};

int spawn_start(const struct spawn *s, pid_t *pid, struct err *err);
/* Wait up to deadline_s (negative: for ever). ERR_TIMEOUT if still running. */
int spawn_wait(pid_t pid, double deadline_s, struct spawn_exit *out, struct err *err);
/* Signal the whole group: SIGTERM, then SIGKILL when the leader has ended or grace_s is over; reaps the leader. */
int spawn_stop_group(pid_t pid, double grace_s, struct spawn_exit *out, struct err *err);

/* Run to the end, appending output to the texts; at the deadline (negative: none) the group is killed and
 * out->timed_out set (returns 0). Processes that the child leaves in its group are killed when it ends.
 * Over LIMIT_CAPTURE_BYTES the child is killed: ERR_LIMIT. A text that is NULL: the descriptor of *s, else /dev/null.
 * input and out may be NULL. */
int spawn_run(const struct spawn *s, const char *input, double deadline_s, struct str *out_text, struct str *err_text,
              struct spawn_exit *out, struct err *err);

/* Shell-style exit status: code, or 128 + signal. */
int spawn_status(const struct spawn_exit *e);

/* "SIGTERM"; "other" for a number without a name. */
enum { SIGNAL_NAME_BYTES = 16 };
const char *signal_name(int signo, char out[SIGNAL_NAME_BYTES]);

#endif
