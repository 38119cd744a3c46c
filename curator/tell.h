/* tell: reports what a curation did, as a table, as JSON, and as events. */
#ifndef CURATOR_TELL_H
#define CURATOR_TELL_H

#include "curator/curation.h"

/* Says how the curation ended: the dataset was made, was extended, or was already as wanted. */
enum outcome { OUTCOME_MADE, OUTCOME_GREW, OUTCOME_SAME };
struct told {
    enum outcome outcome;
    int64_t shards, clips, bytes;                       /* of the dataset now */
    /* Sources of an update: already in the dataset; no longer given; with new content; with a new
     * caption. */
    int64_t known, gone, changed, captions_changed;
    int64_t left_out; /* of a dataset that was already as wanted: sources it was made without */
    double seconds;
    struct hash128 fingerprint;                         /* of the dataset now */
};

/* Holds sums over all sources. used: videos, also those too short for a clip. bad: sources that
 * count against --max-bad, found before the work or by it. no_video: files of unknown kind that
 * turned out to be no videos. cropped: sources that lose a fifth of the picture or more. first_bad:
 * the first bad source and why it is bad. */
struct tell_totals {
    struct source_result sum; /* of those used */
    int64_t used, bad, no_video, hdr, noted, cropped;
    char first_bad[512];
};
void tell_sum(const struct curation *k, struct tell_totals *out);
/* Append the summary. Each file that was found is in one of its numbers (docs/datasets.md). */
void tell_table(const struct curation *k, const struct told *t, struct str *out);
void tell_json(const struct curation *k, const struct told *t, struct str *out);
/* Appends the curation's events to the log in folder `dir`. */
int tell_events(const struct curation *k, const struct told *t, const char *dir, struct err *err);

#endif
