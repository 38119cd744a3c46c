#include "launcher/start/command.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/secret.h"
#include "base/str.h"

static const char *const inherited_names[] = {"PATH", "HOME", "USER",   "LOGNAME",         "SHELL",
                                              "LANG", "TZ",   "TMPDIR", "LD_LIBRARY_PATH", "TERM",
                                              NULL};
static const char *const inherited_prefixes[] = {
    "LC_",   "OMPI_", "UCX_",  "NCCL_",  "CUDA_", "SLURM_", "PMIX_",  "OMP_",
    "REEL_", "FI_",   "ASAN_", "UBSAN_", "LSAN_", "TSAN_",  "HWLOC_", NULL};

static size_t name_length(const char *assignment)
{
    const char *eq = strchr(assignment, '=');
    return eq ? (size_t)(eq - assignment) : strlen(assignment);
}

/* Tells whether a variable may be a secret. Inherited, it would stand in files of the local
 * scheduler: SLURM_JWT. */
static int is_secret(const char *assignment, size_t n)
{
    return secret_is_name(assignment, n) && !str_starts(assignment, "REEL_");
}

static int is_inherited(const char *assignment)
{
    size_t n = name_length(assignment);
    if (is_secret(assignment, n))
        return 0;
    for (int i = 0; inherited_names[i]; i++)
        if (strlen(inherited_names[i]) == n && memcmp(assignment, inherited_names[i], n) == 0)
            return 1;
    for (int i = 0; inherited_prefixes[i]; i++)
        if (str_starts(assignment, inherited_prefixes[i]))
            return 1;
    return 0;
}

static size_t count(const char *const *list)
{
    size_t n = 0;
    while (list && list[n])
        n++;
    return n;
}

static int is_named_in(const char *assignment, const char *const *list)
{
    size_t n = name_length(assignment);
    for (size_t i = 0; list && list[i]; i++)
        if (name_length(list[i]) == n && memcmp(list[i], assignment, n) == 0)
            return 1;
    return 0;
}

int command_environment(const char *const *environ_list, const char *const *extra,
                        struct arena *arena, const char ***out, struct err *err)
{
    size_t room = count(environ_list) + count(extra) + 1, n = 0;
    const char **env = arena_array(arena, room, sizeof *env);
    int failed = env == NULL;
    for (size_t i = 0; !failed && environ_list && environ_list[i]; i++)
        if (is_inherited(environ_list[i]) && !is_named_in(environ_list[i], extra))
            failed |= (env[n++] = arena_strdup(arena, environ_list[i])) == NULL;
    for (size_t i = 0; !failed && extra && extra[i]; i++)
        failed |= (env[n++] = arena_strdup(arena, extra[i])) == NULL;
    if (failed)
        return err_set(err, ERR_NOMEM, "out of memory building a child's environment");
    *out = env;
    return 0;
}

void command_groups(const struct layout *l, int64_t groups[PLACE_GROUPS])
{
    static const struct layout_place one[PLACE_GROUPS + 1] = {
        {.tp = 1}, {.cp = 1}, {.dp = 1}, {.pp = 1}};
    int64_t strides[PLACE_GROUPS + 1];
    for (int n = 0; n <= PLACE_GROUPS; n++) {
        int i = n;
        int64_t stride = layout_rank(l, one[n]);
        for (; i > 0 && strides[i - 1] > stride; i--)
            strides[i] = strides[i - 1];
        strides[i] = stride;
    }
    memcpy(groups, strides + 1, PLACE_GROUPS * sizeof *groups); /* strides[0] is 1 */
}

/* These arguments start several ranks on one machine: without binding (the scheduler's cores are
 * the limit), with more ranks than cores allowed (for tests and laptops), and without busy waiting,
 * which starves ranks that share a core. */
static const char *const mpirun_words[] = {"mpirun", "--oversubscribe",     "--bind-to", "none",
                                           "--mca",  "mpi_yield_when_idle", "1",         "-n",
                                           NULL};

/* Finds a program on PATH, and writes its absolute path, allocated in the arena, to *out. */
static int program_find(const char *name, struct arena *arena, const char **out, struct err *err)
{
    const char *path = getenv("PATH");
    while (path && *path) {
        size_t n = strcspn(path, ":");
        const char *full = arena_printf(arena, "%.*s/%s", (int)n, path, name);
        if (!full)
            return err_set(err, ERR_NOMEM, "out of memory looking for %s", name);
        if (full[0] == '/' && access(full, X_OK) == 0) {
            *out = full;
            return 0;
        }
        path += path[n] ? n + 1 : n;
    }
    return err_set(err, ERR_ENV, "%s is not on PATH: install Open MPI, or use a layout of one rank",
                   name);
}

int command_ranks_check(int64_t ranks, bool starts_ranks, struct err *err)
{
    struct arena arena;
    const char *found;
    arena_init(&arena, 0);
    int rc = ranks > 1 && !starts_ranks ? program_find(mpirun_words[0], &arena, &found, err) : 0;
    arena_release(&arena);
    return rc;
}

int command_trainer(const char *bin_dir, int64_t ranks, bool starts_ranks, const char *const *args,
                    const char *const *environ_list, struct arena *arena, struct command *out,
                    struct err *err)
{
    static const char *const threads[] = {"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", NULL};
    static const char *const as_root[] = {"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1",
                                          "OMPI_ALLOW_RUN_AS_ROOT=1",
                                          "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", NULL};
    size_t room = count(mpirun_words) + count(args) + 4, n = 0;
    const char **argv = arena_array(arena, room, sizeof *argv);
    if (!argv)
        return err_set(err, ERR_NOMEM, "out of memory building the trainer's command");
    if (ranks > 1 && !starts_ranks) {
        int found = program_find(mpirun_words[0], arena, &argv[n++], err);
        if (found < 0)
            return found;
        for (size_t i = 1; mpirun_words[i]; i++)
            argv[n++] = mpirun_words[i];
        argv[n++] = arena_printf(arena, "%lld", (long long)ranks);
    }
    argv[n++] = arena_printf(arena, "%s/reel-train", bin_dir);
    for (size_t i = 0; args[i]; i++)
        argv[n++] = arena_strdup(arena, args[i]);
    for (size_t i = 0; i < n; i++)
        if (!argv[i])
            return err_set(err, ERR_NOMEM, "out of memory building the trainer's command");
    const char *const *extra = geteuid() == 0 ? as_root : threads;
    int rc;
    if ((rc = command_environment(environ_list, extra, arena, &out->env, err)) < 0)
        return rc;
    out->argv = argv;
    return 0;
}

int command_find(const char *name, struct arena *arena, const char **out, struct err *err)
{
    const char *path = getenv("PATH");
    char *copy = arena_strdup(arena, path ? path : "/usr/bin:/bin"), *save = NULL,
         cwd[LIMIT_PATH_BYTES];
    if (strchr(name, '/')) {
        *out = name[0] == '/'             ? name
               : getcwd(cwd, sizeof cwd) ? arena_printf(arena, "%s/%s", cwd, name)
                                          : NULL;
        return *out ? 0 : err_set(err, ERR_NOMEM, "out of memory");
    }
    for (char *dir = copy ? strtok_r(copy, ":", &save) : NULL; dir;
         dir = strtok_r(NULL, ":", &save)) {
        char *at = arena_printf(arena, "%s/%s", dir, name);
        if (at && at[0] == '/' && access(at, X_OK) == 0) {
            *out = at;
            return 0;
        }
    }
    return err_set(
        err, ERR_ENV,
        "cannot find the command '%s' on PATH: give its path, or load the module that brings it",
        name);
}
