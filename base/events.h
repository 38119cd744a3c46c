/* events: declares the kinds of events that an event log (base/evlog.h) may hold, and their fields.
 * The list is base/events.def.
 *
 * Writers give kinds and fields as C identifiers. A kind or field that the list lacks, or a field
 * that has another type there, does not compile:
 *
 *     event_begin(log, &e, trainer_exited);
 *     event_int(&e, trainer_exited, code, status);
 *     evlog_commit(log, &e, true, err);
 */
#ifndef BASE_EVENTS_H
#define BASE_EVENTS_H

#include "base/evlog.h"

/* These are the C types that hold a value of each type of field. */
#define EVENT_C_TEXT const char *
#define EVENT_C_INT int64_t
#define EVENT_C_NUM double
#define EVENT_C_BOOL bool
#define EVENT_C_COUNT double

enum event_type { EVENT_TEXT, EVENT_INT, EVENT_NUM, EVENT_BOOL, EVENT_TREE, EVENT_COUNT };

enum event_kind {
#define KIND(kind, writer, says, use) EVENT_KIND_##kind,
#include "base/events.def"
};

enum {
#define FIELD(kind, field, type, text) EVENT_##kind##_##field = (int)EVENT_##type,
#include "base/events.def"
};

/* Return the name of a kind, and of a field, as a string. They compile only when the list has
 * them. */
#define EVENT_NAME(kind) ((void)EVENT_KIND_##kind, #kind)
#define EVENT_FIELD(kind, field, type)                                             \
    ((void)sizeof(struct {                                                         \
         int in_the_list : EVENT_##kind##_##field == (int)EVENT_##type ? 1 : -1;   \
     }),                                                                           \
     #field)

#define event_begin(log, e, kind) evlog_begin(log, e, EVENT_NAME(kind))
#define event_text(e, kind, field, value) \
    json_put_text(&(e)->out, EVENT_FIELD(kind, field, TEXT), value)
#define event_int(e, kind, field, value) \
    json_put_int(&(e)->out, EVENT_FIELD(kind, field, INT), value)
#define event_num(e, kind, field, value) \
    json_put_num(&(e)->out, EVENT_FIELD(kind, field, NUM), value)
#define event_bool(e, kind, field, value) \
    json_put_bool(&(e)->out, EVENT_FIELD(kind, field, BOOL), value)
#define event_count(e, kind, field, value) \
    json_put_int(&(e)->out, EVENT_FIELD(kind, field, COUNT), (int64_t)(value))

#endif
