#include "launcher/run/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/evlog.h"
#include "base/file.h"
#include "base/hash.h"

enum { MAX_BYTES = 64 << 20 };

/* The file holds this, the state, its attempts, the logs, and a hash of all before it. */
struct head {
    char magic[8];
    /* Who wrote it: the layout of what follows is that program's own. */
    int64_t program_bytes, program_mtime_ns;
    int64_t state_bytes, attempt_bytes, log_bytes, n_attempts, n_logs;
};

static bool head_make(int64_t n_attempts, int64_t n_logs, struct head *out)
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
                         n_attempts,
                         n_logs};
    return true;
}

/* Does the text begin with our head and have the length it tells, and the hash at its end? */
static bool is_whole(const struct str *text, struct head *head)
{
    struct head ours;
    struct hash128 hash;
    if (text->len < sizeof *head + sizeof hash)
        return false;
    memcpy(head, text->p, sizeof *head);
    if (head->n_attempts < 0 || head->n_attempts > MAX_BYTES || head->n_logs < 0 ||
        head->n_logs > MAX_BYTES ||
        !head_make(head->n_attempts, head->n_logs, &ours) || memcmp(head, &ours, sizeof ours) != 0)
        return false;
    size_t bytes = sizeof *head + sizeof(struct run_state) +
                   (size_t)head->n_attempts * sizeof(struct run_attempt) +
                   (size_t)head->n_logs * sizeof(struct snapshot_log);
    if (text->len != bytes + sizeof hash)
        return false;
    struct hash128 now = hash_128(text->p, bytes);
    memcpy(&hash, text->p + bytes, sizeof hash);
    return hash.hi == now.hi && hash.lo == now.lo;
}

static bool log_goes_on(const char *run_dir, const struct snapshot_log *log)
{
    char path[LIMIT_PATH_BYTES + LIMIT_NAME_BYTES];
    uint64_t hash;
    snprintf(path, sizeof path, "%s/events/%s", run_dir, log->name);
    return evlog_tail_hash(path, log->offset, &hash, NULL) == 0 && hash == log->tail_hash;
}

bool snapshot_logs_hash(const char *run_dir, struct snapshot_log *logs, size_t n)
{
    char path[LIMIT_PATH_BYTES + LIMIT_NAME_BYTES];
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/events/%s", run_dir, logs[i].name);
        if (evlog_tail_hash(path, logs[i].offset, &logs[i].tail_hash, NULL) < 0)
            return false;
    }
    return true;
}

bool snapshot_logs_go_on(const char *run_dir, const struct snapshot_log *logs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!log_goes_on(run_dir, &logs[i]))
            return false;
    return true;
}

/* Takes the parts behind the head; returns false when out of memory. */
static bool parts_take(const struct str *text, const struct head *head, struct run_state *state,
                       struct snapshot_log **logs)
{
    const char *p = text->p + sizeof *head;
    size_t attempts_bytes = (size_t)head->n_attempts * sizeof *state->attempts,
           logs_bytes = (size_t)head->n_logs * sizeof **logs;
    struct run_attempt *attempts = malloc(attempts_bytes + 1);
    *logs = malloc(logs_bytes + 1);
    if (!attempts || !*logs) {
        free(attempts);
        free(*logs);
        return false;
    }
    memcpy(state, p, sizeof *state);
    memcpy(attempts, p + sizeof *state, attempts_bytes);
    memcpy(*logs, p + sizeof *state + attempts_bytes, logs_bytes);
    state->attempts = attempts;
    return true;
}

bool snapshot_load(const char *run_dir, struct run_state *state, struct snapshot_log **logs,
                   size_t *n_logs)
{
    char path[LIMIT_PATH_BYTES];
    struct str text = STR_INIT;
    struct head head;
    snprintf(path, sizeof path, "%s/state.snapshot", run_dir);
    bool taken = file_read(path, MAX_BYTES, &text, NULL) == 0 && is_whole(&text, &head) &&
                 parts_take(&text, &head, state, logs);
    str_release(&text);
    if (taken && !snapshot_logs_go_on(run_dir, *logs, (size_t)head.n_logs)) {
        run_state_release(state);
        free(*logs);
        taken = false;
    }
    if (taken)
        *n_logs = (size_t)head.n_logs;
    return taken;
}

void snapshot_save(const char *run_dir, const struct run_state *state,
                   const struct snapshot_log *logs, size_t n_logs)
{
    char path[LIMIT_PATH_BYTES];
    struct str text = STR_INIT;
    struct head head;
    bool known = head_make(state->n_attempts, (int64_t)n_logs, &head);
    str_addn(&text, &head, sizeof head);
    str_addn(&text, state, sizeof *state);
    if (state->n_attempts)
        str_addn(&text, state->attempts, (size_t)state->n_attempts * sizeof *state->attempts);
    str_addn(&text, logs, n_logs * sizeof *logs);
    struct hash128 hash = hash_128(text.p, text.len);
    str_addn(&text, &hash, sizeof hash);
    snprintf(path, sizeof path, "%s/state.snapshot", run_dir);
    if (known && str_check(&text, NULL) == 0)
        file_publish(path, text.p, text.len, NULL);
    str_release(&text);
}
