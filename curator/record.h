/* record: stores the options and sources of which a dataset was made. Each generation of the
 * dataset's index has one record, `<root>/.reel/generations/<fingerprint>.json`, beside a copy of
 * that index, `<fingerprint>.index`. A record ends with a checksum of everything before it, because
 * one wrong digit would make an update add clips a second time.
 *
 * The dataset's state is only `<root>/.reel/index`, which is replaced by rename. The valid record
 * is the one with that index's fingerprint, so both change at the same moment.
 */
#ifndef CURATOR_RECORD_H
#define CURATOR_RECORD_H

#include "base/json.h"
#include "curator/curation.h"

/* Describes one source. `hash` and `caption` are hashes of its content and its caption. `left_out`
 * says why the source gave no clip, and is NULL for a source that the dataset holds. An update
 * works once more on each source that was left out. no_video: it is none, and its name did not say
 * that it is one; an update works on it once more when its name says so. */
struct record_source {
    char *name, *left_out;
    bool no_video;
    char hash[HASH_TEXT_BYTES], caption[HASH_TEXT_BYTES];
};
struct record {
    struct json_doc options;
    struct record_source *sources; /* by name, then hash */
    /* the same sorted by hash, for record_find; NULL after record_merge */
    const struct record_source **by_hash;
    int64_t n;
};
void record_release(struct record *r);

/* Appends the options as text: all those that decide the bytes of a clip, and with `shards` also
 * those that decide how clips are cut into shards. */
void record_options(const struct curation *k, bool shards, struct str *out);
int record_make(const struct curation *k, struct record *out, struct err *err);
int record_load(const char *root, struct hash128 fingerprint, struct record *out, struct err *err);
int record_save(const char *root, struct hash128 fingerprint, const struct record *r,
                struct err *err);
bool record_equal(const struct record *a, const struct record *b);
/* Returns ERR_EXISTS, naming the first option that differs, unless both have the same options. */
int record_options_check(const struct record *was, const struct record *now, const char *root,
                         struct err *err);
/* Says whether the record has a source of this name. */
bool record_has_name(const struct record *r, const char *name);
/* Returns how many sources were left out, and in *first one of them. */
int64_t record_left_out(const struct record *r, const struct record_source **first);
/* Returns the source with this content, or NULL when there is none. */
const struct record_source *record_find(const struct record *r, const char *hash);
/* Marks the sources that were worked on and turned out bad, or no video. */
int record_mark(struct record *r, const struct curation *k, struct err *err);
/* Says whether an update is to work on a source that the dataset's record has: it gave no clip, and
 * may be asked for now. maybe: as in struct source. */
bool record_is_open(const struct record_source *old, bool maybe);
/* Adds to r the sources of `more` whose content r does not hold. Drops the sources that r had left
 * out, and replaces those that are open. */
int record_merge(struct record *r, const struct record *more, struct err *err);

#endif
