#include "launcher/cmd/lead.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "db/store.h"
#include "launcher/sched/slurm.h"
#include "launcher/site.h"

double lead_longest_save(const struct cmd_env *env, const char *model)
{
    struct store *db = NULL;
    struct store_query *q = NULL;
    double longest = NAN;
    if (store_open(env->db_path, STORE_READ, &db, NULL) < 0)
        return NAN;
    if (store_ask(db, "SELECT max(json_extract(e.json, '$.seconds')) FROM event e WHERE e.kind = 'ckpt_saved' AND (?1 IS NULL OR e.run IN "
                      "(SELECT c.run FROM event c WHERE c.kind = 'run_created' AND json_extract(c.json, '$.model') = ?1))", &q, NULL) == 0) {
        store_bind_text(q, 1, model);
        if (store_next(q, NULL) == 1 && store_column_type(q, 0) != STORE_NULL)
            longest = store_num(q, 0);
    }
    store_end(q);
    store_close(db);
    return longest;
}

int lead_partition(const struct sched_site *site, const char *name, const struct sched_partition **out, struct err *err)
{
    if ((*out = sched_site_partition(site, name)))
        return 0;
    return name ? err_set(err, ERR_INPUT, "there is no partition '%s'", name)
                : err_set(err, ERR_INPUT, "this cluster has no default partition: give --partition");
}

int lead_check(const struct cmd_env *env, struct sched *s, const char *partition, const char *model, enum lead_rule rule,
               struct err *err)
{
    struct slurm_site site;
    const struct sched_partition *p;
    char save[32], lead[32];
    if (rule == LEAD_IGNORE || strcmp(s->ops->kind, "slurm") != 0)
        return 0;
    int rc = sched_slurm_site(s, &site, err);
    if (rc == 0)
        rc = lead_partition(&site.site, partition, &p, err);
    if (rc < 0)
        return rc;
    double save_s = lead_longest_save(env, model), lead_s = site_lead_s(&site, p);
    if (!isfinite(save_s) || save_s <= lead_s)
        return 0;
    num_format_seconds(save_s, save, sizeof save);
    num_format_seconds(lead_s, lead, sizeof lead);
    if (rule == LEAD_REFUSE)
        return err_set(err, ERR_NO, "a save of this model took %s and partition %s leaves %s from notice to kill: see 'reel check-site', or give "
                       "--lead warn", save, p->name, lead);
    fprintf(stderr, "reel: a save of this model took %s and partition %s leaves %s from notice to kill: a preempted run goes back to its last "
                    "periodic checkpoint\n", save, p->name, lead);
    return 0;
}
