/* num: checked arithmetic on sizes and counts, and the two shared parsers for sizes and durations. */
#ifndef BASE_NUM_H
#define BASE_NUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* *out = a op b; false (and *out untouched) on overflow. */
bool num_mul_i64(int64_t a, int64_t b, int64_t *out);
bool num_add_i64(int64_t a, int64_t b, int64_t *out);
bool num_mul_size(size_t a, size_t b, size_t *out);

static inline int64_t num_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t num_round_up(int64_t a, int64_t b) { return num_ceil_div(a, b) * b; }
static inline int64_t num_min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t num_max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

/* Whole text must be consumed. `what` names the value in the error sentence ("--steps"). */
int num_parse_i64(const char *text, const char *what, int64_t *out, struct err *err);
int num_parse_u64(const char *text, const char *what, uint64_t *out, struct err *err); /* decimal or 0x… */
int num_parse_f64(const char *text, const char *what, double *out, struct err *err);   /* finite only */
/* "4096", "64K", "1.5GiB", "2GB": K M G T are powers of 1024, with "B" alone after the letter powers of 1000. */
int num_parse_bytes(const char *text, const char *what, int64_t *out, struct err *err);
/* "90", "1.5s", "250ms", "10m", "2h", "1d", "1:30:00": seconds. */
int num_parse_seconds(const char *text, const char *what, double *out, struct err *err);

/* Human forms into a caller's buffer; return buf. "1.5 GiB"; "2 h 03 m", "12.3 s", "4.1 ms". */
char *num_format_bytes(int64_t bytes, char *buf, size_t size);
char *num_format_seconds(double seconds, char *buf, size_t size);
char *num_format_count(double count, char *buf, size_t size); /* "7.16 G" */

#endif
