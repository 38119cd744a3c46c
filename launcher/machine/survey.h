/* survey: shows the nodes of a Slurm cluster as Slurm, hwloc and the GPUs' driver see them, their
 * switches, and where the three disagree.
 *
 * Slurm's data comes from one question to the controller. hwloc's comes from a task on every node,
 * which leaves its XML, or the sentence that says why it has none, in a folder: <node>.xml or
 * <node>.err. A node that was asked and left neither gave no answer.
 *
 *     survey_init(&c, &site, &net, partition, err);
 *     survey_read(&c, asked, n, dir, err);        // optional
 *     survey_format(&c, &text);  or  survey_write(&c, &out);
 *     survey_release(&c);
 */
#ifndef LAUNCHER_MACHINE_SURVEY_H
#define LAUNCHER_MACHINE_SURVEY_H

#include "base/json.h"
#include "launcher/machine/topo.h"
#include "launcher/sched/place.h"
#include "launcher/sched/slurm_rpc.h"

enum { SURVEY_DISAGREE = 24 }; /* at most so many disagreements of a node are kept */
struct survey_node {
    const struct slurm_node *slurm;
    const char *path;        /* switches above it, "spine/leaf0"; "": none */
    bool asked;              /* a task was sent there */
    const char *why;         /* why there is no topology of a node that was asked */
    const struct topo *topo; /* NULL: it was not asked, or gave no answer */
    const char *disagree[SURVEY_DISAGREE];
    int n_disagree;
};
struct survey {
    const struct slurm_site *site; /* borrowed, and so are its texts and those of the net */
    const char *network;           /* slurm_net.kind */
    struct survey_node *nodes;     /* those of the partition, in the order of their switches */
    size_t n;
    struct arena arena;
};

/* Lists the nodes of a partition; NULL: of all. */
int survey_init(struct survey *c, const struct slurm_site *site, const struct slurm_net *net,
                const char *partition, struct err *err);
int survey_read(struct survey *c, const char *const *asked, size_t n_asked, const char *dir,
                struct err *err);
void survey_release(struct survey *c);

/* Says whether a job may be given this node, now or when it is free. It goes by the node's state,
 * such as "IDLE+DRAIN" or "DOWN*". */
bool survey_node_usable(const struct slurm_node *n);
/* Adds the names of the nodes that were asked and gave no answer, as a list, and returns how many
 * they are. */
size_t survey_silent(const struct survey *c, struct str *names);

void survey_format(const struct survey *c, struct str *out);
void survey_write(const struct survey *c, struct json_out *o); /* "reel.topo-cluster/1" */

#endif
