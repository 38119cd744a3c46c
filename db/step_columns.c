#include "db/step_columns.h"

enum { HIDDEN, SHOWN };
const struct step_column step_columns[] = {
#define STEP(field, type, since, by, shown, text) \
    {#field, EVENT_##type, since, shown == SHOWN, text},
#include "base/events.def"
    {0},
};
