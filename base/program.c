#include "base/program.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/version.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

/* This is the vector extension that the compiler may use in code that is compiled once for all
 * processors. */
#if defined(__AVX512F__)
#define VECTORS "AVX-512"
#elif defined(__AVX2__)
#define VECTORS "AVX2"
#elif defined(__AVX__)
#define VECTORS "AVX"
#elif defined(__SSE2__)
#define VECTORS "SSE2"
#elif defined(__ARM_NEON)
#define VECTORS "NEON"
#else
#define VECTORS "no vectors"
#endif

enum { MOST_COMMANDS = 64, STACK_LEAST_BYTES = 512 << 10 };

int program_print(const struct str *text, struct err *err)
{
    if (str_check(text, err) < 0)
        return err->code;
    if (fwrite(text->p, 1, text->len, stdout) != text->len || fflush(stdout) != 0)
        return err_set_errno(err, ERR_IO, "cannot write to standard output");
    return 0;
}

/* ---- commands by name ---- */

static const struct opt_cmd *find(const struct program *p, const char *name)
{
    for (size_t i = 0; i < p->n_commands; i++)
        if (strcmp(p->commands[i]->name, name) == 0)
            return p->commands[i];
    for (size_t i = 0; i < p->n_hidden; i++)
        if (strcmp(p->hidden[i]->name, name) == 0)
            return p->hidden[i];
    return NULL;
}

static const char *nearest(const struct program *p, const char *name)
{
    const char *names[MOST_COMMANDS + 1] = {NULL};
    for (size_t i = 0; i < p->n_commands && i < MOST_COMMANDS; i++)
        names[i] = p->commands[i]->name;
    return str_nearest(name, names);
}

static int unknown(const struct program *p, const char *name, struct err *err)
{
    const char *near = nearest(p, name), *program = p->page.program;
    return err_set(err, ERR_USAGE, "'%s' is not a %s command%s%s%s: see '%s help'", name, program,
                   near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "", program);
}

/* Tells whether `word`, the first argument of a program with an `alone` command, is more likely a
 * misspelt command than an operand. */
static bool is_slip(const struct program *p, const char *word)
{
    return word[0] != '-' && access(word, F_OK) != 0 && nearest(p, word) != NULL;
}

/* ---- help and pages ---- */

static void list_commands(const struct program *p, struct str *out)
{
    int widest = 0;
    for (size_t i = 0; i < p->n_commands; i++) {
        int width = (int)strlen(p->commands[i]->name);
        widest = width > widest ? width : widest;
    }
    str_add(out, "commands:\n");
    for (size_t i = 0; i < p->n_commands; i++)
        str_addf(out, "  %-*s %s\n", widest, p->commands[i]->name, p->commands[i]->summary);
}

static void overview(const struct program *p, struct str *out)
{
    const char *name = p->page.program;
    str_addf(out, "usage: %s COMMAND [options] [operands]\n\n%s.\n\n", name, p->summary);
    list_commands(p, out);
    str_addf(out, "\n'%s COMMAND --help' shows a command's options; '%s --version' the version.\n",
             name, name);
    opt_help_end(&p->page, out);
}

static void command_help(const struct program *p, const struct opt_cmd *cmd, struct str *out)
{
    opt_help(cmd, cmd == p->alone ? NULL : p->page.program, out);
    opt_help_examples(cmd, &p->page, out);
    if (cmd == p->alone && p->n_commands > 0) {
        str_addc(out, '\n');
        list_commands(p, out);
        str_addf(out, "\n'%s COMMAND --help' shows a command's options.\n", p->page.program);
    }
}

static void see_also(const struct program *p, struct str *out)
{
    if (p->n_commands > 0)
        str_add(out, ".SH SEE ALSO\n");
    for (size_t i = 0; i < p->n_commands; i++) {
        str_add(out, ".BR ");
        opt_roff(out, p->page.program);
        str_add(out, "\\-");
        opt_roff(out, p->commands[i]->name);
        str_add(out, " (1)\n");
    }
}

static void program_man(const struct program *p, struct str *out)
{
    if (p->alone) {
        opt_man(p->alone, &p->page, out);
    } else {
        opt_man_head(p->page.program, 1, p->summary, out);
        opt_roff(out, p->page.program);
        str_add(out, " COMMAND [OPTION...] [OPERAND...]\n.SH COMMANDS\n");
        for (size_t i = 0; i < p->n_commands; i++) {
            str_add(out, ".TP\n.B ");
            opt_roff(out, p->commands[i]->name);
            str_addc(out, '\n');
            opt_roff(out, p->commands[i]->summary);
            str_addc(out, '\n');
        }
        opt_man_end(NULL, &p->page, out);
    }
    see_also(p, out);
}

static void complete_commands(const struct program *p, struct str *out)
{
    for (size_t i = 0; i < p->n_commands; i++)
        str_addf(out, "%s\t%s\n", p->commands[i]->name, p->commands[i]->summary);
}

