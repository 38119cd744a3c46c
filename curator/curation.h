/* curation: what one call of reel-curate works on. The parts of the program share it: finding
 * sources, working on them, publishing, telling.
 *
 *     sources_find -> (what the dataset holds already is taken out) -> sources_work
 *         -> shards_write -> publish -> tell
 *
 * A source that is left out because of what it is (unreadable, a caption that is no text, no video
 * in it, a decoder that crashes on it) is bad: it is reported and counted against --max-bad. A
 * failure that may pass (a worker was killed, no memory, a read error) never makes a source bad.
 */
#ifndef CURATOR_CURATION_H
#define CURATOR_CURATION_H

#include "base/str.h"
#include "curator/shard.h"

/* Counts the files that were left out because of their ending. The last entry is "others". */
struct skipped { char ending[16]; int64_t n; };
enum { SKIPPED_ENDINGS = 24 };
struct bad { char *name, *why; };

struct curation {
    struct source_conf conf;
    struct source *sources;
    struct source_result *results;      /* [n] */
    int64_t n, room, jobs, shard_bytes;
    int64_t duplicates;                 /* names of content that stands under another name */
    int64_t unused_keys;                /* keys of caption files other than "caption" */
    int64_t captions_missing;           /* caption files that have none */
    /* found before any work: unreadable files, captions that are no text */
    struct bad *bad;
    int64_t n_bad, bad_room;
    struct skipped skipped[SKIPPED_ENDINGS];
    double max_bad;                     /* percent of the sources, rounded up */
    bool strict, quiet;
    char out[LIMIT_PATH_BYTES], partial[LIMIT_PATH_BYTES], work[LIMIT_PATH_BYTES];
};

void curation_release(struct curation *k);

/* Fills k->sources, sorted by name, with every content once and with captions. ERR_INPUT: no source
 * is usable, or more are bad than allowed (with `strict`, any). */
int sources_find(struct curation *k, const char *const *operands, size_t n, struct err *err);
/* Returns ERR_INPUT when `bad` of `all` sources are more than --max-bad allows. `first` is a
 * sentence about the first bad one. */
int curation_bad_check(const struct curation *k, int64_t bad, int64_t all, const char *first,
                       struct err *err);

/* Returns how many seconds to wait after try number `tried`, so that the cause of a failure can
 * pass. Other sources are worked on meanwhile. A source whose failure may pass is tried TRIES
 * times. */
enum { TRIES = 3 };
double try_pause_s(int tried);

/* Works on every source, `jobs` at a time, each in a process of its own. A failure that may pass is
 * tried again, the last time with no other worker beside it. ERR_TEMP: even that try failed. */
int sources_work(struct curation *k, struct err *err);

#endif
