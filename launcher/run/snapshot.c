#include "launcher/run/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/evlog.h"
#include "base/file.h"
#include "base/hash.h"

enum { MAX_BYTES = 64 << 20 };

/* The file holds this, the state, its attempts, the logs, their damage, and a hash of all before
 * it. */
struct head {
    char magic[8];
    /* Who wrote it: the layout of what follows is that program's own. */
    int64_t program_bytes, program_mtime_ns;
    int64_t state_bytes, attempt_bytes, log_bytes, damage_bytes, n_attempts, n_logs, n_damage;
};

static bool head_make(int64_t n_attempts, int64_t n_logs, int64_t n_damage, struct head *out)
{
    struct stat st;
    if (stat("/proc/self/exe", &st) != 0)
        return false;
    *out = (struct head){{'r', 'e', 'e', 'l', 'f', 'o', 'l', 'd'},
                         st.st_size,
                         (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
                         sizeof(struct run_state),
                         sizeof(struct run_attempt),
                         sizeof(struct snapshot_log),
                         sizeof(struct evlog_damage),
                         n_attempts,
                         n_logs,
                         n_damage};
    return true;
}

static bool count_is_sane(int64_t n)
{
    return n >= 0 && n <= MAX_BYTES;
}

/* Does the text begin with our head and have the length it tells, and the hash at its end? */
static bool is_whole(const struct str *text, struct head *head)
{
    struct head ours;
    struct hash128 hash;
    if (text->len < sizeof *head + sizeof hash)
        return false;
    memcpy(head, text->p, sizeof *head);
    if (!count_is_sane(head->n_attempts) || !count_is_sane(head->n_logs) ||
        !count_is_sane(head->n_damage) ||
        !head_make(head->n_attempts, head->n_logs, head->n_damage, &ours) ||
        memcmp(head, &ours, sizeof ours) != 0)
        return false;
    size_t bytes = sizeof *head + sizeof(struct run_state) +
                   (size_t)head->n_attempts * sizeof(struct run_attempt) +
                   (size_t)head->n_logs * sizeof(struct snapshot_log) +
                   (size_t)head->n_damage * sizeof(struct evlog_damage);
    if (text->len != bytes + sizeof hash)
        return false;
    struct hash128 now = hash_128(text->p, bytes);
    memcpy(&hash, text->p + bytes, sizeof hash);
    return hash.hi == now.hi && hash.lo == now.lo;
}

void snapshot_logs_release(struct snapshot_logs *logs)
{
    free(logs->list);
    free(logs->damage);
    *logs = (struct snapshot_logs){0};
}

/* damage: of this log. */
static bool log_goes_on(const char *run_dir, const struct snapshot_log *log,
                        const struct evlog_damage *damage)
{
    char path[LIMIT_PATH_BYTES + LIMIT_NAME_BYTES];
    uint64_t hash;
    snprintf(path, sizeof path, "%s/events/%s", run_dir, log->name);
    return evlog_tail_hash(path, log->offset, &hash, NULL) == 0 && hash == log->tail_hash &&
           evlog_damage_stays(path, damage, (size_t)log->n_damage);
}

bool snapshot_logs_hash(const char *run_dir, struct snapshot_logs *logs)
{
    char path[LIMIT_PATH_BYTES + LIMIT_NAME_BYTES];
    for (size_t i = 0; i < logs->n; i++) {
        struct snapshot_log *log = &logs->list[i];
        snprintf(path, sizeof path, "%s/events/%s", run_dir, log->name);
        if (evlog_tail_hash(path, log->offset, &log->tail_hash, NULL) < 0)
            return false;
    }
    return true;
}

bool snapshot_logs_go_on(const char *run_dir, const struct snapshot_logs *logs)
{
    const struct evlog_damage *damage = logs->damage;
    for (size_t i = 0; i < logs->n; damage += logs->list[i++].n_damage)
        if (!log_goes_on(run_dir, &logs->list[i], damage))
            return false;
    return true;
}

/* Returns the next bytes of the text as a new array, and goes on behind them; NULL when out of
 * memory. */
static void *part_take(const char **p, size_t bytes)
{
    void *part = malloc(bytes + 1);
    if (part)
        memcpy(part, *p, bytes);
    *p += bytes;
    return part;
}

/* Takes the parts behind the head; returns false when out of memory. */
static bool parts_take(const struct str *text, const struct head *head, struct run_state *state,
                       struct snapshot_logs *logs)
{
    const char *p = text->p + sizeof *head, *state_at = p;
    p += sizeof *state;
    struct run_attempt *attempts = part_take(&p, (size_t)head->n_attempts * sizeof *attempts);
    logs->n = (size_t)head->n_logs;
    logs->n_damage = (size_t)head->n_damage;
    logs->list = part_take(&p, logs->n * sizeof *logs->list);
    logs->damage = part_take(&p, logs->n_damage * sizeof *logs->damage);
    if (!attempts || !logs->list || !logs->damage) {
        free(attempts);
        snapshot_logs_release(logs);
        return false;
    }
    memcpy(state, state_at, sizeof *state);
    state->attempts = attempts;
    return true;
}

bool snapshot_load(const char *run_dir, struct run_state *state, struct snapshot_logs *logs)
{
    char path[LIMIT_PATH_BYTES];
    struct str text = STR_INIT;
    struct head head;
    snprintf(path, sizeof path, "%s/state.snapshot", run_dir);
    bool taken = file_read(path, MAX_BYTES, &text, NULL) == 0 && is_whole(&text, &head) &&
                 parts_take(&text, &head, state, logs);
    str_release(&text);
    if (!taken || snapshot_logs_go_on(run_dir, logs))
        return taken;
    run_state_release(state);
    snapshot_logs_release(logs);
    return false;
}

void snapshot_save(const char *run_dir, const struct run_state *state,
                   const struct snapshot_logs *logs)
{
    char path[LIMIT_PATH_BYTES];
    struct str text = STR_INIT;
    struct head head;
    bool known = head_make(state->n_attempts, (int64_t)logs->n, (int64_t)logs->n_damage, &head);
    str_addn(&text, &head, sizeof head);
    str_addn(&text, state, sizeof *state);
    if (state->n_attempts)
        str_addn(&text, state->attempts, (size_t)state->n_attempts * sizeof *state->attempts);
    str_addn(&text, logs->list, logs->n * sizeof *logs->list);
    if (logs->n_damage)
        str_addn(&text, logs->damage, logs->n_damage * sizeof *logs->damage);
    struct hash128 hash = hash_128(text.p, text.len);
    str_addn(&text, &hash, sizeof hash);
    snprintf(path, sizeof path, "%s/state.snapshot", run_dir);
    if (known && str_check(&text, NULL) == 0)
        file_publish(path, text.p, text.len, NULL);
    str_release(&text);
}
