/* The one way a subcommand's data reaches standard output. Apart from main.c so that the commands link into tests. */
#include <stdio.h>

#include "trainer/main.h"

int train_print(const struct str *text, struct err *err)
{
    if (str_check(text, err) < 0)
        return ERR_NOMEM;
    if (fwrite(text->p, 1, text->len, stdout) != text->len || fflush(stdout) != 0)
        return err_set_errno(err, ERR_IO, "cannot write to standard output");
    return 0;
}
