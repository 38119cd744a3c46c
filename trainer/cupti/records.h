/* records: holds what CUPTI recorded, in memory of fixed size, and assigns what ran on the device
 * to the program's ranges.
 *
 * There are three lists: activities of the device (kernels, copies, fills), the calls by which the
 * host queued them, and NVTX ranges, by which the program names parts of a thread's time. A call
 * belongs to the ranges that contain its time on its thread, and an activity belongs to those of
 * its call. So a kernel is assigned to the operation and the layer that queued it, although it ran
 * later. A range whose name begins with "layer" is a layer, one that begins with "step" is a step;
 * the innermost range is the operation.
 *
 *     struct records r;
 *     records_open(&r, err);
 *     records_activity(&r, ...); records_call(&r, ...); records_range_begin(&r, ...);
 *     records_join(&r);
 *     r.activities[i].class
 *     records_close(&r);
 */
#ifndef TRAINER_CUPTI_RECORDS_H
#define TRAINER_CUPTI_RECORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "profiles/kernels.h"

enum {
    /* enough for 20 steps of a model of 7 billion parameters, with 16 micro-batches a step */
    RECORDS_ACTIVITIES = 1 << 20,
    RECORDS_CALLS = 1 << 21,
    RECORDS_RANGES = 1 << 20,
    RECORDS_NAMES = 1 << 14,
};

enum record_kind { RECORD_KERNEL, RECORD_COPY, RECORD_PEER_COPY };

/* Names are numbers in records.names; 0 is "". */
struct record_activity {
    int64_t start_ns, end_ns;
    uint32_t call;                 /* the correlation id of the call that queued it */
    uint32_t name, range, layer;
    enum record_kind kind;
    enum kernel_class class;       /* set by records_join */
};
struct record_call { int64_t at_ns; uint32_t id, thread, range, layer; };
struct record_range { int64_t start_ns, end_ns; uint32_t id, thread, name; };
struct record_name { char *text; enum kernel_class class; };

struct records {
    struct record_activity *activities;
    struct record_call *calls;
    struct record_range *ranges;
    struct record_name *names;
    uint32_t *slots; /* [2 RECORDS_NAMES] hash table of numbers of names; 0: empty */
    int64_t n_activities, n_calls, n_ranges, n_names;
    int64_t dropped;     /* records for which there was no room here */
    int64_t overhead_ns;
};

/* Allocates the lists. Pages that are never written take no memory. ERR_NOMEM. */
int records_open(struct records *r, struct err *err);
void records_close(struct records *r); /* safe on a zeroed struct */

void records_activity(struct records *r, enum record_kind kind, const char *name, uint64_t start_ns,
                      uint64_t end_ns, uint32_t call);
void records_call(struct records *r, uint32_t id, uint32_t thread, uint64_t at_ns);
void records_range_begin(struct records *r, uint32_t id, uint32_t thread, const char *name,
                        uint64_t at_ns);
void records_range_end(struct records *r, uint32_t id, uint64_t at_ns);

/* Finds each activity's ranges and class. A range without an end lasts until the end of the
 * recording. Calls and ranges lose their order. */
void records_join(struct records *r);
/* Finds by the ranges of steps that have ended how many steps there are, and the time from the
 * start of the first to the end of the last. Without such ranges this is one step from the start of
 * the first activity to the end of the last, or none if there is no activity. */
struct records_steps { int64_t from_ns, to_ns, n; bool named; };
struct records_steps records_steps(const struct records *r);

#endif
