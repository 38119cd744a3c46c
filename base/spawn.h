/* spawn: starts programs by argument vector, with a deadline and in a process group. It never
 * passes text from users to a shell.
 *
 * The child gets exactly the environment given, its own process group (or session), default signal
 * handlers and mask, and no descriptor but 0, 1, 2. Failure to exec is reported to the caller as
 * ERR_ENV, not as exit code 127.
 */
#ifndef BASE_SPAWN_H
#define BASE_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"

struct spawn {
    const char *const *argv; /* NULL-ended; argv[0] is looked up on our PATH if it has no slash */
    const char *const *env;  /* NULL-ended; NULL: inherit the parent's */
    const char *cwd;         /* NULL: the parent's */
    /* -1: /dev/null for in, inherited for out and err. The parent keeps them open */
    int fd_in, fd_out, fd_err;
    bool new_session;     /* setsid instead of a mere process group */
    bool die_with_parent; /* PR_SET_PDEATHSIG SIGKILL */
    double slow_s;        /* spawn_run calls `slow` once when the child has run this long */
    void (*slow)(void);   /* NULL: nothing */
};
#define SPAWN_INIT {.fd_in = -1, .fd_out = -1, .fd_err = -1}

struct spawn_exit {
    int code;   /* exit code, or -1 if killed */
    int signal; /* killing signal or 0 */
    bool timed_out;
};

int spawn_start(const struct spawn *s, pid_t *pid, struct err *err);
/* Waits until the child ends, for at most deadline_s (negative: for ever). ERR_TIMEOUT if it is
 * still running. */
int spawn_wait(pid_t pid, double deadline_s, struct spawn_exit *out, struct err *err);
/* Sends SIGTERM to the whole group, then SIGKILL when the leader has ended or grace_s is over;
 * reaps the leader. */
int spawn_stop_group(pid_t pid, double grace_s, struct spawn_exit *out, struct err *err);

/* Runs a program to its end and appends its output to the texts. At the deadline (negative: none)
 * the group is killed, out->timed_out is set, and the call returns 0. Processes that the child
 * leaves in its group are killed when the child ends. A child that writes more than
 * LIMIT_CAPTURE_BYTES is killed: ERR_LIMIT. If a text is NULL, that output goes to the descriptor
 * in *s, or to /dev/null if there is none. input and out may be NULL. */
int spawn_run(const struct spawn *s, const char *input, double deadline_s, struct str *out_text,
              struct str *err_text, struct spawn_exit *out, struct err *err);

/* Returns the exit status as a shell reports it: the code, or 128 + signal. */
int spawn_status(const struct spawn_exit *e);

/* Returns the name of a signal, such as "SIGTERM"; "other" for a number without a name. */
enum { SIGNAL_NAME_BYTES = 16 };
const char *signal_name(int signo, char out[SIGNAL_NAME_BYTES]);

#endif
