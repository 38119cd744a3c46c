/* curation: what one call of reel-curate works on, shared by its parts: finding sources, working on them, publishing, telling.
 *
 *     sources_find -> (what the set holds already is taken out) -> sources_work -> shards_write -> publish -> tell
 *
 * A source that is left out because of what it is (unreadable, a caption that is no text, no video in it, a decoder that crashes on it)
 * is bad: it is reported and counted against --max-bad. What may pass (a worker killed, no memory, a read error) is never taken for it.
 */
#ifndef CURATOR_CURATION_H
#define CURATOR_CURATION_H

#include "base/str.h"
#include "curator/shard.h"

struct skipped { char ending[16]; int64_t n; }; /* files left out because of their ending, "others" at last */
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
    struct bad *bad;                    /* found before any work: unreadable files, captions that are none */
    int64_t n_bad, bad_room;
    struct skipped skipped[SKIPPED_ENDINGS];
    double max_bad;                     /* percent of the sources, rounded up */
    bool strict, quiet;
    char out[LIMIT_PATH_BYTES], partial[LIMIT_PATH_BYTES], work[LIMIT_PATH_BYTES];
};

void curation_release(struct curation *k);

/* Fills sources, by name, each content once, with captions. ERR_INPUT: nothing usable, or more bad than allowed (any, with strict). */
int sources_find(struct curation *k, const char *const *operands, size_t n, struct err *err);
/* The rule of --max-bad: ERR_INPUT when `bad` of `all` are too many; `first` says which and why. */
int curation_bad_check(const struct curation *k, int64_t bad, int64_t all, const char *first, struct err *err);

/* A source whose failure may pass is tried TRIES times. try_pause_s returns the seconds to wait after a try, which give the
 * cause time to pass; other sources are worked on meanwhile. */
enum { TRIES = 3 };
double try_pause_s(int tried);

/* Works on every source, `jobs` at a time, a process each. What may pass is tried again, the last time alone: ERR_TEMP then. */
int sources_work(struct curation *k, struct err *err);

#endif
