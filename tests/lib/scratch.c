#include "tests/lib/scratch.h"

char scratch[256];

int scratch_setup(void **state)
{
    const char *tmp = getenv("TMPDIR");

    (void)state;
    snprintf(scratch, sizeof scratch, "%s/reel-unit.XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(scratch) ? 0 : -1;
}

int scratch_teardown(void **state)
{
    (void)state;
    return file_remove_tree(scratch, NULL);
}

const char *in_scratch(const char *name)
{
    static char buf[8][512];
    static unsigned next;
    char *b = buf[next++ % 8];

    snprintf(b, sizeof buf[0], "%s/%s", scratch, name);
    return b;
}

int count_entries(const char *dir)
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
