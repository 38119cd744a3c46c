/* plan: declares the result of `reel plan` and the functions that show it. */
#ifndef LAUNCHER_CMD_PLAN_H
#define LAUNCHER_CMD_PLAN_H

#include "autotune/planner.h"

struct plan_answer {
    const struct planner *planner; /* borrowed */
    const struct stream_found *found;
    const struct planned *items;   /* the best first; then that of --layout, if it is not among
                                    * them */
    size_t n;                      /* number of items */
    bool given;                    /* items[given_at] is that of --layout */
    size_t given_at;
    double tokens;                 /* of --tokens; 0: not given */
    double seconds;                /* the time that the search took */
    struct plan chosen;            /* with -o or --export: that of --layout, or else the best */
};
void plan_text(const struct plan_answer *a, struct str *out);
void plan_json(const struct plan_answer *a, struct json_out *o);

#endif
