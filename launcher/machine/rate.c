/* This file reads files that Linux's Documentation/ABI describes: sysfs-class-infiniband
 * ("ports/1/rate" holds "400 Gb/sec (4X NDR)", "ports/1/state" "4: ACTIVE") and sysfs-class-net
 * ("speed" in Mbit/s, -1 or an error where the interface is down or has none). */
#include "launcher/machine/rate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"

enum { MAX_PORTS = 8 };
static const double BYTES_PER_GBIT = 1e9 / 8, BYTES_PER_MBIT = 1e6 / 8;

/* Reads the line of a file below /sys; "" if there is no such file. */
static void line_read(char *line, size_t size, const char *path)
{
    struct str text = STR_INIT;
    line[0] = 0;
    if (file_read(path, 4096, &text, NULL) == 0)
        snprintf(line, size, "%s", text.p);
    str_release(&text);
}

static double port_rate(const char *sys, const char *name, int port)
{
    char path[LIMIT_PATH_BYTES], state[64], rate[64];
    snprintf(path, sizeof path, "%s/class/infiniband/%s/ports/%d/state", sys, name, port);
    line_read(state, sizeof state, path);
    snprintf(path, sizeof path, "%s/class/infiniband/%s/ports/%d/rate", sys, name, port);
    line_read(rate, sizeof rate, path);
    return strstr(state, "ACTIVE") && strstr(rate, "Gb/sec") ? strtod(rate, NULL) * BYTES_PER_GBIT
                                                             : 0;
}

double rate_of_nic(const char *sys, const char *name)
{
    char path[LIMIT_PATH_BYTES], speed[64];
    double sum = 0;
    for (int port = 1; port <= MAX_PORTS; port++)
        sum += port_rate(sys, name, port);
    if (sum > 0)
        return sum;
    snprintf(path, sizeof path, "%s/class/net/%s/speed", sys, name);
    line_read(speed, sizeof speed, path);
    double mbit = strtod(speed, NULL);
    return mbit > 0 ? mbit * BYTES_PER_MBIT : 0;
}
