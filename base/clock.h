/* clock: wall, monotonic and CPU time, boot id, host name. Durations come from the monotonic clock
 * only. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

double clock_wall_s(void);          /* UTC Unix seconds */
int64_t clock_mono_ns(void);        /* CLOCK_BOOTTIME: comparable within one boot of one host */
double clock_mono_s(void);          /* the same in seconds */
double clock_cpu_s(void);           /* seconds that this thread has computed */
void clock_sleep_s(double seconds); /* sleeps the whole time; is restarted after signals */
const char *clock_boot_id(void);    /* kernel's boot uuid, "unknown" if not readable; static */
const char *clock_host(void);       /* short host name; static */
/* Writes "2026-03-01T12:00:00Z" and returns buf. */
char *clock_format_utc(double wall_s, char *buf, size_t size);

#endif
