/* id: makes random identifiers of 128 bits, for runs and submission tokens. As text they are 32
 * lower-case hex digits. */
#ifndef BASE_ID_H
#define BASE_ID_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { ID_TEXT_BYTES = 33 };
struct id { uint64_t hi, lo; };

int id_random(struct id *out, struct err *err); /* asks getrandom(2) */
char *id_format(struct id id, char buf[ID_TEXT_BYTES]);
int id_parse(const char *text, struct id *out, struct err *err);

/* Checks the name of a run or a job, which becomes the name of a file and of a job and a word of a
 * command line. ERR_INPUT if it is not [A-Za-z0-9_-]{1,127}. `what` names the place where it was
 * given. */
int id_name_check(const char *name, const char *what, struct err *err);

#endif
