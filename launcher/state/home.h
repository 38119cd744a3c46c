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

/* A missing folder is waited for this long: a file system may be mounted late, or somebody may move
 * a folder and bring it back. */
enum { HOME_WAIT_S = 1800 };

/* Writes <home>/runs/<id> into buf and returns it. */
char *home_run_dir(const char *home, const char *run_id, char buf[LIMIT_PATH_BYTES]);

/* Tells whether the folder exists and is not empty. An empty one may be the mount point of the disk
 * that holds the home. */
bool home_is_there(const char *home);

/* Checks that the runs' folder exists and is not empty, if names say that there are runs. Otherwise
 * it may be the mount point of a disk, and no run may be started anew: ERR_ENV. */
int home_runs_check(const char *home, struct err *err);

/* Checks that runs were made in this home before: its folder of names exists, even if it is empty.
 * If it does not exist, the home's disk may not be mounted: ERR_ENV. */
int home_used_check(const char *home, struct err *err);

/* Finds a run by a name, an id, or the unique beginning (4 digits or more) of an id, in this order.
 * ERR_NOT_FOUND suggests the nearest name; ERR_INPUT: a beginning fits several runs; ERR_ENV as for
 * the checks above. */
int home_run_find(const char *home, const char *name_or_id, char id[ID_TEXT_BYTES],
                  struct err *err);

/* Refuses (ERR_INPUT) a name for a new run that is the full id of another run. It may be the
 * beginning of an id, because names are looked up first, or the name of an existing run. */
int home_name_check(const char *home, const char *name, struct err *err);

/* Writes the run's name, or its id if it has none, into `name` and returns it. */
char *home_name_or_id(const char *home, const char *id, char name[LIMIT_NAME_BYTES]);

/* Finds the run that has exactly this name; ERR_NOT_FOUND when there is none. */
int home_name_find(const char *home, const char *name, char id[ID_TEXT_BYTES], struct err *err);

/* Checks that the folder of a new run can be made, and its name be bound. */
int home_new_check(const char *home, struct err *err);
/* Binds name to id. ERR_EXISTS: the name is taken, and *taken_by is its run. */
int home_name_claim(const char *home, const char *name, const char *id,
                    char taken_by[ID_TEXT_BYTES], struct err *err);

/* Writes the name that is bound to this id into name (LIMIT_NAME_BYTES); ERR_NOT_FOUND when there
 * is none. */
int home_name_of(const char *home, const char *id, char name[LIMIT_NAME_BYTES], struct err *err);

/* Removes a run: first its name, which may be used again at once; then it renames the run's folder,
 * so that nobody finds the run any more, not even a process that waits for a lease in it; then it
 * deletes the folder. If the process is killed after the first step, the run is found by its id; if
 * it is killed later, the next home_run_remove deletes the folder. A missing name or folder is no
 * error. */
int home_run_remove(const char *home, const char *id, struct err *err);

/* Lists all run ids, newest folder first; returns a new array of new strings. */
int home_runs_list(const char *home, char ***ids, size_t *n, struct err *err);
void home_runs_free(char **ids, size_t n);

#endif
