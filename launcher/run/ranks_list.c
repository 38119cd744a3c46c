#include "launcher/run/ranks_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "launcher/run/hearing.h"
#include "launcher/run/ranks.h"
#include "launcher/sched/proc.h"

/* These variables number the ranks of torchrun and many other launchers, Open MPI, PMIx and PMI;
 * Slurm's two count only in a numbered step. */
static const char *const rank_variables[] = {
    "RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_STEP_ID",
    "SLURM_PROCID", NULL};

static const char *const daemon_names[] = {"slurmstepd\n", NULL};

/* Returns the value of a variable in the text of a /proc/PID/environ; NULL if it is not set. */
static const char *environ_get(const struct str *environ_text, const char *name)
{
    size_t n = strlen(name);
    const char *end = environ_text->p + environ_text->len;
    for (const char *p = environ_text->p; p < end; p += strlen(p) + 1)
        if (strncmp(p, name, n) == 0 && p[n] == '=')
            return p + n + 1;
    return NULL;
}

static bool environ_is(const struct str *environ_text, const char *name, const char *value)
{
    const char *found = environ_get(environ_text, name);
    return found && strcmp(found, value) == 0;
}

/* Tells whether no id is in the environment. Such a process belongs to the trainer if the process
 * that started it does, for its environment may have been cleared (env -i, sudo). */
static bool is_nameless(const struct str *environ_text)
{
    return !environ_get(environ_text, RANKS_VARIABLE) &&
           !environ_get(environ_text, RANKS_AGENT_VARIABLE);
}

static bool is_bare(const struct str *environ_text)
{
    const char *job = getenv("SLURM_JOB_ID"), *own_step = getenv("SLURM_STEP_ID"),
               *step = environ_get(environ_text, "SLURM_STEP_ID");
    return job && environ_is(environ_text, "SLURM_JOB_ID", job) && step &&
           !(own_step && strcmp(step, own_step) == 0);
}

/* Tells whether this is the id of this process's job, or of a component of it if it is
 * heterogeneous. A process outside of any job takes every job for its own, because its trainer may
 * have asked for one by srun. */
static bool is_own_job(const char *id)
{
    const char *own = getenv("SLURM_JOB_ID"), *part;
    char name[64];
    bool is = !own || strcmp(own, id) == 0;
    for (int i = 0; !is; i++) {
        snprintf(name, sizeof name, "SLURM_JOB_ID_HET_GROUP_%d", i);
        if (!(part = getenv(name)))
            return false;
        is = strcmp(part, id) == 0;
    }
    return is;
}

/* Tells whether the process is of another job, or of another trainer's node agent. It may have the
 * trainer's id all the same, because what a trainer submits or starts inherits it. */
static bool is_foreign(const struct str *environ_text, const char *trainer_id)
{
    const char *job = environ_get(environ_text, "SLURM_JOB_ID"),
               *agent = environ_get(environ_text, RANKS_AGENT_VARIABLE);
    return (job && !is_own_job(job)) || (agent && strcmp(agent, trainer_id) != 0);
}

/* Fills in what the process's environment contains. The rank variables are put into a fixed order,
 * because shells change the order of what they export. Returns false for a process that can be
 * none of the trainer's. */
static bool environ_look(struct rank_process *p, enum ranks_which which, const char *trainer_id)
{
    struct str text = STR_INIT;
    bool readable = proc_read(p->pid, "environ", &text);
    bool nameless = readable && is_nameless(&text);
    if (is_foreign(&text, trainer_id))
        p->kind = STRANGER;
    else if (environ_is(&text, RANKS_AGENT_VARIABLE, trainer_id))
        p->kind = AGENT;
    else if (which == RANKS_TRAINER ? environ_is(&text, RANKS_VARIABLE, trainer_id)
                              : nameless && is_bare(&text))
        p->kind = OURS;
    else
        p->kind = nameless ? NAMELESS : STRANGER;
    p->elastic = environ_get(&text, "TORCHELASTIC_RUN_ID");
    /* The batch script has a SLURM_PROCID too, but is in no numbered step. */
    bool step = environ_get(&text, "SLURM_STEP_ID");
    const char *node = environ_get(&text, "SLURMD_NODENAME"), *value;
    snprintf(p->node, sizeof p->node, "%s", node ? node : "");
    for (const char *const *v = rank_variables; p->kind != STRANGER && *v; v++)
        if ((value = environ_get(&text, *v)) && (step || !str_starts(*v, "SLURM_")))
            str_addf(&p->numbers, "%s=%s\n", *v, value);
    str_release(&text);
    return p->kind != STRANGER;
}

