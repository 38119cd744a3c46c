#include "launcher/tail.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/num.h"

enum { LINE_MAX_BYTES = 64 << 10, NUMBER_BYTES = 24, LAST_WAIT_MS = 1000 };

static int pattern_compile(const char *pattern, regex_t *out, struct err *err)
{
    char why[128];
    int rc = regcomp(out, pattern, REG_EXTENDED);
    if (rc != 0) {
        regerror(rc, out, why, sizeof why);
        return err_set(err, ERR_USAGE, "the step pattern '%s' is no POSIX extended regular expression: %s", pattern, why);
    }
    if (out->re_nsub >= 1)
        return 0;
    regfree(out);
    return err_set(err, ERR_USAGE, "the step pattern '%s' has no group: put the number in parentheses, like 'iteration +([0-9]+)'", pattern);
}

int tail_pattern_check(const char *pattern, struct err *err)
{
    regex_t compiled;
    int rc = pattern_compile(pattern, &compiled, err);
    if (rc == 0)
        regfree(&compiled);
    return rc;
}

int tail_open(const char *path, const char *pattern, int out_fd, struct tail *out, struct err *err)
{
    struct tail t = {.fd = -1, .out_fd = out_fd, .line = STR_INIT, .step = -1, .searching = pattern != NULL};
    int rc = pattern ? pattern_compile(pattern, &t.pattern, err) : 0;
    if (rc < 0)
        return rc;
    t.fd = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0666);
    t.path = strdup(path);
    *out = t;
    if (t.fd >= 0 && t.path && lseek(t.fd, 0, SEEK_END) >= 0)
        return 0;
    rc = err_set_errno(err, ERR_IO, "cannot follow the log '%s'", path);
    tail_close(out);
    return rc;
}

static void line_search(struct tail *t)
{
    regmatch_t m[2];
    char number[NUMBER_BYTES];
    int64_t step;
    if (!t->searching || regexec(&t->pattern, t->line.p, 2, m, 0) != 0 || m[1].rm_so < 0)
        return;
    size_t n = (size_t)(m[1].rm_eo - m[1].rm_so);
    if (n >= sizeof number)
        return;
    memcpy(number, t->line.p + m[1].rm_so, n);
    number[n] = 0;
    if (num_parse_i64(number, "step", &step, NULL) < 0 || step <= t->step)
        return;
    t->stride = t->step >= 0 ? step - t->step : 0;
    t->step = step;
}

/* Progress bars end a line by a carriage return; what is longer than a line may be is searched in pieces. */
static void lines_take(struct tail *t, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool ends = bytes[i] == '\n' || bytes[i] == '\r';
        if (!ends)
            str_addc(&t->line, bytes[i] ? bytes[i] : ' '); /* a zero would end the text */
        if (!ends && t->line.len < LINE_MAX_BYTES)
            continue;
        line_search(t);
        str_clear(&t->line);
    }
}

/* Will PIPE_BUF bytes go out at once? Nobody there any more counts as yes: the write fails. */
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

void tail_pump(struct tail *t, bool last)
{
    char buf[PIPE_BUF];
    ssize_t n;
    cut_look(t);
    while (t->fd >= 0 && out_takes(t, last) && (n = read(t->fd, buf, sizeof buf)) > 0) {
        if (t->out_fd >= 0 && file_write_all(t->out_fd, buf, (size_t)n, "standard output", NULL) < 0)
            t->out_fd = -1; /* whoever read it is gone; the log has it all */
        if (t->searching)
            lines_take(t, buf, (size_t)n);
    }
}

void tail_close(struct tail *t)
{
    if (t->searching)
        regfree(&t->pattern);
    if (t->path && t->fd >= 0)
        close(t->fd);
    free(t->path);
    if (t->path)
        str_release(&t->line);
    *t = (struct tail){.fd = -1};
}
