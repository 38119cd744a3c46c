/* Replays files through a fuzz target without a fuzzer: the main of the ordinary run. */
#include "base/file.h"
#include "tests/fuzz/fuzz.h"

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        struct str bytes = STR_INIT;
        struct err err = {0};
        if (file_read(argv[i], 1 << 24, &bytes, &err) < 0) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        uint8_t *exact = malloc(bytes.len ? bytes.len : 1); /* so that a byte too far is seen */
        FUZZ_CHECK(exact);
        memcpy(exact, bytes.p, bytes.len);
        LLVMFuzzerTestOneInput(exact, bytes.len);
        free(exact);
        str_release(&bytes);
    }
    return argc > 1 ? 0 : 1;
}
