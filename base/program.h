/* program: what the mains of reel's programs share: finding the command, help, --version, pages,
 * completion.
 *
 *     reel-x COMMAND [OPTION...]                runs it; a wrong name is answered with the nearest
 *     reel-x | help | --help | -h               the overview; with a command behind it, its help
 *     reel-x --version | -V | version           version, commit, compiler, libraries, SIMD
 *     reel-x help --man|--complete [COMMAND]    roff, and "word<TAB>meaning" a line, for packagers
 *     reel-x help --words [WORD...]             what may stand for the last word, for shells
 *
 * A program with an `alone` command runs it where no command's name stands first.
 */
#ifndef BASE_PROGRAM_H
#define BASE_PROGRAM_H

#include "base/opt.h"

/* A build tells what a program was made from; the Makefile writes one for each program. */
struct build {
    const char *commit;    /* "d171db7", "d171db7-changed", "unknown" */
    const char *libraries; /* "hwloc 2.9.0, sqlite3 3.40.1" */
};
extern const struct build build;

/* A command is called with this; it borrows all of it. */
struct program_call {
    const struct opt_cmd *cmd;
    const struct opt_values *values;
    const struct settings *settings; /* NULL in a program without any */
    int argc; /* the command's name and what follows it, as they were given */
    char **argv;
};

struct program {
    struct opt_page page;
    const char *summary; /* one line, as under NAME in its page */
    const struct opt_cmd *const *commands;
    size_t n_commands;
    const struct opt_cmd *const *hidden; /* commands that are not listed; may be NULL */
    size_t n_hidden;
    const struct opt_cmd *alone; /* may be NULL */
    /* Loads the settings that options may come from; *out is new. NULL: the program has none. */
    int (*settings)(struct settings **out, struct err *err);
    /* Runs a command. It is not called when help was asked for, which is then printed. */
    int (*run)(const struct program_call *call, struct err *err);
    void (*about)(struct str *out); /* adds lines to --version; may be NULL */
    /* Adds which SIMD kind its arithmetic runs on here, and of which; NULL: it is compiled once. */
    void (*simd)(struct str *out);
    /* Adds the values of an argument like RUN or MODEL, one a line; may be NULL. */
    void (*words)(const char *kind, struct str *out);
};

/* Runs the program to its exit status. Logs and the error of the command go to standard error. */
int program_main(const struct program *p, const struct build *b, int argc, char **argv);

/* Prints text to standard output; a failed write (full disk, closed pipe) is ERR_IO. */
int program_print(const struct str *text, struct err *err);

#endif
