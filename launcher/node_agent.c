#include "launcher/node_agent.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "autotune/command.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/evlog.h"
#include "base/file.h"
#include "base/log.h"
#include "base/spawn.h"
#include "launcher/ranks.h"

enum { TELL_EVERY_MS = 1000, PASS_ON = SIGALRM, END = SIGUSR2 };
static const double END_WAIT_S = 3;

extern char **environ;

static void notice_path(const struct node_agent_conf *conf, char buf[LIMIT_PATH_BYTES])
{
    snprintf(buf, LIMIT_PATH_BYTES, "%s/claims/notice-%lld", conf->run_dir, (long long)conf->attempt);
}

/* The scheduler's name for this node: what a person looks for. */
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

void node_agent_mark(const char *run_dir, int64_t attempt, char buf[LIMIT_NAME_BYTES])
{
    snprintf(buf, LIMIT_NAME_BYTES, "%s.%lld", run_id_of(run_dir), (long long)attempt);
}

/* ---- on a node ---- */

struct node {
    const struct node_agent_conf *conf;
    struct evlog *log; /* opened by the first to hear, and by one whose ranks do not hear */
    bool asked, end, deaf_told;
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

/* From the scheduler: the first on any node leaves word for the batch agent. */
static void notice_take(struct node *n, int signo)
{
    char path[LIMIT_PATH_BYTES], text[256], name[SIGNAL_NAME_BYTES];
    struct err err = {0};
    notice_path(n->conf, path);
    int len = snprintf(text, sizeof text, "{\"node\": \"%s\", \"signal\": %d, \"wall\": %.6f}\n", node_name(), signo, clock_wall_s());
    int rc = file_create_exclusive(path, text, (size_t)len, &err);
    if (rc < 0 && rc != ERR_EXISTS && rc != ERR_BUSY)
        log_msg(LOG_WARN, "the batch agent is not told: %s", err.text);
    if (rc == 0 && node_log(n)) {
        struct evlog_event e;
        evlog_begin(n->log, &e, "signal");
        json_put_text(&e.out, "signal", signal_name(signo, name));
        json_put_int(&e.out, "number", signo);
        json_put_text(&e.out, "from", "scheduler");
        json_put_text(&e.out, "node", node_name());
        commit(n, &e);
    }
}

static void deaf_note(struct node *n, const struct ranks_told *told)
{
    n->deaf_told = true;
    log_msg(LOG_WARN, "%lld ranks (process %ld) have no handler for signal %d: they are not told to save", (long long)told->deaf,
            (long)told->deaf_pid, n->conf->signo);
    if (!node_log(n))
        return;
    struct evlog_event e;
    evlog_begin(n->log, &e, "ranks_deaf");
    json_put_int(&e.out, "ranks", told->deaf);
    json_put_int(&e.out, "pid", told->deaf_pid);
    json_put_int(&e.out, "number", n->conf->signo);
    commit(n, &e);
}

static void ranks_pass(struct node *n)
{
    char mark[LIMIT_NAME_BYTES];
    size_t before = n->told.n_pids;
    struct err err = {0};
    node_agent_mark(n->conf->run_dir, n->conf->attempt, mark);
    if (ranks_tell(mark, n->conf->signo, &n->told, &err) < 0)
        log_msg(LOG_WARN, "%s", err.text);
    if (n->told.n_pids > before)
        log_msg(LOG_INFO, "%zu ranks of node %s told to save", n->told.n_pids, node_name());
    if (n->told.deaf && !n->deaf_told)
        deaf_note(n, &n->told);
}

static int signals_open(struct err *err)
{
    sigset_t set;
    sigemptyset(&set);
    for (const int *s = (const int[]){SIGTERM, SIGUSR1, SIGINT, SIGHUP, PASS_ON, END, 0}; *s; s++)
        sigaddset(&set, *s);
    int fd = sigprocmask(SIG_BLOCK, &set, NULL) == 0 ? signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC) : -1;
    return fd >= 0 ? fd : err_set_errno(err, ERR_IO, "cannot open a signalfd");
}

static void signals_read(struct node *n, int fd)
{
    struct signalfd_siginfo info;
    while (read(fd, &info, sizeof info) == (ssize_t)sizeof info) {
        n->end |= info.ssi_signo == END;
        n->asked |= info.ssi_signo != END;
        if (info.ssi_signo != END && info.ssi_signo != PASS_ON)
            notice_take(n, (int)info.ssi_signo);
    }
}

