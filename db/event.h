/* event: turns one event into rows: a raw row, and typed rows that depend on its kind. */
#ifndef DB_EVENT_H
#define DB_EVENT_H

#include <cjson/cJSON.h>

#include "db/store.h"

struct event_writer; /* holds the prepared statements */
int event_writer_new(struct store *db, struct event_writer **out, struct err *err);
void event_writer_free(struct event_writer *w);

/* Holds the fields that identify an event. The texts are borrowed from the parsed object. */
struct event_key {
    const char *run, *writer;
    int64_t attempt, seq;
};
/* Returns false if the object is not an event: a common field is missing or has a wrong type. */
bool event_key_read(const cJSON *event, struct event_key *out);

/* Writes one event; `text` is how the log spells it. Returns 1 if it is new or replaced an earlier
 * event with the same key, 0 if it is known already or lost against the known one, and <0 on an
 * error. *id, its row, is set only with 1. *replaced says whether it replaced an event, which is
 * then deleted. */
int event_write(struct event_writer *w, const cJSON *event, const char *text, size_t text_bytes,
                int64_t *id, bool *replaced, struct err *err);

#endif