const struct rank_process *ranks_find(const struct rank_process *list, size_t n, pid_t pid)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].pid == pid)
            return &list[i];
    return NULL;
}

/* Returns the line of these numbers that begins as the line does, up to its '='; NULL if none
 * does. */
static const char *number_like(const char *numbers, const char *line)
{
    size_t n = strcspn(line, "=") + 1;
    for (; *numbers; numbers += strcspn(numbers, "\n") + 1)
        if (strncmp(numbers, line, n) == 0)
            return numbers;
    return NULL;
}

static bool is_line(const char *a, const char *b) /* tells whether two lines are the same */
{
    size_t n = strcspn(a, "\n");
    return strncmp(a, b, n + 1) == 0;
}

/* Tells whether a variable has one value here and another there. */
static bool numbers_differ(const char *numbers, const char *others)
{
    for (const char *other; *numbers; numbers += strcspn(numbers, "\n") + 1)
        if ((other = number_like(others, numbers)) && !is_line(numbers, other))
            return true;
    return false;
}

/* Tells whether a rank with these numbers may have added the line to its own environment, for what
 * it starts: torch reads its number from RANK. It is 0 for a rank that no launcher numbered. */
static bool may_add(const char *numbers, const char *line)
{
    const char *value = line + strcspn(line, "=") + 1;
    return (str_starts(line, "RANK=") || str_starts(line, "LOCAL_RANK=")) &&
           (*numbers || is_line(value, "0\n"));
}

/* Tells whether a process could have its numbers from a rank with the parent's. */
static bool may_inherit(const char *numbers, const char *parents)
{
    for (const char *p = numbers; *p; p += strcspn(p, "\n") + 1)
        if (!number_like(parents, p) && !may_add(parents, p))
            return false;
    return !numbers_differ(numbers, parents);
}

/* Tells whether the process was seen to start several ranks, now or by an earlier call. */
static bool starts_several(const struct rank_process *list, size_t n,
                           const struct rank_process *child, const struct rank_process *parent,
                           struct ranks_told *told)
{
    struct proc_id id = {parent->pid, parent->start};
    for (size_t i = 0; told && i < told->n_launchers; i++)
        if (told_same(told->launchers[i], id))
            return true;
    bool several = false;
    for (size_t i = 0; i < n && !several; i++)
        several = list[i].parent == parent->pid &&
                  numbers_differ(list[i].numbers.p, child->numbers.p);
    struct proc_id *grown = several && told ? realloc(told->launchers, (told->n_launchers + 1) *
                                                                           sizeof *grown)
                                            : NULL;
    if (grown) {
        told->launchers = grown;
        told->launchers[told->n_launchers++] = id;
    }
    return several;
}

/* Tells whether this process was started by the rank that its parent is, and so is no rank. The
 * parent's environment is that with which it began: a rank that sets RANK itself shows it in those
 * that it starts only. A launcher is known by its program, or since it starts several ranks. */
static bool is_helper(const struct rank_process *list, size_t n, const struct rank_process *p,
                      const struct rank_process *parent, struct ranks_told *told)
{
    if (strcmp(p->numbers.p, parent->numbers.p) == 0)
        return true;
    return may_inherit(p->numbers.p, parent->numbers.p) && p->elastic == parent->elastic &&
           !is_shell(parent->pid) && !is_launcher(parent->pid) &&
           !starts_several(list, n, p, parent, told);
}

/* Tells whether Slurm runs this process before a task (TaskProlog), with the task's environment:
 * its parent is the task, which is still a copy of the step daemon that started it. */
static bool is_prolog(const struct rank_process *p)
{
    struct proc_stat parent;
    return is_program(p->parent, daemon_names) && proc_stat_read(p->parent, &parent) &&
           is_program(parent.parent, daemon_names);
}

