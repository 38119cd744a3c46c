/* plan: what `reel plan` found, and how it is shown. */
#ifndef LAUNCHER_CMD_PLAN_H
#define LAUNCHER_CMD_PLAN_H

#include "autotune/planner.h"

struct plan_answer {
    const struct planner *planner; /* borrowed */
    const struct stream_found *found;
    const struct planned *items;   /* the best first; after them the one of --layout, if it is */
    size_t n;                      /* no better */
    bool given;                    /* items[given_at] is that of --layout */
    size_t given_at;
    double tokens;                 /* of --tokens; 0: not asked */
    double seconds;                /* that the search took */
    struct plan chosen;            /* the given item as a plan, or else the first */
};
void plan_text(const struct plan_answer *a, struct str *out);
void plan_json(const struct plan_answer *a, struct json_out *o);

#endif
