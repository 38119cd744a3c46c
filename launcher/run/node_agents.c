#include "launcher/run/node_agents.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/evlog.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "launcher/run/ranks.h"
#include "launcher/run/word.h"
#include "launcher/sched/hosts.h"
#include "launcher/start/command.h"

enum { LOG_BYTES = 1 << 24, STEPS_MOST = 8 };
static const double WAKE_S = 0.4, SILENT_S = 2, STARTING_S = 60, END_WAIT_S = 10, FREE_WAIT_S = 3,
                    END_LOOK_S = 0.1;

extern char **environ;

struct node_agents {
    struct sched_step *step;
    struct sched_step_status status;
    const char *run_dir;    /* borrowed */
    int64_t attempt;
    bool passes;            /* the node agents signal the ranks at a notice */
    bool word_ours;         /* the batch agent wrote the notice file */
    struct word_paths word;
    const char *log_path;   /* of the step */
    const char **names;     /* of the nodes; NULL for nodes that have signalled their ranks */
    size_t n_names;
    struct str silent;
    double started_mono, told_mono; /* when the step started; when the batch agent first passed a
                                     * notice on, 0: not yet */
    bool woken;             /* the scheduler was asked to continue the node agents */
    bool gone, ended;       /* the step has ended by itself; it was asked to end */
    struct arena arena;
};

static int command_build(const struct node_agent_conf *conf, const char *bin_dir,
                         struct arena *arena, struct sched_step_spec *spec, struct err *err)
{
    const char **env;
    const char **argv = arena_array(arena, 11, sizeof *argv);
    char trainer_id[LIMIT_NAME_BYTES];
    node_agent_trainer_id(conf->run_dir, conf->attempt, trainer_id);
    const char *extra[] = {arena_printf(arena, RANKS_AGENT_VARIABLE "=%s", trainer_id), NULL};
    int rc = extra[0] ? command_environment((const char *const *)environ, extra, arena, &env, err)
                      : ERR_NOMEM;
    if (rc < 0)
        return rc;
    if (!argv)
        return err_set(err, ERR_NOMEM, "out of memory");
    argv[0] = arena_printf(arena, "%s/reel", bin_dir);
    argv[1] = "node-agent";
    argv[2] = "--run-dir";
    argv[3] = conf->run_dir;
    argv[4] = "--attempt";
    argv[5] = arena_printf(arena, "%lld", (long long)conf->attempt);
    argv[6] = "--signal";
    argv[7] = arena_printf(arena, "%d", conf->signo);
    argv[8] = "--agent-host";
    argv[9] = clock_host();
    spec->argv = argv;
    spec->env = env;
    spec->cwd = conf->run_dir;
    spec->log_path = arena_printf(arena, "%s/logs/nodes-%lld.log", conf->run_dir,
                                  (long long)conf->attempt);
    spec->per_node = true;
    return argv[0] && argv[5] && argv[7] && spec->log_path
               ? 0
               : err_set(err, ERR_NOMEM, "out of memory");
}

/* Finds the nodes' names in Slurm's environment, of all components of a heterogeneous job. If they
 * are not known, no node counts as having reported. */
static void names_find(struct node_agents *n)
{
    struct str all = STR_INIT;
    struct err err = {0};
    const char *list;
    for (int i = 0; (list = hosts_of_job(i)); i++)
        str_addf(&all, "%s%s", i ? "," : "", list);
    if (hosts_expand(all.p, &n->arena, &n->names, &n->n_names, &err) < 0)
        log_msg(LOG_WARN, "which nodes are to tell their ranks is not known: %s", err.text);
    str_release(&all);
}