/* Finds which processes are the first of their rank, and which of those have ranks below them.
 * `told` keeps which have started several ranks; NULL: nothing is kept. */
static void classify(struct rank_process *list, size_t n, struct ranks_told *told)
{
    for (size_t i = 0; i < n; i++) {
        struct rank_process *p = &list[i];
        const struct rank_process *parent = ranks_find(list, n, p->parent);
        p->first = p->numbers.len > 0 && !is_prolog(p) && !is_tracker(p->pid) &&
                   !(parent && is_helper(list, n, p, parent, told));
        for (size_t depth = 0; p->first && parent && depth < n;
             depth++, parent = ranks_find(list, n, parent->parent))
            list[parent - list].launcher = true;
    }
}

/* Tells whether this process belongs to another node that shares this machine and has its own node
 * agent. */
static bool is_elsewhere(const struct rank_process *list, size_t n, const struct rank_process *p,
                         const char *own_node)
{
    if (!own_node || !p->node[0] || strcmp(p->node, own_node) == 0)
        return false;
    for (size_t i = 0; i < n; i++)
        if (list[i].kind == AGENT && strcmp(list[i].node, p->node) == 0)
            return true;
    return false;
}

/* Tells whether each line of these numbers is among the others. */
static bool is_part(const char *numbers, const char *others)
{
    for (size_t n; *numbers; numbers += n) {
        const char *at = others;
        n = strcspn(numbers, "\n") + 1;
        while (*at && strncmp(at, numbers, n) != 0)
            at += strcspn(at, "\n") + 1;
        if (!*at)
            return false;
    }
    return true;
}

/* Writes the number of the step of this job whose step daemon shows this text in place of its
 * arguments: "slurmstepd: [83.0]", in a component of a heterogeneous job "[83+1.0]"; "" for another
 * job's, and for a step without a number, such as "batch". */
static void step_of(const struct str *arguments, char step[LIMIT_NAME_BYTES])
{
    const char *job = getenv("SLURM_JOB_ID"), *end = arguments->p + arguments->len;
    char begin[LIMIT_NAME_BYTES];
    step[0] = '\0';
    snprintf(begin, sizeof begin, "[%s", job ? job : "?");
    for (const char *p = arguments->p; p < end; p += strlen(p) + 1) {
        const char *at = strstr(p, begin);
        at = at ? at + strlen(begin) : "";
        if (*at == '+')
            at += 1 + strspn(at + 1, "0123456789");
        if (*at == '.')
            snprintf(step, LIMIT_NAME_BYTES, "%.*s", (int)strspn(at + 1, "0123456789"), at + 1);
    }
}

/* Tells whether this process is the step daemon of a numbered step of this job, but not of this
 * process's own step. */
static bool is_step_daemon(pid_t pid)
{
    const char *own_step = getenv("SLURM_STEP_ID");
    struct str text = STR_INIT;
    char step[LIMIT_NAME_BYTES] = "";
    if (is_program(pid, daemon_names) && proc_read(pid, "cmdline", &text))
        step_of(&text, step);
    str_release(&text);
    return step[0] && !(own_step && strcmp(step, own_step) == 0);
}

/* Tells whether a step daemon started this process, which then is a task of the step, and the step
 * is the trainer's: another of its tasks here has the trainer's id, or RANKS_BARE steps are looked
 * for. A task that has not executed its program yet, because its prolog runs, is still a copy of
 * the daemon, which blocks signals: one sent to it would end the program. */
static bool is_task(const struct rank_process *list, size_t n, const struct rank_process *p,
                    enum ranks_which which)
{
    bool ours = which == RANKS_BARE;
    for (size_t i = 0; i < n && !ours; i++)
        ours = list[i].kind == OURS && list[i].parent == p->parent;
    return ours && is_step_daemon(p->parent) && !is_program(p->pid, daemon_names);
}

/* Makes a process without an id one of the trainer's, under another or as a task of its step. Its
 * numbers are those of the process that started it, unless it has others. A task whose environment
 * was cleared has its process id as its number. */
