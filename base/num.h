/* num: computes with sizes and counts without overflow, and parses and formats numbers, sizes and
 * durations. */
#ifndef BASE_NUM_H
#define BASE_NUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Set *out = a op b. They return false, and leave *out as it was, on overflow. */
static inline bool num_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}
bool num_add_i64(int64_t a, int64_t b, int64_t *out);
bool num_mul_size(size_t a, size_t b, size_t *out);

static inline int64_t num_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t num_round_up(int64_t a, int64_t b) { return num_ceil_div(a, b) * b; }
static inline int64_t num_min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t num_max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
/* Returns the greatest common divisor of two numbers, one of which is positive. */
static inline int64_t num_gcd(int64_t a, int64_t b)
{
    for (int64_t rest; b; a = b, b = rest)
        rest = a % b;
    return a;
}
/* Returns the median of n values, 1 or more, which it sorts. */
double num_median(double *values, int64_t n);
/* Adds a part to a sum, and returns by how much the rounded sum grows: so parts that are rounded
 * one after the other add up to the rounded sum. */
int64_t num_round_part(double *sum, double part);

/* Parse a number; no other text may precede or follow it. u64 is decimal or 0x…, and f64 must be
 * finite. `what` names the value in the error ("--steps"). */
int num_parse_i64(const char *text, const char *what, int64_t *out, struct err *err);
int num_parse_u64(const char *text, const char *what, uint64_t *out, struct err *err);
int num_parse_f64(const char *text, const char *what, double *out, struct err *err);
/* Parses "4096", "64K", "1.5GiB" or "2GB". K, M, G, T and P, alone or with "i" or "iB", are powers
 * of 1024; with "B" alone after the letter they are powers of 1000. */
int num_parse_bytes(const char *text, const char *what, int64_t *out, struct err *err);
/* Parses "90", "1.5s", "250ms", "10m", "2h", "1d" or "1:30:00" into seconds. */
int num_parse_seconds(const char *text, const char *what, double *out, struct err *err);

/* Format a value for people into the caller's buffer and return it: "1.5 GiB"; "2 h 03 m", "12.3
 * s", "4.1 ms". */
char *num_format_bytes(int64_t bytes, char *buf, size_t size);
char *num_format_seconds(double seconds, char *buf, size_t size);
/* Formats it with three digits, for what stands beside a percentage: "1.14 s", "20.5 ms". */
char *num_format_seconds_fine(double seconds, char *buf, size_t size);
char *num_format_count(double count, char *buf, size_t size); /* "7.16 G" */

#endif
