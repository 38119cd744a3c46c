/* Tests which words of a command pass for secrets, and how they are hidden. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/secret.h"

static void words_lose_their_secrets(void **state)
{
    static const struct {
        const char *before, *word, *hidden;
    } rows[] = {
        {NULL, "--api-key=abc", "--api-key=<hidden>"},
        {NULL, "--wandb.apiKey=abc", "--wandb.apiKey=<hidden>"},
        {NULL, "WANDB_API_KEY=abc", "WANDB_API_KEY=<hidden>"},
        {"--password", "abc", "<hidden>"},
        {"--hf-token", "abc", "<hidden>"},
        {"--hf-token", "--steps", "--steps"},
        {"--steps", "100", "100"},
        {"sh", "TOKEN=abc HF_TOKEN='a b' cmd --secret abc --lr 3; x", "TOKEN=<hidden> "
         "HF_TOKEN='<hidden>' cmd --secret <hidden> --lr 3; x"},
        {"-c", "TOKEN=$TOKEN cmd --auth=\"$A\"", "TOKEN=$TOKEN cmd --auth=\"$A\""},
        {"-H", "Authorization: Bearer abc", "Authorization: <hidden>"},
        {NULL, "{\"api_key\": \"abc\", \"lr\": 1}", "{\"api_key\": \"<hidden>\", \"lr\": 1}"},
        {NULL, "https://me:abc@host:80/x", "https://me:<hidden>@host:80/x"},
        {NULL, "tcp://host:80/x@y", "tcp://host:80/x@y"},
        {"login", "0123456789abcdef0123456789abcdef01234567", "<hidden>"},
        {"login", "hf_abcdefghijklmnopq", "<hidden>"},
        {NULL, "--tokenizer-path=x", "--tokenizer-path=x"},
        {NULL, "--max-tokens=4096", "--max-tokens=4096"},
        {NULL, "--num-key-value-heads=8", "--num-key-value-heads=8"},
        {NULL, "key=loss", "key=loss"},
        {NULL, "PWD=/home/me", "PWD=/home/me"},
        {NULL, "--secret", "--secret"},
        {NULL, "--secret=", "--secret="},
        {NULL, "sk-learn", "sk-learn"},
        {NULL, "gr\xc3\xb6\xc3\x9f" "e", "gr\xc3\xb6\xc3\x9f" "e"},
        {NULL, "", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct str out = STR_INIT;
        secret_hide(rows[i].word, rows[i].before, &out);
        assert_string_equal(out.len ? out.p : "", rows[i].hidden);
        str_release(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(words_lose_their_secrets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
