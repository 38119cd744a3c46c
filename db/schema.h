/* schema: brings a database to this program's tables and views, and describes the public views. The
 * top of schema.c explains what the database holds. */
#ifndef DB_SCHEMA_H
#define DB_SCHEMA_H

#include <sqlite3.h>

#include "base/err.h"
#include "base/str.h"

enum { SCHEMA_APPLICATION_ID = 0x5245454c }; /* "REEL" */

int schema_version(void); /* Returns the schema version that this program writes. */
/* Brings an empty or older database to schema_version(), with this program's views. Tests give an
 * earlier `version`. */
int schema_migrate(sqlite3 *sql, int version, struct err *err);
/* Appends the text of `reel db schema`: the public views with the meaning of each column, and if
 * `all` is true the other views and the SQL of every migration. */
void schema_describe(struct str *out, bool all);

/* Appends the names of the public views: "v_run, v_step, …". */
void schema_views_list(struct str *out);

#endif
