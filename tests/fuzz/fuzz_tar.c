/* Shards: a tar and, in the first bytes (their count in two), its index. */
#include <unistd.h>

#include "base/tar.h"
#include "base/wds.h"
#include "tests/fuzz/fuzz.h"

static void entries_read(const char *path, int64_t size)
{
    struct tar_reader *r;
    struct tar_entry e;
    struct err err = {0};
    int rc;
    FUZZ_CHECK(tar_reader_open(path, &r, &err) == 0);
    while ((rc = fuzz_told(tar_reader_next(r, &e, &err), &err)) == 1) {
        char head[16];
        FUZZ_CHECK(e.name && e.bytes >= 0 && e.data_offset >= e.header_offset &&
                   e.data_offset <= size);
        if (e.regular && e.bytes >= 16)
            fuzz_told(tar_reader_read(r, &e, e.bytes - 16, 16, head, &err), &err);
    }
    tar_reader_close(r);
}

static void samples_read(const char *path)
{
    struct wds_reader *r;
    struct wds_sample s;
    struct err err = {0};
    if (fuzz_told(wds_reader_open(path, &r, &err), &err) < 0)
        return;
    for (int64_t i = 0; i < wds_reader_count(r) && i < 100; i++) {
        struct str bytes = STR_INIT;
        if (fuzz_told(wds_reader_sample(r, i, &s, &err), &err) == 0 && s.n_parts > 0 &&
            s.parts[0].bytes < 1 << 20)
            fuzz_told(wds_reader_part(r, &s, s.parts[0].name, &bytes, &err), &err);
        str_release(&bytes);
    }
    wds_reader_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    size_t idx = n < 2 ? 0 : (size_t)(data[0] | data[1] << 8);
    if (n < 2 || idx > n - 2)
        return 0;
    const char *index = fuzz_file("shard.tar.idx", data + 2, idx),
               *path = fuzz_file("shard.tar", data + 2 + idx, n - 2 - idx);
    entries_read(path, (int64_t)(n - 2 - idx));
    if (idx)
        samples_read(path);
    unlink(index);
    samples_read(path);
    return 0;
}
