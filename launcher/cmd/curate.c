/* reel curate: starts reel-curate, which links the FFmpeg libraries so that this program need not.
 * Afterwards it reads the dataset's log into the database. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/spawn.h"
#include "db/ingest.h"
#include "launcher/cmd/cmd.h"

/* All other options belong to reel-curate. They are passed on unread, so that only reel-curate has
 * a table of them. */
static const struct opt opts[] = {
    {"out", 'o', OPT_TEXT, "DIR", "folder of the dataset to make"},
};
const struct opt_cmd cmd_curate = {
    "curate",
    "make a dataset of latents from videos",
    "SRC... -o DIR", opts, ARRAY_LEN(opts), 0, -1,
    "The options are those of reel-curate, which does the work: 'reel curate --help' lists them. "
    "When it has made the dataset, its record is read into the database.",
    .pass = true};

/* Reads the dataset's log into the database. The dataset may lie anywhere, so REEL_HOME gets a link
 * to it, named by the hash of the dataset's path. */
static void record(const struct cmd_env *env, const char *out)
{
    char place[LIMIT_PATH_BYTES], log[LIMIT_PATH_BYTES], id[HASH_TEXT_BYTES];
    struct err err = {0};
    snprintf(log, sizeof log, "%.4000s/.reel/events", out);
    if (!file_exists(log)) /* it was a dry run, or only help */
        return;
    if (!realpath(out, place) ||
        ingest_link_curation(env->home, hash_format(hash_128(place, strlen(place)), id), place,
                             &err) < 0)
        fprintf(stderr,
                "reel: the dataset is made; 'reel db ingest %s' makes its record known to reports: "
                "%s\n",
                out, err.text);
    else
        cmd_ingest(env);
}

int cmd_curate_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *const *operands, *out = opt_text(v, "out");
    size_t n = opt_operands(v, &operands), at = 0;
    struct arena arena;
    struct spawn spawn = SPAWN_INIT;
    struct spawn_exit end;
    pid_t pid;
    arena_init(&arena, 0);
    const char **argv = arena_array(&arena, n + 3, sizeof *argv);
    int rc;
    size_t first = n > 0 && operands[0][0] != '-'; /* a command of reel-curate comes first */
    if (!argv || !(argv[at++] = arena_printf(&arena, "%s/reel-curate", env->bin_dir))) {
        rc = err_set(err, ERR_NOMEM, "out of memory");
        goto out;
    }
    if (first)
        argv[at++] = operands[0];
    if (out && !(argv[at++] = arena_printf(&arena, *out ? "-o%s" : "--out=%s", out))) {
        rc = err_set(err, ERR_NOMEM, "out of memory");
        goto out;
    }
    for (size_t i = first; i < n; i++)
        argv[at++] = operands[i];
    spawn.argv = argv;
    spawn.die_with_parent = true;
    if ((rc = spawn_start(&spawn, &pid, err)) < 0)
        goto out;
    if ((rc = spawn_wait(pid, -1, &end, err)) < 0)
        goto out;
    if (spawn_status(&end) != 0) /* the child has printed the error, and its exit code becomes this
                                  * program's */
        exit(spawn_status(&end));
    if (out)
        record(env, out);
out:
    arena_release(&arena);
    return rc;
}
