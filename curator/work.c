/* This file processes the sources, each in a process of its own, so that a decoder which crashes on
 * a hostile file affects only its own source.
 *
 * A worker ends in one of four ways. It is done. It failed for good (a full disk): everything
 * stops. It crashed in a way that the file can cause (SIGSEGV, SIGABRT, SIGFPE, SIGILL, SIGSYS,
 * SIGTRAP): after the second crash the file is bad. Or it ended for a reason that may have nothing
 * to do with the file: it was killed (the machine's memory ran out, an operator), had no memory, or
 * met a read error. That may be temporary, so the source is tried again after a pause, during which
 * others are processed, and the last time without any other worker. If it is not finished even
 * then, nothing is published.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/num.h"
#include "base/progress.h"
#include "curator/curation.h"

enum { CRASHES = 2 };

/* Holds the state of the work on a source. The next try begins at due_s of the monotonic clock or
 * later. */
struct handled { bool done; int tries, crashes; double due_s; char why[160]; };
/* `said` is shared with the worker, which writes its error there: a full disk takes no file. */
struct slot { pid_t pid; int64_t source; char *said; };
struct pool {
    struct curation *k;
    struct handled *handled; /* [k->n] */
    struct slot *slots; /* [k->jobs], of which the first `running` are at work */
    char *said;         /* [k->jobs][ERR_TEXT_BYTES] */
    int64_t running, done;
    struct progress progress;
};

double try_pause_s(int tried)
{
    return tried < 2 ? 1 : 4;
}

/* Runs in a child. The result goes to the work folder, an error to `said`. */
static void child_run(const struct curation *k, int64_t i, pid_t parent, char *said)
{
    struct err err = {0};
    struct source_result r;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* the parent died before the line above took effect */
        _exit(err_exit_code(ERR_TEMP));
    int rc = source_process(&k->conf, &k->sources[i], &r, &err);
    if (rc < 0)
        snprintf(said, ERR_TEXT_BYTES, "%s", err.text);
    _exit(rc == ERR_NOMEM ? err_exit_code(ERR_TEMP) : err_exit_code(rc));
}

static bool is_crash(int signal)
{
    return signal == SIGSEGV || signal == SIGABRT || signal == SIGFPE || signal == SIGILL ||
        signal == SIGSYS || signal == SIGTRAP;
}

/* Notes that there is a result. ERR_INPUT: the source is bad, which --strict refuses. */
static int source_done(struct pool *p, int64_t i, struct err *err)
{
    const struct curation *k = p->k;
    char why[ERR_TEXT_BYTES];
    p->handled[i].done = true;
    progress_step(&p->progress, ++p->done, k->sources[i].name);
    if (!curation_is_bad(k, i))
        return 0;
    snprintf(why, sizeof why, "%.400s: %s", k->sources[i].name, k->results[i].reason);
    return curation_strict_check(k, why, err);
}

/* Begins a pause, after which the cause of the failure may be gone. */
static void pause_begin(struct handled *t)
{
    t->due_s = clock_mono_s() + try_pause_s(t->tries);
}

static int killed(struct pool *p, int64_t i, int signal, struct err *err)
{
    struct handled *t = &p->handled[i];
    t->crashes += is_crash(signal);
    if (!is_crash(signal))
        pause_begin(t);
    snprintf(t->why, sizeof t->why, "its worker %s of signal %d (%s)",
             is_crash(signal) ? "crashed" : "was ended from outside, or for want of memory: died",
             signal, strsignal(signal));
    if (t->crashes < CRASHES)
        return 0;
    struct source_result *r = &p->k->results[i];
    *r = (struct source_result){0};
    snprintf(r->reason, sizeof r->reason, "its decoder died of signal %d, %d times", signal,
             CRASHES);
    p->k->sources[i].maybe = false; /* only a video can crash a decoder */
    return source_done(p, i, err);
}

static int child_ended(struct pool *p, int64_t i, int status, const char *said, struct err *err)
{
    struct curation *k = p->k;
    int rc, code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    if (WIFSIGNALED(status)) {
        if ((rc = killed(p, i, WTERMSIG(status), err)) < 0)
            return rc;
    } else if (code == err_exit_code(ERR_TEMP)) {
        snprintf(p->handled[i].why, sizeof p->handled[i].why, "%s", *said ? said :
                 "no memory, or a read error");
        pause_begin(&p->handled[i]);
    } else if (code != 0) {
        return err_set(err, code == 3 ? ERR_INPUT : ERR_IO,
                       "source '%.400s' failed: %.500s: nothing was published", k->sources[i].name,
                       *said ? said : "it gave no reason");
    } else {
        if ((rc = source_result_load(&k->conf, &k->sources[i], &k->results[i], err)) < 0)
            return rc;
        if (k->results[i].frames > 0)
            k->sources[i].maybe = false; /* a frame was decoded, so it is a video */
        if ((rc = source_done(p, i, err)) < 0)
            return rc;
    }
    if (!p->handled[i].done)
        log_msg(LOG_WARN, "%s: %s", k->sources[i].name, p->handled[i].why);
    return 0;
}

