/* schema_text: declares the SQL files of db/, which contrib/embed-sql compiles in. */
#ifndef DB_SCHEMA_TEXT_H
#define DB_SCHEMA_TEXT_H

extern const char schema_views[];             /* db/views.sql */
extern const char schema_step_column[];       /* db/step_column.sql */
extern const char schema_ingest[];            /* db/ingest.sql */
extern const char *const schema_migrations[]; /* db/migrations, from the first on; NULL ends it */

#endif
