/* publish: a dataset comes into being by one rename, and grows by one rename.
 *
 * New: all is built in <OUT>.partial, which is renamed to <OUT>. Added to: new shards are moved in beside the old ones, which are not touched, and
 * read by nobody yet; then `.reel/index` is replaced. Before that the dataset is what it was, afterwards it is the larger one; Energon's
 * sidecars follow, each of them fits what lies there at any moment. An end at any point leaves nothing that the next update does not mend.
 * A reader that had the old index reads on: all that it names stays. The older indexes stay in `.reel/generations`.
 */
#ifndef CURATOR_PUBLISH_H
#define CURATOR_PUBLISH_H

#include "curator/record.h"

/* Where OUT is a link, replaces it by what it leads to, there or not: a rename puts nothing behind a link. */
int publish_place(char out[LIMIT_PATH_BYTES], struct err *err);
/* Can what is built in `partial` be renamed to `out`, or into it? ERR_IO: they are on two file systems, or partial is a link. */
int publish_place_check(const char *partial, const char *out, struct err *err);

struct set { struct dataset data; struct record record; };
void set_release(struct set *s);
/* 1: OUT holds a dataset of ours. 0: nothing is there (an empty folder is removed). ERR_EXISTS: something else. */
int set_open(const char *out, struct set *s, struct err *err);

/* In `partial` lie the shards of d, and a folder `work` that is removed. */
int publish_new(const char *partial, const char *work, const char *out, struct dataset *d, const struct record *r, struct err *err);
/* In `partial` lie those shards of d that base has not. */
int publish_grown(const char *partial, const char *out, const struct dataset *base, struct dataset *d, const struct record *r, struct err *err);
/* 1: Energon's sidecars name all shards of d. 0: an update was killed before it came to them. Writes nothing, and needs no lock. */
int publish_is_told(const char *out, const struct dataset *d, struct err *err);
/* Removes what an update that was killed left in OUT, and writes the sidecars that it did not come to. */
int publish_mend(const char *out, const struct dataset *d, struct err *err);

#endif
