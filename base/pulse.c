#include "base/pulse.h"

#include <math.h>

static const double LOOK_COUNTS_S = 1;

double pulse_look(struct pulse *p, double now_mono, int64_t bytes)
{
    double since_s = p->looked ? fmin(now_mono - p->looked_mono, LOOK_COUNTS_S) : 0;
    bool grew = !p->looked || bytes != p->bytes;
    *p = (struct pulse){.looked = true,
                        .looked_mono = now_mono,
                        .quiet_s = grew ? 0 : p->quiet_s + since_s,
                        .bytes = bytes};
    return p->quiet_s;
}

void pulse_forgive(struct pulse *p) { p->quiet_s = 0; }
