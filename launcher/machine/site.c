#include "launcher/machine/site.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>

#include "base/num.h"

const char *const site_verdict_names[] = {"holds", "partly", "broken", NULL};

static void say(struct site_promise *p, const char *name, enum site_verdict verdict,
                const char *change, const char *fmt, ...) __attribute__((format(printf, 5, 6)));
static void say(struct site_promise *p, const char *name, enum site_verdict verdict,
                const char *change, const char *fmt, ...)
{
    va_list ap;
    p->name = name;
    p->verdict = verdict;
    snprintf(p->change, sizeof p->change, "%s", verdict == SITE_HOLDS ? "" : change);
    va_start(ap, fmt);
    vsnprintf(p->found, sizeof p->found, fmt, ap);
    va_end(ap);
}

double site_lead_s(const struct slurm_site *s, const struct sched_partition *p)
{
    if (p->preempt == SCHED_PREEMPT_OFF || p->preempt == SCHED_PREEMPT_SUSPEND)
        return INFINITY;
    /* Measured: a job gets at least the grace time, and its batch process KillWait more. */
    return p->grace_s > 0 ? p->grace_s : s->site.kill_wait_s;
}

static void comes_back(const struct site_facts *f, struct site_promise *out)
{
    const struct sched_partition *p = f->partition;
    static const char name[] = "comes back";
    switch (p->preempt) {
    case SCHED_PREEMPT_REQUEUE:
        say(out, name, SITE_HOLDS, "", "partition %s requeues preempted jobs", p->name);
        break;
    case SCHED_PREEMPT_OFF:
        say(out, name, SITE_HOLDS, "", "jobs of partition %s are not preempted", p->name);
        break;
    case SCHED_PREEMPT_SUSPEND:
        say(out, name, SITE_PARTLY, "set PreemptMode=REQUEUE for the partition",
            "partition %s suspends preempted jobs: memory stays taken", p->name);
        break;
    case SCHED_PREEMPT_CANCEL:
        say(out, name, SITE_PARTLY,
            "let jobs submit jobs on the nodes, or set PreemptMode=REQUEUE for the partition",
            "partition %s cancels preempted jobs: each job of a run submits its successor",
            p->name);
        break;
    }
}

static void notice(const struct site_facts *f, struct site_promise *out)
{
    static const char name[] = "notice";
    if (isinf(site_lead_s(f->site, f->partition)))
        say(out, name, SITE_HOLDS, "", "no preemption ends a job of this partition");
    else if (f->site->site.user_signal)
        say(out, name, SITE_HOLDS, "",
            "preemption sends the job's own signal to the batch process at once");
    else if (f->partition->grace_s > 0)
        say(out, name, SITE_PARTLY, "set SlurmctldParameters=preempt_send_user_signal",
            "every process of a step gets SIGTERM at once, the batch process after the grace of %g "
            "s: node agents hear it, a wrapped trainer has to handle it",
            f->partition->grace_s);
    else
        say(out, name, SITE_HOLDS, "", "SIGTERM comes to step and batch process at once");
}

static void lead(const struct site_facts *f, struct site_promise *out)
{
    static const char name[] = "lead time";
    char save[32], given[32];
    double lead_s = site_lead_s(f->site, f->partition);
    num_format_seconds(f->save_s, save, sizeof save);
    num_format_seconds(lead_s, given, sizeof given);
    if (isinf(lead_s))
        say(out, name, SITE_HOLDS, "", "no preemption ends a job of this partition");
    else if (!isfinite(f->save_s))
        say(out, name, SITE_PARTLY, "give --save, or let a run save once",
            "%s from notice to kill; no save was measured yet", given);
    else if (f->save_s > lead_s)
        say(out, name, SITE_BROKEN,
            "raise GraceTime or KillWait, save faster, or save often (checkpoint.every_steps)",
            "%s from notice to kill, and a save took %s", given, save);
    else if (2 * f->save_s > lead_s)
        say(out, name, SITE_PARTLY, "raise GraceTime or KillWait",
            "%s from notice to kill: a save of %s and a long step may not fit", given, save);
    else
        say(out, name, SITE_HOLDS, "", "%s from notice to kill, a save took %s", given, save);
}

static void back_soon(const struct site_facts *f, struct site_promise *out)
{
    double delay = f->site->site.requeue_delay_s;
    if (f->partition->preempt != SCHED_PREEMPT_REQUEUE)
        say(out, "back soon", SITE_HOLDS, "", "jobs of this partition are not requeued");
    else
        say(out, "back soon", delay > 30 ? SITE_PARTLY : SITE_HOLDS,
            "shorten AuthInfo=cred_expire (requeue_delay from Slurm 25.11)",
            "a requeued job is eligible again after %g s", delay);
}

static void orphans(const struct site_facts *f, struct site_promise *out)
{
    bool cgroup = strcmp(f->site->proctrack, "proctrack/cgroup") == 0;
    say(out, "no orphans", cgroup ? SITE_HOLDS : SITE_PARTLY, "set ProctrackType=proctrack/cgroup",
        cgroup ? "%s finds every process of a job"
               : "%s misses processes that leave their job (setsid)",
        f->site->proctrack);
}

