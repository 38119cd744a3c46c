/* sched_helpers: what tests of launcher/sched share: a scratch scheduler, jobs that are shell
 * scripts, waiting. */
#ifndef TESTS_SCHED_HELPERS_H
#define TESTS_SCHED_HELPERS_H

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/id.h"
#include "base/json.h"
#include "launcher/sched/proc.h"
#include "launcher/sched/sched.h"

/* Returns the job of a token; NULL when there is none. */
static inline const struct sched_job *job_of_token(const struct sched_jobs *jobs, const char *token)
{
    for (size_t i = 0; i < jobs->n; i++)
        if (strcmp(jobs->jobs[i].token, token) == 0)
            return &jobs->jobs[i];
    return NULL;
}

struct conform {
    struct sched *s;
    const char *kind, *home;
    const char *dir;              /* scratch folder that jobs see too, absolute */
    const char *low_partition;    /* its jobs give way to ... */
    const char *urgent_partition; /* ... those of this one; NULL: the default partition */
    int low_priority, urgent_priority;
    int cores;                    /* of the one node; the suite needs 4 or more */
    double time_limit_s;          /* shortest time limit the scheduler keeps */
    double signal_lead_s;         /* of the signal before a time limit; 0: half the limit */
    double step_deadline_s;       /* in which a step has surely come to its trap; 0: 2 s */
    double patience_s;
    /* The site tracks a job's processes by ancestry alone, so those that left it outlive the job. */
    bool orphans_escape;
    /* Before steps it puts this process inside a job. NULL: steps work without one. */
    void (*allocate)(void);
};
static struct conform conform;

/* ---- files, tokens, jobs ---- */

static inline const char *conform_path(const char *name)
{
    static char paths[8][LIMIT_PATH_BYTES];
    static int next;
    char *p = paths[next++ % 8];
    snprintf(p, LIMIT_PATH_BYTES, "%s/%s", conform.dir, name);
    return p;
}

static inline const char *conform_read(const char *name)
{
    static struct str text = STR_INIT;
    str_clear(&text);
    if (file_exists(conform_path(name)))
        file_read(conform_path(name), 1 << 20, &text, NULL);
    return text.p;
}

static inline void conform_touch(const char *name)
{
    struct err err = {0};
    if (file_publish(conform_path(name), "", 0, &err) < 0)
        fail_msg("%s", err.text);
}

static inline const char *conform_token(char buf[ID_TEXT_BYTES])
{
    struct id id;
    assert_int_equal(id_random(&id, NULL), 0);
    return id_format(id, buf);
}

/* One job of the suite is a shell script. Its log is <dir>/<name>.log. */
struct conform_job {
    const char *name, *script;
    struct sched_spec spec; /* limits and permissions; the rest is filled in */
    char token[ID_TEXT_BYTES], id[SCHED_ID_BYTES];
};

static const char *const conform_env[] = {
    "PATH=/usr/bin:/bin", "PLAIN=value",    "SPACES= a  b ",    "EMPTY=",
    "BYTES=\xff\xfe\x01", "LINES=one\ntwo", "QUOTES='\"$HOME`", NULL};

static inline int conform_submit_try(struct conform_job *j, bool urgent, struct err *err)
{
    const char *argv[] = {"/bin/sh", "-c", j->script, j->name, conform.dir, NULL};
    char log[64];
    struct sched_spec spec = j->spec;
    snprintf(log, sizeof log, "%s.log", j->name);
    if (!j->token[0])
        conform_token(j->token);
    spec.token = j->token;
    spec.name = j->name;
    spec.argv = argv;
    spec.env = conform_env;
    spec.cwd = conform.dir;
    spec.log_path = conform_path(log);
    spec.partition = urgent ? conform.urgent_partition : conform.low_partition;
    spec.priority += urgent ? conform.urgent_priority : conform.low_priority;
    spec.nodes = spec.ranks_per_node = 1;
    spec.cores_per_node = spec.cores_per_node ? spec.cores_per_node : 1;
    return sched_submit(conform.s, &spec, j->id, err);
}

