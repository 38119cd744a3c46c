#include "launcher/wrap/tail.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"

enum { LAST_WAIT_MS = 1000 };
static const double LOOK_S = 0.2;

int tail_open(const char *path, int out_fd, tail_line_fn *fn, void *context, struct tail *out,
              struct err *err)
{
    struct tail t = {.fd = -1, .out_fd = out_fd, .fn = fn, .context = context, .line = STR_INIT};
    t.fd = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0666);
    t.path = strdup(path);
    *out = t;
    if (t.fd >= 0 && t.path && lseek(t.fd, 0, SEEK_END) >= 0)
        return 0;
    int rc = err_set_errno(err, ERR_IO, "cannot follow the log '%s'", path);
    tail_close(out);
    return rc;
}

static void line_end(struct tail *t)
{
    if (t->line.len)
        t->fn(t->context, t->line.p, t->line.len);
    str_clear(&t->line);
}

static void lines_take(struct tail *t, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool ends = bytes[i] == '\n' || bytes[i] == '\r';
        if (!ends)
            str_addc(&t->line, bytes[i] ? bytes[i] : ' '); /* a zero would end the text */
        if (ends || t->line.len >= TAIL_LINE_BYTES)
            line_end(t);
    }
}

/* Tells whether a write of PIPE_BUF bytes returns at once. It does if the reader is gone, because
 * it then fails. With `last` it waits LAST_WAIT_MS for a blocked reader, and then ends the copying
 * and returns true. */
static bool out_takes(struct tail *t, bool last)
{
    struct pollfd p = {.fd = t->out_fd, .events = POLLOUT};
    if (t->out_fd < 0 || poll(&p, 1, last ? LAST_WAIT_MS : 0) > 0)
        return true;
    if (last)
        t->out_fd = -1;
    return last;
}

static void cut_look(struct tail *t)
{
    struct stat st;
    if (t->fd < 0 || fstat(t->fd, &st) < 0 || st.st_size >= lseek(t->fd, 0, SEEK_CUR))
        return;
    lseek(t->fd, 0, SEEK_SET);
    str_clear(&t->line);
}

/* Returns the number of unread bytes now. A process that outlives its job may write on, faster than
 * the log is read. */
static int64_t to_read(const struct tail *t)
{
    struct stat st;
    return t->fd >= 0 && fstat(t->fd, &st) == 0
               ? (int64_t)(st.st_size - lseek(t->fd, 0, SEEK_CUR))
               : 0;
}

void tail_pump(struct tail *t, bool last)
{
    char buf[PIPE_BUF];
    ssize_t n;
    int64_t taken = 0;
    double until = clock_mono_s() + LOOK_S;
    cut_look(t);
    int64_t all = last ? to_read(t) : TAIL_LOOK_BYTES;
    while (t->fd >= 0 && taken < all && (last || clock_mono_s() < until) && out_takes(t, last) &&
           (n = read(t->fd, buf, sizeof buf)) > 0) {
        taken += n;
        if (t->out_fd >= 0 &&
            file_write_all(t->out_fd, buf, (size_t)n, "standard output", NULL) < 0)
            t->out_fd = -1; /* the reader is gone; the log has the whole output */
        if (t->fn)
            lines_take(t, buf, (size_t)n);
    }
    if (last && t->fn)
        line_end(t); /* the last line may have no line end */
}

void tail_close(struct tail *t)
{
    if (t->path && t->fd >= 0)
        close(t->fd);
    free(t->path);
    if (t->path)
        str_release(&t->line);
    *t = (struct tail){.fd = -1};
}
