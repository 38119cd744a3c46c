#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Puts "..." at the end of a text that was cut because its buffer was full. */
static void mark_cut(char *text, size_t size)
{
    memcpy(text + size - 4, "...", 4);
}

/* Replaces control characters by '?'. File names and quoted values may hold line breaks and
 * terminal escapes, but a message must be one line that does not control the terminal. */
static void disarm(char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

/* Formats the text in a buffer of its own, because the arguments may point into err->text. */
static void fill(struct err *err, int code, const char *fmt, va_list ap)
{
    char text[ERR_TEXT_BYTES];
    int n = vsnprintf(text, sizeof text, fmt, ap);
    if (n < 0)
        snprintf(text, sizeof text, "(unprintable message: %.200s)", fmt);
    else if ((size_t)n >= sizeof text)
        mark_cut(text, sizeof text);
    disarm(text);
    err->code = code;
    memcpy(err->text, text, sizeof text);
}

/* Appends ": <tail>" to err->text as far as it fits. */
static void append(struct err *err, const char *tail)
{
    size_t len = strlen(err->text), room = sizeof err->text - len;
    if ((size_t)snprintf(err->text + len, room, ": %s", tail) >= room)
        mark_cut(err->text, sizeof err->text);
}

int err_set(struct err *err, int code, const char *fmt, ...)
{
    BUG_ON(code >= 0);
    if (err == NULL)
        return code;
    va_list ap;
    va_start(ap, fmt);
    fill(err, code, fmt, ap);
    va_end(ap);
    return code;
}

int err_set_errno(struct err *err, int code, const char *fmt, ...)
{
    int e = errno;
    BUG_ON(code >= 0);
    if (e == ENOMEM)
        code = ERR_NOMEM;
    if (e == ENOSPC || e == EDQUOT || e == EROFS)
        code = ERR_FULL;
    if (err == NULL)
        return code;
    va_list ap;
    va_start(ap, fmt);
    fill(err, code, fmt, ap);
    va_end(ap);
    char buf[128];
    append(err, strerror_r(e, buf, sizeof buf));
    return code;
}

int err_context(struct err *err, const char *fmt, ...)
{
    if (err == NULL)
        return ERR_STATE; /* there is no *err that holds the code */
    char old[ERR_TEXT_BYTES];
    memcpy(old, err->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    fill(err, err->code, fmt, ap);
    va_end(ap);
    append(err, old);
    return err->code;
}

int err_exit_code(int code)
{
    switch (code) {
    case ERR_OK: return 0;
#define ERR_CASE(name, value, exit_code, text) case name: return exit_code;
        ERR_LIST(ERR_CASE)
#undef ERR_CASE
    }
    return 5;
}

const char *err_name(int code)
{
    switch (code) {
    case ERR_OK: return "ERR_OK";
#define ERR_CASE(name, value, exit_code, text) case name: return #name;
        ERR_LIST(ERR_CASE)
#undef ERR_CASE
    }
    return "ERR_UNKNOWN";
}

/* Writes the whole line with one call, so that the lines of several ranks do not mix. */
void err_bug(const char *file, int line, const char *fmt, ...)
{
    char text[ERR_TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    dprintf(STDERR_FILENO, "%s:%d: %s\n", file, line, text);
    abort();
}
