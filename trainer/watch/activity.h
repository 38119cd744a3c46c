/* activity: records what runs on this process's GPU and when, by CUPTI (libreel-cupti.so).
 *
 * Between begin and end the library records kernels, copies and fills with their times, and the
 * ranges by which the program names parts of its work (NVTX). Its memory has a fixed size; what
 * does not fit is counted. At the end it sums the records (profiles/timeline.h) and writes a file.
 * A process can have one recording, and CUPTI serves one profiler: if another one holds CUPTI,
 * begin names it.
 *
 * The library is in the CUDA backend's folder, and activity_load loads it. It can record any other
 * CUDA program, too: see the top of trainer/cupti/main.c.
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

/* Holds facts that the recorder cannot know. A step is a range that the program names "step…";
 * `steps` is the number of steps if it names none. FLOPs are those of a step on this device; 0: not
 * known. */
struct activity_facts {
    int64_t rank, steps;
    double model_flops, hardware_flops, peak_flops;
};

struct activity_result {
    struct timeline_sum sums;
    int64_t steps;
    int64_t activities; /* recorded */
    int64_t dropped;    /* records for which there was no room: the sums are then too low */
    double overhead_s;  /* time per step that the recording itself took, by CUPTI */
};

struct activity_library {
    /* These are the sizes of the structs that program and library share. If they differ, the
     * library is of another build. */
    int64_t facts_bytes, result_bytes;
    /* Begins to record. ERR_BUSY: another profiler holds CUPTI, or this process is being recorded
     * already. ERR_ENV: CUPTI cannot be used; err says why. */
    int (*begin)(struct err *err);
    /* Ends the recording, after a sync of the device; sums it, and writes the file unless path is
     * NULL. */
    int (*end)(const struct activity_facts *facts, const char *path, struct activity_result *out,
               struct err *err);
};

/* This is the type of the library's one exported function. */
typedef const struct activity_library *activity_library_fn(void);
#define ACTIVITY_LIBRARY_SYMBOL "reel_cupti_library"

/* Loads the library at the first call and writes its address; it is never unloaded. ERR_ENV: there
 * is none beside the CUDA backend, it does not load, or it is of another build. */
int activity_load(const struct activity_library **out, struct err *err);

#endif
