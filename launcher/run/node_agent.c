#include "launcher/run/node_agent.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/events.h"
#include "base/file.h"
#include "base/log.h"
#include "base/spawn.h"
#include "launcher/run/ranks.h"
#include "launcher/run/ranks_list.h"
#include "launcher/run/word.h"
#include "launcher/sched/proc.h"

enum { LOOK_EVERY_MS = 250 };
/* The pause between two looks for numbered ranks is LOOK_PART of the time since the start, and at
 * most LOOK_SELDOM_S. */
static const double LOOK_PART = 0.1, LOOK_SELDOM_S = 5, TELL_EVERY_S = 1;

static const char *run_id_of(const char *run_dir)
{
    const char *slash = strrchr(run_dir, '/');
    return slash ? slash + 1 : run_dir;
}

void node_agent_trainer_id(const char *run_dir, int64_t attempt, char buf[LIMIT_NAME_BYTES])
{
    snprintf(buf, LIMIT_NAME_BYTES, "%s.%lld", run_id_of(run_dir), (long long)attempt);
}

struct node {
    const struct node_agent_conf *conf;
    struct word_paths word;
    struct evlog *log; /* opened by the first event */
    bool asked, end, deaf_said, still_said, told_said;
    const char *asked_by; /* where the notice came from: "claims" (the notice file) or "signal" */
    double asked_at, told_mono;  /* when a notice came, UTC s; when the ranks were last signalled */
    double begun_mono, looked_mono; /* when this process began; when it last looked for ranks */
    struct ranks_told told;
};

