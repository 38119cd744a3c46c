/* curation: holds the work of one call of reel-curate. The parts of the program share it: finding
 * sources, working on them, publishing, reporting.
 *
 *     sources_find -> (sources that the dataset already holds are removed) -> sources_work
 *         -> shards_write -> publish -> tell
 *
 * A source is bad if something about itself excludes it: it is unreadable, a link to nothing, its
 * caption is no text, it has no video, a decoder crashes on it, or its content changes again and
 * again while it is read. It is reported and counted against --max-bad; with --strict the first one
 * stops the curation. A failure that may be temporary (a worker was killed, no memory, a read
 * error) never makes a source bad.
 */
#ifndef CURATOR_CURATION_H
#define CURATOR_CURATION_H

#include "base/str.h"
#include "curator/shard.h"

/* Counts the files with one ending that were left out because of it. Endings that are too long, and
 * those for which no entry is free, are counted as "others". */
struct skipped { char ending[16]; int64_t n; };
enum { SKIPPED_ENDINGS = 24 };
struct bad { char *name, *why; };

struct curation {
    struct source_conf conf;
    struct source *sources;
    struct source_result *results;      /* [n] */
    int64_t n, room, jobs, shard_bytes;
    /* files that were found, and folders that cannot be listed, without captions and hidden ones */
    int64_t found;
    int64_t duplicates;                 /* files left out because another has the same content */
    int64_t unused_keys;                /* keys of caption files other than "caption" */
    int64_t captions_missing;           /* caption files without a caption */
    /* bad sources found before any work: unreadable files, captions that are no text */
    struct bad *bad;
    int64_t n_bad, bad_room;
    struct skipped skipped[SKIPPED_ENDINGS];
    double max_bad;                     /* percent of the sources; the number is rounded up */
    bool strict, quiet;
    char out[LIMIT_PATH_BYTES], partial[LIMIT_PATH_BYTES], work[LIMIT_PATH_BYTES];
};

void curation_release(struct curation *k);

/* Fills k->sources, sorted by name, with each content only once, and reads captions. ERR_INPUT: no
 * source is usable, or more are bad than allowed (with `strict`, any). */
int sources_find(struct curation *k, const char *const *operands, size_t n, struct err *err);
/* Says whether source i was worked on and turned out bad. */
bool curation_is_bad(const struct curation *k, int64_t i);
/* Returns ERR_INPUT with --strict. `why` names a bad source and says why it is bad. */
int curation_strict_check(const struct curation *k, const char *why, struct err *err);
/* Returns ERR_INPUT when `bad` of `all` sources are more than --max-bad allows. `first` is a
 * sentence about the first bad one. */
int curation_bad_check(const struct curation *k, int64_t bad, int64_t all, const char *first,
                       struct err *err);

/* Returns how many seconds to wait after try number `tried`, so that the cause of a failure can
 * disappear. Other sources are worked on meanwhile. A source with temporary failures is tried TRIES
 * times. */
enum { TRIES = 3 };
double try_pause_s(int tried);

/* Works on every source, `jobs` at a time, each in a process of its own. After a temporary
 * failure a source is tried again, the last time without any other worker. ERR_TEMP: even that
 * try failed. */
int sources_work(struct curation *k, struct err *err);

#endif