/* ---- the words that a shell may offer ---- */

static const char files_word[] = ":files\t\n"; /* tells the shell to complete file names */

/* Adds the possible values of an argument whose name in a table is `kinds`: "RUN", "MODEL|FILE",
 * "DIR". */
static void add_kinds(const struct program *p, const char *kinds, struct str *out)
{
    static const char *const files[] = {"FILE", "DIR",     "PATH",     "SRC", "CKPT",
                                        "A",    "COMMAND", "ARGUMENT", "B"};
    for (const char *at = kinds; *at; at += strspn(at, " []|,")) {
        size_t n = strcspn(at, " []|,");
        char kind[32];
        snprintf(kind, sizeof kind, "%.*s", (int)n, at);
        at += n;
        if (str_ends(kind, "..."))
            kind[strlen(kind) - 3] = '\0';
        bool file = strstr(kind, ".json") != NULL;
        for (size_t i = 0; i < ARRAY_LEN(files); i++)
            file |= strcmp(kind, files[i]) == 0;
        if (file)
            str_add(out, files_word);
        else if (kind[0] >= 'a' && kind[0] <= 'z')
            str_addf(out, "%s\t\n", kind);
        else if (p->words && kind[0] >= 'A' && kind[0] <= 'Z')
            p->words(kind, out);
    }
}

/* Adds the possible values of an option, each preceded by `before`. */
static void add_values(const struct program *p, const struct opt *o, const char *before,
                       struct str *out)
{
    struct str values = STR_INIT;
    for (size_t i = 0; o->type == OPT_ENUM && o->choices[i]; i++)
        str_addf(&values, "%s\t\n", o->choices[i]);
    if (o->type == OPT_TEXT)
        add_kinds(p, o->arg, &values);
    for (const char *line = values.p; line && *line; line += strcspn(line, "\n") + 1)
        str_addf(out, "%s%.*s\n", line[0] == ':' ? "" : before, (int)strcspn(line, "\n"),
                 line);
    str_release(&values);
}

/* Returns the option that `word` ("--name", "--name=...", "-x") names if it takes a value, else
 * NULL. */
static const struct opt *valued(const struct opt_cmd *cmd, const char *word)
{
    size_t n = strcspn(word, "=");
    for (size_t i = 0; i < cmd->n_opts; i++) {
        const struct opt *o = &cmd->opts[i];
        bool is_long = n > 2 && strlen(o->name) == n - 2 && strncmp(word + 2, o->name, n - 2) == 0;
        bool is_letter = n == 2 && o->letter && word[1] == o->letter;
        if (o->type != OPT_BOOL && word[0] == '-' && (word[1] == '-' ? is_long : is_letter))
            return o;
    }
    return NULL;
}

/* Adds the completions of the last of n words after the command's name. A shell that splits words
 * at '=', as bash does, passes "--name", "=" and the value as separate words. */
static void add_words(const struct program *p, const struct opt_cmd *cmd, int n, char **word,
                      struct str *out)
{
    const char *last = n > 0 ? word[n - 1] : "";
    int before = n - 2;
    if (strcmp(last, "=") == 0)
        last = "";
    else if (before > 0 && strcmp(word[before], "=") == 0)
        before--;
    const struct opt *o = before >= 0 ? valued(cmd, word[before]) : NULL;
    const char *equals = strchr(last, '=');
    if (o && !strchr(word[before], '=')) {
        add_values(p, o, "", out);
    } else if (equals > last && (o = valued(cmd, last)) != NULL) {
        char name[80];
        snprintf(name, sizeof name, "%.*s", (int)(equals - last + 1), last);
        add_values(p, o, name, out);
    } else if (last[0] == '-') {
        opt_complete(cmd, out);
    } else {
        add_kinds(p, cmd->operands, out);
    }
}

static void words(const struct program *p, int n, char **word, struct str *out)
{
    const struct opt_cmd *cmd = n > 1 ? find(p, word[0]) : NULL;
    if (cmd) {
        add_words(p, cmd, n - 1, word + 1, out);
        return;
    }
    if (n <= 1 && (n == 0 || word[0][0] != '-'))
        complete_commands(p, out);
    if (n <= 1)
        str_add(out, "help\tshow the overview, or a command's help\n--version\tshow the version\n");
    if (p->alone)
        add_words(p, p->alone, n, word, out);
    else if (n == 2 && strcmp(word[0], "help") == 0)
        complete_commands(p, out);
}

/* ---- the program ---- */

static int version(const struct program *p, const struct build *b, struct err *err)
{
    struct str text = STR_INIT;
    str_addf(&text, "%s %s (commit %s, %s)\n", p->page.program, REEL_VERSION, b->commit, COMPILER);
    str_addf(&text, "libraries: %s\n", b->libraries);
    if (p->about)
        p->about(&text);
    str_add(&text, "SIMD: ");
    if (p->simd)
        p->simd(&text);
    else
        str_add(&text, "none of its own, compiled for " VECTORS);
    str_addc(&text, '\n');
    int rc = program_print(&text, err);
    str_release(&text);
    return rc;
}

