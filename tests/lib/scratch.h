/* scratch: a folder of its own for each test, under TMPDIR, removed behind it. */
#ifndef TESTS_SCRATCH_H
#define TESTS_SCRATCH_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

extern char scratch[256]; /* the present test's folder */

int scratch_setup(void **state);
int scratch_teardown(void **state);

/* Returns "<scratch>/<name>" in one of eight rotating buffers. */
const char *in_scratch(const char *name);

/* Returns how many entries a folder has, dot names of ours included; -1 when it is not there. */
int count_entries(const char *dir);

#endif