static void bound(const struct site_facts *f, struct site_promise *out)
{
    bool binds = strstr(f->site->task, "affinity") || strstr(f->site->task, "cgroup");
    say(out, "ranks are bound", binds ? SITE_HOLDS : SITE_PARTLY,
        "set TaskPlugin=task/affinity,task/cgroup",
        binds ? "%s keeps ranks on the processors beside their GPU"
              : "%s binds nothing: ranks may run far from their GPU and NIC",
        f->site->task[0] ? f->site->task : "TaskPlugin is not told, and");
}

static void remembered(const struct site_facts *f, struct site_promise *out)
{
    bool kept = f->site->accounting[0] &&
                strcmp(f->site->accounting, "accounting_storage/none") != 0;
    say(out, "ends are known", kept ? SITE_HOLDS : SITE_PARTLY,
        "run slurmdbd, with AccountingStoreFlags=job_comment",
        kept ? "accounting (%s) remembers what the controller forgets"
             : "no accounting (%s): an ended job is forgotten after MinJobAge, and counts "
               "as gone five minutes later",
        f->site->accounting);
}

static void mpi(const struct site_facts *f, struct site_promise *out)
{
    if (!f->mpi[0])
        say(out, "ranks meet", SITE_PARTLY, "run this where srun is",
            "srun --mpi=list could not be asked");
    else if (strstr(f->mpi, "pmix"))
        say(out, "ranks meet", SITE_HOLDS, "", "srun starts ranks through PMIx");
    else
        say(out, "ranks meet", SITE_BROKEN, "install Slurm's PMIx plugin",
            "srun knows no PMIx: ranks would be alone, each of a world of one");
}

static void shared(const struct site_facts *f, struct site_promise *out)
{
    bool local = strcmp(f->file_system, "local") == 0;
    say(out, "state is shared",
        local || strcmp(f->file_system, "unknown") == 0 ? SITE_PARTLY : SITE_HOLDS,
        "put REEL_HOME where login and compute nodes see it",
        local ? "REEL_HOME lies on a %s file system: other nodes may not see it"
              : "REEL_HOME lies on %s",
        f->file_system);
}

static const char *refusal(int error)
{
    return error == 0        ? "works"
           : error == ENOSYS ? "refused (ENOSYS)"
           : error == ENOLCK ? "refused (ENOLCK)"
                             : "fails";
}

static void one_at_a_time(const struct site_facts *f, struct site_promise *out)
{
    static const char name[] = "locks hold";
    const struct locks_facts *l = &f->locks;
    const char *flock = l->flock_error == 0 && !l->flock_excludes ? "locks nothing"
                                                                  : refusal(l->flock_error);
    char from[96] = "";
    if (l->elsewhere == LOCKS_SEEN)
        snprintf(from, sizeof from, ", seen from node %s", l->node);
    if (!l->tried)
        say(out, name, SITE_PARTLY, "make REEL_HOME and ask again",
            "REEL_HOME is not there yet: nothing was tried in it");
    else if (!l->leases || !l->exclusive)
        say(out, name, SITE_BROKEN,
            "put REEL_HOME on a file system whose rename(2) and link(2) are atomic",
            "two at a time got what is for one in REEL_HOME (%s)",
            l->leases ? "exclusive create" : "leases");
    else if (l->elsewhere == LOCKS_UNSEEN)
        say(out, name, SITE_BROKEN, "put REEL_HOME where all nodes see it",
            "node %s does not see a lease that is held here", l->node);
    else if (l->fcntl_error)
        say(out, name, SITE_PARTLY, "give --db a path on a file system with locks",
            "leases hold%s; flock %s and is not used; fcntl, which the database needs, is %s", from,
            flock, refusal(l->fcntl_error));
    else
        say(out, name, SITE_HOLDS, "", "leases hold%s; flock %s and is not used", from, flock);
}

void site_check(const struct site_facts *f, struct site_promise out[SITE_PROMISES])
{
    static void (*const checks[SITE_PROMISES])(const struct site_facts *, struct site_promise *) = {
        comes_back, notice, lead, back_soon, orphans, bound, remembered, mpi, shared,
        one_at_a_time};
    for (int i = 0; i < SITE_PROMISES; i++)
        checks[i](f, &out[i]);
}

const char *site_file_system(const char *path)
{
    static const struct {
        unsigned long type;
        const char *name;
    } types[] = {
        /* The numbers are those of statfs(2). */
        {0x6969, "nfs"},        {0x0BD00BD0, "lustre"}, {0x47504653, "gpfs"},
        {0x19830326, "beegfs"}, {0x00C36400, "ceph"},   {0xFF534D42, "cifs"},
        {0xFE534D42, "smb2"},   {0x65735546, "fuse"},   {0xEF53, "local"},
        {0x58465342, "local"},  {0x9123683E, "local"},  {0x01021994, "local"},
        {0x794c7630, "local"},  {0x2FC12FC1, "local"},
    };
    struct statfs s;
    if (statfs(path, &s) == 0)
        for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
            if ((unsigned long)s.f_type == types[i].type)
                return types[i].name;
    return "unknown";
}
