/* home: says where runs lie under REEL_HOME, and finds a run by its name.
 *
 *     <home>/runs/<run id>/{run.json,plan.json,events/,ckpt/,logs/,claims/,placement/}
 *     <home>/names/<name>      a file holding the run id; made by exclusive create, so a name has
 *                              one run
 */
#ifndef LAUNCHER_STATE_HOME_H
#define LAUNCHER_STATE_HOME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "base/limits.h"

/* A folder that is gone is waited for so long: a file system may be mounted late, or somebody may
 * move a folder and bring it back. */
enum { HOME_WAIT_S = 1800 };

/* Writes <home>/runs/<id> into buf and returns it. */
char *home_run_dir(const char *home, const char *run_id, char buf[LIMIT_PATH_BYTES]);

/* Is there a folder with something in it? An empty one may be the mount point of the disk that
 * holds the home. */
bool home_is_there(const char *home);

/* Checks that the runs' folder is there and holds something, if names say that there are runs. If
 * not, it may be the mount point of a disk, and nothing must begin anew: ERR_ENV. */
int home_runs_check(const char *home, struct err *err);

/* Checks that runs were made in this home before: its folder of names stays, even if it is empty.
 * If it is not there, the home's disk may not be mounted: ERR_ENV. */
int home_used_check(const char *home, struct err *err);

/* Finds a run by a name, an id, or the unique beginning (4 digits or more) of an id, in this order.
 * ERR_NOT_FOUND suggests the nearest name; ERR_INPUT when a beginning fits several; ERR_ENV as
 * above. */
int home_run_find(const char *home, const char *name_or_id, char id[ID_TEXT_BYTES],
                  struct err *err);

/* Refuses (ERR_INPUT) a name for a new run that is the whole id of another one. It may be the
 * beginning of an id, because names are looked for first, or the name of a run that exists. */
int home_name_check(const char *home, const char *name, struct err *err);

/* Writes the run's name, or its id if it has none, into `name` and returns it. */
char *home_name_or_id(const char *home, const char *id, char name[LIMIT_NAME_BYTES]);

/* Finds the run that has exactly this name; ERR_NOT_FOUND when there is none. */
int home_name_find(const char *home, const char *name, char id[ID_TEXT_BYTES], struct err *err);

/* Binds name to id. ERR_EXISTS when the name is taken: *taken_by is its run. */
int home_name_claim(const char *home, const char *name, const char *id,
                    char taken_by[ID_TEXT_BYTES], struct err *err);

/* Writes the name that is bound to this id into name (LIMIT_NAME_BYTES); ERR_NOT_FOUND when there
 * is none. */
int home_name_of(const char *home, const char *id, char name[LIMIT_NAME_BYTES], struct err *err);

/* Removes a run: first its name, which is free from then on; then it renames the run's folder, so
 * that nobody finds the run any more, not even a process that waits for a lease in it; then the
 * folder's content. If this is killed after the first step the run is found by its id; if later,
 * its content goes with the next run that is removed. It is no error if name or folder is
 * absent. */
int home_run_remove(const char *home, const char *id, struct err *err);

/* Lists all run ids, newest folder first; returns a new array of new strings. */
int home_runs_list(const char *home, char ***ids, size_t *n, struct err *err);
void home_runs_free(char **ids, size_t n);

#endif
