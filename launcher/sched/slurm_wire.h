/* slurm_wire: defines the messages between reel and reel-slurm, and the JSON of jobs and sites,
 * which the shared answer (slurm_poll.c) uses too.
 *
 * In reel.slurm-wire/1, each message is a line of JSON on the helper's stdin or stdout. The helper
 * sends the first one:
 *
 *     {"schema": "reel.slurm-wire/1", "slurm": "22.05.8"}    ready; the release it was compiled for
 *     {"error": "ERR_ENV", "text": "..."}                    it refuses, and ends
 *
 * Then it sends a reply to each request, in order, until end of file:
 *
 *     {"op": "site"}                                  {"site": {...}}
 *     {"op": "net", "nodes": true | false}            {"net": {...}}
 *     {"op": "jobs", "id": null | "123"}              {"jobs": [{...}, ...]}
 *     {"op": "submit", "name": ..., "comment": ..., "cwd": ..., "log": ..., "script": ...,
 *      "env": ["K=V", ...], "nice": -5, "requeue": true, "outlives_nodes": false, "nodes": 1,
 *      "cores_per_node": 0, "gpus_per_node": 0, "partition": null, "account": null, "qos": null,
 *      "exclude": null, "after": null, "time_limit_min": 0, "signal": 10, "signal_lead_s": 60}
 *                                                     {"id": "123"}
 *     {"op": "signal", "id": "123" | "123_4", "signal": 10, "all": false},
 *     {"op": "requeue", "id": ...}, {"op": "cancel", "id": ...},
 *     {"op": "comment", "id": ..., "comment": ...}
 *                                                     {}
 *     anything that failed                            {"error": "ERR_TEMP", "text": "..."}
 *
 * Environment entries and paths are arbitrary bytes, which JSON cannot hold: in "env", "cwd", "log"
 * and "script" every byte that is not printable ASCII, and every %, is written as %XX.
 */
#ifndef LAUNCHER_SCHED_SLURM_WIRE_H
#define LAUNCHER_SCHED_SLURM_WIRE_H

#include "base/json.h"
#include "launcher/sched/slurm_rpc.h"

#define SLURM_WIRE_SCHEMA "reel.slurm-wire/1"

void slurm_wire_job_write(const struct slurm_job *j, struct json_out *o);
int slurm_wire_job_read(const cJSON *v, struct arena *arena, struct slurm_job *j, struct err *err);
int slurm_wire_jobs_read(const cJSON *list, struct arena *arena, struct slurm_jobs *out,
                         struct err *err);

/* Write and read members of the JSON object that is open. */
void slurm_wire_site_write(const struct slurm_site *s, struct json_out *o);
int slurm_wire_site_read(const cJSON *v, struct arena *arena, struct slurm_site *out,
                         struct err *err);

void slurm_wire_net_write(const struct slurm_net *n, struct json_out *o);
int slurm_wire_net_read(const cJSON *v, struct arena *arena, struct slurm_net *out,
                        struct err *err);

/* Write bytes as printable ASCII, and convert them back in place. */
void slurm_wire_escape(const char *bytes, struct str *out);
void slurm_wire_unescape(char *text);

#endif
