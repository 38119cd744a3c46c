/* evlog_priv: declares what evlog.c (the writer) and evlog_read.c (the reader) share. evlog.c
 * describes the format. */
#ifndef BASE_EVLOG_PRIV_H
#define BASE_EVLOG_PRIV_H

#include "base/evlog.h"

enum {
    EVLOG_MARKER_BYTES = 8,
    EVLOG_HEADER_BYTES = 32,
    EVLOG_CHECKED_FROM = 16, /* first byte of a record that its checksum covers */
    EVLOG_VERSION = 1,
};

extern const unsigned char evlog_marker[EVLOG_MARKER_BYTES];

/* Write and read a little-endian integer of `bytes` bytes. */
static inline void evlog_put_le(unsigned char *p, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (unsigned char)(value >> (8 * i));
}

static inline uint64_t evlog_get_le(const unsigned char *p, int bytes)
{
    uint64_t value = 0;

    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | p[i];
    return value;
}

/* Sets *out to one more than the greatest seq in the log, 1 if the log has no record. Damage is
 * skipped. */
int evlog_next_seq(const char *path, int64_t *out, struct err *err);

#endif
