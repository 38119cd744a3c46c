/* name_file: an empty file among a run's logs that holds, in its name, words for which the disk has
 * no room.
 *
 * The file is made while there is room, as PREFIXnone. A rename needs neither space nor an inode,
 * and no other writer can take the room for it.
 */
#ifndef LAUNCHER_STATE_NAME_FILE_H
#define LAUNCHER_STATE_NAME_FILE_H

#include <stdbool.h>

#include "base/err.h"

/* Makes the file in this folder of logs if there is none. A failure is no error: name_file_put
 * tries again. */
void name_file_reserve(const char *events_dir, const char *prefix);

/* Says whether the words in this name may be replaced. */
typedef bool name_file_older_fn(const char *name, const void *ctx);
/* Gives the file this name, PREFIX included. ERR_FULL: there is no such file, and no room for one.
 * ERR_BUSY: the words that it holds are not older. */
int name_file_put(const char *run_dir, const char *prefix, const char *name,
                  name_file_older_fn *is_older, const void *ctx, struct err *err);

#endif
