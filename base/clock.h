/* clock: reads wall, monotonic and CPU time, the boot id and the host name. Durations come from the
 * monotonic clock only. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

double clock_wall_s(void);          /* UTC Unix seconds */
int64_t clock_mono_ns(void);        /* CLOCK_BOOTTIME: comparable within one boot of one host */
double clock_mono_s(void);          /* the same in seconds */
double clock_cpu_s(void);           /* CPU seconds of the calling thread */
void clock_sleep_s(double seconds); /* sleeps the whole time, also when signals interrupt it */
/* Returns the kernel's boot uuid, "unknown" if it cannot be read. The text is static. */
const char *clock_boot_id(void);
const char *clock_host(void);       /* short host name; static */
/* Writes a time as "2026-03-01T12:00:00Z" and returns buf. */
char *clock_format_utc(double wall_s, char *buf, size_t size);

#endif