int node_agents_start(struct sched *steps, const struct node_agent_conf *conf, const char *bin_dir,
                      struct node_agents **out, struct err *err)
{
    struct sched_step_spec spec = SCHED_STEP_SPEC_INIT;
    struct node_agents *n = calloc(1, sizeof *n);
    int rc;
    if (!n)
        return err_set(err, ERR_NOMEM, "out of memory for the node agents");
    *n = (struct node_agents){.run_dir = conf->run_dir,
                              .attempt = conf->attempt,
                              .passes = conf->signo != 0,
                              .silent = STR_INIT};
    arena_init(&n->arena, 0);
    word_paths_init(&n->word, conf->run_dir, conf->attempt);
    names_find(n);
    if ((rc = word_put(n->word.notice, "", err)) < 0)
        goto out;
    if ((rc = word_put(n->word.ending, "", err)) < 0)
        goto out;
    if ((rc = file_mkdirs(n->word.shared, err)) < 0)
        goto out;
    if ((rc = command_build(conf, bin_dir, &n->arena, &spec, err)) < 0)
        goto out;
    n->log_path = spec.log_path;
    if ((rc = sched_step_start(steps, &spec, &n->step, err)) < 0)
        goto out;
    n->started_mono = clock_mono_s();
    *out = n;
    n = NULL;
out:
    node_agents_free(n);
    return rc;
}

static void look(struct node_agents *n)
{
    if (n->gone || n->ended || sched_step_poll(n->step, 0, &n->status, NULL) < 0 ||
        !n->status.ended)
        return;
    n->gone = true;
    log_msg(LOG_WARN,
            "the srun of the node agents has ended with %s %d: those of them that live find a "
            "notice all the same; see logs/nodes-*.log",
            n->status.exit_signal ? "signal" : "exit code",
            n->status.exit_signal ? n->status.exit_signal : n->status.exit_code);
}

bool node_agents_heard(const struct node_agents *n)
{
    return n && !n->word_ours && word_is_there(n->word.notice);
}

const char *node_agents_lost(struct node_agents *n)
{
    if (!n)
        return "";
    look(n);
    return n->status.node_lost;
}

const char *node_agents_shared(const struct node_agents *n)
{
    return n ? n->word.shared : NULL;
}

/* Tells whether this node has reported that its ranks were signalled. */
static bool has_told(const struct node_agents *n, const char *node)
{
    char path[LIMIT_PATH_BYTES];
    struct evlog_reader *log = NULL;
    const cJSON *event;
    bool told = false;
    snprintf(path, sizeof path, "%s/events/node-%s.a%lld.evlog", n->run_dir, node,
             (long long)n->attempt);
    if (!file_exists(path) || evlog_reader_open(path, &log, NULL) < 0)
        return false;
    while (!told && evlog_reader_next(log, &event, NULL) == 1)
        told = strcmp(json_text(event, "ev", ""), "ranks_told") == 0;
    evlog_reader_close(log);
    return told;
}

static void silent_find(struct node_agents *n)
{
    str_clear(&n->silent);
    for (size_t i = 0; i < n->n_names; i++) {
        if (n->names[i] && has_told(n, n->names[i]))
            n->names[i] = NULL;
        if (n->names[i])
            str_addf(&n->silent, "%s%s", n->silent.len ? "," : "", n->names[i]);
    }
    if (!n->n_names)
        str_add(&n->silent, "?");
}

/* Tells whether the step's log says that the node agents of all silent nodes receive signals. */
static bool silent_listen(const struct node_agents *n)
{
    struct str log = STR_INIT;
    char line[LIMIT_NAME_BYTES];
    bool all = n->n_names > 0 && file_read(n->log_path, LOG_BYTES, &log, NULL) == 0 && log.len;
    for (size_t i = 0; all && i < n->n_names; i++)
        if (n->names[i]) {
            snprintf(line, sizeof line, "%s%s%s", NODE_AGENT_LISTENS, n->names[i],
                     NODE_AGENT_AT_STEP);
            all = strstr(log.p, line) != NULL;
        }
    str_release(&log);
    return all;
}

/* Adds the name of the step of this node's agent, as its line in the log says, unless it is
 * there. */
static void step_add(struct node_agents *n, const char *log, const char *node,
                     const char *ids[STEPS_MOST + 1], size_t *n_ids)
{
    char line[LIMIT_NAME_BYTES];
    snprintf(line, sizeof line, "%s%s%s", NODE_AGENT_LISTENS, node, NODE_AGENT_AT_STEP);
    const char *at = strstr(log, line);
    if (!at || *n_ids == STEPS_MOST)
        return;
    at += strlen(line);
    const char *id = arena_printf(&n->arena, "%.*s", (int)strcspn(at, "\n"), at);
    for (size_t i = 0; id && i < *n_ids; i++)
        if (strcmp(ids[i], id) == 0)
            return;
    if (id)
        ids[(*n_ids)++] = id;
}

