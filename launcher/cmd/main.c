/* reel: loads the settings, parses the options of the command that the command line names, and runs
 * that command. */
#include "launcher/cmd/cmd.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "autotune/table.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/program.h"
#include "base/progress.h"
#include "profiles/catalog.h"
#include "profiles/hw.h"

#define CMD_TABLE(name) &cmd_##name,
#define CMD_RUN(name) cmd_##name##_run,
static const struct opt_cmd *const commands[] = {CMD_LIST(CMD_TABLE)};
static const struct opt_cmd *const hidden[] = {CMD_HIDDEN_LIST(CMD_TABLE)};
static cmd_run_fn *const runs[] = {CMD_LIST(CMD_RUN)};
static cmd_run_fn *const hidden_runs[] = {CMD_HIDDEN_LIST(CMD_RUN)};
enum { MAX_SETTINGS = 256, WORD_LINES = 20 };

extern char **environ;

int cmd_print(const struct str *text, struct err *err)
{
    return program_print(text, err);
}

/* Work that takes less than this time shows no progress. */
static const double ROWS_QUIET_S = 2;

void cmd_rows_tell(void *progress, int64_t done, int64_t all)
{
    struct progress *p = progress;
    p->total = all;
    if (clock_mono_s() - p->started_s > ROWS_QUIET_S)
        progress_step(p, done, NULL);
    if (done == all && p->done > 0)
        progress_end(p, NULL);
}

void cmd_constants_note(const char *path, const struct constants *c, const struct device *here)
{
    for (int64_t i = 0; i < c->n; i++) {
        const char *device = c->items[i].device, *const *known;
        size_t n = device_names(&known);
        bool found = !*device || (here && strcmp(device, here->name) == 0);
        for (size_t k = 0; k < n && !found; k++)
            found = strcmp(device, known[k]) == 0;
        if (found)
            continue;
        const char *near = str_nearest(device, known);
        fprintf(stderr, "%s: constants of '%s', a device that has no profile%s%s%s, count for "
                "nothing here\n", path, device, near ? " (did you mean '" : "", near ? near : "",
                near ? "'?)" : "");
        return;
    }
}

/* Prints a word that a table has, on one line. */
static void word_print(const char *word)
{
    char text[LIMIT_NAME_BYTES];
    snprintf(text, sizeof text, "%s", word);
    str_disarm(text, strlen(text), "");
    fputs(text, stderr);
}

void cmd_words_note(const struct table *t)
{
    size_t told = t->n_words > WORD_LINES ? WORD_LINES : t->n_words;
    for (size_t i = 0; i < told; i++) {
        const struct table_word *w = &t->words[i];
        fprintf(stderr, "%s:%lld: %s is '", t->name, (long long)w->line, w->column);
        word_print(w->word);
        fprintf(stderr, "': taken as %s", w->taken);
        if (*w->nearest)
            fprintf(stderr, " (did you mean '%s'?)", w->nearest);
        if (w->rows > 1)
            fprintf(stderr, ", in this row and %lld more", (long long)w->rows - 1);
        fputc('\n', stderr);
    }
    if (told < t->n_words)
        fprintf(stderr, "%s: and %zu more words that are not known, the first in line %lld\n",
                t->name, t->n_words - told, (long long)t->words[told].line);
}

void cmd_refused_note(const struct table *t)
{
    size_t told = t->n_refused > WORD_LINES ? WORD_LINES : t->n_refused;
    for (size_t i = 0; i < told; i++)
        fprintf(stderr, "%s; this row is skipped\n", t->refused[i].says);
    if (told < t->n_refused)
        fprintf(stderr, "%s: and %zu more rows that no run can have are skipped\n", t->name,
                t->n_refused - told);
}

static cmd_run_fn *run_of(const struct opt_cmd *table)
{
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (commands[i] == table)
            return runs[i];
    for (size_t i = 0; i < ARRAY_LEN(hidden); i++)
        if (hidden[i] == table)
            return hidden_runs[i];
    return NULL;
}

/* Lists the names of all options of all commands that may come from settings, each once. The list
 * is NULL-terminated. */
static void settings_known(const char *known[MAX_SETTINGS + 1])
{
    size_t n = 0;
    size_t listed = ARRAY_LEN(commands);
    for (size_t i = 0; i < listed + ARRAY_LEN(hidden); i++) {
        const struct opt_cmd *table = i < listed ? commands[i] : hidden[i - listed];
        for (size_t k = 0; k < table->n_opts; k++) {
            const struct opt *o = &table->opts[k];
            bool seen = !(o->flags & OPT_SETTING);
            for (size_t j = 0; j < n && !seen; j++)
                seen = strcmp(known[j], o->name) == 0;
            if (!seen && n < MAX_SETTINGS)
                known[n++] = o->name;
        }
    }
    known[n] = NULL;
}

