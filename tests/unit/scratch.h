/* scratch: a folder of its own for each test, under TMPDIR, removed behind it. */
#ifndef TESTS_UNIT_SCRATCH_H
#define TESTS_UNIT_SCRATCH_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static char scratch[256]; /* the present test's folder */

static inline int scratch_setup(void **state)
{
    const char *tmp = getenv("TMPDIR");

    (void)state;
    snprintf(scratch, sizeof scratch, "%s/reel-unit.XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(scratch) ? 0 : -1;
}

static inline int scratch_teardown(void **state)
{
    (void)state;
    return file_remove_tree(scratch, NULL);
}

/* Returns "<scratch>/<name>" in one of eight rotating buffers. */
static inline const char *in_scratch(const char *name)
{
    static char buf[8][512];
    static unsigned next;
    char *b = buf[next++ % 8];

    snprintf(b, sizeof buf[0], "%s/%s", scratch, name);
    return b;
}

/* Returns how many entries a folder has, dot names of ours included; -1 when it is not there. */
static inline int count_entries(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;

    if (!d)
        return -1;
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}

#endif
