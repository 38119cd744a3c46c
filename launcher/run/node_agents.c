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

/* A node agent that is killed again and again, as by the OOM killer, is replaced REPLACED_MOST
 * times. */
enum { LOG_BYTES = 1 << 24, STEPS_MOST = 8, PARTS_MOST = 17, REPLACED_MOST = 3 };
/* A stand-in is looked for from REPLACE_S to REPLACE_TO_S after a notice. */
static const double WAKE_S = 0.4, REPLACE_S = 0.8, REPLACE_TO_S = 5, SILENT_S = 2, STARTING_S = 60,
                    END_WAIT_S = 10, FREE_WAIT_S = 3, END_LOOK_S = 0.1;

extern char **environ;

/* A step of node agents. */
struct part {
    struct sched_step *step;
    struct sched_step_status status;
    const char *nodes; /* where they stand in for others, "n1,n3"; NULL: the first part, which is
                        * on all nodes */
    bool said;         /* its failure was logged */
};

struct node_agents {
    struct part parts[PARTS_MOST];
    size_t n_parts;         /* 0: the first one could not be started */
    struct sched *steps;    /* borrowed; what the parts are started with */
    struct sched_step_spec spec;
    const char **argv;      /* of spec */
    const char **dead;      /* nodes whose agents have ended, dead_done of them dealt with */
    size_t n_dead, dead_done;
    const char *run_dir;    /* borrowed */
    int64_t attempt;
    bool passes;            /* the node agents signal the ranks at a notice */
    bool word_ours;         /* the batch agent wrote the notice file */
    struct word_paths word;
    const char **names;     /* of the nodes; NULL for nodes that have signalled their ranks */
    size_t n_names;
    struct str silent;
    double started_mono, told_mono; /* when the step started; when the batch agent first passed a
                                     * notice on, 0: not yet */
    bool woken;             /* the scheduler was asked to continue the node agents */
    bool replaced;          /* stand-ins for silent nodes were started, or none are needed */
    bool gone, ended;       /* the first part has ended by itself; all were asked to end */
    struct arena arena;
};

enum { STAND_IN_AT = 8 }; /* where argv has a place for an option of stand-ins */

