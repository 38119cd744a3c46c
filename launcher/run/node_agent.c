#include "launcher/run/node_agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/events.h"
#include "base/file.h"
#include "base/log.h"
#include "base/spawn.h"
#include "launcher/run/ranks.h"
#include "launcher/sched/hosts.h"
#include "launcher/start/command.h"

enum { LOOK_EVERY_MS = 250, WORD_BYTES = 299, WORD_MOST_BYTES = 1 << 20, LOG_BYTES = 1 << 24,
       PASS_ON = SIGUSR1, END = SIGUSR2 }; /* srun forwards both */
/* The pause between two looks for numbered ranks is LOOK_PART of the time since the start, and at
 * most LOOK_SELDOM_S. */
static const double LOOK_PART = 0.1, LOOK_SELDOM_S = 5;
static const double TELL_EVERY_S = 1, WAKE_S = 0.4, SILENT_S = 2, STARTING_S = 60, END_WAIT_S = 10,
                    FREE_WAIT_S = 3, END_LOOK_S = 0.1;
/* A node agent prints this text, its node's name, and AT_STEP with the name of its step, as a line
 * of the step's log. */
static const char LISTENS[] = "listens: ", AT_STEP[] = " in step ";
enum { STEPS_MOST = 8 };

extern char **environ;

static void word_path(const char *run_dir, int64_t attempt, char buf[LIMIT_PATH_BYTES])
{
    snprintf(buf, LIMIT_PATH_BYTES, "%s/claims/notice-%lld", run_dir, (long long)attempt);
}

static void shared_path(const char *run_dir, int64_t attempt, char buf[LIMIT_PATH_BYTES])
{
    snprintf(buf, LIMIT_PATH_BYTES, "%s/claims/told-%lld", run_dir, (long long)attempt);
}

static void end_path(const char *run_dir, int64_t attempt, char buf[LIMIT_PATH_BYTES])
{
    snprintf(buf, LIMIT_PATH_BYTES, "%s/claims/end-%lld", run_dir, (long long)attempt);
}

/* Tells whether somebody has written to the notice file or the end file (node_agent.h). The file is
 * opened anew each time, because that makes a shared file system ask its server. */
static bool word_is_there(const char *path)
{
    struct str text = STR_INIT;
    bool there = file_read(path, WORD_MOST_BYTES, &text, NULL) == 0 && text.len > 0;
    str_release(&text);
    return there;
}

/* Overwrites the file from its beginning. If two hosts write at once, either text suffices; with
 * appends, each would write where it believes the end to be. The file is not synced, because its
 * readers run now. */
