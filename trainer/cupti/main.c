/* libreel-cupti.so records what a program does on its GPU. reel-train loads it for trials
 * (trainer/watch/activity.h). It also records a program that does not know of it: any CUDA trainer,
 * in any language.
 *
 *     LD_PRELOAD=libreel-cupti.so REEL_CUPTI_DIR=folder python train.py
 *     CUDA_INJECTION64_PATH=libreel-cupti.so REEL_CUPTI_DIR=folder python train.py
 *
 * CUDA's driver loads the library that CUDA_INJECTION64_PATH names when a process first uses CUDA,
 * and calls InitializeInjection (CUPTI documentation, "CUPTI injection"). If the library is loaded
 * by LD_PRELOAD, it sets that variable itself, so that a process without CUDA is not affected.
 *
 * Recording begins with that call, or REEL_CUPTI_AFTER seconds later. It ends when the process
 * exits, or after REEL_CUPTI_FOR seconds. If REEL_CUPTI_WHILE names a file, recording lasts instead
 * as long as the file exists. Then activity-RANK.json is written into the folder. NVTX ranges that
 * the program names "step..." are its steps; without any, the whole recording is one step.
 * REEL_CUPTI_FLOPS gives the model FLOPs of a step, REEL_CUPTI_PEAK the GPU's peak in FLOP/s.
 *
 * The library never ends the program that it records: a failure is one sentence on stderr. */
#include <cupti.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "trainer/cupti/recorder.h"

#define SHOWN __attribute__((visibility("default")))
SHOWN const struct activity_library *reel_cupti_library(void);
SHOWN int InitializeInjection(void);

static pthread_once_t ended = PTHREAD_ONCE_INIT;
static pid_t owner; /* a child that this process forks is not recorded */

/* Makes NVTX report the program's ranges to CUPTI, unless they go to another library: at the first
 * range, NVTX loads the library that the environment names (nvtx3/nvtxDetail/nvtxInit.h). */
static void ranges_lead(void)
{
    CUptiResult (*cupti)(uint64_t *) = cuptiGetTimestamp;
    Dl_info info;
    void *symbol;
    memcpy(&symbol, &cupti, sizeof symbol); /* ISO C has no conversion */
    if (dladdr(symbol, &info) && info.dli_fname)
        setenv("NVTX_INJECTION64_PATH", info.dli_fname, 0);
}

static int recording_begin(struct err *err)
{
    int rc;
    if ((rc = recorder_begin(err)) < 0)
        return rc;
    ranges_lead();
    return 0;
}

const struct activity_library *reel_cupti_library(void)
{
    static const struct activity_library library = {
        .facts_bytes = sizeof(struct activity_facts),
        .result_bytes = sizeof(struct activity_result),
        .begin = recording_begin, .end = recorder_end};
    return &library;
}

/* Returns this process's number in its job, by a variable of the launcher, or else its process
 * id. */
static int64_t rank_find(void)
{
    static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
                                        "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = getenv(names[i]);
        if (text && *text)
            return strtoll(text, NULL, 10);
    }
    return getpid();
}

static double seconds_of(const char *name)
{
    const char *text = getenv(name);
    return text ? strtod(text, NULL) : 0;
}

static double flops_of(const char *name) { return seconds_of(name); }

static void say(const char *text) { fprintf(stderr, "libreel-cupti: %s\n", text); }

/* Ends the recording and writes its file. */
static void recording_end(void)
{
    const char *dir = getenv("REEL_CUPTI_DIR");
    char path[LIMIT_PATH_BYTES];
    struct activity_facts facts = {
        .rank = rank_find(), .model_flops = flops_of("REEL_CUPTI_FLOPS"),
        .peak_flops = flops_of("REEL_CUPTI_PEAK")};
    struct activity_result r;
    struct err err = {0};
    snprintf(path, sizeof path, "%.4000s/activity-%lld.json", dir && *dir ? dir : ".",
             (long long)facts.rank);
    if (recorder_end(&facts, path, &r, &err) < 0) {
        say(err.text);
        return;
    }
    fprintf(stderr, "libreel-cupti: %s: %lld activities in %lld steps%s\n", path,
            (long long)r.activities, (long long)r.steps,
            r.dropped ? ", and records were dropped" : "");
}

static void at_end(void)
{
    if (getpid() == owner)
        pthread_once(&ended, recording_end);
}

static void begin(void)
{
    struct err err = {0};
    if (recording_begin(&err) < 0) {
        say(err.text);
        return;
    }
    owner = getpid();
    atexit(at_end);
}

static void sleep_s(double s)
{
    if (s > 0)
        usleep((useconds_t)(s < 4000 ? s * 1e6 : 4e9));
}

/* Waits until a file exists, or no longer exists. */
static void file_await(const char *path, bool there)
{
    while ((access(path, F_OK) == 0) != there)
        sleep_s(0.01);
}

/* Records the part of the program's life that the environment describes. */
static void *stretch(void *unused)
{
    const char *file = getenv("REEL_CUPTI_WHILE");
    (void)unused;
    if (file) {
        file_await(file, true);
        begin();
        file_await(file, false);
        at_end();
        return NULL;
    }
    sleep_s(seconds_of("REEL_CUPTI_AFTER"));
    begin();
    if (seconds_of("REEL_CUPTI_FOR") > 0) {
        sleep_s(seconds_of("REEL_CUPTI_FOR"));
        at_end();
    }
    return NULL;
}

int InitializeInjection(void)
{
    pthread_t thread;
    if (getenv("REEL_CUPTI_WHILE") || seconds_of("REEL_CUPTI_AFTER") > 0 ||
        seconds_of("REEL_CUPTI_FOR") > 0) {
        if (pthread_create(&thread, NULL, stretch, NULL) == 0)
            pthread_detach(thread);
        else
            say("no thread to record with");
        return 1;
    }
    begin();
    return 1;
}

/* Makes the driver call InitializeInjection, if this library was loaded by LD_PRELOAD. */
__attribute__((constructor)) static void preloaded(void)
{
    const char *preload = getenv("LD_PRELOAD");
    int (*entry)(void) = InitializeInjection;
    char path[PATH_MAX];
    void *symbol;
    Dl_info info;
    memcpy(&symbol, &entry, sizeof symbol); /* ISO C has no conversion */
    if (preload && strstr(preload, "libreel-cupti") && dladdr(symbol, &info) && info.dli_fname &&
        realpath(info.dli_fname, path)) /* the program may go to another folder first */
        setenv("CUDA_INJECTION64_PATH", path, 0);
}
