/* id: 128-bit random identifiers (runs, submission tokens), 32 lower-case hex digits as text. */
#ifndef BASE_ID_H
#define BASE_ID_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { ID_TEXT_BYTES = 33 };
struct id { uint64_t hi, lo; };

int id_random(struct id *out, struct err *err); /* getrandom(2) */
char *id_format(struct id id, char buf[ID_TEXT_BYTES]);
int id_parse(const char *text, struct id *out, struct err *err);

/* A name of a run or a job becomes a file's, a job's and a word of a command line: [A-Za-z0-9_-]{1,127}, ERR_INPUT else. `what` names the
 * place it was given. */
int id_name_check(const char *name, const char *what, struct err *err);

#endif
