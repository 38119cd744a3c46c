/* step_columns: lists the fields of the event `step` (base/events.def) as columns of the table
 * `step` and of the view v_step. */
#ifndef DB_STEP_COLUMNS_H
#define DB_STEP_COLUMNS_H

#include <stdbool.h>

#include "base/events.h"

struct step_column {
    const char *name;
    enum event_type type;
    int since;        /* schema version that added it; 0: it is no column */
    bool shown;       /* v_step shows it */
    const char *text; /* its meaning */
};
extern const struct step_column step_columns[]; /* in the list's order; a name of NULL ends it */

#endif