/* Requests that the scheduler continue the node agents of silent nodes, which may have been
 * stopped. A process that runs does not notice that signal. Returns false if none of them listens
 * yet. */
static bool silent_continue(struct node_agents *n)
{
    struct str log = STR_INIT;
    const char *ids[STEPS_MOST + 1] = {NULL};
    size_t n_ids = 0;
    struct err err = {0};
    file_read(n->log_path, LOG_BYTES, &log, NULL); /* of one that cannot be read nothing is found */
    for (size_t i = 0; i < n->n_names; i++)
        if (n->names[i])
            step_add(n, log.p, n->names[i], ids, &n_ids);
    str_release(&log);
    if (n_ids > 0 && sched_step_reach(n->step, ids, SIGCONT, &err) < 0)
        log_msg(LOG_WARN, "the node agents are not continued by the scheduler: %s", err.text);
    return n_ids > 0;
}

void node_agents_wake(struct node_agents *n)
{
    if (!n || n->woken || n->ended || n->told_mono == 0 || clock_mono_s() - n->told_mono < WAKE_S)
        return;
    silent_find(n);
    n->woken = !n->silent.len || silent_continue(n);
}

/* Tells whether there are silent nodes and srun may signal their node agents. The signal would kill
 * a node agent that does not handle it yet; such a node agent finds the notice file when it has
 * started. */
static bool by_srun(struct node_agents *n)
{
    silent_find(n);
    return n->silent.len && !n->gone &&
           (silent_listen(n) || clock_mono_s() - n->started_mono >= STARTING_S);
}

const char *node_agents_tell(struct node_agents *n)
{
    struct err err = {0};
    if (!n || !n->passes || n->ended)
        return "";
    if (!word_is_there(n->word.notice)) {
        n->word_ours = true;
        if (word_write(n->word.notice, word_node(), NODE_AGENT_TOLD, &err) < 0)
            log_msg(LOG_WARN, "the node agents are told through srun alone: %s", err.text);
    }
    if (n->told_mono == 0)
        n->told_mono = clock_mono_s();
    if ((!err.code && clock_mono_s() - n->told_mono < SILENT_S) || !by_srun(n))
        return "";
    sched_step_signal(n->step, NODE_AGENT_TOLD, NULL);
    return n->silent.p;
}

/* Waits until the node agents have ended or, with for_word, until the notice file has been written,
 * after which they have nothing more to report. */
static void end_wait(struct node_agents *n, double wait_s, bool for_word)
{
    double until = clock_mono_s() + wait_s;
    while (!n->status.ended && clock_mono_s() < until &&
           !(for_word && word_is_there(n->word.notice)))
        if (sched_step_poll(n->step, END_LOOK_S, &n->status, NULL) < 0)
            return;
}

static void end_ask(struct node_agents *n)
{
    if (!n->ended) {
        word_put(n->word.ending, "{\"end\": true}\n", NULL);
        sched_step_signal(n->step, NODE_AGENT_END, NULL);
    }
    n->ended = true;
}

bool node_agents_end(struct node_agents *n)
{
    look(n);
    if (n->gone)
        return false;
    end_ask(n);
    end_wait(n, END_WAIT_S, true);
    return n->status.ended && n->status.exit_code == 0 && !n->status.exit_signal;
}

void node_agents_leave(struct node_agents *n)
{
    if (!n || n->ended)
        return;
    word_put(n->word.ending, "{\"end\": true}\n", NULL);
    n->ended = true;
    end_wait(n, FREE_WAIT_S, false);
    sched_step_signal(n->step, SIGKILL, NULL);
}

void node_agents_free(struct node_agents *n)
{
    if (!n)
        return;
    if (n->step) {
        end_ask(n); /* the node agents may still run although their srun has ended */
        end_wait(n, FREE_WAIT_S, false);
    }
    sched_step_free(n->step);
    file_remove_tree(n->word.shared, NULL);
    str_release(&n->silent);
    arena_release(&n->arena);
    free(n);
}
