#include "base/progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/num.h"

enum { LINE_BYTES = 256, DEFAULT_COLUMNS = 80 };
static const double live_every_s = 0.1, plain_every_s = 5;

void progress_start(struct progress *p, const char *what, int64_t total, bool quiet)
{
    double now = clock_mono_s();
    *p = (struct progress){
        .what = what, .total = total,
        .started_s = now, .shown_s = now,
        .live = isatty(STDERR_FILENO) == 1, .quiet = quiet};
    if (p->live)
        p->shown_s = now - live_every_s; /* so that a terminal shows the first step at once */
}

void progress_from(struct progress *p, int64_t done)
{
    p->from = p->done = done;
}

/* Appends to a line of LINE_BYTES and cuts the text that does not fit. */
static size_t add(char *line, size_t at, const char *before, const char *text)
{
    size_t room = LINE_BYTES - at;
    int n = snprintf(line + at, room, "%s%s", before, text);
    return n < 0 ? at : (size_t)n < room ? at + (size_t)n : LINE_BYTES - 1;
}

/* Formats "curate: 12/100 (12%), 3.4/s, 26.0 s left, note". The last line shows the time taken
 * instead of the time left. */
static size_t format(const struct progress *p, double now, bool last, const char *note,
                     char line[LINE_BYTES])
{
    char text[64], num[32];
    double elapsed = now - p->started_s;
    double rate = elapsed > 0 && p->done - p->from >= 2 ? (double)(p->done - p->from) / elapsed : 0;
    size_t n = add(line, 0, p->what, ": ");
    snprintf(text, sizeof text, "%lld", (long long)p->done);
    n = add(line, n, "", text);
    if (p->total > 0) {
        snprintf(text, sizeof text, "/%lld (%d%%)", (long long)p->total,
                 (int)(100.0 * (double)p->done / (double)p->total));
        n = add(line, n, "", text);
    }
    if (rate > 0) {
        snprintf(text, sizeof text, "%s/s", num_format_count(rate, num, sizeof num));
        n = add(line, n, ", ", text);
    }
    if (last) {
        n = add(line, n, ", took ", num_format_seconds(elapsed, num, sizeof num));
    } else if (rate > 0 && p->total > p->done) {
        snprintf(text, sizeof text, "%s left",
                 num_format_seconds((double)(p->total - p->done) / rate, num, sizeof num));
        n = add(line, n, ", ", text);
    }
    return note != NULL ? add(line, n, ", ", note) : n;
}

static size_t columns(void)
{
    struct winsize w;
    size_t n = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col
                                                                         : DEFAULT_COLUMNS;
    return n < LINE_BYTES ? n : LINE_BYTES - 1;
}

/* Fits the line to a terminal, where it overwrites the previous one: cuts it before the last column
 * and pads it with blanks up to there. A character takes one column; bytes that continue a UTF-8
 * character take none. */
static size_t fit_live(char line[LINE_BYTES], size_t n)
{
    size_t width = columns() - 1, used = 0, i = 0;
    for (; i < n; i++) {
        bool starts = ((unsigned char)line[i] & 0xc0) != 0x80;
        if (starts && used == width)
            break;
        used += starts;
    }
    while (used++ < width && i < LINE_BYTES - 1)
        line[i++] = ' ';
    return i;
}

static void show(struct progress *p, double now, bool last, const char *note)
{
    char line[LINE_BYTES], out[LINE_BYTES + 8];
    size_t n = format(p, now, last, note, line);
    if (p->live)
        n = fit_live(line, n);
    int len = snprintf(out, sizeof out, "%s%.*s%s", p->live ? "\r" : "", (int)n, line,
                       p->live && !last ? "" : "\n");
    if (len > 0) {
        ssize_t rc = write(STDERR_FILENO, out, (size_t)len);
        (void)rc; /* a failure to print progress is no error */
    }
    p->shown_s = now;
}

void progress_step(struct progress *p, int64_t done, const char *note)
{
    p->done = done;
    if (p->quiet)
        return;
    double now = clock_mono_s();
    if (now - p->shown_s >= (p->live ? live_every_s : plain_every_s))
        show(p, now, false, note);
}

void progress_end(struct progress *p, const char *note)
{
    if (!p->quiet)
        show(p, clock_mono_s(), true, note);
}
