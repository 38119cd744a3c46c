/* db_fixture: makes a home with event logs and its database, and gives the whole content of the
 * database as one text.
 *
 * A test that includes this links as events_fixture.h says.
 */
#ifndef TESTS_DB_FIXTURE_H
#define TESTS_DB_FIXTURE_H

#include "tests/lib/events_fixture.h"

#include <sys/stat.h>

#include "db/ingest.h"

extern char *home, db_path[300];

int db_setup(void **state);
int db_teardown(void **state);
struct ingest_report ingest_at(const char *path, const char *const *dirs, size_t n);
struct ingest_report ingest(void);
void rows_dump(struct store *db, const char *sql, struct str *out);

/* Returns the content of all views and tables, except raw row ids and the file table. The text is
 * new. */
char *dump(const char *path);
double ask_num(const char *sql);
void same_text(const char *a, const char *b);

/* Checks that a new database made from the files has the same content as the one at db_path. */
void equals_fresh(void);
int64_t file_size(const char *path);

#endif
