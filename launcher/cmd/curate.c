/* reel curate: start reel-curate, which links the FFmpeg libraries so that this program need not. */
#include <stdlib.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/spawn.h"
#include "launcher/cmd/cmd.h"

/* Options are reel-curate's own; they come behind `--` unread, so that there is one table of them. */
static const struct opt opts[] = {
    {"options", 0, OPT_BOOL, NULL, "show the options of reel-curate"},
};
const struct opt_cmd cmd_curate = {
    "curate", "make a dataset of latents from videos", "-- SRC... -o DIR [options]", opts, ARRAY_LEN(opts), 0, -1,
    "Everything behind -- goes to reel-curate: 'reel curate --options' shows what it takes."};

int cmd_curate_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *const *operands;
    size_t n = opt_operands(v, &operands);
    struct arena arena;
    struct spawn spawn = SPAWN_INIT;
    struct spawn_exit end;
    pid_t pid;
    arena_init(&arena, 0);
    const char **argv = arena_array(&arena, n + 3, sizeof *argv);
    int rc = argv && (argv[0] = arena_printf(&arena, "%s/reel-curate", env->bin_dir)) ? 0 : err_set(err, ERR_NOMEM, "out of memory");
    for (size_t i = 0; rc == 0 && i < n; i++)
        argv[i + 1] = operands[i];
    if (rc == 0 && (opt_bool(v, "options") || n == 0))
        argv[1] = "--help";
    spawn.argv = argv;
    spawn.die_with_parent = true;
    if (rc == 0)
        rc = spawn_start(&spawn, &pid, err);
    if (rc == 0)
        rc = spawn_wait(pid, -1, &end, err);
    if (rc == 0 && spawn_status(&end) != 0) /* it has said why; its exit code is ours */
        exit(spawn_status(&end));
    arena_release(&arena);
    return rc;
}
