/* event: one event into its rows: the raw row, and the projections of its kind. */
#ifndef DB_EVENT_H
#define DB_EVENT_H

#include <cjson/cJSON.h>

#include "db/store.h"

struct event_writer; /* holds the prepared statements */
int event_writer_new(struct store *db, struct event_writer **out, struct err *err);
void event_writer_free(struct event_writer *w);

/* What identifies an event; borrowed from the object. */
struct event_key {
    const char *run, *writer;
    int64_t attempt, seq;
};
/* false: the object is not an event (a common field is missing or of a wrong type). */
bool event_key_read(const cJSON *event, struct event_key *out);

/* 1: new, or put in the place of an earlier one; 0: known, or lost against the one known; <0: error. *id (only with 1): its row;
 * *replaced: it took the place of one that is gone. */
int event_write(struct event_writer *w, const cJSON *event, int64_t *id, bool *replaced, struct err *err);

#endif
