/* publish: creates a dataset by one rename, and extends it by one rename.
 *
 * OUT is the folder that --out names. A new dataset is built in <OUT>.partial, which is renamed to
 * <OUT>. To extend one, new shards are moved in beside the old ones, which stay as they are; nobody
 * reads the new ones yet. Then `.reel/index` is replaced. Before that the dataset is the old one,
 * and afterwards it is the larger one. Megatron-Energon's sidecars (base/wds.h) follow; at any
 * moment each of them matches the files that are there. An update that is killed is repaired by the
 * next one. A reader that opened the old index can continue, because everything that it names
 * stays. Older indexes stay in `.reel/generations`.
 */
#ifndef CURATOR_PUBLISH_H
#define CURATOR_PUBLISH_H

#include "curator/record.h"

/* Replaces `out` by its target if it is a link, whether the target exists or not: a rename would
 * replace the link itself. */
int publish_place(char out[LIMIT_PATH_BYTES], struct err *err);
/* Checks that `partial` can be renamed to `out`, or its files moved into it. ERR_IO: they are on
 * two file systems, or `partial` is a link. */
int publish_place_check(const char *partial, const char *out, struct err *err);

struct set { struct dataset data; struct record record; };
void set_release(struct set *s);
/* Returns 1 when OUT holds a dataset of ours, and 0 when nothing is there (an empty folder is
 * removed). ERR_EXISTS: it holds something else. ERR_CORRUPT: it holds a dataset that is damaged,
 * and the error names the file. */
int set_open(const char *out, struct set *s, struct err *err);

/* Publishes a new dataset: `partial` holds the shards of d, and the folder `work`, whose finished
 * sources are removed only when the dataset is in its place: until then they lie in
 * <partial>/.reel/work. */
int publish_new(const char *partial, const char *work, const char *out, struct dataset *d,
                const struct record *r, struct err *err);
/* Adds to the dataset `base`: `partial` holds those shards of d that `base` does not have. */
int publish_grown(const char *partial, const char *out, const struct dataset *base,
                  struct dataset *d, const struct record *r, struct err *err);
/* Returns 1 when Energon's sidecars name all shards of d, and 0 when an update was killed before it
 * wrote them. Writes nothing and needs no lock. */
int publish_is_told(const char *out, const struct dataset *d, struct err *err);
/* Moves finished sources back to `work` that publish_new() had put aside before it was killed. */
int publish_work_back(const char *partial, const char *work, struct err *err);
/* Removes the finished sources that publish_new() had not yet removed from OUT. */
int publish_work_drop(const char *out, struct err *err);
/* Removes the leftovers of a killed update from OUT, and writes the sidecars that it had not yet
 * written. */
int publish_mend(const char *out, const struct dataset *d, struct err *err);

#endif
