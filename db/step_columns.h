/* step_columns: the fields of the event `step` (base/events.def) as columns of the table `step` and of v_step. */
#ifndef DB_STEP_COLUMNS_H
#define DB_STEP_COLUMNS_H

#include <stdbool.h>

#include "base/events.h"

struct step_column {
    const char *name;
    enum event_type type;
    int since;        /* version of the schema that brought it; 0: it is no column */
    bool shown;       /* in v_step */
    const char *text; /* what it means */
};
extern const struct step_column step_columns[]; /* in the list's order; ended by a name that is NULL */

#endif
