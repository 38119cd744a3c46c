/* reel-train: what runs on every rank. */
#include "trainer/cmd/main.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/version.h"

static const struct {
    const struct opt_cmd *table;
    train_cmd_fn *run;
} commands[] = {
    {&train_cmd_train, train_cmd_train_run},
    {&train_cmd_ckpt, train_cmd_ckpt_run},
    {&train_cmd_probe, train_cmd_probe_run},
    {&train_cmd_layouts, train_cmd_layouts_run},
    {&train_cmd_generate, train_cmd_generate_run},
};

static int overview(struct err *err)
{
    struct str text = STR_INIT;
    str_addf(&text, "usage: reel-train COMMAND [options]\n\ncommands:\n");
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        str_addf(&text, "  %-8s %s\n", commands[i].table->name, commands[i].table->summary);
    str_addf(&text, "\n'reel-train COMMAND --help' shows a command's options; 'reel-train --version' the version.\n"
                    "Exit status: 0 done or yes, 1 no, 2 usage, 3 invalid input, 4 environment missing,\n"
                    "5 operation failed, 6 training diverged, 75 saved or temporary: run it again.\n");
    int rc = train_print(&text, err);
    str_release(&text);
    return rc;
}

static int command_run(size_t i, int argc, char **argv, struct err *err)
{
    struct opt_values *v = NULL;
    struct str text = STR_INIT;
    bool help = false;
    int rc = opt_parse(commands[i].table, argc, argv, NULL, &v, &help, err);
    if (rc == 0 && help) {
        opt_help(commands[i].table, "reel-train", &text);
        rc = train_print(&text, err);
    } else if (rc == 0) {
        rc = commands[i].run(v, argc, argv, err);
    }
    str_release(&text);
    opt_free(v);
    return rc;
}

/* `reel-train help --man COMMAND`, for packagers. */
static int man_run(const char *name, struct err *err)
{
    struct str text = STR_INIT;
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (strcmp(commands[i].table->name, name) == 0)
            opt_man(commands[i].table, "reel-train", &text);
    int rc = text.len ? train_print(&text, err) : err_set(err, ERR_USAGE, "'%s' is not a reel-train command: see 'reel-train --help'", name);
    str_release(&text);
    return rc;
}

static int dispatch(int argc, char **argv, struct err *err)
{
    if (argc == 4 && strcmp(argv[1], "help") == 0 && strcmp(argv[2], "--man") == 0)
        return man_run(argv[3], err);
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)
        return overview(err);
    if (strcmp(argv[1], "--version") == 0) {
        puts("reel-train " REEL_VERSION);
        return 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (strcmp(commands[i].table->name, argv[1]) == 0)
            return command_run(i, argc - 1, argv + 1, err);
    return err_set(err, ERR_USAGE, "'%s' is not a reel-train command: see 'reel-train --help'", argv[1]);
}

int main(int argc, char **argv)
{
    static char program[] = "reel-train";
    struct err err = {0};
    log_set_sink(log_to_stderr, program);
    log_set_level(LOG_INFO);
    int rc = dispatch(argc, argv, &err);
    if (rc < 0 && err.text[0])
        fprintf(stderr, "reel-train: %s\n", err.text);
    return err_exit_code(rc);
}
