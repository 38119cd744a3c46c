#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>


enum { LINE_BYTES = 2048 };

/* main sets these before it starts threads. */
static enum log_level max_level = LOG_WARN;
static log_sink_fn *sink;
static void *sink_ctx;

void log_set_level(enum log_level level)
{
    max_level = level;
}

void log_set_sink(log_sink_fn *fn, void *ctx)
{
    sink = fn;
    sink_ctx = ctx;
}

static const char *level_name(enum log_level level)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    return names[level];
}

/* Writes a line with one call, so that the lines of several processes do not mix. */
void log_to_stderr(void *program_name, enum log_level level, const char *text)
{
    char line[LINE_BYTES + 64];
    const char *program = program_name != NULL ? program_name : "reel";
    int n = snprintf(line, sizeof line, "%s: %s: %s\n", program, level_name(level), text);
    size_t len = n < 0 ? 0 : (size_t)n;
    if (len >= sizeof line) {
        len = sizeof line - 1;
        line[len - 1] = '\n';
    }
    ssize_t rc = write(STDERR_FILENO, line, len);
    (void)rc; /* a failure to write to stderr cannot be reported */
}

void log_msg(enum log_level level, const char *fmt, ...)
{
    if (sink == NULL || level > max_level)
        return;
    char text[LINE_BYTES];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    if ((size_t)n >= sizeof text)
        memcpy(text + sizeof text - 4, "...", 4);
    sink(sink_ctx, level, text);
}
