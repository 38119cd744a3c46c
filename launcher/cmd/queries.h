/* queries: declares the statements of launcher/cmd/queries.sql. That file says what each asks, its
 * parameters, and the columns that it returns. */
#ifndef LAUNCHER_CMD_QUERIES_H
#define LAUNCHER_CMD_QUERIES_H

extern const char sql_known_trials[];

#endif
