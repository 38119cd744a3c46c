/* calibrate_db: the trials of the database as rows that constants are fitted on. */
#ifndef LAUNCHER_CMD_CALIBRATE_DB_H
#define LAUNCHER_CMD_CALIBRATE_DB_H

#include "autotune/table.h"
#include "launcher/cmd/cmd.h"

/* Reads what is new in the logs, then makes a table of the trials that tell of a described cluster:
 * measured, not disturbed, or out of a device's memory, with bf16. The others are rows that say why
 * they are skipped. ERR_NO: no row is used. table_release() frees it. */
int calibrate_db(const struct cmd_env *env, struct table *out, struct err *err);

#endif
