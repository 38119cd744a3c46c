/* A dataset's index: the input gets the length and the checksum it should have, so that its fields
 * are looked at. */
#include "base/file.h"
#include "base/hash.h"
#include "profiles/dataset.h"
#include "tests/fuzz/fuzz.h"

static void put_u64(uint8_t *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint8_t *whole = malloc(n + 16);
    char root[256], path[300];
    struct dataset d = {0};
    struct err err = {0};
    FUZZ_CHECK(whole);
    memcpy(whole, data, n);
    if (n >= 16)
        put_u64(whole + 8, n + 16);
    struct hash128 h = hash_128(whole, n);
    put_u64(whole + n, h.hi);
    put_u64(whole + n + 8, h.lo);
    snprintf(root, sizeof root, "%s", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    snprintf(path, sizeof path, "%s/.reel/index", root);
    static bool made;
    if (!made) {
        char folder[300];
        snprintf(folder, sizeof folder, "%s/.reel", root);
        made = file_mkdirs(folder, &err) == 0;
    }
    FUZZ_CHECK(file_publish(path, whole, n + 16, &err) == 0);
    free(whole);
    if (fuzz_told(dataset_load(root, &d, &err), &err) == 0)
        FUZZ_CHECK(d.n_samples > 0 && dataset_check(&d, "input", &err) == 0);
    dataset_release(&d);
    return 0;
}
