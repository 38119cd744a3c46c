#include "base/str.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

char str_empty[1]; /* never written to: cap 0 means that the string does not own its memory */

enum { FIRST_CAP = 64 };

/* Makes room for n more bytes and the terminator. */
static bool reserve(struct str *s, size_t n)
{
    if (s->failed || n > SIZE_MAX / 2 - s->len - 1) {
        s->failed = 1;
        return false;
    }
    size_t need = s->len + n + 1;
    if (need <= s->cap)
        return true;
    size_t cap = s->cap ? s->cap : FIRST_CAP;
    while (cap < need)
        cap *= 2;
    char *p = realloc(s->cap ? s->p : NULL, cap);
    if (p == NULL) {
        s->failed = 1;
        return false;
    }
    s->p = p;
    s->cap = cap;
    return true;
}

void str_addn(struct str *s, const void *bytes, size_t n)
{
    if (n == 0 || !reserve(s, n))
        return;
    memcpy(s->p + s->len, bytes, n);
    s->len += n;
    s->p[s->len] = '\0';
}

void str_add(struct str *s, const char *text)
{
    str_addn(s, text, strlen(text));
}

void str_addc(struct str *s, char c)
{
    str_addn(s, &c, 1);
}

__attribute__((format(printf, 2, 0)))
static void text_addv(struct str *s, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    if (n < 0)
        s->failed = 1;
    else if (n > 0 && reserve(s, (size_t)n)) {
        vsnprintf(s->p + s->len, (size_t)n + 1, fmt, again);
        s->len += (size_t)n;
    }
    va_end(again);
}

void str_addf(struct str *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    text_addv(s, fmt, ap);
    va_end(ap);
}

void str_clear(struct str *s)
{
    s->len = 0;
    s->failed = 0;
    if (s->cap)
        s->p[0] = '\0';
}

void str_release(struct str *s)
{
    if (s->cap)
        free(s->p);
    *s = (struct str)STR_INIT;
}

char *str_detach(struct str *s)
{
    char *p = NULL;
    if (!s->failed && (s->cap || reserve(s, 0))) {
        p = s->p;
        p[s->len] = '\0';
        s->cap = 0;
    }
    str_release(s);
    return p;
}

int str_check(const struct str *s, struct err *err)
{
    if (!s->failed)
        return 0;
    return err_set(err, ERR_NOMEM, "out of memory while building a text of more than %zu bytes",
                   s->len);
}

bool str_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

void str_cut(char *out, size_t size, const char *text)
{
    size_t end = size - sizeof "...", word = end;
    snprintf(out, size, "%s", text);
    if (strlen(text) < size)
        return;
    while (word > end / 2 && text[word] != ' ')
        word--;
    /* do not cut inside a UTF-8 character */
    while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80)
        end--;
    memcpy(out + (word > end / 2 ? word : end), "...", sizeof "...");
}

/* Returns the length in bytes of the character at p if a terminal prints it, else 0. n: number of
 * readable bytes. */
static size_t printed(const char *p, size_t n, const char *keep)
{
    size_t bytes = json_utf8_len(p, n);
    bool second_controls = bytes == 2 && (unsigned char)p[0] == 0xc2 && (unsigned char)p[1] < 0xa0;
    bool kept = *p && strchr(keep, *p);
    return kept || ((unsigned char)*p >= ' ' && *p != 0x7f && !second_controls) ? bytes : 0;
}

size_t str_plain(const char *text)
{
    size_t n = 0;
    while ((unsigned char)text[n] >= ' ' && text[n] != 0x7f)
        n++;
    return n;
}

void str_disarm(char *text, size_t n, const char *keep)
{
    for (size_t i = 0; i < n;) {
        size_t bytes = printed(text + i, n - i, keep);
        if (bytes == 0)
            text[i] = (unsigned char)text[i] < ' ' ? ' ' : '?';
        i += bytes ? bytes : 1;
    }
}

enum { WORD_MAX = 64, BEGIN_MIN = 3 };

static size_t min_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Returns the optimal string alignment distance: to insert, delete or replace a character, or to
 * swap two neighbours, costs 1. */
static size_t edit_distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t row[3][WORD_MAX + 1];
    for (size_t j = 0; j <= m; j++)
        row[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *now = row[i % 3], *up = row[(i + 2) % 3], *up2 = row[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t d = min_of(up[j], now[j - 1]) + 1;
            d = min_of(d, up[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d = min_of(d, up2[j - 2] + 1);
            now[j] = d;
        }
    }
    return row[n % 3][m];
}

/* Returns the shortest name that begins with the word. */
static const char *begun_with(const char *word, const char *const *names)
{
    const char *best = NULL;
    for (; *names != NULL; names++)
        if (str_starts(*names, word) && (!best || strlen(*names) < strlen(best)))
            best = *names;
    return best;
}

const char *str_nearest(const char *word, const char *const *names)
{
    size_t n = strlen(word);
    if (n == 0 || n > WORD_MAX)
        return NULL;
    const char *best = n >= BEGIN_MIN ? begun_with(word, names) : NULL;
    if (best)
        return best;
    size_t best_d = (n + 2) / 3 + 1; /* a third of the letters may be wrong */
    for (; *names != NULL; names++) {
        size_t m = strlen(*names);
        if (m == 0 || m > WORD_MAX)
            continue;
        size_t d = edit_distance(word, n, *names, m);
        if (d < best_d && d < m) {
            best = *names;
            best_d = d;
        }
    }
    return best;
}