static bool adopt(struct rank_process *list, size_t n, struct rank_process *p,
                  enum ranks_which which)
{
    const struct rank_process *parent = ranks_find(list, n, p->parent);
    bool below = parent && parent->kind == OURS;
    if (!below && !is_task(list, n, p, which))
        return false;
    p->kind = OURS;
    if (below && is_part(p->numbers.p, parent->numbers.p)) {
        str_clear(&p->numbers);
        str_add(&p->numbers, parent->numbers.p);
    } else if (!p->numbers.len) {
        str_addf(&p->numbers, "TASK=%ld\n", (long)p->pid);
    }
    if (below && !p->node[0])
        snprintf(p->node, sizeof p->node, "%s", parent->node);
    return true;
}

/* Adopts all that belong to the trainer; a process may be listed before the one that started it. */
static void nameless_adopt(struct rank_process *list, size_t n, enum ranks_which which)
{
    bool more = true;
    while (more) {
        more = false;
        for (size_t i = 0; i < n; i++)
            if (list[i].kind == NAMELESS)
                more |= adopt(list, n, &list[i], which);
    }
}

/* Removes from the list all but the trainer's processes on this node. */
static void own_keep(struct rank_process *list, size_t *n)
{
    const char *own_node = getenv("SLURMD_NODENAME");
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++)
        list[i].left_out = list[i].kind != OURS || is_elsewhere(list, *n, &list[i], own_node);
    for (size_t i = 0; i < *n; i++)
        if (list[i].left_out)
            str_release(&list[i].numbers);
        else
            list[kept++] = list[i];
    *n = kept;
}

int ranks_list_read(enum ranks_which which, const char *trainer_id, struct ranks_told *told,
                    struct rank_process **out, size_t *n, struct err *err)
{
    struct proc_row *rows;
    size_t n_rows = proc_list(&rows);
    struct rank_process *list = calloc(n_rows + 1, sizeof *list);
    *n = 0;
    for (size_t i = 0; list && i < n_rows; i++) {
        struct rank_process p = {.pid = rows[i].pid,
                                 .parent = rows[i].parent,
                                 .start = rows[i].start,
                                 .numbers = STR_INIT};
        if (environ_look(&p, which, trainer_id))
            list[(*n)++] = p;
        else
            str_release(&p.numbers);
    }
    free(rows);
    if (list) {
        nameless_adopt(list, *n, which);
        own_keep(list, n);
        classify(list, *n, told);
    }
    *out = list;
    return list ? 0 : err_set(err, ERR_NOMEM, "out of memory looking for the trainer's processes");
}

void ranks_list_free(struct rank_process *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        str_release(&list[i].numbers);
    free(list);
}

bool ranks_is_rank(const struct rank_process *p)
{
    return p->first && !p->launcher;
}

/* Tells whether the process runs `reel node-agent`. The srun that started it has its variables. */
static bool is_node_agent(pid_t pid)
{
    struct str text = STR_INIT;
    bool is = proc_read(pid, "cmdline", &text) && strlen(text.p) + 1 < text.len &&
              strcmp(text.p + strlen(text.p) + 1, "node-agent") == 0;
    str_release(&text);
    return is;
}

static bool is_older(struct proc_id a, struct proc_id b)
{
    return a.start < b.start || (a.start == b.start && a.pid < b.pid);
}

bool ranks_agent_find(const char *trainer_id, struct proc_id *agent)
{
    struct proc_row *rows;
    struct proc_id oldest = proc_identify(getpid()), own = oldest;
    const char *own_node = getenv("SLURMD_NODENAME");
    size_t n = proc_list(&rows);
    for (size_t i = 0; i < n; i++) {
        struct rank_process p = {.pid = rows[i].pid, .start = rows[i].start, .numbers = STR_INIT};
        struct proc_id id = {p.pid, p.start};
        if (environ_look(&p, RANKS_TRAINER, trainer_id) && p.kind == AGENT &&
            is_older(id, oldest) && strcmp(p.node, own_node ? own_node : "") == 0 &&
            is_node_agent(p.pid))
            oldest = id;
        str_release(&p.numbers);
    }
    free(rows);
    *agent = oldest;
    return !told_same(oldest, own);
}
