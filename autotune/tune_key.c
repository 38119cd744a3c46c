/* This file computes a tuning's id, from the question that it answers, and the key by which tunings
 * learn from each other. */
#include <stdio.h>

#include "autotune/trial_other.h"
#include "autotune/tune_priv.h"
#include "base/id.h"
#include "base/json.h"

/* Adds to the key which parts of the model are trained, because they decide memory. */
static void finetune_key(const struct finetune *finetune, struct str *key)
{
    struct json_out o;
    json_out_init(&o, key, 0);
    json_obj_begin(&o, NULL);
    finetune_write(finetune, &o);
    json_obj_end(&o);
}

/* Adds to the key the salt, or a random one, that makes a fresh search differ from earlier ones. */
static int fresh_add(const struct tune_conf *c, struct str *key, struct err *err)
{
    struct id random;
    int rc;
    if (!c->fresh)
        return 0;
    if (c->salt[0]) {
        str_addf(key, " fresh %s", c->salt);
        return 0;
    }
    if ((rc = id_random(&random, err)) < 0)
        return rc;
    str_addf(key, " fresh %016llx%016llx", (unsigned long long)random.hi,
             (unsigned long long)random.lo);
    return 0;
}

static void key_add(const struct tune_conf *c, struct hash128 trainer, struct str *key)
{
    const struct run *r = c->run;
    char model[HASH_TEXT_BYTES], data[HASH_TEXT_BYTES], binary[HASH_TEXT_BYTES];
    str_addf(key,
             "%s %lldx%lldx%lld gbs %lld %s moments %s residual %s cpu %s %lld cores, %lld bytes, "
             "steps %lld blas %s trainer %s data %s %s ema %d ranks",
             hash_format(model_hash(&r->model), model), (long long)c->seq.t, (long long)c->seq.h,
             (long long)c->seq.w, (long long)r->stages[0].gbs, dtype_names[r->dtype],
             moments_names[r->moments], residual_names[r->residual], c->where, (long long)c->cores,
             (long long)c->memory_bytes, (long long)c->trial_steps, c->blas,
             hash_format(trainer, binary), r->stages[0].data,
             hash_format(r->stages[0].data_fingerprint, data), r->adamw.ema_decay > 0);
    for (size_t i = 0; i < c->n_ranks; i++)
        str_addf(key, " %lld", (long long)c->ranks[i]);
    if (c->layout)
        layout_format(c->layout, key);
    if (c->cluster)
        str_addf(key, " cluster %s stack %s/%lld", c->cluster, c->stack, (long long)c->scale_down);
    finetune_key(&r->finetune, key);
}

/* Hashes the trainer: our binary, or another trainer's adapter and command. */
static int program_hash(struct tune *t, struct err *err)
{
    const struct tune_conf *c = &t->conf;
    char path[LIMIT_PATH_BYTES];
    if (c->adapter)
        return other_hash(c->adapter, c->argv, &t->program, err);
    snprintf(path, sizeof path, "%s/reel-train", c->bin_dir);
    return hash_file(path, &t->program, err);
}

/* Makes the key that tunings which learn from each other share. Learnt scales correct either
 * measured rates or a description, so the description's content is in the key: an edited one gives
 * another key. */
static int learns_make(struct tune *t, struct err *err)
{
    const struct tune_conf *c = &t->conf;
    struct str key = STR_INIT;
    char binary[HASH_TEXT_BYTES];
    int rc;
    str_addf(&key, "%s %s %s %s ", c->where, hash_format(t->program, binary), c->blas,
             dtype_names[c->run->dtype]);
    if (t->described)
        described_key(t->described, &key);
    else
        str_add(&key, "probed");
    if ((rc = str_check(&key, err)) == 0)
        hash_format(hash_128(key.p, key.len), t->learns);
    str_release(&key);
    return rc;
}

int tune_identify(struct tune *t, struct err *err)
{
    const struct tune_conf *c = &t->conf;
    struct str key = STR_INIT;
    int rc;
    if ((rc = program_hash(t, err)) < 0)
        return rc;
    if ((rc = learns_make(t, err)) < 0)
        return rc;
    key_add(c, t->program, &key);
    if ((rc = fresh_add(c, &key, err)) < 0)
        goto out;
    if ((rc = str_check(&key, err)) < 0)
        goto out;
    hash_format(hash_128(key.p, key.len), t->id);
    snprintf(t->dir, sizeof t->dir, "%s/tunes/%s", c->home, t->id);
out:
    str_release(&key);
    return rc;
}
