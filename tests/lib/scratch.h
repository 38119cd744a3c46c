/* scratch: makes a folder for each test, under TMPDIR, and removes it after the test. */
#ifndef TESTS_SCRATCH_H
#define TESTS_SCRATCH_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

extern char scratch[256]; /* folder of the present test */

int scratch_setup(void **state);
int scratch_teardown(void **state);

/* Returns "<scratch>/<name>" in one of eight rotating buffers. */
const char *in_scratch(const char *name);

/* Returns how many entries a folder has, hidden files included; -1 if the folder does not exist. */
int count_entries(const char *dir);

#endif