static int word_put(const char *path, const char *text, struct err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    int rc = fd < 0 ? err_set_errno(err, ERR_IO, "cannot open '%s'", path)
                    : file_write_all(fd, text, strlen(text), path, err);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* Writes a notice into the notice file. All notices are padded to one length, so that one written
 * over another leaves nothing of it. */
static int word_write(const char *path, const char *node, int signo, struct err *err)
{
    char text[WORD_BYTES + 2];
    snprintf(text, sizeof text, "{\"node\": \"%.200s\", \"signal\": %d, \"wall\": %.6f}", node,
             signo, clock_wall_s());
    size_t n = strlen(text);
    memset(text + n, ' ', WORD_BYTES - n);
    text[WORD_BYTES] = '\n';
    text[WORD_BYTES + 1] = '\0';
    return word_put(path, text, err);
}

/* Returns the scheduler's name for this node, by which people know it. */
static const char *node_name(void)
{
    const char *name = getenv("SLURMD_NODENAME");
    return name && *name ? name : clock_host();
}

static const char *run_id_of(const char *run_dir)
{
    const char *slash = strrchr(run_dir, '/');
    return slash ? slash + 1 : run_dir;
}

void node_agent_trainer_id(const char *run_dir, int64_t attempt, char buf[LIMIT_NAME_BYTES])
{
    snprintf(buf, LIMIT_NAME_BYTES, "%s.%lld", run_id_of(run_dir), (long long)attempt);
}

/* ---- on a node ---- */

struct node {
    const struct node_agent_conf *conf;
    /* Paths of the notice file, the end file and the ranks_told.shared folder, all in claims/. */
    char word[LIMIT_PATH_BYTES], ending[LIMIT_PATH_BYTES], shared[LIMIT_PATH_BYTES];
    struct evlog *log; /* opened by the first event */
    bool asked, end, deaf_said, told_said;
    const char *asked_by; /* where the notice came from: "claims" (the notice file) or "signal" */
    double asked_at, told_mono;  /* when a notice came, UTC s; when the ranks were last signalled */
    double begun_mono, looked_mono; /* when this process began; when it last looked for ranks */
    struct ranks_told told;
};

static struct evlog *node_log(struct node *n)
{
    char *dir = file_join(n->conf->run_dir, "events"), writer[LIMIT_NAME_BYTES];
    struct err err = {0};
    snprintf(writer, sizeof writer, "node-%s", node_name());
    struct evlog_ids ids = {run_id_of(n->conf->run_dir), n->conf->attempt, writer, NULL};
    if (!n->log && dir && evlog_open(dir, &ids, &n->log, &err) < 0)
        log_msg(LOG_WARN, "events of this node are lost: %s", err.text);
    free(dir);
    return n->log;
}

static void commit(struct node *n, struct evlog_event *e)
{
    struct err err = {0};
    if (evlog_commit(n->log, e, true, &err) < 0)
        log_msg(LOG_WARN, "event lost: %s", err.text);
}

static void asked(struct node *n, const char *by)
{
    if (n->asked)
        return;
    n->asked = true;
    n->asked_by = by;
    n->asked_at = clock_wall_s();
}

/* Handles a notice that came as a signal. The scheduler has sent it, or srun has forwarded it after
 * somebody wrote the notice file. The first node agent that gets a notice writes the file. Ranks of
 * other nodes may be signalled before the event is written, so the event has the time at which the
 * notice came. */
static void notice_take(struct node *n, int signo)
{
    char name[SIGNAL_NAME_BYTES];
    struct err err = {0};
    asked(n, "signal");
    if (word_is_there(n->word))
        return;
    if (word_write(n->word, node_name(), signo, &err) < 0)
        log_msg(LOG_WARN, "the batch agent is not told: %s", err.text);
    if (!node_log(n))
        return;
    struct evlog_event e;
    event_begin(n->log, &e, signal);
    event_text(&e, signal, signal, signal_name(signo, name));
    event_int(&e, signal, number, signo);
    event_text(&e, signal, from, "scheduler");
    event_text(&e, signal, node, node_name());
    event_num(&e, signal, heard_at, n->asked_at);
    commit(n, &e);
}

static void deaf_note(struct node *n, const struct ranks_told *told)
{
    n->deaf_said = true;
    log_msg(LOG_WARN, "%lld ranks (process %ld) have no handler for signal %d "
                      "yet: they are told to save as soon as they have",
            (long long)told->deaf, (long)told->deaf_pid, n->conf->signo);
    if (!node_log(n))
        return;
    struct evlog_event e;
    event_begin(n->log, &e, ranks_deaf);
    event_int(&e, ranks_deaf, ranks, told->deaf);
    event_int(&e, ranks_deaf, pid, told->deaf_pid);
    event_int(&e, ranks_deaf, number, n->conf->signo);
    commit(n, &e);
}

/* Writes the event for which the batch agent waits, once, after the ranks were signalled for the
 * first time. */
static void told_note(struct node *n)
{
    n->told_said = true;
    if (!node_log(n))
        return;
    struct evlog_event e;
    event_begin(n->log, &e, ranks_told);
    event_text(&e, ranks_told, node, node_name());
    event_int(&e, ranks_told, ranks, (int64_t)n->told.n_pids);
    event_text(&e, ranks_told, asked_by, n->asked_by);
    event_num(&e, ranks_told, asked_at, n->asked_at);
    commit(n, &e);
}

static void ranks_pass(struct node *n)
{
    char trainer_id[LIMIT_NAME_BYTES];
    size_t before = n->told.n_pids;
    struct err err = {0};
    n->told_mono = clock_mono_s();
    node_agent_trainer_id(n->conf->run_dir, n->conf->attempt, trainer_id);
    if (ranks_tell(trainer_id, n->conf->signo, &n->told, &err) < 0)
        log_msg(LOG_WARN, "%s", err.text);
    if (n->told.n_pids > before)
        log_msg(LOG_INFO, "%zu ranks of node %s told to save", n->told.n_pids, node_name());
    if (!n->told_said)
        told_note(n);
    if (n->told.deaf && !n->deaf_said)
        deaf_note(n, &n->told);
}

static int signals_open(struct err *err)
{
    sigset_t set;
    sigemptyset(&set);
    for (const int *s = (const int[]){SIGTERM, SIGINT, SIGHUP, PASS_ON, END, 0}; *s; s++)
        sigaddset(&set, *s);
    int fd = sigprocmask(SIG_BLOCK, &set, NULL) == 0
                 ? signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC)
                 : -1;
    return fd >= 0 ? fd : err_set_errno(err, ERR_IO, "cannot open a signalfd");
}

