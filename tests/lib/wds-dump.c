/* wds-dump SHARD... DIR: reads shards with our reader, writes every part of every sample to
 * DIR/KEY.PART, and prints the keys in their order. tests/peers uses it. */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/wds.h"

static int sample_dump(struct wds_reader *r, int64_t i, const char *dir, struct err *err)
{
    struct wds_sample s;
    int rc = wds_reader_sample(r, i, &s, err);
    for (size_t k = 0; rc == 0 && k < s.n_parts; k++) {
        char path[LIMIT_PATH_BYTES];
        struct str bytes = STR_INIT;
        snprintf(path, sizeof path, "%s/%s.%s", dir, s.key, s.parts[k].name);
        if ((rc = wds_reader_part(r, &s, s.parts[k].name, &bytes, err)) == 0)
            rc = file_publish(path, bytes.p, bytes.len, err);
        str_release(&bytes);
    }
    if (rc == 0)
        puts(s.key);
    return rc;
}

int main(int argc, char **argv)
{
    struct err err = {0};
    int rc = 0;
    for (int i = 1; i < argc - 1 && rc == 0; i++) {
        struct wds_reader *r = NULL;
        rc = wds_reader_open(argv[i], &r, &err);
        for (int64_t k = 0; rc == 0 && k < wds_reader_count(r); k++)
            rc = sample_dump(r, k, argv[argc - 1], &err);
        wds_reader_close(r);
    }
    if (rc < 0)
        fprintf(stderr, "wds-dump: %s\n", err.text);
    return err_exit_code(rc);
}