static int home_find(char out[LIMIT_PATH_BYTES], struct err *err)
{
    const char *home = getenv("REEL_HOME"), *state = getenv("XDG_STATE_HOME"),
               *user = getenv("HOME");
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
        return err_set(err, ERR_ENV,
                       "no folder for reel's state: set REEL_HOME to an absolute path");
    if (n >= LIMIT_PATH_BYTES)
        return err_set(err, ERR_LIMIT, "REEL_HOME is longer than %d bytes: choose a shorter path",
                       LIMIT_PATH_BYTES);
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
    /* Without /proc, the path by which the kernel started the program is used. */
    const char *started_as = n <= 0 ? (const char *)getauxval(AT_EXECFN) : NULL;
    if (n <= 0 && (!started_as || !strchr(started_as, '/')))
        return err_set_errno(err, ERR_ENV,
                             "cannot find this program's own folder (/proc/self/exe)");
    if (started_as)
        n = snprintf(out, LIMIT_PATH_BYTES, "%.4000s", started_as);
    out[n] = 0;
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = 0;
    return 0;
}

/* Finds the path of the database: --db if the command has it, else REEL_DB, else <home>/reel.db. */
static void db_path_find(const struct opt_cmd *table, const struct opt_values *v, const char *home,
                         char out[LIMIT_PATH_BYTES])
{
    const char *given = NULL;
    for (size_t k = 0; k < table->n_opts; k++)
        if (strcmp(table->opts[k].name, "db") == 0 && table->opts[k].type == OPT_TEXT)
            given = opt_text(v, "db");
    if (!given)
        given = getenv("REEL_DB");
    if (given && given[0])
        snprintf(out, LIMIT_PATH_BYTES, "%s", given);
    else
        snprintf(out, LIMIT_PATH_BYTES, "%.4000s/reel.db", home);
}

/* ---- completion ---- */

static void add_runs(struct str *out)
{
    char home[LIMIT_PATH_BYTES], path[LIMIT_PATH_BYTES];
    if (home_find(home, NULL) < 0)
        return;
    snprintf(path, sizeof path, "%.4000s/names", home);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.')
            str_addf(out, "%s\t\n", e->d_name);
    if (d)
        closedir(d);
}

/* Adds, for completion, the values of an operand that option tables call RUN, MODEL, KEY or
 * PAGE. */
static void words(const char *kind, struct str *out)
{
    const char *known[MAX_SETTINGS + 1] = {NULL};
    const char *const *names = known;
    if (strcmp(kind, "MODEL") == 0)
        names = catalog_model_names;
    else if (strcmp(kind, "KEY") == 0)
        settings_known(known);
    else if (strcmp(kind, "RUN") == 0)
        add_runs(out);
    else if (strcmp(kind, "PAGE") == 0)
        cmd_format_pages(out);
    for (; *names; names++)
        str_addf(out, "%s\t\n", *names);
}

/* ---- the program ---- */

static int settings_open(struct settings **out, struct err *err)
{
    const char *known[MAX_SETTINGS + 1];
    settings_known(known);
    return settings_load(known, (const char *const *)environ, out, err);
}

static int command_run(const struct program_call *call, struct err *err)
{
    char home[LIMIT_PATH_BYTES], bin_dir[LIMIT_PATH_BYTES], db_path[LIMIT_PATH_BYTES];
    int rc;
    if ((rc = home_find(home, err)) < 0 || (rc = bin_dir_find(bin_dir, err)) < 0)
        return rc;
    db_path_find(call->cmd, call->values, home, db_path);
    struct cmd_env env = {home, bin_dir, db_path, call->settings, isatty(STDERR_FILENO)};
    return run_of(call->cmd)(call->values, &env, err);
}

static const struct program program = {
    .page = {.program = "reel",
             .examples = cmd_examples,
             .files = cmd_files,
             .environment = cmd_environment,
             .exit_status = "0 done or yes, 1 no, 2 usage, 3 invalid input, 4 environment missing, "
                            "5 operation failed, 6 training diverged (reel-train), 75 temporary, "
                            "128+n a child died of signal n."},
    .summary = "tune, launch and keep alive the training of video diffusion transformers",
    .commands = commands,
    .n_commands = ARRAY_LEN(commands),
    .hidden = hidden,
    .n_hidden = ARRAY_LEN(hidden),
    .settings = settings_open,
    .run = command_run,
    .words = words,
};

int main(int argc, char **argv)
{
    /* If the parent process ignored SIGCHLD, so would this one, and waiting for a child would
     * fail. */
    signal(SIGCHLD, SIG_DFL);
    return program_main(&program, &build, argc, argv);
}
