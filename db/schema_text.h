/* schema_text: the SQL files of db/, compiled in by contrib/embed-sql. */
#ifndef DB_SCHEMA_TEXT_H
#define DB_SCHEMA_TEXT_H

extern const char schema_views[];             /* db/views.sql */
extern const char schema_step_column[];       /* db/step_column.sql */
extern const char schema_ingest[];            /* db/ingest.sql */
extern const char *const schema_migrations[]; /* db/migrations, from the first on; NULL ends it */

#endif
