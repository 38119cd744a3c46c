/* fuzz: one parser a file, behind libFuzzer's entry. What is checked beside memory: the parser
 * ends, what it takes it can write and take again, and a refusal has a sentence. `make fuzz`
 * searches for inputs (clang); tests/cli/t7100-fuzz-corpus replays those in tests/fuzz/corpus
 * through replay.c in every ordinary run. An input that broke something is added there.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define FUZZ_CHECK(cond) \
    do { \
        if (!(cond)) { \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #cond); \
            abort(); \
        } \
    } while (0)

/* 0, or a refusal as it should be: a sentence of one line. */
static inline int fuzz_told(int rc, const struct err *err)
{
    FUZZ_CHECK(rc >= 0 || (err->code == rc && err->text[0] && !strchr(err->text, '\n')));
    return rc;
}

/* The input as a file; the path stays valid until the next call with that name. Borrowed. */
static inline const char *fuzz_file(const char *name, const uint8_t *data, size_t n)
{
    static char path[8][256];
    static unsigned next;
    char *p = path[next++ % 8];
    const char *dir = getenv("TMPDIR");
    snprintf(p, sizeof path[0], "%s/reel-fuzz-%s", dir ? dir : "/tmp", name);
    FILE *f = fopen(p, "wb");
    FUZZ_CHECK(f && fwrite(data, 1, n, f) == n && fclose(f) == 0);
    return p;
}

#endif