static void signals_read(struct node *n, int fd)
{
    struct signalfd_siginfo info;
    while (read(fd, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo == END)
            n->end = true;
        else
            notice_take(n, (int)info.ssi_signo);
}

/* Looks now and then for ranks that have a rank number in their environment, so that after their
 * end it is known that this node had such ranks (ranks.h). */
static void ranks_watch(struct node *n)
{
    char trainer_id[LIMIT_NAME_BYTES];
    double now_s = clock_mono_s(), pause_s = LOOK_PART * (now_s - n->begun_mono);
    if (n->told.numbered || now_s - n->looked_mono < (pause_s < LOOK_SELDOM_S ? pause_s
                                                                              : LOOK_SELDOM_S))
        return;
    n->looked_mono = now_s;
    node_agent_trainer_id(n->conf->run_dir, n->conf->attempt, trainer_id);
    ranks_look(trainer_id, &n->told);
}

/* Reads the notice file, the end file and the signals. Signals are read last, so that those sent
 * before the end file was written are handled. */
static void look_around(struct node *n, int fd)
{
    bool end = word_is_there(n->ending);
    if (word_is_there(n->word))
        asked(n, "claims");
    signals_read(n, fd);
    n->end |= end;
}

/* Reports that this node agent receives signals. It does so through srun's output and not through
 * claims/, because the batch agent must know it when claims/ fails and srun must be used
 * instead. */
static void listens_say(void)
{
    char line[LIMIT_NAME_BYTES];
    struct err err = {0};
    const char *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");
    snprintf(line, sizeof line, "%s%.64s%s%.16s.%.16s\n", LISTENS, node_name(), AT_STEP,
             job ? job : "", step ? step : "");
    if (file_write_all(STDOUT_FILENO, line, strlen(line), "the step's log", &err) < 0)
        log_msg(LOG_WARN, "the batch agent does not learn at once that this node listens: %s",
                err.text);
}

static void node_init(struct node *n, const struct node_agent_conf *conf)
{
    *n = (struct node){.conf = conf, .begun_mono = clock_mono_s()};
    word_path(conf->run_dir, conf->attempt, n->word);
    end_path(conf->run_dir, conf->attempt, n->ending);
    shared_path(conf->run_dir, conf->attempt, n->shared);
    if (conf->agent_host && strcmp(conf->agent_host, clock_host()) == 0)
        n->told.shared = n->shared;
}

int node_agent_run(const struct node_agent_conf *conf, struct err *err)
{
    struct node n;
    pid_t step = getppid();
    int fd = signals_open(err), rc = 0;
    if (fd < 0)
        return fd;
    node_init(&n, conf);
    /* A node agent does not outlive its step. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != step) {
        rc = err_set(err, ERR_ENV, "the step of this node agent has ended");
        goto out;
    }
    listens_say();
    while (!n.end) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, LOOK_EVERY_MS) < 0 && errno != EINTR) {
            rc = err_set_errno(err, ERR_IO, "cannot wait for signals");
            goto out;
        }
        look_around(&n, fd);
        if (n.asked && !n.end && conf->signo && clock_mono_s() - n.told_mono >= TELL_EVERY_S)
            ranks_pass(&n);
        if (!n.asked && conf->signo)
            ranks_watch(&n);
    }
out:
    evlog_close(n.log);
    ranks_release(&n.told);
    close(fd);
    return rc;
}

/* ---- in the batch agent ---- */

struct node_agents {
    struct sched_step *step;
    struct sched_step_status status;
    const char *run_dir;    /* borrowed */
    int64_t attempt;
    bool passes;            /* the node agents signal the ranks at a notice */
    bool word_ours;         /* the batch agent wrote the notice file */
    /* Paths of the notice file, the end file and the ranks_told.shared folder, all in claims/. */
    char word[LIMIT_PATH_BYTES], ending[LIMIT_PATH_BYTES], shared[LIMIT_PATH_BYTES];
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
    word_path(conf->run_dir, conf->attempt, n->word);
    end_path(conf->run_dir, conf->attempt, n->ending);
    shared_path(conf->run_dir, conf->attempt, n->shared);
    names_find(n);
    if ((rc = word_put(n->word, "", err)) < 0)
        goto out;
    if ((rc = word_put(n->ending, "", err)) < 0)
        goto out;
    if ((rc = file_mkdirs(n->shared, err)) < 0)
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
    return n && !n->word_ours && word_is_there(n->word);
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
    return n ? n->shared : NULL;
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
            snprintf(line, sizeof line, "%s%s%s", LISTENS, n->names[i], AT_STEP);
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
    snprintf(line, sizeof line, "%s%s%s", LISTENS, node, AT_STEP);
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
    if (!word_is_there(n->word)) {
        n->word_ours = true;
        if (word_write(n->word, node_name(), PASS_ON, &err) < 0)
            log_msg(LOG_WARN, "the node agents are told through srun alone: %s", err.text);
    }
    if (n->told_mono == 0)
        n->told_mono = clock_mono_s();
    if ((!err.code && clock_mono_s() - n->told_mono < SILENT_S) || !by_srun(n))
        return "";
    sched_step_signal(n->step, PASS_ON, NULL);
    return n->silent.p;
}

/* Waits until the node agents have ended or, with for_word, until the notice file has been written,
 * after which they have nothing more to report. */
static void end_wait(struct node_agents *n, double wait_s, bool for_word)
{
    double until = clock_mono_s() + wait_s;
    while (!n->status.ended && clock_mono_s() < until && !(for_word && word_is_there(n->word)))
        if (sched_step_poll(n->step, END_LOOK_S, &n->status, NULL) < 0)
            return;
}

static void end_ask(struct node_agents *n)
{
    if (!n->ended) {
        word_put(n->ending, "{\"end\": true}\n", NULL);
        sched_step_signal(n->step, END, NULL);
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
    word_put(n->ending, "{\"end\": true}\n", NULL);
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
    file_remove_tree(n->shared, NULL);
    str_release(&n->silent);
    arena_release(&n->arena);
    free(n);
}
