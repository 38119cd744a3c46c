/* survey: the nodes of a Slurm cluster as Slurm and as hwloc see them, their switches, and where the two disagree.
 *
 * Slurm's data comes from one question to the controller, hwloc's from a task on every node that left its XML, or the sentence why it has
 * none, in a folder: <node>.xml or <node>.err. A node that was asked and left neither gave no answer.
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

enum { SURVEY_DISAGREE = 6 }; /* what is compared: sockets, cores, threads, memory, GPUs; and one to spare */
struct survey_node {
    const struct slurm_node *slurm;
    const char *path;        /* switches above it, "spine/leaf0"; "" none */
    bool asked;              /* was a task sent there */
    const char *why;         /* asked and no topology: what is known of it */
    const struct topo *topo; /* NULL: not asked, or no answer */
    const char *disagree[SURVEY_DISAGREE];
    int n_disagree;
};
struct survey {
    const struct slurm_site *site; /* borrowed, with its texts, like those of the net */
    const char *network;           /* slurm_net.kind */
    struct survey_node *nodes;    /* those of the partition, in the order of their switches */
    size_t n;
    struct arena arena;
};

/* partition NULL: all nodes. */
int survey_init(struct survey *c, const struct slurm_site *site, const struct slurm_net *net, const char *partition, struct err *err);
int survey_read(struct survey *c, const char *const *asked, size_t n_asked, const char *dir, struct err *err);
void survey_release(struct survey *c);

/* May a job be given this node, now or when it is free? By its state, "IDLE+DRAIN", "DOWN*". */
bool survey_node_usable(const struct slurm_node *n);
/* The nodes that were asked and gave no answer, as a list into *names; how many. */
size_t survey_silent(const struct survey *c, struct str *names);

void survey_format(const struct survey *c, struct str *out);
void survey_write(const struct survey *c, struct json_out *o); /* "reel.topo-cluster/1" */

#endif
