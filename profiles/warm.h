/* warm: says from where a run takes its first weights, and under which names. The member "init" is
 * described at the top of warm.c; trainer/ckpt/warm_start.h reads the weights.
 *
 *     warm_read(&doc, root, &arena, &warm, err);   // without a member "init" warm.from is NULL
 *     warm_bind(&warm, err);   // fills in an unknown hash
 *     // warm_name translates a name in the source to the model's name
 *     if (warm_name(&warm, "model.pos_t.weight", name)) ...
 */
#ifndef PROFILES_WARM_H
#define PROFILES_WARM_H

#include "base/arena.h"
#include "base/hash.h"
#include "base/json.h"

enum { WARM_MAPS = 32 };
struct warm {
    /* a safetensors file, or a checkpoint's folder; NULL: first weights are drawn */
    const char *from;
    /* hash of the file, or of the checkpoint's manifest; zero: not known yet */
    struct hash128 hash;
    bool partial;
    int64_t n_maps;
    struct { char from[LIMIT_NAME_BYTES], to[LIMIT_NAME_BYTES]; } map[WARM_MAPS];
};

int warm_read(const struct json_doc *doc, const cJSON *root, struct arena *arena, struct warm *out,
              struct err *err);
/* Writes the member "init", or nothing if there is no source. */
void warm_write(const struct warm *w, struct json_out *o, bool for_hash);
/* Computes the hash of the source as it is now. Returns ERR_NOT_FOUND if there is none, ERR_IO if
 * it cannot be read, ERR_INPUT if it is a folder without a checkpoint; of a run's folder the error
 * names the newest. */
int warm_hash(const char *from, struct hash128 *out, struct err *err);
/* Refuses a source that is a folder without a checkpoint, as warm_hash does. */
int warm_check(const char *from, struct err *err);
int warm_bind(struct warm *w, struct err *err);
static inline bool warm_hash_known(const struct warm *w) { return w->hash.hi || w->hash.lo; }
/* Translates a name by the first rule that matches the whole of it; a name without a matching rule
 * stays. Returns false if the result is longer than a name may be. */
bool warm_name(const struct warm *w, const char *name, char out[LIMIT_NAME_BYTES]);

#endif
