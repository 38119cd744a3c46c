/* limits: sets bounds on strings, files and counts. */
#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

enum {
    LIMIT_PATH_BYTES = 4096,          /* PATH_MAX on Linux */
    LIMIT_NAME_BYTES = 128, /* names of runs, models and parameters; fits a table column */
    LIMIT_JSON_DEPTH = 64, /* our deepest format has 6 levels; the limit prevents stack overflow */
    LIMIT_JSON_BYTES = 64 << 20,      /* profiles and plans are kilobytes; more is the wrong file */
    LIMIT_EVENT_BYTES = 1 << 20,      /* one event; a greater length in a log is damage */
    LIMIT_CAPTURE_BYTES = 16 << 20,   /* captured output of a child process */
    LIMIT_STAGES = 16,                /* stages of one run */
    LIMIT_DIMS = 6,                   /* tensor rank */
    LIMIT_RANKS = 1 << 20,            /* world size the planner accepts */
};

#endif
