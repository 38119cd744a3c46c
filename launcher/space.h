/* space: what a run's log says of a disk without room for its checkpoints, and a look at the disk itself. */
#ifndef LAUNCHER_SPACE_H
#define LAUNCHER_SPACE_H

#include "launcher/attempt.h"

/* Bytes of the last checkpoint that found space low; 0: none did. */
int64_t space_needed(const struct run_state *s);
/* Event "held": the attempt waits for room until then (UTC s) at most. */
void space_event_held(struct attempt *a, double until, int64_t needed_bytes);
/* Did an attempt whose trainer exited so end for want of space? It says so itself, unless there was no room for that either. told may be NULL. */
bool space_missed(const char *run_dir, const struct run_attempt *told, int exit_code);

#endif
