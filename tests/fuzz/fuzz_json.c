/* JSON: what is taken can be written, and reads back as the same text. */
#include "tests/fuzz/fuzz.h"

static char *written(const struct json_doc *doc)
{
    struct str s = STR_INIT;
    struct json_out o;
    json_out_init(&o, &s, 0);
    json_put_tree(&o, NULL, doc->root);
    FUZZ_CHECK(str_check(&s, NULL) == 0 && json_written_twice(s.p) == NULL);
    return str_detach(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct json_doc doc = {0}, again = {0};
    struct err err = {0};
    if (fuzz_told(json_parse((const char *)data, n, "input", &doc, &err), &err) < 0)
        return 0;
    char *first = written(&doc);
    FUZZ_CHECK(json_parse(first, strlen(first), "again", &again, &err) == 0);
    char *second = written(&again);
    FUZZ_CHECK(strcmp(first, second) == 0);
    free(first);
    free(second);
    json_release(&doc);
    json_release(&again);
    return 0;
}
