/* survey: shows the nodes and switches of a Slurm cluster as Slurm, hwloc and the GPUs' driver see
 * them, and where the three disagree.
 *
 * Slurm's data comes from the controller. hwloc's data comes from tasks on the nodes: each writes
 * its node's XML, or the error why there is none, into a folder, as <node>.xml or <node>.err. A
 * task without a readable XML counts as having given no answer.
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

enum { SURVEY_DISAGREE = 24 }; /* this many disagreements of a node are kept at most */
struct survey_node {
    const struct slurm_node *slurm;
    const char *path;        /* switches above it, "spine/leaf0"; "": none */
    bool asked;              /* a task was sent there */
    const char *why;         /* why a node to which a task was sent has no topology */
    const struct topo *topo; /* NULL: no task was sent to the node, or it gave no answer */
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

/* Tells whether a job may get this node, now or when it is free, from the node's state, such as
 * "IDLE+DRAIN" or "DOWN*". */
bool survey_node_usable(const struct slurm_node *n);
/* Adds, as a list, the names of the nodes whose tasks gave no answer, and returns the number of
 * these nodes. */
size_t survey_silent(const struct survey *c, struct str *names);

void survey_format(const struct survey *c, struct str *out);
void survey_write(const struct survey *c, struct json_out *o); /* "reel.topo-cluster/1" */

#endif
