/* slurm_text: reads what Slurm's commands print. Pure: text in, structs out; tested with recorded
 * output of several versions.
 *
 * The formats are: scontrol(1) `show config` ("Key   = value" a line), `show partition -o`, `show
 * node -o` and `show topology -o` ("Key=value Key=value" a line); squeue(1) -O with a separator of
 * ours behind every field; squeue --json (22.05 plain values, 23.11 {"set","number"} and states as
 * arrays); the stderr of all of them.
 */
#ifndef LAUNCHER_SCHED_SLURM_TEXT_H
#define LAUNCHER_SCHED_SLURM_TEXT_H

#include "launcher/sched/slurm_rpc.h"

/* Returns the fields of squeue -O in our order; the separator cannot stand in any field before the
 * last one. */
#define SLURM_SQUEUE_SEPARATOR "\x1f"
const char *slurm_text_squeue_format(void);

/* Reads the output of squeue with that format and times as seconds (SLURM_TIME_FORMAT=%s).
 * ERR_INPUT names the line that is not understood. */
int slurm_text_jobs(const char *text, struct arena *arena, struct slurm_jobs *out, struct err *err);
/* Reads the output of squeue --json, any version. */
int slurm_text_jobs_json(const char *text, struct arena *arena, struct slurm_jobs *out,
                         struct err *err);

/* Reads the output of sacct -n -P -X with these fields and times as seconds. A job that was
 * executed more than once appears once, with its last execution; reason is "CANCELLED by 1000" if
 * somebody cancelled it. The comment is there only if the site stores it
 * (AccountingStoreFlags=job_comment). */
#define SLURM_SACCT_FIELDS "JobIDRaw,State,ExitCode,NNodes,NCPUS,Submit,Start,End,Comment,JobName"
int slurm_text_history(const char *text, struct arena *arena, struct slurm_jobs *out,
                       struct err *err);

/* Reads the site. config: `scontrol show config`; partitions: `scontrol show partition -o`; nodes:
 * `sinfo -h -o '%R|%c|%G'`. */
int slurm_text_site(const char *config, const char *partitions, const char *nodes,
                    struct arena *arena, struct slurm_site *out, struct err *err);

/* Reads nodes and network. nodes: `scontrol show node -o`; topology: `scontrol show topology -o`
 * ("" where the site has none). Lines of topology plugins: tree "SwitchName=", block "BlockName="
 * and "AggregatedBlock="; of any other the kind is "unknown" and there are no switches. */
int slurm_text_net(const char *nodes, const char *topology, struct arena *arena,
                   struct slurm_net *out, struct err *err);

/* Reads "1-02:03:04", "02:03:04", "30", "UNLIMITED" (0) as sacct and scontrol write limits: minutes
 * when there is no colon. */
double slurm_text_duration(const char *text);
int slurm_text_gpus(const char *gres); /* "gpu:a100:8(S:0-1),nic:2" -> 8 */

/* Returns the class of error of a failed command, by its message on stderr; ERR_CHILD for a message
 * that is not known. The first sentence of the message goes into err. `what` names the command. */
int slurm_text_error(const char *what, const char *stderr_text, struct err *err);

#endif
