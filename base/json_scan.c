/* json_scan: checks JSON text strictly before cJSON builds the tree.
 *
 * cJSON accepts more than RFC 8259 allows (leading zeros, a bare "1.", "nan" as strtod reads it,
 * raw control characters, any bytes in strings) and gives no line numbers. This scanner implements
 * the grammar of RFC 8259, sections 2 to 7, with one function per rule. It adds the checks that our
 * formats need: UTF-8 only, no NUL (not as \u0000 either, which would cut a C string), finite
 * numbers of at most 63 characters (cJSON's buffer), at most LIMIT_JSON_DEPTH levels, nothing after
 * the value.
 */
#include "base/json_priv.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"

enum { NUMBER_BYTES = 64 };

struct scan {
    const char *start, *p, *end;
    const char *name;
    struct err *err;
    int depth;
};

static int scan_value(struct scan *s);

size_t json_utf8_len(const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    if (p[0] < 0x80)
        return 1;
    size_t len = p[0] >= 0xc2 && p[0] < 0xe0   ? 2
                 : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
                 : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
                                               : 0;
    if (len == 0 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    bool surrogate = p[0] == 0xed && p[1] >= 0xa0;
    bool too_high = p[0] == 0xf4 && p[1] >= 0x90;
    return overlong || surrogate || too_high ? 0 : len;
}

/* Reports an error at s->p: "file:line:column: text". Columns count characters. */
static int fail(const struct scan *s, int code, const char *text)
{
    long line = 1, column = 1;
    for (const char *q = s->start; q < s->p; q++) {
        if (*q == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)*q & 0xc0) != 0x80) {
            column++;
        }
    }
    return err_set(s->err, code, "%s:%ld:%ld: %s", s->name, line, column, text);
}

/* Reports an error that ends with the character found at s->p: "expected ':' after a key, found
 * '='". */
static int expected(const struct scan *s, const char *what)
{
    char text[160];
    if (s->p == s->end)
        snprintf(text, sizeof text, "expected %s, found the end of the text", what);
    else if (isgraph((unsigned char)*s->p))
        snprintf(text, sizeof text, "expected %s, found '%c'", what, *s->p);
    else
        snprintf(text, sizeof text, "expected %s, found byte 0x%02x", what, (unsigned char)*s->p);
    return fail(s, ERR_INPUT, text);
}

static void skip_space(struct scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
        s->p++;
}

static bool at(const struct scan *s, char c)
{
    return s->p < s->end && *s->p == c;
}

static bool at_digit(const struct scan *s)
{
    return s->p < s->end && *s->p >= '0' && *s->p <= '9';
}

static int scan_digits(struct scan *s)
{
    if (!at_digit(s))
        return expected(s, "a digit");
    while (at_digit(s))
        s->p++;
    return 0;
}

/* Checks the length and the size of the number that ends at s->p. A number of this length whose
 * exponent has fewer than three digits is below 1e162, so it is finite and need not be
 * converted. */
static int check_number(struct scan *s, const char *from, bool may_be_large)
{
    char copy[NUMBER_BYTES];
    size_t n = (size_t)(s->p - from);
    if (n < sizeof copy && !may_be_large)
        return 0;
    s->p = from;
    if (n >= sizeof copy)
        return fail(s, ERR_INPUT, "a number of more than 63 characters: write fewer digits");
    memcpy(copy, from, n);
    copy[n] = '\0';
    if (!isfinite(strtod(copy, NULL)))
        return fail(s, ERR_INPUT, "the number is too large: give one below 1.8e308");
    s->p = from + n;
    return 0;
}

static int scan_number(struct scan *s)
{
    const char *from = s->p;
    bool may_be_large = false;
    int rc;
    if (at(s, '-'))
        s->p++;
    const char *digits = s->p;
    if ((rc = scan_digits(s)) < 0)
        return rc;
    if (*digits == '0' && s->p > digits + 1) {
        s->p = digits;
        return fail(s, ERR_INPUT, "a number with leading zeros: remove them");
    }
    if (at(s, '.')) {
        s->p++;
        if ((rc = scan_digits(s)) < 0)
            return rc;
    }
    if (at(s, 'e') || at(s, 'E')) {
        s->p++;
        if (at(s, '+') || at(s, '-'))
            s->p++;
        const char *exponent = s->p;
        if ((rc = scan_digits(s)) < 0)
            return rc;
        may_be_large = s->p > exponent + 2;
    }
    return check_number(s, from, may_be_large);
}

