#include "autotune/oom.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/str.h"

enum { FILE_BYTES = 1 << 20, RECORD_BYTES = 8192 };

/* Reads the count of a file's line "oom_kill N"; false: it has none. */
static bool counter_read(const char *path, int64_t *out)
{
    static const char key[] = "oom_kill ";
    struct str text = STR_INIT;
    bool found = false;
    if (file_read(path, FILE_BYTES, &text, NULL) == 0)
        for (const char *at = text.p; at && *at && !found; at = strchr(at, '\n'), at += at != NULL)
            if ((found = str_starts(at, key)))
                *out = strtoll(at + strlen(key), NULL, 10);
    str_release(&text);
    return found;
}

/* Selects the counter of the cgroup in this line of /proc/self/cgroup, ID:CONTROLLERS:PATH, if it
 * can be read. In a container that sees only its own part of the tree, that part is the mount
 * itself. */
static bool cgroup_take(struct oom_watch *w, const char *root, const char *line)
{
    static const char *const v1[] = {"memory", "memory.oom_control"},
                      *const v2[] = {"", "memory.events"};
    const char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':')
                                                                     : NULL;
    if (!path)
        return false;
    bool unified = path == controllers + 1;
    const char *const *names = unified ? v2 : v1;
    if (!unified && strncmp(controllers, ":memory:", strlen(":memory:")) != 0)
        return false;
    int n = (int)strcspn(path + 1, "\n");
    for (int i = 0; i < 2; i++) {
        snprintf(w->counter, sizeof w->counter, "%s/sys/fs/cgroup/%s%.*s/%s", root, names[0],
                 i ? 0 : n, path + 1, names[1]);
        if (counter_read(w->counter, &w->before))
            return true;
    }
    return false;
}

static bool cgroup_find(struct oom_watch *w, const char *root)
{
    char path[LIMIT_PATH_BYTES];
    struct str text = STR_INIT;
    bool found = false;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (file_read(path, FILE_BYTES, &text, NULL) == 0)
        for (const char *at = text.p; at && *at && !found; at = strchr(at, '\n'), at += at != NULL)
            found = cgroup_take(w, root, at);
    str_release(&text);
    return found;
}

/* Opens the kernel's messages, positioned after the last of them. */
static int messages_open(const char *root)
{
    char path[LIMIT_PATH_BYTES];
    snprintf(path, sizeof path, "%s/dev/kmsg", root);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && lseek(fd, 0, SEEK_END) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

void oom_watch_begin(struct oom_watch *w, const char *root, const char *program)
{
    *w = (struct oom_watch){.program = program, .messages = -1};
    if ((w->own = cgroup_find(w, root)))
        return;
    if ((w->messages = messages_open(root)) >= 0)
        return;
    snprintf(w->counter, sizeof w->counter, "%s/proc/vmstat", root);
    if (!counter_read(w->counter, &w->before))
        w->counter[0] = '\0';
}

/* Looks in a message of the kernel for a killed process of this program (NULL: of any). */
static bool kill_find(const char *text, const char *program, char evidence[OOM_EVIDENCE_BYTES])
{
    static const char said[] = "Killed process ";
    const char *name;
    for (const char *at = text; (at = strstr(at, said)); at += strlen(said)) {
        int n = (int)strcspn(at, ")\n");
        if (at[n] != ')' || !(name = memchr(at, '(', (size_t)n)))
            continue;
        if (program && (strncmp(name + 1, program, strlen(program)) != 0 ||
                        name[1 + strlen(program)] != ')'))
            continue;
        snprintf(evidence, OOM_EVIDENCE_BYTES, "the kernel says: %.*s)", n, at);
        return true;
    }
    return false;
}

/* Reads the messages since the watch began, one record at a time. */
static bool messages_read(struct oom_watch *w, char evidence[OOM_EVIDENCE_BYTES])
{
    char record[RECORD_BYTES + 1];
    bool found = false;
    for (ssize_t n; !found && (n = read(w->messages, record, RECORD_BYTES)) > 0;) {
        record[n] = '\0';
        found = kill_find(record, w->program, evidence);
    }
    close(w->messages);
    w->messages = -1;
    return found;
}

bool oom_watch_end(struct oom_watch *w, char evidence[OOM_EVIDENCE_BYTES])
{
    int64_t after = w->before;
    evidence[0] = '\0';
    if (w->messages >= 0)
        return messages_read(w, evidence);
    if (!w->counter[0] || !counter_read(w->counter, &after) || after <= w->before)
        return false;
    snprintf(evidence, OOM_EVIDENCE_BYTES, "oom_kill of %.150s went from %lld to %lld", w->counter,
             (long long)w->before, (long long)after);
    return true;
}
