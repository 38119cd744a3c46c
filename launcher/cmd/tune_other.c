#include "launcher/cmd/tune_other.h"

#include <string.h>

#include "launcher/start/command.h"

/* Refuses options that contradict --adapter, or need it. */
static int options_check(const struct opt_values *v, size_t n, struct err *err)
{
    static const char *const ours[] = {"run", "data"};
    if (!opt_given(v, "adapter"))
        return n <= 1 ? 0
                      : err_set(err, ERR_USAGE, "a command after the model is of another trainer: "
                                "give --adapter, which knows it");
    for (size_t i = 0; i < ARRAY_LEN(ours); i++)
        if (opt_given(v, ours[i]))
            return err_set(err, ERR_USAGE, "--%s is for trials of reel's own trainer: with "
                           "--adapter give a MODEL, and the trainer's command after --, which "
                           "names its own data", ours[i]);
    if (!opt_given(v, "cluster"))
        return err_set(err, ERR_USAGE, "--adapter needs --cluster, by which it predicts: give a "
                       "name, or the file that 'reel topo --cluster' writes");
    if (opt_given(v, "stack"))
        return err_set(err, ERR_USAGE, "--stack and --adapter both say what trains: give one");
    return n >= 2 ? 0 : err_set(err, ERR_USAGE, "--adapter needs a MODEL and, after --, the "
                                "command that trains it");
}

static int command_take(const char *const *words, size_t n, struct tune_other *o, struct err *err)
{
    if (!(o->argv = arena_array(&o->arena, n + 1, sizeof *o->argv)))
        return err_set(err, ERR_NOMEM, "out of memory for a command");
    memcpy(o->argv, words, n * sizeof *o->argv);
    return command_find(words[0], &o->arena, &o->argv[0], err);
}

int tune_other_open(const struct opt_values *v, const char *home, struct tune_other *o,
                    struct err *err)
{
    const char *const *operands;
    size_t n = opt_operands(v, &operands);
    int rc;
    if ((rc = options_check(v, n, err)) < 0)
        return rc;
    if (opt_given(v, "export") && (rc = adapter_load(opt_text(v, "export"), &o->told, err)) < 0)
        return rc;
    if (!opt_given(v, "adapter"))
        return 0;
    if ((rc = adapter_load(opt_text(v, "adapter"), &o->adapter, err)) < 0)
        return rc;
    if ((rc = command_take(operands + 1, n - 1, o, err)) < 0)
        return rc;
    return sched_open("local", home, &o->sched, err);
}

void tune_other_release(struct tune_other *o)
{
    sched_close(o->sched);
    adapter_free(o->adapter);
    adapter_free(o->told);
    arena_release(&o->arena);
}

int tune_other_flags(const struct tune_other *o, const struct model *m, struct plan *winner,
                     struct err *err)
{
    const struct adapter *a = o->told ? o->told : o->adapter;
    return a ? adapter_plan(a, m, winner, err) : 0;
}
