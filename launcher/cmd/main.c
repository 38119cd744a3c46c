/* reel: the command line. Finds the command, loads the settings, parses its options, runs it, reports its error. */
#include "launcher/cmd/cmd.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/version.h"

static const struct cmd commands[] = {
#define CMD_ROW(name) {&cmd_##name, cmd_##name##_run, false},
#define CMD_HIDDEN_ROW(name) {&cmd_##name, cmd_##name##_run, true},
    CMD_LIST(CMD_ROW) CMD_HIDDEN_LIST(CMD_HIDDEN_ROW)};
enum { N_COMMANDS = sizeof(commands) / sizeof(commands[0]), MAX_SETTINGS = 256 };

extern char **environ;

int cmd_print(const struct str *text, struct err *err)
{
    if (str_check(text, err) < 0)
        return err->code;
    if (fwrite(text->p, 1, text->len, stdout) != text->len || fflush(stdout) != 0)
        return err_set_errno(err, ERR_IO, "cannot write to standard output");
    return 0;
}

static const struct cmd *command_find(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].table->name, name) == 0)
            return &commands[i];
    return NULL;
}

static int command_unknown(const char *name, struct err *err)
{
    const char *names[N_COMMANDS + 1];
    int n = 0;
    for (int i = 0; i < N_COMMANDS; i++)
        if (!commands[i].hidden)
            names[n++] = commands[i].table->name;
    names[n] = NULL;
    const char *near = str_nearest(name, names);
    return err_set(err, ERR_USAGE, "'%s' is not a reel command%s%s%s: see 'reel help'", name,
                   near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

static const char environment_text[] =
    "environment:\n"
    "  REEL_HOME            folder of runs, tunings and database (default $XDG_STATE_HOME/reel,\n"
    "                       else ~/.local/state/reel); on Slurm one that login and compute nodes see\n"
    "  REEL_DB              database (default REEL_HOME/reel.db)\n"
    "  REEL_SCHEDULER, ...  any setting of 'reel config', which also come from $XDG_CONFIG_HOME/reel/config,\n"
    "                       else ~/.config/reel/config, and from the site's file\n"
    "  REEL_SITE_CONFIG     the site's file of settings (default /etc/reel/config)\n"
    "  REEL_BIN_DIR         where reel-train and reel-curate lie (default: beside reel)\n"
    "  REEL_LOCAL_CORES     without Slurm: cores that jobs of this REEL_HOME may take (default: all),\n"
    "  REEL_LOCAL_GRACE     seconds from a notice to SIGTERM (default 30),\n"
    "  REEL_LOCAL_KILL_WAIT and from there to SIGKILL (default 10)\n"
    "  REEL_SLURM_VIA       how Slurm is asked: auto, helper (reel-slurm) or commands (default auto)\n"
    "  REEL_SLURM_HELPER    path of reel-slurm (default: beside reel)\n"
    "  REEL_SLURM_POLL_S    least seconds between two questions to the controller (default 30)\n"
    "  REEL_SLURM_LOOK_S    and between two looks for a submission that got no answer (default 10.5)\n"
    "  REEL_SLURM_ABSENCE_S a job that the controller has not listed for so many seconds is gone (default 300)\n";

static void overview_format(struct str *out)
{
    str_addf(out, "usage: reel COMMAND [options] [operands]\n\n"
                  "Tunes, launches and keeps alive the training of video diffusion transformers.\n\ncommands:\n");
    for (int i = 0; i < N_COMMANDS; i++)
        if (!commands[i].hidden)
            str_addf(out, "  %-10s %s\n", commands[i].table->name, commands[i].table->summary);
    str_addf(out, "\n'reel COMMAND --help' shows a command's options; 'reel --version' the version.\n"
                  "Exit status: 0 done or yes, 1 no, 2 usage, 3 invalid input, 4 environment missing,\n"
                  "5 operation failed, 6 training diverged (reel-train), 75 temporary,\n"
                  "128+n a child died of signal n.\n\n%s", environment_text);
}

/* Names of all options that may come from settings, over all commands; ended by NULL, each once. */
static void settings_known(const char *known[MAX_SETTINGS + 1])
{
    size_t n = 0;
    for (int i = 0; i < N_COMMANDS; i++)
        for (size_t k = 0; k < commands[i].table->n_opts; k++) {
            const struct opt *o = &commands[i].table->opts[k];
            bool seen = !(o->flags & OPT_SETTING);
            for (size_t j = 0; j < n && !seen; j++)
                seen = strcmp(known[j], o->name) == 0;
            if (!seen && n < MAX_SETTINGS)
                known[n++] = o->name;
        }
    known[n] = NULL;
}

static int home_find(char out[LIMIT_PATH_BYTES], struct err *err)
{
    const char *home = getenv("REEL_HOME"), *state = getenv("XDG_STATE_HOME"), *user = getenv("HOME");
    int n;
    if (home && home[0] == '/')
        n = snprintf(out, LIMIT_PATH_BYTES, "%s", home);
    else if (home && home[0]) {
        char cwd[LIMIT_PATH_BYTES];
        if (!getcwd(cwd, sizeof cwd))
            return err_set_errno(err, ERR_ENV, "cannot find the working folder");
        n = snprintf(out, LIMIT_PATH_BYTES, "%s/%s", cwd, home);
    } else if (state && state[0] == '/')
        n = snprintf(out, LIMIT_PATH_BYTES, "%s/reel", state);
    else if (user && user[0] == '/')
        n = snprintf(out, LIMIT_PATH_BYTES, "%s/.local/state/reel", user);
    else
        return err_set(err, ERR_ENV, "no folder for reel's state: set REEL_HOME to an absolute path");
    if (n >= LIMIT_PATH_BYTES)
        return err_set(err, ERR_LIMIT, "REEL_HOME is longer than %d bytes: choose a shorter path", LIMIT_PATH_BYTES);
    return 0;
}

static int bin_dir_find(char out[LIMIT_PATH_BYTES], struct err *err)
{
    const char *given = getenv("REEL_BIN_DIR");
    if (given && given[0]) {
        snprintf(out, LIMIT_PATH_BYTES, "%s", given);
        return 0;
    }
    ssize_t n = readlink("/proc/self/exe", out, LIMIT_PATH_BYTES - 1);
    if (n <= 0)
        return err_set_errno(err, ERR_ENV, "cannot find this program's own folder (/proc/self/exe)");
    out[n] = 0;
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = 0;
    return 0;
}

/* --db where the command has it, else REEL_DB, else <home>/reel.db. */
static void db_path_find(const struct opt_cmd *table, const struct opt_values *v, const char *home,
                         char out[LIMIT_PATH_BYTES])
{
    const char *given = NULL;
    for (size_t k = 0; k < table->n_opts; k++)
        if (strcmp(table->opts[k].name, "db") == 0)
            given = opt_text(v, "db");
    if (!given)
        given = getenv("REEL_DB");
    if (given && given[0])
        snprintf(out, LIMIT_PATH_BYTES, "%s", given);
    else
        snprintf(out, LIMIT_PATH_BYTES, "%.4000s/reel.db", home);
}

static int command_run(const struct cmd *c, int argc, char **argv, struct err *err)
{
    char home[LIMIT_PATH_BYTES], bin_dir[LIMIT_PATH_BYTES], db_path[LIMIT_PATH_BYTES];
    const char *known[MAX_SETTINGS + 1];
    struct settings *settings = NULL;
    struct opt_values *values = NULL;
    struct str text = STR_INIT;
    bool help = false;
    int rc;

    settings_known(known);
    if ((rc = home_find(home, err)) < 0 || (rc = bin_dir_find(bin_dir, err)) < 0)
        goto out;
    if ((rc = settings_load(known, (const char *const *)environ, &settings, err)) < 0)
        goto out;
    if ((rc = opt_parse(c->table, argc, argv, settings, &values, &help, err)) < 0)
        goto out;
    if (help) {
        opt_help(c->table, "reel", &text);
        rc = cmd_print(&text, err);
        goto out;
    }
    db_path_find(c->table, values, home, db_path);
    struct cmd_env env = {home, bin_dir, db_path, settings, isatty(STDERR_FILENO)};
    rc = c->run(values, &env, err);
out:
    str_release(&text);
    opt_free(values);
    settings_free(settings);
    return rc;
}

/* `reel help [COMMAND]`, and the table's other products for packagers: `reel help --man|--complete [COMMAND]`. */
static int help_run(int argc, char **argv, struct err *err)
{
    struct str text = STR_INIT;
    const char *form = argc > 1 && strncmp(argv[1], "--", 2) == 0 ? argv[1] + 2 : "text";
    const char *name = strcmp(form, "text") ? argv[2] : argv[1];
    int rc = 0;
    if (!name && strcmp(form, "complete") == 0) {
        for (int i = 0; i < N_COMMANDS; i++)
            if (!commands[i].hidden)
                str_addf(&text, "%s\t%s\n", commands[i].table->name, commands[i].table->summary);
    } else if (!name) {
        overview_format(&text);
    } else {
        const struct cmd *c = command_find(name);
        if (!c)
            rc = command_unknown(name, err);
        else if (strcmp(form, "man") == 0)
            opt_man(c->table, "reel", &text);
        else if (strcmp(form, "complete") == 0)
            opt_complete(c->table, &text);
        else if (strcmp(form, "text") == 0)
            opt_help(c->table, "reel", &text);
        else
            rc = err_set(err, ERR_USAGE, "reel help: --%s is not a form: give --man or --complete", form);
    }
    if (rc == 0)
        rc = cmd_print(&text, err);
    str_release(&text);
    return rc;
}

static int dispatch(int argc, char **argv, struct err *err)
{
    if (argc < 2 || strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help_run(argc < 2 ? argc : argc - 1, argc < 2 ? argv : argv + 1, err);
    if (strcmp(argv[1], "--version") == 0) {
        puts("reel " REEL_VERSION);
        return 0;
    }
    const struct cmd *c = command_find(argv[1]);
    return c ? command_run(c, argc - 1, argv + 1, err) : command_unknown(argv[1], err);
}

int main(int argc, char **argv)
{
    struct err err = {0};
    static char program[] = "reel";
    signal(SIGCHLD, SIG_DFL); /* whoever started us may ignore it: then no child's end could be waited for */
    log_set_sink(log_to_stderr, program);
    log_set_level(LOG_INFO);
    int rc = dispatch(argc, argv, &err);
    if (rc < 0 && err.text[0])
        fprintf(stderr, "reel: %s\n", err.text);
    return err_exit_code(rc);
}