static struct evlog *node_log(struct node *n)
{
    char *dir = file_join(n->conf->run_dir, "events"), writer[LIMIT_NAME_BYTES];
    struct err err = {0};
    snprintf(writer, sizeof writer, "node-%s", word_node());
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
    if (word_is_there(n->word.notice))
        return;
    if (word_write(n->word.notice, word_node(), signo, &err) < 0)
        log_msg(LOG_WARN, "the batch agent is not told: %s", err.text);
    if (!node_log(n))
        return;
    struct evlog_event e;
    event_begin(n->log, &e, signal);
    event_text(&e, signal, signal, signal_name(signo, name));
    event_int(&e, signal, number, signo);
    event_text(&e, signal, from, "scheduler");
    event_text(&e, signal, node, word_node());
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

static void still_note(struct node *n, const struct ranks_told *told)
{
    n->still_said = true;
    log_msg(LOG_WARN, "%lld ranks (process %ld) hold signal %d back and stand still: they are told "
                      "to save when they go on",
            (long long)told->still, (long)told->still_pid, n->conf->signo);
    if (!node_log(n))
        return;
    struct evlog_event e;
    event_begin(n->log, &e, ranks_still);
    event_int(&e, ranks_still, ranks, told->still);
    event_int(&e, ranks_still, pid, told->still_pid);
    event_int(&e, ranks_still, number, n->conf->signo);
    commit(n, &e);
}

/* Writes the event for which the batch agent waits, after the ranks were signalled for the first
 * time; and again when others were signalled, and when those that have no handler are others. */
static void told_note(struct node *n)
{
    n->told_said = true;
    if (!node_log(n))
        return;
    struct evlog_event e;
    event_begin(n->log, &e, ranks_told);
    event_text(&e, ranks_told, node, word_node());
    event_int(&e, ranks_told, ranks, (int64_t)n->told.n_pids);
    event_int(&e, ranks_told, silent, (int64_t)n->told.silent.n);
    event_text(&e, ranks_told, asked_by, n->asked_by);
    event_num(&e, ranks_told, asked_at, n->asked_at);
    commit(n, &e);
}

static void ranks_pass(struct node *n)
{
    char trainer_id[LIMIT_NAME_BYTES];
    size_t before = n->told.n_pids, below = n->told.n_below;
    struct err err = {0};
    n->told_mono = clock_mono_s();
    node_agent_trainer_id(n->conf->run_dir, n->conf->attempt, trainer_id);
    if (ranks_tell(trainer_id, n->conf->signo, &n->told, &err) < 0)
        log_msg(LOG_WARN, "%s", err.text);
    if (n->told.n_pids > before)
        log_msg(LOG_INFO, "%zu ranks of node %s told to save", n->told.n_pids, word_node());
    if (n->told.n_below > below)
        log_msg(LOG_INFO, "%zu of them are processes below a rank that has no handler",
                n->told.n_below);
    if (!n->told_said || n->told.n_pids > before || n->told.silent_news)
        told_note(n);
    if (n->told.deaf && !n->deaf_said)
        deaf_note(n, &n->told);
    if (n->told.still && !n->still_said)
        still_note(n, &n->told);
}

static int signals_open(struct err *err)
{
    sigset_t set;
    sigemptyset(&set);
    for (const int *s = (const int[]){SIGTERM, SIGINT, SIGHUP, NODE_AGENT_TOLD, NODE_AGENT_END, 0};
         *s; s++)
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
        if (info.ssi_signo == NODE_AGENT_END)
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
    if (now_s - n->looked_mono < (pause_s < LOOK_SELDOM_S ? pause_s : LOOK_SELDOM_S))
        return;
    n->looked_mono = now_s;
    node_agent_trainer_id(n->conf->run_dir, n->conf->attempt, trainer_id);
    ranks_look(trainer_id, n->conf->signo, &n->told);
}

/* Reads the notice file, the end file and the signals. Signals are read last, so that those sent
 * before the end file was written are handled. */
static void look_around(struct node *n, int fd)
{
    bool end = word_is_there(n->word.ending);
    if (word_is_there(n->word.notice))
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
    snprintf(line, sizeof line, "%s%.64s%s%.16s.%.16s\n", NODE_AGENT_LISTENS, word_node(),
             NODE_AGENT_AT_STEP,
             job ? job : "", step ? step : "");
    if (file_write_all(STDOUT_FILENO, line, strlen(line), "the step's log", &err) < 0)
        log_msg(LOG_WARN, "the batch agent does not learn at once that this node listens: %s",
                err.text);
}

static void node_init(struct node *n, const struct node_agent_conf *conf)
{
    struct err err = {0};
    *n = (struct node){.conf = conf, .begun_mono = clock_mono_s()};
    word_paths_init(&n->word, conf->run_dir, conf->attempt);
    n->told.shared = n->word.shared;
    if (file_mkdirs(n->word.shared, &err) < 0)
        log_msg(LOG_WARN, "a rank may be told twice: %s", err.text);
}

/* Tells whether an older node agent does the work of this node. It is continued, because somebody
 * may have stopped it. */
static bool is_needless(const struct node_agent_conf *conf)
{
    char trainer_id[LIMIT_NAME_BYTES];
    struct proc_id other;
    node_agent_trainer_id(conf->run_dir, conf->attempt, trainer_id);
    if (!conf->stands_in || !ranks_agent_find(trainer_id, &other) ||
        proc_signal(other, SIGCONT, NULL) < 0)
        return false;
    log_msg(LOG_INFO, "node %s has a node agent, process %lld: no other is needed", word_node(),
            (long long)other.pid);
    return true;
}

int node_agent_run(const struct node_agent_conf *conf, struct err *err)
{
    struct node n;
    pid_t step = getppid();
    int fd = signals_open(err), rc = 0, wait_ms = 0;
    if (fd < 0)
        return fd;
    node_init(&n, conf);
    /* A node agent does not outlive its step. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != step) {
        rc = err_set(err, ERR_ENV, "the step of this node agent has ended");
        goto out;
    }
    if (is_needless(conf))
        goto out;
    listens_say();
    for (; !n.end; wait_ms = LOOK_EVERY_MS) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, wait_ms) < 0 && errno != EINTR) {
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
