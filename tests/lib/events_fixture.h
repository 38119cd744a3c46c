/* events_fixture: writes event logs like those of the real writers, with a clock that the test
 * sets.
 *
 * A test that includes this has the line
 * `// LINK: -Wl,--wrap=clock_wall_s,--wrap=clock_mono_s,--wrap=clock_boot_id,--wrap=clock_host`.
 * fx_pass() moves fx.wall and fx.mono together. A test steps the clock by fx.wall += 3600 and goes
 * to another host by fx.host = "b".
 */
#ifndef TESTS_EVENTS_FIXTURE_H
#define TESTS_EVENTS_FIXTURE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/evlog.h"
#include "base/file.h"

/* Holds the results of the clock functions. */
struct fx {
    double wall, mono;
    const char *host, *boot;
};
extern struct fx fx;

void fx_pass(double seconds);
void fx_reset(void);

/* Makes a new folder below $TMPDIR for the test and returns its path. */
char *fx_dir(void);
struct evlog *fx_open(const char *dir, const char *run, int64_t attempt,
                      const char *writer);

/* Writes an event: fx_event(log, "step", "step", 'i', 7, "loss", 'n', 0.5, "cause", 't', "x",
 * NULL). After each name comes its type: i for int, n for double, t for text. */
void fx_event(struct evlog *log, const char *kind, ...);

#define FX_TOKENS 4096
#define FX_STEP_FLOPS 2.5e11 /* model FLOPs of a step */
#define FX_DATA "0123456789abcdef0123456789abcdef" /* fingerprint of the run's dataset */
#define FX_PEAK 2.4e11       /* peak FLOPs/s of all ranks */

/* Moves the clock by `seconds` and writes the event of a step that took so long. */
void fx_step(struct evlog *log, int step, double seconds, double loss);
void fx_train_started(struct evlog *log, int next_step, int total);
void fx_save(struct evlog *log, int steps_done, double seconds);
void fx_load(struct evlog *log, int step, double seconds);
double fx_step_s(int step);
double fx_loss(int step);

/* Writes one attempt of a run: steps [first, last], a save every ten steps and, unless the attempt
 * crashes, at the end, and the agent's events before and after them. */
void fx_attempt(const char *events, const char *run, int n, int first, int last,
                int total, const char *cause);

#define FX_RUN "0123456789abcdef0123456789abcdef"
#define FX_TUNE "feedfacefeedfacefeedfacefeedface"
enum { FX_TOTAL = 60, FX_EXECUTED = 63, FX_REPLAYED = 3, FX_TRIALS = 8, FX_MEASURED = 5 };

void fx_run(const char *home);
void fx_tune(const char *home);
void fx_curation(const char *home);

/* Writes a whole home: a curation, a tune, and a run of three attempts. */
void fx_home(const char *home);

#endif
