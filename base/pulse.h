/* pulse: for how long a trainer has given no sign, as far as somebody looked; pure.
 *
 * A sign is that its log has grown. The log's times may be another host's, so its size is looked
 * at, by the looker's own clock. Whoever looks may be suspended, or starved by a busy machine, and
 * the trainer with it: a look counts for a second at most, as in base/lease.h.
 */
#ifndef BASE_PULSE_H
#define BASE_PULSE_H

#include <stdbool.h>
#include <stdint.h>

/* Zeroed before the first look. */
struct pulse {
    bool looked;
    double looked_mono, quiet_s;
    int64_t bytes;
};

/* Notes the size that the log has now. Returns for how many seconds it was seen not to grow. */
double pulse_look(struct pulse *p, double now_mono, int64_t bytes);

/* Forgets the silence so far. */
void pulse_forgive(struct pulse *p);

#endif
