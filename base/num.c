#include "base/num.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool num_add_i64(int64_t a, int64_t b, int64_t *out)
{
    int64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

bool num_mul_size(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

/* ---- parsing ---- */

static int refuse(struct err *err, const char *what, const char *text, const char *allowed)
{
    return err_set(err, ERR_INPUT, "%s is '%.100s': give %s", what, text, allowed);
}

/* Tells whether the text begins like a number. strtoll and its relatives skip leading space and
 * accept forms that are not allowed here, so this checks the first characters. */
static bool starts_number(const char *text, bool sign)
{
    if (sign && (*text == '-' || *text == '+'))
        text++;
    return isdigit((unsigned char)text[0]) || (text[0] == '.' && isdigit((unsigned char)text[1]));
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double num_median(double *values, int64_t n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

int64_t num_round_part(double *sum, double part)
{
    int64_t before = llround(*sum);
    *sum += part;
    return llround(*sum) - before;
}

int num_parse_i64(const char *text, const char *what, int64_t *out, struct err *err)
{
    char *end = NULL;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (!starts_number(text, true) || *end != '\0')
        return refuse(err, what, text, "a whole number");
    if (errno == ERANGE)
        return refuse(err, what, text, "a whole number that fits in 64 bits");
    *out = v;
    return 0;
}

int num_parse_u64(const char *text, const char *what, uint64_t *out, struct err *err)
{
    bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X') &&
               isxdigit((unsigned char)text[2]);
    char *end = NULL;
    errno = 0;
    unsigned long long v = strtoull(text, &end, hex ? 16 : 10);
    if (!starts_number(text, false) || *end != '\0')
        return refuse(err, what, text, "a whole number of 0 or more, decimal or 0x hex");
    if (errno == ERANGE)
        return refuse(err, what, text, "a whole number that fits in 64 bits");
    *out = v;
    return 0;
}

/* Reads a plain decimal number at the start of text. Returns a pointer to its end, NULL if there is
 * no number. */
static const char *scan_decimal(const char *text, bool sign, double *out)
{
    size_t span = strspn(text, "+-.0123456789eE");
    char copy[64], *end = NULL;
    if (!starts_number(text, sign) || span >= sizeof copy)
        return NULL;
    memcpy(copy, text, span);
    copy[span] = '\0';
    *out = strtod(copy, &end); /* the locale is always "C", since no program calls setlocale */
    return text + (end - copy);
}

int num_parse_f64(const char *text, const char *what, double *out, struct err *err)
{
    double v = 0;
    const char *end = scan_decimal(text, true, &v);
    if (end == NULL || *end != '\0')
        return refuse(err, what, text, "a number");
    if (!isfinite(v))
        return refuse(err, what, text, "a number below 1.8e308");
    *out = v;
    return 0;
}

/* Returns the factor of "", "B", "K", "KiB", "KB", …; 0 for anything else. */
static int64_t byte_factor(const char *unit)
{
    if (*unit == '\0' || strcasecmp(unit, "b") == 0)
        return 1;
    const char *letters = "KMGTP", *at = strchr(letters, toupper((unsigned char)*unit));
    if (at == NULL)
        return 0;
    bool binary = unit[1] == '\0' || strcasecmp(unit + 1, "i") == 0 ||
                  strcasecmp(unit + 1, "ib") == 0;
    if (!binary && strcasecmp(unit + 1, "b") != 0)
        return 0;
    int64_t factor = 1;
    for (const char *l = letters; l <= at; l++)
        factor *= binary ? 1024 : 1000;
    return factor;
}

int num_parse_bytes(const char *text, const char *what, int64_t *out, struct err *err)
{
    static const char allowed[] = "a size such as 4096, 64K or 1.5GiB";
    double v = 0;
    const char *unit = scan_decimal(text, false, &v);
    if (unit == NULL)
        return refuse(err, what, text, allowed);
    size_t digits = strspn(text, "0123456789");
    while (*unit == ' ')
        unit++;
    int64_t factor = byte_factor(unit), n = 0;
    if (factor == 0)
        return refuse(err, what, text, allowed);
    bool whole = text[digits] != '.' && tolower((unsigned char)text[digits]) != 'e';
    if (whole) { /* integer arithmetic is exact; a double would round above 2^53 */
        errno = 0;
        n = strtoll(text, NULL, 10);
        if (errno == ERANGE || !num_mul_i64(n, factor, &n))
            return refuse(err, what, text, "a size below 8 EiB");
    } else {
        v = nearbyint(v * (double)factor);
        if (!(v < 0x1p63))
            return refuse(err, what, text, "a size below 8 EiB");
        n = (int64_t)v;
    }
    *out = n;
    return 0;
}

/* Parses "[[H:]M:]S", where M and S must be below 60 if another part precedes them. Returns -1 if
 * the text has another form. */
static double parse_colons(const char *text)
{
    double total = 0;
    for (int part = 0; part < 3; part++) {
        double v = 0;
        const char *end = scan_decimal(text, false, &v);
        if (end == NULL || (part > 0 && v >= 60))
            return -1;
        total = total * 60 + v;
        if (*end == '\0')
            return total;
        if (*end != ':' || v != floor(v))
            return -1;
        text = end + 1;
    }
    return -1;
}

/* Converts v of a unit to seconds; returns -1 if there is no such unit. Units below a second
 * divide, so that 40us is 4e-5 to the last bit. */
static double scale_seconds(double v, const char *unit)
{
    static const struct { const char *unit; double factor, divisor; } table[] = {
        {"", 1, 1},   {"s", 1, 1},    {"ms", 1, 1e3}, {"us", 1, 1e6},
        {"m", 60, 1}, {"min", 60, 1}, {"h", 3600, 1}, {"d", 86400, 1},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(unit, table[i].unit) == 0)
            return v * table[i].factor / table[i].divisor;
    return -1;
}

int num_parse_seconds(const char *text, const char *what, double *out, struct err *err)
{
    static const char allowed[] = "a duration such as 90, 1.5s, 250ms, 10m, 2h, 1d or 1:30:00";
    double v = 0;
    if (strchr(text, ':') != NULL) {
        v = parse_colons(text);
    } else {
        const char *unit = scan_decimal(text, false, &v);
        v = unit != NULL ? scale_seconds(v, unit) : -1;
    }
    if (!(v >= 0) || !isfinite(v))
        return refuse(err, what, text, allowed);
    *out = v;
    return 0;
}

/* ---- formatting: three significant digits, then the unit ---- */

/* Returns the number of digits after the decimal point that makes three significant digits in all;
 * -1 if v would round to `next`, which is 1 of the next unit. */
static int digits_for(double v, double next)
{
    if (v < 9.995)
        return 2;
    if (v < 99.95)
        return 1;
    return v < next - 0.5 ? 0 : -1;
}

static char *format_scaled(double v, double base, const char *const *units, char *buf, size_t size)
{
    const char *sign = v < 0 ? "-" : "";
    int i = 0;
    for (v = fabs(v); units[i + 1] != NULL && digits_for(v, base) < 0; i++)
        v /= base;
    int digits = digits_for(v, base);
    if (i == 0 && v == floor(v))
        digits = 0;
    snprintf(buf, size, "%s%.*f%s", sign, digits < 0 ? 0 : digits, v, units[i]);
    return buf;
}

char *num_format_bytes(int64_t bytes, char *buf, size_t size)
{
    static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB", NULL};
    return format_scaled((double)bytes, 1024, units, buf, size);
}

char *num_format_count(double count, char *buf, size_t size)
{
    static const char *const units[] = {"", " k", " M", " G", " T", " P", " E", NULL};
    if (!isfinite(count))
        snprintf(buf, size, "%s", isnan(count) ? "nan" : count < 0 ? "-inf" : "inf");
    else
        format_scaled(count, 1000, units, buf, size);
    return buf;
}

/* Formats a minute or more in two neighbouring units: "2 h 03 m". */
static void format_long(double s, const char *sign, char *buf, size_t size)
{
    if (s < 3599.5)
        snprintf(buf, size, "%s%d m %02d s", sign, (int)(s + 0.5) / 60, (int)(s + 0.5) % 60);
    else if (s < 86400 - 30)
        snprintf(buf, size, "%s%d h %02d m", sign, (int)(s / 60 + 0.5) / 60,
                 (int)(s / 60 + 0.5) % 60);
    else
        snprintf(buf, size, "%s%.0f d %02d h", sign, floor(floor(s / 3600 + 0.5) / 24),
                 (int)fmod(floor(s / 3600 + 0.5), 24));
}

char *num_format_seconds(double seconds, char *buf, size_t size)
{
    const char *sign = seconds < 0 ? "-" : "";
    double s = fabs(seconds);
    if (!isfinite(s))
        snprintf(buf, size, "%s", isnan(s) ? "nan" : "for ever");
    else if (s == 0)
        snprintf(buf, size, "0 s");
    else if (s < 999.5e-6)
        snprintf(buf, size, "%s%.*f us", sign, s < 99.95e-6 ? 1 : 0, s * 1e6);
    else if (s < 0.9995)
        snprintf(buf, size, "%s%.*f ms", sign, s < 99.95e-3 ? 1 : 0, s * 1e3);
    else if (s < 59.95)
        snprintf(buf, size, "%s%.1f s", sign, s);
    else
        format_long(s, sign, buf, size);
    return buf;
}

char *num_format_seconds_fine(double seconds, char *buf, size_t size)
{
    static const struct { double below, unit_s; const char *name; } units[] = {
        {999.5e-6, 1e-6, "us"}, {0.9995, 1e-3, "ms"}, {59.95, 1, "s"}};
    double s = fabs(seconds);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (s > 0 && s < units[i].below) {
            double v = s / units[i].unit_s;
            snprintf(buf, size, "%s%.*f %s", seconds < 0 ? "-" : "",
                     v < 9.995 ? 2 : v < 99.95 ? 1 : 0, v, units[i].name);
            return buf;
        }
    return num_format_seconds(seconds, buf, size);
}
