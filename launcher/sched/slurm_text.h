/* slurm_text: parses the output of Slurm's commands into structs. It is tested with recorded output
 * of several versions.
 *
 * The formats are: scontrol(1) `show config` ("Key   = value" a line), `show partition -o`, `show
 * node -o` and `show topology -o` ("Key=value Key=value" a line); squeue(1) -O with
 * SLURM_SQUEUE_SEPARATOR after every field; squeue --json (22.05: plain values; from 23.02 on:
 * numbers as {"set", "number"}; from 23.11 on: states as arrays); the stderr of all of them.
 */
#ifndef LAUNCHER_SCHED_SLURM_TEXT_H
#define LAUNCHER_SCHED_SLURM_TEXT_H

#include "launcher/sched/slurm_rpc.h"

/* Returns the fields of squeue -O in the order in which the parser expects them; no field but the
 * last can have the separator in it. */
#define SLURM_SQUEUE_SEPARATOR "\x1f"
const char *slurm_text_squeue_format(void);

/* Reads the output of squeue with that format and times as seconds (SLURM_TIME_FORMAT=%s). The
 * ERR_INPUT error shows the line that was not understood. */
int slurm_text_jobs(const char *text, struct arena *arena, struct slurm_jobs *out, struct err *err);
/* Reads the output of squeue --json of any version. */
int slurm_text_jobs_json(const char *text, struct arena *arena, struct slurm_jobs *out,
                         struct err *err);

/* Reads the output of sacct -n -P -X with these fields and times as seconds. A job with several
 * executions appears once, with its last one; reason is "CANCELLED by 1000" if somebody cancelled
 * it. The comment is present only if the site stores it (AccountingStoreFlags=job_comment). */
#define SLURM_SACCT_FIELDS "JobIDRaw,State,ExitCode,NNodes,NCPUS,Submit,Start,End,Comment,JobName"
int slurm_text_history(const char *text, struct arena *arena, struct slurm_jobs *out,
                       struct err *err);

/* Reads the site from the output of three commands. config: `scontrol show config`; partitions:
 * `scontrol show partition -o`; nodes: `sinfo -h -o '%R|%c|%G'`. */
int slurm_text_site(const char *config, const char *partitions, const char *nodes,
                    struct arena *arena, struct slurm_site *out, struct err *err);

/* Reads nodes and network. nodes: `scontrol show node -o`; topology: `scontrol show topology -o`
 * ("" if the site has none). Topology plugins print these lines: tree "SwitchName=", block
 * "BlockName=" and "AggregatedBlock=". For any other plugin the kind is "unknown", and there are no
 * switches. */
int slurm_text_net(const char *nodes, const char *topology, struct arena *arena,
                   struct slurm_net *out, struct err *err);

/* Reads limits as sacct and scontrol write them: "1-02:03:04", "02:03:04", "UNLIMITED" (0), or
 * minutes: "30". */
double slurm_text_duration(const char *text);
int slurm_text_gpus(const char *gres); /* "gpu:a100:8(S:0-1),nic:2" -> 8 */

/* Returns the error code for a failed command, from its message on stderr; ERR_CHILD for an unknown
 * message. The first sentence of the message goes into err. `what`: the command's name. */
int slurm_text_error(const char *what, const char *stderr_text, struct err *err);

#endif
