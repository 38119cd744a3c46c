#include "tests/lib/sched_helpers.h"

#include <math.h>

const struct sched_job *job_of_token(const struct sched_jobs *jobs, const char *token)
{
    for (size_t i = 0; i < jobs->n; i++)
        if (strcmp(jobs->jobs[i].token, token) == 0)
            return &jobs->jobs[i];
    return NULL;
}

struct conform conform;

const char *conform_path(const char *name)
{
    static char paths[8][LIMIT_PATH_BYTES];
    static int next;
    char *p = paths[next++ % 8];
    snprintf(p, LIMIT_PATH_BYTES, "%s/%s", conform.dir, name);
    return p;
}

const char *conform_read(const char *name)
{
    static struct str text = STR_INIT;
    str_clear(&text);
    if (file_exists(conform_path(name)))
        file_read(conform_path(name), 1 << 20, &text, NULL);
    return text.p;
}

void conform_touch(const char *name)
{
    struct err err = {0};
    if (file_publish(conform_path(name), "", 0, &err) < 0)
        fail_msg("%s", err.text);
}

const char *conform_token(char buf[ID_TEXT_BYTES])
{
    struct id id;
    assert_int_equal(id_random(&id, NULL), 0);
    return id_format(id, buf);
}

int conform_submit_try(struct conform_job *j, bool urgent, struct err *err)
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

void conform_submit(struct conform_job *j, bool urgent)
{
    struct err err = {0};
    if (conform_submit_try(j, urgent, &err) < 0)
        fail_msg("%s: %s", j->name, err.text);
}

const struct sched_job *conform_look(const char *id, struct sched_jobs *jobs)
{
    struct err err = {0};
    const char *const ids[] = {id, NULL};
    const struct sched_filter filter = {.ids = ids};
    if (sched_poll(conform.s, &filter, jobs, &err) < 0)
        fail_msg("poll: %s", err.text);
    return sched_jobs_find(jobs, id);
}

enum sched_state conform_state(const char *id)
{
    struct sched_jobs jobs = {0};
    const struct sched_job *job = conform_look(id, &jobs);
    enum sched_state state = job ? job->state : SCHED_UNKNOWN;
    sched_jobs_release(&jobs);
    return state;
}

/* Sleeps longer the longer the caller has waited, because each poll parses the shared answer. */
static void wait_nap(double begun_s)
{
    clock_sleep_s(fmin(0.25, fmax(0.02, (clock_mono_s() - begun_s) / 20)));
}

void conform_wait(const struct conform_job *j, unsigned states)
{
    double begun_s = clock_mono_s(), end_s = begun_s + conform.patience_s;
    enum sched_state state;
    while (!(states >> (state = conform_state(j->id)) & 1)) {
        if (clock_mono_s() > end_s)
            fail_msg("job %s (%s) is still %s; its log: %s", j->id, j->name,
                     sched_state_name(state), conform_read(j->name));
        wait_nap(begun_s);
    }
}

unsigned conform_ended_set(void)
{
    unsigned set = 0;
    for (int s = 0; s < 32; s++)
        set |= sched_state_ended((enum sched_state)s) ? 1u << s : 0;
    return set;
}

int conform_cancel_all(void **state)
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

void conform_wait_text(const char *file, const char *text)
{
    double begun_s = clock_mono_s(), end_s = begun_s + conform.patience_s;
    while (!strstr(conform_read(file), text)) {
        if (clock_mono_s() > end_s)
            fail_msg("'%s' does not appear in %s: %s", text, file, conform_read(file));
        wait_nap(begun_s);
    }
}

int conform_count(const char *text, const char *word)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, word)); p += strlen(word))
        n++;
    return n;
}

int conform_marked(const char *token)
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

int conform_keepers(void)
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

int conform_remove(void)
{
    double until = clock_mono_s() + conform.patience_s;
    while (conform_keepers() > 0 && clock_mono_s() < until)
        clock_sleep_s(0.02);
    return file_remove_tree(conform.dir, NULL);
}
