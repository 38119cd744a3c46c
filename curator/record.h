/* record: of what a dataset was made: options and sources. One lies beside each generation of its index, `<root>/.reel/generations/<fingerprint>.json`,
 * with a copy of that index, `<fingerprint>.index`.
 *
 * The dataset's state is `<root>/.reel/index` alone, replaced by rename: the record that counts is the one of its fingerprint, so that both
 * change at the same moment.
 */
#ifndef CURATOR_RECORD_H
#define CURATOR_RECORD_H

#include "base/json.h"
#include "curator/curation.h"

/* hash, caption: of content and of caption. left_out: why it gave nothing, NULL for one that the set holds; it is tried again by an update. */
struct record_source { char *name, *left_out; char hash[HASH_TEXT_BYTES], caption[HASH_TEXT_BYTES]; };
struct record {
    struct json_doc options;
    struct record_source *sources; /* by name, then hash */
    const struct record_source **by_hash; /* the same by hash, for record_find; until record_merge */
    int64_t n;
};
void record_release(struct record *r);

/* The options as text: all that decide the bytes of a clip, and with `shards` those that decide how clips are cut into shards. */
void record_options(const struct curation *k, bool shards, struct str *out);
int record_make(const struct curation *k, struct record *out, struct err *err);
int record_load(const char *root, struct hash128 fingerprint, struct record *out, struct err *err);
int record_save(const char *root, struct hash128 fingerprint, const struct record *r, struct err *err);
bool record_equal(const struct record *a, const struct record *b);
/* ERR_EXISTS naming the first option that differs. */
int record_options_check(const struct record *was, const struct record *now, const char *root, struct err *err);
/* Is there a source of this name? */
bool record_has_name(const struct record *r, const char *name);
/* The source with this content, NULL if there is none. */
const struct record_source *record_find(const struct record *r, const char *hash);
/* Marks the sources that were worked on and turned out bad. */
int record_mark(struct record *r, const struct curation *k, struct err *err);
/* Adds to r the sources of more whose content it does not hold; what it had left out it forgets. */
int record_merge(struct record *r, const struct record *more, struct err *err);

#endif
