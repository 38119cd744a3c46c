/* Event logs: reading ends; damage and records lie in the file, and a second reading says the
 * same. */
#include "base/evlog.h"
#include "tests/fuzz/fuzz.h"

static size_t read_all(const char *path, int64_t size, size_t *damage)
{
    struct evlog_reader *r;
    const struct evlog_damage *list;
    const cJSON *event;
    struct err err = {0};
    size_t records = 0;
    int64_t at = 0;
    int rc;
    FUZZ_CHECK(evlog_reader_open(path, &r, &err) == 0);
    while ((rc = fuzz_told(evlog_reader_next(r, &event, &err), &err)) == 1) {
        FUZZ_CHECK(cJSON_IsObject(event) && evlog_reader_offset(r) > at);
        at = evlog_reader_offset(r);
        records++;
    }
    FUZZ_CHECK(rc == 0 && at <= size);
    *damage = evlog_reader_damage(r, &list);
    for (size_t i = 0; i < *damage; i++)
        FUZZ_CHECK(list[i].offset >= 0 && list[i].bytes >= 0 &&
                   list[i].offset + list[i].bytes <= size && list[i].reason[0]);
    evlog_reader_close(r);
    return records;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *path = fuzz_file("evlog", data, n);
    size_t damage, again;
    size_t records = read_all(path, (int64_t)n, &damage);
    FUZZ_CHECK(read_all(path, (int64_t)n, &again) == records && again == damage);
    return 0;
}
