/* queries: declares the statements of db/queries.sql. That file says what each does, and its
 * parameters. */
#ifndef DB_QUERIES_H
#define DB_QUERIES_H

extern const char sql_file_save[];
extern const char sql_layout_save[];

#endif
