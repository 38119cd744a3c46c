/* json_priv: declares what json.c and json_scan.c share. */
#ifndef BASE_JSON_PRIV_H
#define BASE_JSON_PRIV_H

#include "base/json.h"

/* Checks that text[0..len) is one JSON value according to RFC 8259 and to the limits in
 * json_scan.c. Errors start with "name:line:column: ". */
int json_scan(const char *text, size_t len, const char *name, struct err *err);

#endif