int node_agent_run(const struct node_agent_conf *conf, struct err *err)
{
    struct node n = {.conf = conf};
    pid_t step = getppid();
    int fd = signals_open(err), rc = fd < 0 ? fd : 0;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != step) /* a node agent does not outlive its step */
        return err_set(err, ERR_ENV, "the step of this node agent has ended");
    while (rc == 0 && !n.end) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, n.asked ? TELL_EVERY_MS : -1) < 0 && errno != EINTR)
            rc = err_set_errno(err, ERR_IO, "cannot wait for signals");
        signals_read(&n, fd);
        if (n.asked && !n.end)
            ranks_pass(&n);
    }
    evlog_close(n.log);
    ranks_release(&n.told);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* ---- in the batch agent ---- */

struct node_agents {
    struct sched_step *step;
    struct sched_step_status status;
    char notice[LIMIT_PATH_BYTES];
    bool gone;
};

static int command_build(const struct node_agent_conf *conf, const char *bin_dir, struct arena *arena, struct sched_step_spec *spec,
                         struct err *err)
{
    const char **env;
    const char **argv = arena_array(arena, 9, sizeof *argv);
    int rc = command_environment((const char *const *)environ, NULL, arena, &env, err);
    if (rc < 0 || !argv)
        return rc < 0 ? rc : err_set(err, ERR_NOMEM, "out of memory");
    argv[0] = arena_printf(arena, "%s/reel", bin_dir);
    argv[1] = "node-agent";
    argv[2] = "--run-dir";
    argv[3] = conf->run_dir;
    argv[4] = "--attempt";
    argv[5] = arena_printf(arena, "%lld", (long long)conf->attempt);
    argv[6] = "--signal";
    argv[7] = arena_printf(arena, "%d", conf->signo);
    spec->argv = argv;
    spec->env = env;
    spec->cwd = conf->run_dir;
    spec->log_path = arena_printf(arena, "%s/logs/nodes-%lld.log", conf->run_dir, (long long)conf->attempt);
    spec->per_node = true;
    return argv[0] && argv[5] && argv[7] && spec->log_path ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

int node_agents_start(struct sched *steps, const struct node_agent_conf *conf, const char *bin_dir, struct node_agents **out,
                      struct err *err)
{
    struct sched_step_spec spec = SCHED_STEP_SPEC_INIT;
    struct node_agents *n = calloc(1, sizeof *n);
    struct arena arena;
    if (!n)
        return err_set(err, ERR_NOMEM, "out of memory for the node agents");
    arena_init(&arena, 0);
    notice_path(conf, n->notice);
    int rc = command_build(conf, bin_dir, &arena, &spec, err);
    if (rc == 0)
        rc = sched_step_start(steps, &spec, &n->step, err);
    arena_release(&arena);
    if (rc < 0)
        free(n);
    else
        *out = n;
    return rc;
}

static void look(struct node_agents *n)
{
    if (n->gone || sched_step_poll(n->step, 0, &n->status, NULL) < 0 || !n->status.ended)
        return;
    n->gone = true;
    log_msg(LOG_WARN, "the node agents have ended with %s %d: the trainer is told through srun alone; see logs/nodes-*.log",
            n->status.exit_signal ? "signal" : "exit code", n->status.exit_signal ? n->status.exit_signal : n->status.exit_code);
}

bool node_agents_heard(struct node_agents *n)
{
    return n && file_exists(n->notice);
}

const char *node_agents_lost(struct node_agents *n)
{
    if (!n)
        return "";
    look(n);
    return n->status.node_lost;
}

bool node_agents_live(struct node_agents *n)
{
    if (n)
        look(n);
    return n && !n->gone;
}

void node_agents_tell(struct node_agents *n)
{
    if (n)
        sched_step_signal(n->step, PASS_ON, NULL);
}

void node_agents_free(struct node_agents *n)
{
    if (!n)
        return;
    if (sched_step_signal(n->step, END, NULL) == 0)
        sched_step_poll(n->step, END_WAIT_S, &n->status, NULL);
    sched_step_free(n->step);
    free(n);
}
