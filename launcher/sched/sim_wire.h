/* sim_wire: defines the messages between the server of a simulated cluster and the real programs
 * that run in it.
 *
 * A connection has one request and one reply. Each ends where its sender closes its side. It is a
 * sequence of NUL-terminated values: a number as %.17g, a text after '+', a NULL text as '-', a
 * list as its length and then its entries. A request begins with the operation, and a reply with an
 * error's code and text. Both ends are the same build, so messages have no version.
 */
#ifndef LAUNCHER_SCHED_SIM_WIRE_H
#define LAUNCHER_SCHED_SIM_WIRE_H

#include "launcher/sched/sched.h"

struct sim_wire {
    const char *p, *end;
    struct arena *arena; /* owns lists */
    bool bad; /* a value was missing or memory ran out; values read from then on are empty */
};

void sim_put_num(struct str *out, double number);
void sim_put_text(struct str *out, const char *text);
void sim_put_list(struct str *out, const char *const *list);
double sim_take_num(struct sim_wire *w);
int sim_take_int(struct sim_wire *w);
const char *sim_take_text(struct sim_wire *w);
const char *const *sim_take_list(struct sim_wire *w);

void sim_put_spec(struct str *out, const struct sched_spec *spec);
void sim_take_spec(struct sim_wire *w, struct sched_spec *spec);
void sim_put_site(struct str *out, const struct sched_site *site);
void sim_take_site(struct sim_wire *w, struct sched_site *site);
void sim_put_job(struct str *out, const struct sched_job *job);
void sim_take_job(struct sim_wire *w, struct sched_job *job);
void sim_put_ending(struct str *out, const struct sched_ending *e);
void sim_take_ending(struct sim_wire *w, struct sched_ending *e);

/* Send a whole text and close the sending side; receive until the other side has done so. */
int sim_send(int fd, const struct str *text, struct err *err);
int sim_receive(int fd, struct str *text, struct err *err);

/* Writes the path of the socket on which the server of this state folder listens. */
int sim_socket_path(const char *home, char out[108], struct err *err);

#endif
