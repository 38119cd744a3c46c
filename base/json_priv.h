/* json_priv: what json.c, json_scan.c and json_out.c share. */
#ifndef BASE_JSON_PRIV_H
#define BASE_JSON_PRIV_H

#include <stddef.h>

#include "base/err.h"

/* Check that text[0..len) is one JSON value by RFC 8259 and our bounds; errors start with "name:line:column: ". */
int json_scan(const char *text, size_t len, const char *name, struct err *err);

/* Length in bytes (1 to 4) of the UTF-8 sequence at p, of which n > 0 bytes may be read; 0 if there is no valid one. */
size_t json_utf8_len(const char *p, size_t n);

#endif
