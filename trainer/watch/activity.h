/* activity: what runs on this process's GPU when, as CUPTI tells it: libreel-cupti.so.
 *
 * The library records kernels, copies and fills with their times, and the names that the program
 * gives to parts of its work (NVTX), between begin and end, in memory of a fixed size; what does
 * not fit is counted. At the end it sums them (profiles/timeline.h) and writes a file. One process
 * has one recording, and one profiler: where another holds CUPTI, begin names it.
 *
 * It stands beside the CUDA backend, and is loaded when it is asked for. Any other CUDA program is
 * recorded by it too: see the top of trainer/cupti/main.c.
 *
 *     const struct activity_library *l;
 *     activity_load(&l, err);
 *     l->begin(err);
 *     ... steps, and a sync ...
 *     l->end(&facts, path, &result, err);
 */
#ifndef TRAINER_WATCH_ACTIVITY_H
#define TRAINER_WATCH_ACTIVITY_H

#include "profiles/timeline.h"

/* The recorder cannot know these facts. Steps are the ranges that the program names so; `steps` is
 * how many there are where it names none. Numbers of FLOPs are those of a step on this device; 0:
 * not known. */
struct activity_facts {
    int64_t rank, steps;
    double model_flops, hardware_flops, peak_flops;
};

struct activity_result {
    struct timeline_sum sums;
    int64_t steps;
    int64_t activities; /* that were recorded */
    int64_t dropped;    /* records that found no room: what is told is then too little */
    double overhead_s;  /* of a step: what the recording itself took, as CUPTI tells */
};

struct activity_library {
    /* The bytes of the structs that both sides know: a library of another build has other ones. */
    int64_t facts_bytes, result_bytes;
    /* Begins to record. ERR_BUSY: another profiler holds CUPTI, or this process is recorded
     * already. ERR_ENV: CUPTI cannot be used, and why. */
    int (*begin)(struct err *err);
    /* Ends the recording behind a sync of the device, sums it, and writes the file, unless path is
     * NULL. */
    int (*end)(const struct activity_facts *facts, const char *path, struct activity_result *out,
               struct err *err);
};

/* The one function of the library that programs call. */
typedef const struct activity_library *activity_library_fn(void);
#define ACTIVITY_LIBRARY_SYMBOL "reel_cupti_library"

/* Writes the library, which is loaded at the first call and stays. ERR_ENV: there is none beside
 * the CUDA backend, it does not load, or it is one of another build. */
int activity_load(const struct activity_library **out, struct err *err);

#endif
