#include "launcher/state/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/evlog.h"
#include "base/file.h"
#include "base/hash.h"

enum { MAX_BYTES = 64 << 20 };

/* Names the lists that follow the state in the file, in this order. The last two are those of
 * struct snapshot_logs. */
enum { ATTEMPTS, CLOCKS, DIFFS, PARTS, TOLD, LOGS, DAMAGE, N_LISTS };

/* A snapshot file has this head, the state, the lists, and a hash of all bytes before the hash. */
struct head {
    char magic[8];
    /* These identify the program that wrote the file, because another build may lay out the
     * following structs differently. */
    int64_t program_bytes, program_mtime_ns, state_bytes;
    struct { int64_t n, size; } lists[N_LISTS]; /* number of elements, and bytes of each */
};

static bool head_make(const int64_t n[N_LISTS], struct head *out)
{
    static const int64_t sizes[N_LISTS] = {
        [ATTEMPTS] = sizeof(struct run_attempt), [CLOCKS] = sizeof(struct fold_clock),
        [DIFFS] = sizeof(struct fold_diff),      [PARTS] = sizeof(struct fold_part),
        [TOLD] = sizeof(struct told),            [LOGS] = sizeof(struct snapshot_log),
        [DAMAGE] = sizeof(struct evlog_damage),
    };
    struct stat st;
    if (stat("/proc/self/exe", &st) != 0)
        return false;
    *out = (struct head){{'r', 'e', 'e', 'l', 'f', 'o', 'l', 'd'},
                         st.st_size,
                         (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
                         sizeof(struct run_state),
                         {{0, 0}}};
    for (int i = 0; i < N_LISTS; i++) {
        out->lists[i].n = n[i];
        out->lists[i].size = sizes[i];
    }
    return true;
}

static size_t list_bytes(const struct head *head, int list)
{
    return (size_t)head->lists[list].n * (size_t)head->lists[list].size;
}

/* Tells whether this same program file wrote this head. */
static bool head_is_ours(const struct head *head)
{
    int64_t n[N_LISTS];
    struct head ours;
    for (int i = 0; i < N_LISTS; i++)
        if ((n[i] = head->lists[i].n) < 0 || n[i] > MAX_BYTES)
            return false;
    return head_make(n, &ours) && memcmp(head, &ours, sizeof ours) == 0;
}

/* Tells whether the text begins with this program's head and has the length that the head gives,
 * and the right hash at its end. */
static bool is_whole(const struct str *text, struct head *head)
{
    struct hash128 hash;
    if (text->len < sizeof *head + sizeof hash)
        return false;
    memcpy(head, text->p, sizeof *head);
    if (!head_is_ours(head))
        return false;
    size_t bytes = sizeof *head + sizeof(struct run_state);
    for (int i = 0; i < N_LISTS; i++)
        bytes += list_bytes(head, i);
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

/* Tells whether a log still begins with the bytes that the snapshot was folded from. damage:
 * unreadable places of this log. */
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

/* Copies the lists that follow the state into new arrays; returns false when out of memory. */
static bool lists_take(const char *p, const struct head *head, void *lists[N_LISTS])
{
    bool all = true;
    for (int i = 0; i < N_LISTS; p += list_bytes(head, i++)) {
        lists[i] = malloc(list_bytes(head, i) + 1);
        if (lists[i])
            memcpy(lists[i], p, list_bytes(head, i));
        all = all && lists[i];
    }
    for (int i = 0; i < N_LISTS && !all; i++)
        free(lists[i]);
    return all;
}

/* Takes the state and the lists from after the head; returns false when out of memory. */
static bool parts_take(const struct str *text, const struct head *head, struct run_state *state,
                       struct snapshot_logs *logs)
{
    const char *p = text->p + sizeof *head;
    void *lists[N_LISTS];
    if (!lists_take(p + sizeof *state, head, lists))
        return false;
    memcpy(state, p, sizeof *state);
    state->attempts = lists[ATTEMPTS];
    state->clocks.list = lists[CLOCKS];
    state->clocks.diffs = lists[DIFFS];
    state->clocks.parts = lists[PARTS];
    state->told.list = lists[TOLD];
    state->clocks.cap = state->clocks.n;
    state->clocks.cap_diffs = state->clocks.n_diffs;
    state->clocks.cap_parts = state->clocks.n_parts;
    state->told.cap = state->told.n;
    *logs = (struct snapshot_logs){.list = lists[LOGS],
                                   .damage = lists[DAMAGE],
                                   .n = (size_t)head->lists[LOGS].n,
                                   .n_damage = (size_t)head->lists[DAMAGE].n};
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
    const struct fold_clocks *c = &state->clocks;
    const void *lists[N_LISTS] = {
        [ATTEMPTS] = state->attempts, [CLOCKS] = c->list,  [DIFFS] = c->diffs,
        [PARTS] = c->parts,           [TOLD] = state->told.list,
        [LOGS] = logs->list,          [DAMAGE] = logs->damage,
    };
    const int64_t n[N_LISTS] = {
        [ATTEMPTS] = state->n_attempts,     [CLOCKS] = (int64_t)c->n,
        [DIFFS] = (int64_t)c->n_diffs,      [PARTS] = (int64_t)c->n_parts,
        [TOLD] = (int64_t)state->told.n,    [LOGS] = (int64_t)logs->n,
        [DAMAGE] = (int64_t)logs->n_damage,
    };
    if (!head_make(n, &head))
        return;
    str_addn(&text, &head, sizeof head);
    str_addn(&text, state, sizeof *state);
    for (int i = 0; i < N_LISTS; i++)
        if (n[i])
            str_addn(&text, lists[i], list_bytes(&head, i));
    struct hash128 hash = hash_128(text.p, text.len);
    str_addn(&text, &hash, sizeof hash);
    snprintf(path, sizeof path, "%s/state.snapshot", run_dir);
    if (str_check(&text, NULL) == 0)
        file_publish(path, text.p, text.len, NULL);
    str_release(&text);
}
