#include "launcher/cmd/lead.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "launcher/machine/site.h"
#include "launcher/sched/slurm.h"
#include "launcher/state/pace.h"

int lead_partition(const struct sched_site *site, const char *name,
                   const struct sched_partition **out, struct err *err)
{
    if ((*out = sched_site_partition(site, name)))
        return 0;
    return name
               ? err_set(err, ERR_INPUT, "there is no partition '%s'", name)
               : err_set(err, ERR_INPUT, "this cluster has no default partition: give --partition");
}

static int judge(enum lead_rule rule, const char *said, const char *then, struct err *err)
{
    if (rule == LEAD_REFUSE)
        return err_set(err, ERR_NO, "%s: see 'reel check-site', or give --lead warn", said);
    fprintf(stderr, "reel: %s: %s\n", said, then);
    return 0;
}

/* Checks that two saves and a step take no longer than half of the time limit. The agent asks for a
 * save early enough before the limit's end (launcher/run/limit.h), but never before half of the
 * limit has passed. */
static int limit_check(double save_s, double step_s, double limit_s, enum lead_rule rule,
                       struct err *err)
{
    char save[32], step[32], half[32], said[256];
    if (limit_s <= 0 || pace_lead_s(limit_s, save_s, step_s) >= 2 * save_s + step_s)
        return 0;
    num_format_seconds(save_s, save, sizeof save);
    num_format_seconds(step_s, step, sizeof step);
    num_format_seconds(limit_s / 2, half, sizeof half);
    snprintf(said, sizeof said,
             "a save of this model takes %s, a step %s, and half of the time limit, %s, is less "
             "than two saves and a step",
             save, step, half);
    return judge(rule, said, "much of each job is lost to saving, or to its end", err);
}

int lead_check(struct sched *s, const char *partition,
               double time_limit_s, const struct pace_model *pace, enum lead_rule rule,
               struct err *err)
{
    struct slurm_site site;
    const struct sched_partition *p;
    char save[32], step[32], lead[32], said[256];
    if (rule == LEAD_IGNORE || strcmp(s->ops->kind, "slurm") != 0)
        return 0;
    int rc;
    if ((rc = sched_slurm_site(s, &site, err)) < 0)
        return rc;
    if ((rc = lead_partition(&site.site, partition, &p, err)) < 0)
        return rc;
    double save_s = pace->save_s, one_s = pace->step_s, lead_s = site_lead_s(&site, p);
    if (save_s <= 0)
        return 0;
    rc = limit_check(save_s, one_s, time_limit_s > 0 ? time_limit_s : p->max_time_s, rule, err);
    if (rc < 0 || one_s + save_s <= lead_s)
        return rc;
    num_format_seconds(save_s, save, sizeof save);
    num_format_seconds(one_s, step, sizeof step);
    num_format_seconds(lead_s, lead, sizeof lead);
    snprintf(
        said, sizeof said,
        "a save of this model took %s, a step %s, and partition %s leaves %s from notice to kill",
        save, step, p->name, lead);
    return judge(rule, said, "a preempted run goes back to its last periodic checkpoint", err);
}
