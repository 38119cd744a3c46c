/* store_priv: declares what other files of db/ need of the connection itself. */
#ifndef DB_STORE_PRIV_H
#define DB_STORE_PRIV_H

#include <sqlite3.h>

#include "db/store.h"

sqlite3 *store_sqlite(struct store *db);
/* Turns the error of the last call on `sql` into ours. `what` is the clause after "cannot", such as
 * "write the events". */
int store_error(sqlite3 *sql, int rc, const char *what, struct err *err);

#endif
