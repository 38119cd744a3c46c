/* pulse: measures for how long a trainer has given no sign of life. It makes no system calls.
 *
 * A sign of life is that the trainer's log has grown. The times in the log may come from another
 * host's clock, so the observer compares the log's size and uses its own clock. The observer may be
 * suspended or starved by a busy machine, and the trainer with it, so the interval between two
 * looks counts for a second at most, as in base/lease.h.
 */
#ifndef BASE_PULSE_H
#define BASE_PULSE_H

#include <stdbool.h>
#include <stdint.h>

/* Holds what the observer remembers. Zero it before the first look. */
struct pulse {
    bool looked;
    double looked_mono, quiet_s;
    int64_t bytes;
};

/* Takes the present size of the log. Returns the number of observed seconds in which it has not
 * grown. */
double pulse_look(struct pulse *p, double now_mono, int64_t bytes);

/* Resets the silence to 0 s. */
void pulse_forgive(struct pulse *p);

#endif
