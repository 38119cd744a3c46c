#include <stdio.h>

#include "trainer/main.h"

int train_print(const struct str *text, struct err *err)
{
    int rc = str_check(text, err);
    if (rc == 0 && (fwrite(text->p, 1, text->len, stdout) != text->len || fflush(stdout) != 0))
        rc = err_set_errno(err, ERR_IO, "cannot write to standard output");
    return rc;
}
