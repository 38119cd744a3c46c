#include "launcher/run/word.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/process.h"
#include "base/str.h"

enum { WORD_BYTES = 299, WORD_MOST_BYTES = 1 << 20 };

void word_paths_init(struct word_paths *w, const char *run_dir, int64_t attempt)
{
    long long n = attempt;
    snprintf(w->notice, sizeof w->notice, "%s/claims/notice-%lld", run_dir, n);
    snprintf(w->ending, sizeof w->ending, "%s/claims/end-%lld", run_dir, n);
    snprintf(w->told, sizeof w->told, "%s/claims/told-%lld", run_dir, n);
    snprintf(w->shared, sizeof w->shared, "%s/%s.%lld", w->told, clock_host(),
             (long long)proc_namespace());
}

bool word_is_there(const char *path)
{
    struct str text = STR_INIT;
    bool there = file_read(path, WORD_MOST_BYTES, &text, NULL) == 0 && text.len > 0;
    str_release(&text);
    return there;
}

int word_put(const char *path, const char *text, struct err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    int rc = fd < 0 ? err_set_errno(err, ERR_IO, "cannot open '%s'", path)
                    : file_write_all(fd, text, strlen(text), path, err);
    if (fd >= 0)
        close(fd);
    return rc;
}

int word_write(const char *path, const char *node, int signo, struct err *err)
{
    char text[WORD_BYTES + 2];
    snprintf(text, sizeof text, "{\"node\": \"%.200s\", \"signal\": %d, \"wall\": %.6f}", node,
             signo, clock_wall_s());
    size_t n = strlen(text);
    memset(text + n, ' ', WORD_BYTES - n);
    text[WORD_BYTES] = '\n';
    text[WORD_BYTES + 1] = '\0';
    return word_put(path, text, err);
}

const char *word_node(void)
{
    const char *name = getenv("SLURMD_NODENAME");
    return name && *name ? name : clock_host();
}
