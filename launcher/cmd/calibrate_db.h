/* calibrate_db: gives the trials of the database as rows that constants are fitted on. */
#ifndef LAUNCHER_CMD_CALIBRATE_DB_H
#define LAUNCHER_CMD_CALIBRATE_DB_H

#include "autotune/table.h"
#include "launcher/cmd/cmd.h"

/* Reads new records of the logs into the database. Then makes a table of the trials that were
 * measured undisturbed or ran out of a device's memory. A trial that cannot be learnt from, for
 * example because no cluster was described or its dtype is not bf16, is a row that says why it is
 * skipped. Returns ERR_NO if all rows are skipped. The caller frees `out` with table_release(),
 * after an error too. */
int calibrate_db(const struct cmd_env *env, struct table *out, struct err *err);

#endif
