/* train_verify: decides which datasets an attempt reads in full before it trains on them, to
 * compare their shards with the checksums in the index.
 *
 * For a dataset that was found whole there is a file <run>/verified/<fingerprint>, which holds the
 * name of its folder. It is written when every rank has compared its share. So an attempt compares
 * again if the attempt before died earlier than that, or if the data has another index or is in
 * another folder now.
 */
#include "trainer/run/train_priv.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"

static bool is_known(struct hash128 h) { return h.hi || h.lo; }

static void marker_path(const struct train *t, struct hash128 fingerprint,
                        char path[LIMIT_PATH_BYTES])
{
    char hex[HASH_TEXT_BYTES];
    snprintf(path, LIMIT_PATH_BYTES, "%s/verified/%s", t->conf->run_dir,
             hash_format(fingerprint, hex));
}

/* Returns the data of stage i or, if i is the number of stages, the validation's. */
static const char *data_of(const struct train *t, int64_t i)
{
    return i < t->run->n_stages ? t->run->stages[i].data : t->run->validation.data;
}

/* Returns the fingerprint of the data with this number; zero if it is synthetic, or if the run is
 * not bound to a generation of it. */
static struct hash128 fingerprint_of(const struct train *t, int64_t i)
{
    if (i < t->run->n_stages)
        return t->run->stages[i].data_fingerprint;
    return t->run->validation.every_steps > 0 ? run_validation_generation(t->run)
                                              : (struct hash128){0};
}

static void marker_line(const struct train *t, int64_t i, char line[LIMIT_PATH_BYTES])
{
    snprintf(line, LIMIT_PATH_BYTES, "%.2000s\n", data_of(t, i));
}

static bool was_found_whole(const struct train *t, int64_t i)
{
    char path[LIMIT_PATH_BYTES], line[LIMIT_PATH_BYTES];
    struct str text = STR_INIT;
    marker_path(t, t->leg.fingerprints[i], path);
    marker_line(t, i, line);
    bool same = file_read(path, LIMIT_PATH_BYTES, &text, NULL) == 0 && text.len &&
                strcmp(text.p, line) == 0;
    str_release(&text);
    return same;
}

/* Says, on rank 0, whether data must be compared. If an earlier stage has the same folder, it is
 * read only once. */
static bool is_wanted(const struct train *t, int64_t i)
{
    struct hash128 own = t->leg.fingerprints[i];
    for (int64_t k = t->leg.first_stage; k < i && is_known(own); k++)
        if (memcmp(&t->leg.fingerprints[k], &own, sizeof own) == 0 && t->leg.verify[k] &&
            strcmp(data_of(t, k), data_of(t, i)) == 0)
            return false;
    return t->conf->verify == VERIFY_ALWAYS || !is_known(own) || !was_found_whole(t, i);
}

int train_verify_decide(struct train *t, struct err *err)
{
    int64_t n = t->run->n_stages;
    double wanted[LIMIT_STAGES + 1] = {0};
    memset(t->leg.verify, 0, sizeof t->leg.verify);
    memset(t->leg.fingerprints, 0, sizeof t->leg.fingerprints);
    if (t->conf->verify == VERIFY_NEVER)
        return 0;
    for (int64_t i = t->leg.first_stage; i <= n && t->conf->world->rank == 0; i++) {
        if (i >= t->leg.end_stage && i < n)
            continue;
        t->leg.fingerprints[i] = fingerprint_of(t, i);
        wanted[i] = t->leg.verify[i] = is_wanted(t, i);
    }
    int rc = comm_max(t->conf->world, wanted, (int)n + 1, err);
    for (int64_t i = 0; i <= n; i++)
        t->leg.verify[i] = wanted[i] > 0;
    return rc;
}

void train_verify_note(struct train *t)
{
    char path[LIMIT_PATH_BYTES], dir[LIMIT_PATH_BYTES], line[LIMIT_PATH_BYTES];
    snprintf(dir, sizeof dir, "%s/verified", t->conf->run_dir);
    for (int64_t i = 0; i <= t->run->n_stages && t->conf->world->rank == 0 && !t->conf->trial;
         i++) {
        struct err err = {0};
        if (!t->leg.verify[i] || !is_known(t->leg.fingerprints[i]))
            continue;
        marker_line(t, i, line);
        marker_path(t, t->leg.fingerprints[i], path);
        if (file_mkdirs(dir, &err) < 0 || file_publish(path, line, strlen(line), &err) < 0)
            log_msg(LOG_WARN, "the next attempt compares '%s' with its checksums again: %s",
                    data_of(t, i), err.text);
        record_verified(&t->record, data_of(t, i), t->leg.fingerprints[i]);
    }
}
