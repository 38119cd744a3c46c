/* Settings files. */
#include "base/settings.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const known[] = {"db", "scheduler", NULL};
    char site[300];
    const char *env[] = {site, NULL};
    struct settings *s = NULL;
    struct err err = {0};
    snprintf(site, sizeof site, "REEL_SITE_CONFIG=%s", fuzz_file("settings", data, n));
    fuzz_told(settings_load(known, env, &s, &err), &err);
    settings_free(s);
    return 0;
}
