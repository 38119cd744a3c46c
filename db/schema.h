/* schema: tables, migrations and public views; the essay on what they mean is at the top of schema.c. */
#ifndef DB_SCHEMA_H
#define DB_SCHEMA_H

#include <sqlite3.h>

#include "base/err.h"
#include "base/str.h"

enum { SCHEMA_APPLICATION_ID = 0x5245454c }; /* "REEL" */

int schema_version(void); /* what this program writes */
/* Bring an open, empty or older database to schema_version() (or to `version` below it, for tests). */
int schema_migrate(sqlite3 *sql, int version, struct err *err);
/* The public views, their columns and what each means; then, if all, every table: what `reel db schema` prints. */
void schema_describe(struct str *out, bool all);

/* The names of the public views: "v_run, v_step, …". */
void schema_views_list(struct str *out);

#endif