static int command_build(const struct node_agent_conf *conf, const char *bin_dir,
                         struct node_agents *n, struct err *err)
{
    struct arena *arena = &n->arena;
    struct sched_step_spec *spec = &n->spec;
    const char **env;
    const char **argv = arena_array(arena, STAND_IN_AT + 2, sizeof *argv);
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
    n->argv = argv;
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

/* Starts node agents on these nodes; NULL: on all. */
static int part_start(struct node_agents *n, const char *nodes, struct err *err)
{
    struct part *p = &n->parts[n->n_parts];
    int rc;
    n->argv[STAND_IN_AT] = nodes ? "--stand-in" : NULL;
    n->spec.only = nodes;
    if ((rc = sched_step_start(n->steps, &n->spec, &p->step, err)) < 0)
        return rc;
    p->nodes = nodes;
    n->n_parts++;
    return 0;
}

int node_agents_start(struct sched *steps, const struct node_agent_conf *conf, const char *bin_dir,
                      struct node_agents **out, struct err *err)
{
    struct node_agents *n = calloc(1, sizeof *n);
    int rc;
    if (!n)
        return err_set(err, ERR_NOMEM, "out of memory for the node agents");
    *n = (struct node_agents){.steps = steps,
                              .spec = SCHED_STEP_SPEC_INIT,
                              .run_dir = conf->run_dir,
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
    if ((rc = command_build(conf, bin_dir, n, err)) < 0)
        goto out;
    if ((rc = part_start(n, NULL, err)) < 0)
        goto out;
    n->started_mono = clock_mono_s();
    *out = n;
    n = NULL;
out:
    node_agents_free(n);
    return rc;
}

/* Keeps the names of nodes where a node agent has ended. */
static void dead_keep(struct node_agents *n, const char *nodes)
{
    const char **names, **all;
    size_t k;
    struct err err = {0};
    if (hosts_expand(nodes, &n->arena, &names, &k, &err) < 0 ||
        !(all = arena_array(&n->arena, n->n_dead + k + 1, sizeof *all))) {
        log_msg(LOG_WARN, "node agents have ended on '%s', and are not replaced: %s", nodes,
                err.text);
        return;
    }
    for (size_t i = 0; i < n->n_dead + k; i++)
        all[i] = i < n->n_dead ? n->dead[i] : names[i - n->n_dead];
    n->dead = all;
    n->n_dead += k;
}

static void look(struct node_agents *n)
{
    struct part *first = &n->parts[0];
    struct sched_step_status *end = &first->status;
    if (n->ended || sched_step_poll(first->step, 0, end, NULL) < 0)
        return;
    if (end->failed_on[0])
        dead_keep(n, end->failed_on);
    if (!end->ended || n->gone)
        return;
    n->gone = true;
    log_msg(LOG_WARN,
            "the srun of the node agents has ended with %s %d: those of them that live find a "
            "notice all the same; see logs/nodes-*.log",
            end->exit_signal ? "signal" : "exit code",
            end->exit_signal ? end->exit_signal : end->exit_code);
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
    return n->parts[0].status.node_lost;
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

/* Finds the last line of the log by which this node's agent says that it receives signals; *step
 * points behind it, at the name of its step. */
static bool listens_find(const struct str *log, const char *node, const char **step)
{
    char line[LIMIT_NAME_BYTES];
    *step = NULL;
    snprintf(line, sizeof line, "%s%s%s", NODE_AGENT_LISTENS, node, NODE_AGENT_AT_STEP);
    for (const char *at = log->len ? log->p : NULL; at && (at = strstr(at, line));)
        *step = at += strlen(line);
    return *step;
}

/* Reads the log of all parts. Of one that cannot be read nothing is found. */
static void log_read(const struct node_agents *n, struct str *log)
{
    if (file_read(n->spec.log_path, LOG_BYTES, log, NULL) < 0)
        str_clear(log);
}

/* Tells whether the log says that the node agents of all silent nodes receive signals. */
static bool silent_listen(const struct node_agents *n)
{
    struct str log = STR_INIT;
    const char *step;
    bool all = n->n_names > 0;
    log_read(n, &log);
    for (size_t i = 0; all && i < n->n_names; i++)
        all = !n->names[i] || listens_find(&log, n->names[i], &step);
    str_release(&log);
    return all;
}

/* Adds the name of the step of this node's agent, as its line in the log says, unless it is
 * there. */
static void step_add(struct node_agents *n, const struct str *log, const char *node,
                     const char *ids[STEPS_MOST + 1], size_t *n_ids)
{
    const char *at;
    if (!listens_find(log, node, &at) || *n_ids == STEPS_MOST)
        return;
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
    log_read(n, &log);
    for (size_t i = 0; i < n->n_names; i++)
        if (n->names[i])
            step_add(n, &log, n->names[i], ids, &n_ids);
    str_release(&log);
    if (n_ids > 0 && sched_step_reach(n->parts[0].step, ids, SIGCONT, &err) < 0)
        log_msg(LOG_WARN, "the node agents are not continued by the scheduler: %s", err.text);
    return n_ids > 0;
}

/* Has node agents continued that may have been stopped. Returns whether it has. */
static bool wake(struct node_agents *n, struct node_agents_mended *out)
{
    if (n->woken || clock_mono_s() - n->told_mono < WAKE_S)
        return false;
    silent_find(n);
    bool continued = n->silent.len && silent_continue(n);
    n->woken = !n->silent.len || continued;
    *out = (struct node_agents_mended){n->silent.p, "continued"};
    return continued;
}

/* ---- stand-ins ---- */

/* Logs which stand-ins were not started, or have ended in error. */
static void stand_ins_look(struct node_agents *n)
{
    for (struct part *p = &n->parts[1]; p < n->parts + n->n_parts; p++)
        if (!p->said && sched_step_poll(p->step, 0, &p->status, NULL) == 0 && p->status.ended) {
            p->said = true;
            if (p->status.exit_code != 0)
                log_msg(LOG_WARN, "the second node agent of node %s has ended with %s %d; see "
                                  "logs/nodes-%lld.log",
                        p->nodes, p->status.exit_signal ? "signal" : "exit code",
                        p->status.exit_signal ? p->status.exit_signal : p->status.exit_code,
                        (long long)n->attempt);
        }
}

/* Starts stand-ins on these nodes. Returns false, and says so, if it cannot. */
static bool stand_in_start(struct node_agents *n, const char *nodes)
{
    struct err err = {0};
    const char *kept = arena_strdup(&n->arena, nodes);
    if (n->n_parts == PARTS_MOST)
        err_set(&err, ERR_LIMIT, "%d steps were started for that", PARTS_MOST - 1);
    else if (kept && part_start(n, kept, &err) == 0)
        return true;
    log_msg(LOG_WARN, "the node agent of node %s is not replaced: %s", nodes, err.text);
    return false;
}

/* Counts the stand-ins that were started for this node alone. *lives: one of them runs. */
static int stand_ins_count(const struct node_agents *n, const char *node, bool *lives)
{
    int count = 0;
    *lives = false;
    for (size_t i = 1; i < n->n_parts; i++)
        if (strcmp(n->parts[i].nodes, node) == 0) {
            count++;
            *lives |= !n->parts[i].status.ended;
        }
    return count;
}

/* Tells whether a node agent that has ended is to be replaced. If it has told its ranks it is too,
 * because a later rank or handler may still come. */
static bool is_missed(const struct node_agents *n, const char *node)
{
    bool noticed = n->told_mono > 0 || word_is_there(n->word.notice);
    return strcmp(node, n->parts[0].status.node_lost) != 0 && (!noticed || n->passes);
}

/* Replaces the next node agent that has ended. Each gets a step of its own, because one whose start
 * fails on one node may be ended on all, which a node agent takes for a notice. */
static bool dead_replace(struct node_agents *n, struct node_agents_mended *out)
{
    bool lives;
    while (n->dead_done < n->n_dead) {
        const char *node = n->dead[n->dead_done++];
        if (!is_missed(n, node))
            continue;
        if (stand_ins_count(n, node, &lives) >= REPLACED_MOST) {
            log_msg(LOG_WARN, "the node agent of node %s has ended %d times, and is not replaced "
                              "again", node, REPLACED_MOST + 1);
            continue;
        }
        log_msg(LOG_WARN, "the node agent of node %s has ended: another is started", node);
        *out = (struct node_agents_mended){node, "replaced"};
        if (stand_in_start(n, node))
            return true;
    }
    return false;
}

/* Tells whether a silent node may have no agent. One whose first agent has not begun may get it
 * yet. */
static bool may_lack(const struct node_agents *n, const char *node, const struct str *log)
{
    const char *step;
    bool lives;
    stand_ins_count(n, node, &lives);
    return !lives && strcmp(node, n->parts[0].status.node_lost) != 0 &&
           (n->gone || clock_mono_s() - n->started_mono >= STARTING_S ||
            listens_find(log, node, &step));
}

/* Starts stand-ins on the nodes that are still silent, once. */
static bool silent_replace(struct node_agents *n, struct node_agents_mended *out)
{
    double since_s = clock_mono_s() - n->told_mono;
    struct str log = STR_INIT, nodes = STR_INIT;
    if (n->replaced || since_s < REPLACE_S)
        return false;
    silent_find(n);
    log_read(n, &log);
    for (size_t i = 0; i < n->n_names; i++)
        if (n->names[i] && may_lack(n, n->names[i], &log))
            str_addf(&nodes, "%s%s", nodes.len ? "," : "", n->names[i]);
    n->replaced = nodes.len || !n->silent.len || since_s > REPLACE_TO_S;
    bool started = false;
    if (nodes.len) {
        log_msg(LOG_WARN, "node %s has not said that its ranks were told to save: a second node "
                          "agent is started there", nodes.p);
        started = stand_in_start(n, nodes.p);
    }
    *out = (struct node_agents_mended){started ? n->parts[n->n_parts - 1].nodes : "", "silent"};
    str_release(&nodes);
    str_release(&log);
    return started;
}

bool node_agents_mend(struct node_agents *n, struct node_agents_mended *out)
{
    if (!n || n->ended)
        return false;
    stand_ins_look(n);
    return dead_replace(n, out) ||
           (n->told_mono > 0 && (wake(n, out) || silent_replace(n, out)));
}

/* ---- how the batch agent tells and ends them ---- */

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
    sched_step_signal(n->parts[0].step, NODE_AGENT_TOLD, NULL);
    return n->silent.p;
}

/* Returns a part that has not ended; NULL: all have. */
static struct part *living(struct node_agents *n)
{
    for (size_t i = 0; i < n->n_parts; i++)
        if (!n->parts[i].status.ended)
            return &n->parts[i];
    return NULL;
}

/* Waits until the node agents have ended or, with for_word, until the notice file has been written,
 * after which they have nothing more to report. */
static void end_wait(struct node_agents *n, double wait_s, bool for_word)
{
    double until = clock_mono_s() + wait_s;
    struct part *p;
    while ((p = living(n)) && clock_mono_s() < until &&
           !(for_word && word_is_there(n->word.notice)))
        if (sched_step_poll(p->step, END_LOOK_S, &p->status, NULL) < 0)
            return;
}

static void signal_all(struct node_agents *n, int signo)
{
    for (size_t i = 0; i < n->n_parts; i++)
        if (!n->parts[i].status.ended)
            sched_step_signal(n->parts[i].step, signo, NULL);
}

static void end_ask(struct node_agents *n)
{
    if (!n->ended) {
        word_put(n->word.ending, "{\"end\": true}\n", NULL);
        signal_all(n, NODE_AGENT_END);
    }
    n->ended = true;
}

bool node_agents_end(struct node_agents *n)
{
    const struct sched_step_status *first = &n->parts[0].status;
    look(n);
    stand_ins_look(n);
    if (n->gone && !living(n))
        return false;
    end_ask(n);
    end_wait(n, END_WAIT_S, true);
    return !living(n) && first->exit_code == 0 && !first->exit_signal;
}

void node_agents_leave(struct node_agents *n)
{
    if (!n || n->ended)
        return;
    word_put(n->word.ending, "{\"end\": true}\n", NULL);
    n->ended = true;
    end_wait(n, FREE_WAIT_S, false);
    signal_all(n, SIGKILL);
}

void node_agents_free(struct node_agents *n)
{
    if (!n)
        return;
    if (n->n_parts) {
        end_ask(n); /* the node agents may still run although their srun has ended */
        end_wait(n, FREE_WAIT_S, false);
        signal_all(n, SIGTERM); /* as sched_step_free does, but all at once */
        end_wait(n, FREE_WAIT_S, false); /* srun waits long for a step daemon that was killed */
        signal_all(n, SIGKILL);
    }
    for (size_t i = 0; i < n->n_parts; i++)
        sched_step_free(n->parts[i].step);
    file_remove_tree(n->word.told, NULL);
    str_release(&n->silent);
    arena_release(&n->arena);
    free(n);
}
