/* secret: finds what may be a secret in the words of a command, and hides it.
 *
 * Names tell: an option, a variable or a field whose name has a part like token, secret, password,
 * credential, auth or jwt, or ends in key ("--api-key=X", "--password X", "WANDB_API_KEY=X cmd",
 * "Authorization: Bearer X", '"api_key": "X"'). So do the user's part of an address
 * ("https://user:X@host"), the beginnings of known tokens ("hf_...", "sk-..."), and long numbers in
 * hexadecimal digits. Too much is hidden rather than too little: "--eos-token=X" is, too. A word
 * alone that looks like any other passes for none. What begins with "$" only names a variable, and
 * stays.
 */
#ifndef BASE_SECRET_H
#define BASE_SECRET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

#define SECRET_HIDDEN "<hidden>"

/* Tells whether the value beside this name may be a secret. n: the name's length. */
bool secret_is_name(const char *name, size_t n);
/* Appends a word of a command, without its secrets. before: the word before it; NULL: none. */
void secret_hide(const char *word, const char *before, struct str *out);

#endif