/* Runs `help [COMMAND]` and its other forms; argv[0] is the word after "help". */
static int help(const struct program *p, int argc, char **argv, struct err *err)
{
    struct str text = STR_INIT;
    bool other = argc > 0 && strncmp(argv[0], "--", 2) == 0;
    const char *form = other ? argv[0] + 2 : "text", *name = argc > other ? argv[other] : NULL;
    const struct opt_cmd *cmd = name ? find(p, name) : p->alone;
    int rc = 0;
    if (strcmp(form, "words") == 0)
        words(p, argc - 1, argv + 1, &text);
    else if (name && !cmd)
        rc = unknown(p, name, err);
    else if (strcmp(form, "man") == 0)
        name ? opt_man(cmd, &p->page, &text) : program_man(p, &text);
    else if (strcmp(form, "complete") == 0)
        name ? opt_complete(cmd, &text) : complete_commands(p, &text);
    else if (strcmp(form, "text") == 0)
        cmd ? command_help(p, cmd, &text) : overview(p, &text);
    else
        rc = err_set(err, ERR_USAGE,
                     "%s help: --%s is not a form: give --man, --complete or --words",
                     p->page.program, form);
    if (rc < 0)
        goto out;
    rc = program_print(&text, err);
out:
    str_release(&text);
    return rc;
}

static int command_help_print(const struct program *p, const struct opt_cmd *cmd, struct err *err)
{
    struct str text = STR_INIT;
    command_help(p, cmd, &text);
    int rc = program_print(&text, err);
    str_release(&text);
    return rc;
}

/* Parses a command's options and runs it, or prints its help if the user asked for it. */
static int command_run(const struct program *p, const struct opt_cmd *cmd, int argc, char **argv,
                       struct err *err)
{
    struct settings *settings = NULL;
    struct opt_values *values = NULL;
    bool wanted = false;
    int rc;
    if (p->settings && (rc = p->settings(&settings, err)) < 0)
        return rc;
    if ((rc = opt_parse(cmd, argc, argv, settings, &values, &wanted, err)) < 0)
        goto out;
    struct program_call call = {
        .cmd = cmd, .values = values, .settings = settings,
        .argc = argc, .argv = argv};
    rc = wanted ? command_help_print(p, cmd, err) : p->run(&call, err);
out:
    opt_free(values);
    settings_free(settings);
    return rc;
}

static bool is_one_of(const char *word, const char *a, const char *b, const char *c)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0;
}

static int dispatch(const struct program *p, const struct build *b, int argc, char **argv,
                    struct err *err)
{
    const char *word = argc > 1 ? argv[1] : p->alone ? "" : "help";
    const struct opt_cmd *cmd = find(p, word);
    if (cmd)
        return command_run(p, cmd, argc - 1, argv + 1, err);
    if (is_one_of(word, "help", "--help", "-h"))
        return help(p, argc > 2 ? argc - 2 : 0, argv + 2, err);
    if (is_one_of(word, "version", "--version", "-V"))
        return version(p, b, err);
    if (!p->alone || is_slip(p, word))
        return unknown(p, word, err);
    return command_run(p, p->alone, argc, argv, err);
}

/* Refuses a stack limit so small that the deepest calls, of libraries too, would crash the program
 * without a message. Threads get stacks of the same size. */
static int stack_check(struct err *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) < 0 || limit.rlim_cur >= STACK_LEAST_BYTES)
        return 0;
    return err_set(err, ERR_ENV,
                   "the stack is limited to %lld KiB: raise the limit (ulimit -s %d, or more)",
                   (long long)limit.rlim_cur >> 10, STACK_LEAST_BYTES >> 10);
}

int program_main(const struct program *p, const struct build *b, int argc, char **argv)
{
    struct err err = {0};
    static char name[32];
    snprintf(name, sizeof name, "%s", p->page.program);
    log_set_sink(log_to_stderr, name);
    log_set_level(LOG_INFO);
    /* A write beyond the file size limit then fails with an error instead of killing the
     * program. */
    signal(SIGXFSZ, SIG_IGN);
    if (p->alone && argc > 0)
        argv[0] = name;
    int rc;
    if ((rc = stack_check(&err)) < 0)
        goto out;
    rc = dispatch(p, b, argc, argv, &err);
out:
    if (rc < 0 && err.text[0]) {
        /* Errors in the options of an `alone` command already begin with the program's name. */
        size_t n = strlen(name);
        bool named = strncmp(err.text, name, n) == 0 && err.text[n] == ':';
        fprintf(stderr, "%s%s%s\n", named ? "" : name, named ? "" : ": ", err.text);
    }
    return err_exit_code(rc);
}