/* Returns the value of the four hex digits at s->p, -1 if there are none. */
static int32_t hex4(const struct scan *s)
{
    int32_t v = 0;
    if (s->end - s->p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        unsigned char c = (unsigned char)s->p[i];
        if (!isxdigit(c))
            return -1;
        v = v * 16 + (isdigit(c) ? c - '0' : tolower(c) - 'a' + 10);
    }
    return v;
}

/* Scans the text after "\u": one UTF-16 unit, or a surrogate pair. */
static int scan_unicode_escape(struct scan *s)
{
    int32_t unit = hex4(s);
    if (unit < 0)
        return expected(s, "four hex digits after \\u");
    if (unit == 0)
        return fail(s, ERR_INPUT, "\\u0000 in a text: remove it");
    s->p += 4;
    if (unit < 0xd800 || unit > 0xdfff)
        return 0;
    bool pair = unit < 0xdc00 && at(s, '\\') && s->end - s->p >= 6 && s->p[1] == 'u';
    if (pair) {
        s->p += 2;
        int32_t low = hex4(s);
        pair = low >= 0xdc00 && low <= 0xdfff;
        s->p += pair ? 4 : 0;
    }
    return pair ? 0 : fail(s, ERR_INPUT, "half of a surrogate pair: give both halves");
}

static int scan_escape(struct scan *s)
{
    s->p++;
    if (at(s, 'u')) {
        s->p++;
        return scan_unicode_escape(s);
    }
    if (s->p == s->end || *s->p == '\0' || strchr("\"\\/bfnrt", *s->p) == NULL)
        return expected(s, "one of \" \\ / b f n r t u after a backslash");
    s->p++;
    return 0;
}

static int scan_string(struct scan *s)
{
    s->p++;
    while (!at(s, '"')) {
        if (s->p == s->end)
            return expected(s, "the closing '\"' of a text");
        if ((unsigned char)*s->p < 0x20)
            return fail(s, ERR_INPUT,
                        "a raw control character in a text: write it as an escape such as \\n or "
                        "\\t");
        if (*s->p == '\\') {
            int rc = scan_escape(s);
            if (rc < 0)
                return rc;
            continue;
        }
        size_t n = json_utf8_len(s->p, (size_t)(s->end - s->p));
        if (n == 0)
            return fail(s, ERR_INPUT, "bytes that are not valid UTF-8: save the file as UTF-8");
        s->p += n;
    }
    s->p++;
    return 0;
}

static int scan_member(struct scan *s)
{
    if (!at(s, '"'))
        return expected(s, "a key in double quotes");
    int rc = scan_string(s);
    if (rc < 0)
        return rc;
    skip_space(s);
    if (!at(s, ':'))
        return expected(s, "':' after a key");
    s->p++;
    skip_space(s);
    return scan_value(s);
}

/* Scans '{' members '}' or '[' values ']'. */
static int scan_container(struct scan *s, char close, int (*scan_item)(struct scan *),
                          const char *next)
{
    if (++s->depth > LIMIT_JSON_DEPTH)
        return fail(s, ERR_LIMIT, "nested deeper than 64 levels");
    s->p++;
    skip_space(s);
    bool more = !at(s, close);
    while (more) {
        int rc = scan_item(s);
        if (rc < 0)
            return rc;
        skip_space(s);
        more = at(s, ',');
        if (!more && !at(s, close))
            return expected(s, next);
        if (more) {
            s->p++;
            skip_space(s);
        }
    }
    s->p++;
    s->depth--;
    return 0;
}

static int scan_word(struct scan *s)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(s->end - s->p) >= n && memcmp(s->p, words[i], n) == 0) {
            s->p += n;
            return 0;
        }
    }
    return expected(s, "a value (an object, array, text, number, true, false or null)");
}

static int scan_value(struct scan *s)
{
    if (at(s, '{'))
        return scan_container(s, '}', scan_member, "',' or '}' after a member");
    if (at(s, '['))
        return scan_container(s, ']', scan_value, "',' or ']' after a value");
    if (at(s, '"'))
        return scan_string(s);
    if (at(s, '-') || at_digit(s))
        return scan_number(s);
    return scan_word(s);
}

int json_scan(const char *text, size_t len, const char *name, struct err *err)
{
    struct scan s = {.start = text, .p = text, .end = text + len, .name = name, .err = err};
    skip_space(&s);
    int rc = scan_value(&s);
    if (rc < 0)
        return rc;
    skip_space(&s);
    return s.p == s.end ? 0 : expected(&s, "nothing after the value");
}