static inline void conform_submit(struct conform_job *j, bool urgent)
{
    struct err err = {0};
    if (conform_submit_try(j, urgent, &err) < 0)
        fail_msg("%s: %s", j->name, err.text);
}

/* ---- waiting ---- */

/* Polls into *jobs and returns the job as it is; NULL when the scheduler does not know it. */
static inline const struct sched_job *conform_look(const char *id, struct sched_jobs *jobs)
{
    struct err err = {0};
    const char *const ids[] = {id, NULL};
    const struct sched_filter filter = {.ids = ids};
    if (sched_poll(conform.s, &filter, jobs, &err) < 0)
        fail_msg("poll: %s", err.text);
    return sched_jobs_find(jobs, id);
}

static inline enum sched_state conform_state(const char *id)
{
    struct sched_jobs jobs = {0};
    const struct sched_job *job = conform_look(id, &jobs);
    enum sched_state state = job ? job->state : SCHED_UNKNOWN;
    sched_jobs_release(&jobs);
    return state;
}

/* Waits until the job's state is in the set, which has a bit for each state. */
static inline void conform_wait(const struct conform_job *j, unsigned states)
{
    double end_s = clock_mono_s() + conform.patience_s;
    enum sched_state state;
    while (!(states >> (state = conform_state(j->id)) & 1)) {
        if (clock_mono_s() > end_s)
            fail_msg("job %s (%s) is still %s; its log: %s", j->id, j->name,
                     sched_state_name(state), conform_read(j->name));
        clock_sleep_s(0.02);
    }
}

static inline unsigned conform_ended_set(void)
{
    unsigned set = 0;
    for (int s = 0; s < 32; s++)
        set |= sched_state_ended((enum sched_state)s) ? 1u << s : 0;
    return set;
}

/* Cancels what a failed test left running. */
static inline int conform_cancel_all(void **state)
{
    (void)state;
    struct sched_jobs jobs = {0};
    double end_s = clock_mono_s() + conform.patience_s;
    bool live = true;
    while (live && clock_mono_s() < end_s && sched_poll(conform.s, NULL, &jobs, NULL) == 0) {
        live = false;
        for (size_t i = 0; i < jobs.n; i++)
            if (!sched_state_ended(jobs.jobs[i].state) &&
                sched_cancel(conform.s, jobs.jobs[i].id, NULL) == 0)
                live = true;
        if (live)
            clock_sleep_s(0.1);
    }
    sched_jobs_release(&jobs);
    return 0;
}

static inline void conform_wait_text(const char *file, const char *text)
{
    double end_s = clock_mono_s() + conform.patience_s;
    while (!strstr(conform_read(file), text)) {
        if (clock_mono_s() > end_s)
            fail_msg("'%s' does not appear in %s: %s", text, file, conform_read(file));
        clock_sleep_s(0.02);
    }
}

static inline int conform_count(const char *text, const char *word)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, word)); p += strlen(word))
        n++;
    return n;
}

/* Counts the processes that carry the job's token. The kernel hides the environment of a process
 * that is dying, so only live ones are seen. */
static inline int conform_marked(const char *token)
{
    char command[256], line[32] = "";
    snprintf(command, sizeof command,
             "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -ac REEL_RUN_TOKEN=%s",
             token);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    pclose(f);
    return atoi(line);
}

/* Counts the processes that were given the scheduler's folder. These are keepers, which write there
 * until they end. */
static inline int conform_keepers(void)
{
    struct proc_row *rows;
    size_t n = proc_list(&rows);
    int found = 0;
    for (size_t i = 0; i < n; i++) {
        struct str text = STR_INIT;
        found += proc_read(rows[i].pid, "cmdline", &text) &&
                 memmem(text.p, text.len, conform.home, strlen(conform.home));
        str_release(&text);
    }
    free(rows);
    return found;
}

/* Removes the whole scratch folder of a local scheduler, once nobody writes there. */
static inline int conform_remove(void)
{
    double until = clock_mono_s() + conform.patience_s;
    while (conform_keepers() > 0 && clock_mono_s() < until)
        clock_sleep_s(0.02);
    return file_remove_tree(conform.dir, NULL);
}

#define CONFORM_UP "echo up; while :; do sleep 0.2; done"

#endif