/* Waits for one worker, whichever ends first. */
static int one_wait(struct pool *p, struct err *err)
{
    int status, rc = 0;
    pid_t pid = wait(&status);
    if (pid < 0)
        return errno == EINTR ? 0 : err_set_errno(err, ERR_IO, "cannot wait for the workers");
    for (int64_t i = 0; i < p->running; i++)
        if (p->slots[i].pid == pid) {
            struct slot ended = p->slots[i];
            p->slots[i] = p->slots[--p->running];
            p->slots[p->running] = ended; /* its memory is the next one's */
            rc = child_ended(p, ended.source, status, ended.said, err);
            break;
        }
    return rc;
}

static int one_start(struct pool *p, int64_t i, struct err *err)
{
    struct slot *slot = &p->slots[p->running];
    *slot->said = 0;
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        child_run(p->k, i, parent, slot->said);
    if (pid < 0 && errno == EAGAIN && p->running > 0)
        return one_wait(p, err) < 0 ? err->code : one_start(p, i, err);
    if (pid < 0)
        return err_set_errno(err, errno == EAGAIN ? ERR_TEMP : ERR_IO, "cannot start a worker");
    slot->pid = pid, slot->source = i;
    p->running++;
    return 0;
}

/* Starts try number `try` of each source that is not done and whose pause is over. With `waits` it
 * also waits for the end of pauses and starts the rest. */
static int tries_start(struct pool *p, int try, int64_t jobs, bool waits, struct err *err)
{
    int rc;
    for (int64_t i = 0; i < p->k->n; i++) {
        struct handled *t = &p->handled[i];
        if (t->done || t->tries == try || (!waits && t->due_s > clock_mono_s()))
            continue;
        while (p->running >= jobs)
            if ((rc = one_wait(p, err)) < 0)
                return rc;
        if (t->due_s > clock_mono_s())
            clock_sleep_s(t->due_s - clock_mono_s());
        t->tries = try;
        if ((rc = one_start(p, i, err)) < 0)
            return rc;
    }
    return 0;
}

/* Gives each source that is not done one try. Sources whose pause is not over come after the
 * others. After an error no more are started, and running workers are waited for. */
static int round_run(struct pool *p, int try, struct err *err)
{
    int64_t jobs = try < TRIES ? p->k->jobs : 1;
    int rc = tries_start(p, try, jobs, false, err);
    if (rc == 0) /* after an error, running workers are only waited for */
        rc = tries_start(p, try, jobs, true, err);
    while (p->running > 0) {
        int ended = one_wait(p, rc == 0 ? err : NULL);
        rc = rc < 0 ? rc : ended;
    }
    return rc;
}

static int unfinished_say(const struct pool *p, struct err *err)
{
    int64_t n = 0, first = -1;
    for (int64_t i = 0; i < p->k->n; i++)
        if (!p->handled[i].done && n++ == 0)
            first = i;
    return n == 0 ? 0
                  : err_set(err, ERR_TEMP,
                            "source '%.400s' was not finished in %d tries, the last one alone: %s: "
                            "this need not be the video's fault, so nothing was published (%lld "
                            "such sources); what is finished is kept: give it more memory, or "
                            "fewer --jobs, and run it again",
                            p->k->sources[first].name, TRIES, p->handled[first].why, (long long)n);
}

static int pool_make(struct pool *p, struct err *err)
{
    int64_t jobs = p->k->jobs;
    p->handled = calloc((size_t)p->k->n + 1, sizeof *p->handled);
    p->slots = calloc((size_t)jobs, sizeof *p->slots);
    p->said = mmap(NULL, (size_t)jobs * ERR_TEXT_BYTES, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!p->handled || !p->slots || p->said == MAP_FAILED)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (int64_t i = 0; i < jobs; i++)
        p->slots[i].said = p->said + i * ERR_TEXT_BYTES;
    return 0;
}

static void pool_release(struct pool *p)
{
    if (p->said != MAP_FAILED)
        munmap(p->said, (size_t)p->k->jobs * ERR_TEXT_BYTES);
    free(p->handled);
    free(p->slots);
}

int sources_work(struct curation *k, struct err *err)
{
    struct pool p = {.k = k};
    struct err why = {0};
    int rc;
    progress_start(&p.progress, "curate", k->n, k->quiet);
    if ((rc = pool_make(&p, &why)) < 0)
        goto out;
    for (int try = 1; try <= TRIES; try++)
        if ((rc = round_run(&p, try, &why)) < 0)
            goto out;
    rc = unfinished_say(&p, &why);
out:
    progress_end(&p.progress, NULL);
    pool_release(&p);
    return rc < 0 ? err_set(err, rc, "%s", why.text) : 0;
}
