/* Runs, plans and models: what is taken is written in full and reads back as the same text.
 * Adapters: what is taken makes a command line, or a sentence why not. */
#include "profiles/adapter.h"
#include "profiles/plan.h"
#include "profiles/run.h"
#include "tests/fuzz/fuzz.h"

static char *run_text(const char *text, size_t n)
{
    struct run r = {0};
    struct err err = {0};
    struct str s = STR_INIT;
    struct json_out o;
    if (fuzz_told(run_parse(text, n, "input", &r, &err), &err) < 0)
        return NULL;
    json_out_init(&o, &s, 0);
    run_write(&r, &o);
    run_config_hash(&r);
    run_release(&r);
    return str_detach(&s);
}

static char *plan_text(const char *text, size_t n)
{
    struct plan p = {0};
    struct err err = {0};
    struct str s = STR_INIT;
    struct json_out o;
    if (fuzz_told(plan_parse(text, n, "input", &p, &err), &err) < 0)
        return NULL;
    json_out_init(&o, &s, 0);
    plan_write(&p, &o);
    return str_detach(&s);
}

static char *model_text(const char *text, size_t n)
{
    struct json_doc doc = {0};
    struct model m = {0};
    struct err err = {0};
    struct str s = STR_INIT;
    struct json_out o;
    int rc = fuzz_told(json_parse(text, n, "input", &doc, &err), &err);
    if (rc == 0)
        rc = fuzz_told(model_read(&doc, doc.root, "", &m, &err), &err);
    json_release(&doc);
    if (rc < 0)
        return NULL;
    json_out_init(&o, &s, 0);
    model_write(&m, &o, NULL);
    return str_detach(&s);
}

static void adapter_try(const uint8_t *data, size_t n)
{
    struct layout l = layout_default();
    struct model m = {.layers = 4, .heads = 4};
    struct adapter_facts facts = {&l, &m, {1, 4, 4}, 8, 4, "dir"};
    struct arena arena = {0};
    struct adapter *a = NULL;
    struct err err = {0};
    const char **words;
    if (fuzz_told(adapter_load(fuzz_file("adapter.json", data, n), &a, &err), &err) == 0)
        fuzz_told(adapter_words(a, &facts, true, &arena, &words, &err), &err);
    arena_release(&arena);
    adapter_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static char *(*const kinds[])(const char *, size_t) = {run_text, plan_text, model_text};
    for (int i = 0; i < 3; i++) {
        char *first = kinds[i]((const char *)data, n);
        char *second = first ? kinds[i](first, strlen(first)) : NULL;
        FUZZ_CHECK(!first || (second && strcmp(first, second) == 0));
        free(first);
        free(second);
    }
    adapter_try(data, n);
    return 0;
}
