/* word: the files in a run's claims/ by which batch agent and node agents inform each other.
 *
 * The notice file, claims/notice-<attempt>, says that a notice has come; the end file,
 * claims/end-<attempt>, asks the node agents to end. Both are empty until then (node_agent.h says
 * who writes them). The folder claims/told-<attempt>/<host>.<pid namespace> is ranks_told.shared:
 * only those who see the same process under the same number can share it.
 */
#ifndef LAUNCHER_RUN_WORD_H
#define LAUNCHER_RUN_WORD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"

struct word_paths {
    char notice[LIMIT_PATH_BYTES], ending[LIMIT_PATH_BYTES], told[LIMIT_PATH_BYTES],
        shared[LIMIT_PATH_BYTES]; /* in `told` */
};
void word_paths_init(struct word_paths *w, const char *run_dir, int64_t attempt);

/* Tells whether somebody has written to the notice file or the end file. The file is opened anew
 * each time, because that makes a shared file system ask its server. */
bool word_is_there(const char *path);

/* Overwrites the file from its beginning. If two hosts write at once, either text suffices; with
 * appends, each would write where it believes the end to be. The file is not synced, because its
 * readers run now. */
int word_put(const char *path, const char *text, struct err *err);

/* Writes a notice into the notice file. All notices are padded to one length, so that one written
 * over another leaves nothing of it. */
int word_write(const char *path, const char *node, int signo, struct err *err);

/* Returns the scheduler's name for this node, by which people know it. */
const char *word_node(void);

#endif
