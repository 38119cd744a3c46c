/* cmd: declares the commands of `reel`, which have one file each. A command is an option table and
 * a function, and main dispatches to it.
 *
 * Only this folder and the mains print or exit. Data goes to stdout, messages go to stderr. With
 * --json a command prints one object with "schema", and nothing else goes to stdout. A command
 * returns 0 or an error code with its sentence; main prints the sentence and exits with
 * err_exit_code. A command whose answer is "no" returns ERR_NO after printing its output.
 */
#ifndef LAUNCHER_CMD_CMD_H
#define LAUNCHER_CMD_CMD_H

#include <stdbool.h>

#include "base/err.h"
#include "base/limits.h"
#include "base/opt.h"
#include "base/settings.h"
#include "base/str.h"
#include "profiles/constants.h"

struct cmd_env {
    const char *home;    /* REEL_HOME, as an absolute path */
    const char *bin_dir; /* folder of this executable, where reel-train and reel-curate lie too */
    const char *db_path; /* --db, REEL_DB or <home>/reel.db */
    const struct settings *settings;
    bool stderr_tty;
};

struct table; /* autotune/table.h */

typedef int cmd_run_fn(const struct opt_values *v, struct cmd_env *env, struct err *err);

/* Lists all commands in the order of help. To add one: write cmd/NAME.c, add X(NAME) here, give it
 * an example, files and variables in cmd/notes.c, and write tests/cli/t*-NAME. The hidden ones are
 * internal entry points. */
#define CMD_LIST(X) \
    X(topo) X(model) X(plan) X(score) X(calibrate) X(curate) X(tune) X(launch) X(wrap) X(status) \
    X(watch) X(pause) X(resume) X(cancel) X(retry) X(rm) X(explain) X(report) X(db) X(config) \
    X(format) X(check_site)
#define CMD_HIDDEN_LIST(X) X(agent) X(node_agent) X(keeper)
#define CMD_DECLARE(name)                   \
    extern const struct opt_cmd cmd_##name; \
    cmd_run_fn cmd_##name##_run;
CMD_LIST(CMD_DECLARE)
CMD_HIDDEN_LIST(CMD_DECLARE)
extern const struct opt_note cmd_examples[], cmd_files[], cmd_environment[];

/* Options that every command may list first in its table. */
#define CMD_OPT_JSON {"json", 0, OPT_BOOL, NULL, "print one JSON object on standard output"}
#define CMD_OPT_DB \
    {"db", 0, OPT_TEXT, "FILE", "database (default REEL_HOME/reel.db)", .flags = OPT_SETTING}
#define CMD_OPT_DRY_RUN {"dry-run", 0, OPT_BOOL, NULL, "say what would be done and change nothing"}

/* Adds a line for each page of 'reel format': its name, a tab and its title. */
void cmd_format_pages(struct str *out);

/* Prints text to stdout. A failed write (full disk, closed pipe) is ERR_IO. */
int cmd_print(const struct str *text, struct err *err);

/* Refuses an output that is "-", or that is the same file as one of the n inputs. An input may be
 * NULL, the name of something compiled in, or "FILE:N". `option` names the output's option in the
 * error. An output of NULL passes. */
int cmd_spare(const char *option, const char *output, const char *const *inputs, size_t n,
              struct err *err);

/* Checks, before any work, that the file `output` can be written: ERR_IO if not. To see that, it
 * opens the output as file_pub_open() does, and leaves nothing. ERR_USAGE: there is a folder, a
 * named pipe or another thing that is neither a file nor a device such as /dev/stdout. `option`
 * names its option in the error. An output of NULL passes. */
int cmd_output_check(const char *option, const char *output, struct err *err);
/* Returns the file that `output` leads to by symbolic links, which publishing would replace: in
 * `place`, or `output` itself. It need not exist. */
const char *cmd_output_place(const char *output, char place[LIMIT_PATH_BYTES]);
/* Prints on stderr how many rows are done, every few seconds once the work has lasted a while. It
 * is the `tell` of struct told_rows; `progress` is a struct progress. */
void cmd_rows_tell(void *progress, int64_t done, int64_t all);
/* Warns on stderr of the first device in a set of constants that has no compiled-in profile and is
 * not `here`, which may be NULL. */
void cmd_constants_note(const char *path, const struct constants *c, const struct device *here);

/* Warns on stderr of the words that a table's columns do not know, which and what each is taken as:
 * of the first 20, and of how many more there are. */
void cmd_words_note(const struct table *t);
/* Tells on stderr which rows of a table are refused, and why: the first 20, and how many more. */
void cmd_refused_note(const struct table *t);

/* Returns the error code with which the program exits as the agent did. It fills no error text,
 * because the agent has already said what went wrong. */
int cmd_agent_status(int exit_code);

/* Reads new records of the event logs into the database. A failure is only a line on stderr,
 * because the records stay in the logs. */
void cmd_ingest(const struct cmd_env *env);

#endif
