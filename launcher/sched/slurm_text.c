#include "launcher/sched/slurm_text.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/num.h"
#include "base/str.h"

/* ---- squeue -O ---- */

enum {
    F_ID, F_HANDLE, F_STATE, F_REASON, F_RESTARTS,
    F_NODES, F_CORES, F_NICE, F_EXIT, F_REQUEUE,
    F_SUBMIT, F_START, F_END, F_PREEMPTED,
    F_PARTITION, F_CWD, F_COMMENT, F_NAME,
    N_FIELDS
};
static const char *const squeue_fields[N_FIELDS] = {
    [F_ID] = "JobID",
    [F_HANDLE] = "JobArrayID",
    [F_STATE] = "State",
    [F_REASON] = "Reason",
    [F_RESTARTS] = "RestartCnt",
    [F_NODES] = "NumNodes",
    [F_CORES] = "NumCPUs",
    [F_NICE] = "Nice",
    [F_EXIT] = "exit_code",
    [F_REQUEUE] = "Requeue",
    [F_SUBMIT] = "SubmitTime",
    [F_START] = "StartTime",
    [F_END] = "EndTime",
    [F_PREEMPTED] = "PreemptTime",
    [F_PARTITION] = "Partition",
    [F_CWD] = "WorkDir",
    [F_COMMENT] = "Comment",
    [F_NAME] = "Name",
};

const char *slurm_text_squeue_format(void)
{
    static char format[512];
    if (!format[0])
        for (int i = 0; i < N_FIELDS; i++)
            snprintf(format + strlen(format), sizeof format - strlen(format),
                     "%s%s:" SLURM_SQUEUE_SEPARATOR, i ? "," : "", squeue_fields[i]);
    return format;
}

/* Returns the number with which a text begins ("8+"), 0 if it begins with none ("N/A"). */
static int whole(const char *text)
{
    long n = strtol(text, NULL, 10);
    return n > INT_MAX ? INT_MAX : n < INT_MIN ? INT_MIN : (int)n;
}

static const char *plain(const char *text)
{
    return strcmp(text, "(null)") == 0 || strcmp(text, "N/A") == 0 || strcmp(text, "None") == 0
               ? ""
               : text;
}

/* Splits one line in place; returns false if a field is missing. */
static bool fields_split(char *line, char *f[N_FIELDS])
{
    for (int i = 0; i < N_FIELDS; i++) {
        f[i] = line;
        line = strstr(line, SLURM_SQUEUE_SEPARATOR);
        if (!line)
            return false;
        *line++ = '\0';
    }
    return true;
}

/* Returns a time, UTC s; 0: none. */
static double time_of(const char *text)
{
    return strtod(plain(text), NULL); /* "N/A" and "" are 0 */
}

/* Tells whether this is one of Slurm's base states and not a flag, like COMPLETING. */
static bool is_base(const char *state)
{
    static const char *const words[] = {
        "PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT",
        "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"};
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcmp(state, words[i]) == 0)
            return true;
    return false;
}

static void job_fill(char *const f[N_FIELDS], struct slurm_job *j)
{
    *j = (struct slurm_job){
        .id = f[F_ID],
        .state = f[F_STATE],
        .reason = plain(f[F_REASON]),
        .comment = plain(f[F_COMMENT]),
        .name = f[F_NAME],
        .restarts = whole(f[F_RESTARTS]),
        .nodes = whole(f[F_NODES]),
        .cores = whole(f[F_CORES]),
        .nice = whole(f[F_NICE]),
        .exit_status = whole(f[F_EXIT]),
        .requeue = f[F_REQUEUE][0] == '1' || f[F_REQUEUE][0] == 'y',
        .submitted_at = time_of(f[F_SUBMIT]),
        .started_at = time_of(f[F_START]),
        .ended_at = time_of(f[F_END]),
        .preempted_at = time_of(f[F_PREEMPTED]),
        .partition = plain(f[F_PARTITION]),
        .cwd = plain(f[F_CWD])};
    j->base = is_base(j->state) ? j->state : "";
    /* An array's waiting tasks are one job, "123_[4-7]"; part of a heterogeneous job is "123+1". */
    j->handle = f[F_HANDLE][strspn(f[F_HANDLE], "0123456789_")] ? j->id : f[F_HANDLE];
}

static size_t lines_count(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n + 1;
}

int slurm_text_jobs(const char *text, struct arena *arena, struct slurm_jobs *out, struct err *err)
{
    char *copy = arena_strdup(arena, text), *save = NULL;
    struct slurm_jobs jobs = {.v = arena_array(arena, lines_count(text), sizeof *jobs.v)};
    if (!copy || !jobs.v)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *f[N_FIELDS], shown[64];
        snprintf(shown, sizeof shown, "%s", line);
        if (!fields_split(line, f))
            return err_set(err, ERR_INPUT, "squeue printed a line without our %d fields: '%s'",
                           N_FIELDS, shown);
        job_fill(f, &jobs.v[jobs.n++]);
    }
    *out = jobs;
    return 0;
}

/* ---- sacct ---- */

enum {
    A_ID, A_STATE, A_EXIT,
    A_NODES, A_CORES,
    A_SUBMIT, A_START, A_END,
    A_COMMENT, A_NAME,
    N_ACCOUNTED
};

/* Returns an exit status as of wait(2) for "3:0" or "0:9". */
static int accounted_exit(const char *text)
{
    const char *colon = strchr(text, ':');
    return whole(text) << 8 | (colon ? whole(colon + 1) : 0);
}

/* Splits a line at its bars. Returns the number of known fields that it has. */
static int accounted_split(char *line, char *f[N_ACCOUNTED])
{
    int n = 0;
    for (char *p = line; p && n < N_ACCOUNTED; n++) {
        f[n] = p;
        p = n < N_ACCOUNTED - 1 ? strchr(p, '|') : NULL;
        if (p)
            *p++ = '\0';
    }
    return n;
}

static int accounted_read(char *line, struct arena *arena, struct slurm_job *out, struct err *err)
{
    char *f[N_ACCOUNTED];
    if (accounted_split(line, f) < N_ACCOUNTED)
        return err_set(err, ERR_INPUT, "sacct printed a line without our %d fields: '%.60s'",
                       N_ACCOUNTED, line);
    const char *by = strstr(f[A_STATE], " by ");
    by = by ? arena_strdup(arena, f[A_STATE]) : ""; /* "CANCELLED by 1000" */
    if (!by)
        return err_set(err, ERR_NOMEM, "out of memory");
    f[A_STATE][strcspn(f[A_STATE], " +")] = '\0';
    *out = (struct slurm_job){
        .id = f[A_ID],
        .handle = f[A_ID],
        .state = f[A_STATE],
        .base = f[A_STATE],
        .reason = by,
        .comment = f[A_COMMENT],
        .name = f[A_NAME],
        .nodes = whole(f[A_NODES]),
        .cores = whole(f[A_CORES]),
        .exit_status = accounted_exit(f[A_EXIT]),
        .submitted_at = time_of(f[A_SUBMIT]),
        .started_at = time_of(f[A_START]),
        .ended_at = time_of(f[A_END]),
        .partition = "",
        .cwd = ""};
    return 0;
}

int slurm_text_history(const char *text, struct arena *arena, struct slurm_jobs *out,
                       struct err *err)
{
    char *copy = arena_strdup(arena, text), *save = NULL;
    struct slurm_jobs jobs = {.v = arena_array(arena, lines_count(text), sizeof *jobs.v)};
    int rc;
    if (!copy || !jobs.v)
        return err_set(err, ERR_NOMEM, "out of memory");
    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if ((rc = accounted_read(line, arena, &jobs.v[jobs.n++], err)) < 0)
            return rc;
    *out = jobs;
    return 0;
}

/* ---- squeue --json ---- */

/* Reads a number, which is written as 5 in 22.05 and as {"set": true, "infinite": false, "number":
 * 5} from 23.02 on. */
static double json_number(const cJSON *obj, const char *key, double fallback)
{
    const cJSON *v = json_member(obj, key);
    if (cJSON_IsObject(v))
        return cJSON_IsFalse(json_member(v, "set")) ? fallback : json_num(v, "number", fallback);
    return json_num(obj, key, fallback);
}

static int json_exit_status(const cJSON *job)
{
    const cJSON *v = json_member(job, "exit_code");
    if (!cJSON_IsObject(v))
        return (int)json_num(job, "exit_code", -1);
    if (!json_member(v, "return_code"))
        return (int)json_number(job, "exit_code", -1);
    const cJSON *signal = json_member(v, "signal");
    int signo = (int)(json_member(signal, "id") ? json_number(signal, "id", 0)
                                                : json_num(signal, "signal_id", 0));
    return (int)json_number(v, "return_code", 0) << 8 | signo;
}

/* Returns the state: "RUNNING"; from 23.11 on it is ["RUNNING", "COMPLETING"], and the flag is
 * returned. */
static const char *json_state(const cJSON *job)
{
    const cJSON *v = json_member(job, "job_state");
    if (cJSON_IsArray(v))
        v = cJSON_GetArrayItem(v, cJSON_GetArraySize(v) - 1);
    return cJSON_IsString(v) ? v->valuestring : "";
}

/* Returns the base state, which comes before the flags in an array. */
static const char *json_base(const cJSON *job, const struct slurm_job *j)
{
    const cJSON *list = json_member(job, "job_state"), *v;
    if (cJSON_IsArray(list) && cJSON_GetArraySize(list) > 1)
        cJSON_ArrayForEach(v, list)
            if (cJSON_IsString(v) && is_base(v->valuestring))
                return v->valuestring;
    return is_base(j->state) ? j->state : "";
}

static int job_from_json(const cJSON *job, struct arena *arena, struct slurm_job *j,
                         struct err *err)
{
    double id = json_number(job, "job_id", 0), array = json_number(job, "array_job_id", 0),
           task = json_number(job, "array_task_id", -1);
    *j = (struct slurm_job){
        .id = arena_printf(arena, "%.0f", id),
        .handle = array > 0 && task >= 0 ? arena_printf(arena, "%.0f_%.0f", array, task)
                                         : arena_printf(arena, "%.0f", id),
        .state = arena_strdup(arena, json_state(job)),
        .reason = arena_strdup(arena, plain(json_text(job, "state_reason", ""))),
        .comment = arena_strdup(arena, json_text(job, "comment", "")),
        .name = arena_strdup(arena, json_text(job, "name", "")),
        .restarts = (int)json_number(job, "restart_cnt", 0),
        .nodes = (int)json_number(job, "node_count", 0),
        .cores = (int)json_number(job, "cpus", 0),
        .nice = (int)json_number(job, "nice", 0),
        .exit_status = json_exit_status(job),
        .requeue = cJSON_IsTrue(json_member(job, "requeue")),
        .submitted_at = json_number(job, "submit_time", 0),
        .started_at = json_number(job, "start_time", 0),
        .ended_at = json_number(job, "end_time", 0),
        .preempted_at = json_number(job, "preempt_time", 0),
        .partition = arena_strdup(arena, json_text(job, "partition", "")),
        .cwd = arena_strdup(arena, json_text(job, "current_working_directory", ""))};
    j->base = j->state && j->reason ? arena_strdup(arena, json_base(job, j)) : NULL;
    bool all = j->id && j->handle && j->state && j->base && j->reason && j->comment && j->name &&
               j->partition && j->cwd;
    return all ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

static int jobs_from_json(const cJSON *list, struct arena *arena, struct slurm_jobs *out,
                          struct err *err)
{
    const cJSON *job;
    struct slurm_jobs jobs = {
        .v = arena_array(arena, (size_t)cJSON_GetArraySize(list) + 1, sizeof *jobs.v)};
    int rc;
    if (!jobs.v)
        return err_set(err, ERR_NOMEM, "out of memory");
    if (!cJSON_IsArray(list))
        return err_set(err, ERR_INPUT, "squeue --json printed no list of jobs");
    cJSON_ArrayForEach(job, list)
        if ((rc = job_from_json(job, arena, &jobs.v[jobs.n++], err)) < 0)
            return rc;
    *out = jobs;
    return 0;
}

int slurm_text_jobs_json(const char *text, struct arena *arena, struct slurm_jobs *out,
                         struct err *err)
{
    cJSON *root = cJSON_Parse(text);
    int rc = jobs_from_json(json_member(root, "jobs"), arena, out, err);
    cJSON_Delete(root);
    return rc;
}

/* ---- scontrol ---- */

/* Returns the value after "Key=", up to the next white space; "" if the key is missing. Keys begin
 * a word. */
static const char *pair(const char *line, const char *key, char *buf, size_t size)
{
    size_t n = strlen(key);
    buf[0] = '\0';
    for (const char *p = line; (p = strstr(p, key)); p += n)
        if ((p == line || p[-1] == ' ') && p[n] == '=') {
            snprintf(buf, size, "%.*s", (int)strcspn(p + n + 1, " \n"), p + n + 1);
            break;
        }
    return buf;
}

/* Returns the value of "Key    = value" in `scontrol show config`. */
static const char *setting(const char *config, const char *key, struct arena *arena)
{
    size_t n = strlen(key);
    for (const char *p = config; p; p = strchr(p, '\n'), p = p ? p + 1 : p)
        if (strncmp(p, key, n) == 0 && (p[n] == ' ' || p[n] == '=')) {
            p += n + strspn(p + n, " =");
            char *value = arena_strndup(arena, p, strcspn(p, "\n"));
            for (char *end = value ? value + strlen(value) : NULL;
                 end && end > value && end[-1] == ' ';)
                *--end = '\0';
            return value ? plain(value) : "";
        }
    return "";
}

double slurm_text_duration(const char *text)
{
    double days = 0, part[3] = {0};
    int n = 0;
    const char *dash = strchr(text, '-');
    if (*text < '0' || *text > '9')
        return 0;
    if (dash) {
        days = strtod(text, NULL);
        text = dash + 1;
    }
    for (char *end; n < 3; text = end + 1) {
        part[n++] = strtod(text, &end);
        if (*end != ':')
            break;
    }
    if (dash) /* days-hours[:minutes[:seconds]] */
        return days * 86400 + part[0] * 3600 + part[1] * 60 + part[2];
    return n == 3 ? part[0] * 3600 + part[1] * 60 + part[2] : part[0] * 60 + part[1];
}

int slurm_text_gpus(const char *gres)
{
    int n = 0;
    for (const char *p = gres; (p = strstr(p, "gpu")); p += 3) {
        if (p != gres && p[-1] != ',')
            continue;
        const char *end = p + strcspn(p, ",("), *digits = end;
        while (digits > p && digits[-1] >= '0' && digits[-1] <= '9')
            digits--;
        n += digits > p && digits[-1] == ':' && digits < end ? whole(digits) : 1;
    }
    return n;
}

static enum sched_preempt preempt_of(const char *mode, const char *cluster_mode, const char *type)
{
    if (strcasecmp(type, "preempt/none") == 0 || !type[0])
        return SCHED_PREEMPT_OFF;
    if (!mode[0])
        mode = cluster_mode;
    return strcasestr(mode, "REQUEUE")   ? SCHED_PREEMPT_REQUEUE
           : strcasestr(mode, "CANCEL")  ? SCHED_PREEMPT_CANCEL
           : strcasestr(mode, "SUSPEND") ? SCHED_PREEMPT_SUSPEND
                                         : SCHED_PREEMPT_OFF;
}

/* Finds the most cores and the most GPUs that a node of the partition has, from sinfo's
 * "name|cores|gres" lines ("8+": several kinds of nodes). */
static void node_shape(const char *nodes, const char *partition, int *cores, int *gpus)
{
    size_t n = strlen(partition);
    for (const char *p = nodes; p && *p; p = strchr(p, '\n'), p = p ? p + 1 : p) {
        char gres[256];
        if (strncmp(p, partition, n) != 0 || p[n] != '|')
            continue;
        const char *bar = strpbrk(p + n + 1, "|\n");
        snprintf(gres, sizeof gres, "%.*s",
                 bar && *bar == '|' ? (int)strcspn(bar + 1, "\n") : 0, bar ? bar + 1 : "");
        int c = whole(p + n + 1), g = slurm_text_gpus(gres);
        *cores = c > *cores ? c : *cores;
        *gpus = g > *gpus ? g : *gpus;
    }
}

static void partition_fill(const char *line, const char *nodes, const struct slurm_site *s,
                           const char *cluster_mode, struct arena *arena,
                           struct sched_partition *p)
{
    char v[256];
    p->name = arena_strdup(arena, pair(line, "PartitionName", v, sizeof v));
    p->is_default = strcasecmp(pair(line, "Default", v, sizeof v), "YES") == 0;
    p->preempt = preempt_of(pair(line, "PreemptMode", v, sizeof v), cluster_mode, s->preempt_type);
    p->grace_s = strtod(pair(line, "GraceTime", v, sizeof v), NULL);
    p->max_time_s = slurm_text_duration(pair(line, "MaxTime", v, sizeof v));
    p->nodes = whole(pair(line, "TotalNodes", v, sizeof v));
    if (p->name)
        node_shape(nodes, p->name, &p->cores_per_node, &p->gpus_per_node);
}

/* Returns how soon a requeued job may start again, s; cred_expire of AuthInfo limits it
 * (slurm.conf(5) AuthInfo; default 120 s). */
static double requeue_delay_of(const char *auth_info)
{
    const char *p = strstr(auth_info, "cred_expire=");
    return p ? strtod(p + strlen("cred_expire="), NULL) : 120;
}

int slurm_text_site(const char *config, const char *partitions, const char *nodes,
                    struct arena *arena, struct slurm_site *out, struct err *err)
{
    struct sched_partition *v = arena_array(arena, lines_count(partitions), sizeof *v);
    const char *mode = setting(config, "PreemptMode", arena);
    struct slurm_site s = {
        .version = setting(config, "SLURM_VERSION", arena),
        .preempt_type = setting(config, "PreemptType", arena),
        .proctrack = setting(config, "ProctrackType", arena),
        .task = setting(config, "TaskPlugin", arena),
        .topology = setting(config, "TopologyPlugin", arena),
        .accounting = setting(config, "AccountingStorageType", arena),
        .job_requeue = whole(setting(config, "JobRequeue", arena)) == 1,
        .min_job_age_s = strtod(setting(config, "MinJobAge", arena), NULL)};
    s.site = (struct sched_site){
        .kind = "slurm",
        .name = setting(config, "ClusterName", arena),
        .partitions = v,
        .kill_wait_s = strtod(setting(config, "KillWait", arena), NULL),
        .requeue_delay_s = requeue_delay_of(setting(config, "AuthInfo", arena)),
        .node_timeout_s = strtod(setting(config, "SlurmdTimeout", arena), NULL)};
    s.site.user_signal = strstr(setting(config, "SlurmctldParameters", arena),
                                "preempt_send_user_signal") ||
                         strstr(setting(config, "PreemptParameters", arena), "send_user_signal");
    if (!v)
        return err_set(err, ERR_NOMEM, "out of memory");
    if (!s.version[0] || !s.site.name[0])
        return err_set(err, ERR_INPUT,
                       "scontrol show config printed neither SLURM_VERSION nor ClusterName");
    for (const char *p = partitions; p && *p; p = strchr(p, '\n'), p = p ? p + 1 : p)
        if (strncmp(p, "PartitionName=", strlen("PartitionName=")) == 0) {
            char *line = arena_strndup(arena, p, strcspn(p, "\n"));
            if (!line)
                return err_set(err, ERR_NOMEM, "out of memory");
            partition_fill(line, nodes, &s, mode, arena, &v[s.site.n_partitions++]);
        }
    *out = s;
    return 0;
}

/* ---- nodes and network ---- */

/* Returns the text after "Key="; NULL if the key is missing. Keys begin a word. */
static const char *behind(const char *line, const char *key)
{
    size_t n = strlen(key);
    const char *p = line;
    while ((p = strstr(p, key)) && !((p == line || p[-1] == ' ') && p[n] == '='))
        p += n;
    return p ? p + n + 1 : NULL;
}

static const char *value_of(const char *line, const char *key, struct arena *arena)
{
    const char *p = behind(line, key),
               *value = p ? arena_strndup(arena, p, strcspn(p, " ")) : "";
    return value ? plain(value) : NULL;
}

/* Returns the reason in "Reason=TEXT [user@time]", without the brackets and the keys after them. */
static const char *reason_of(const char *line, struct arena *arena)
{
    const char *p = behind(line, "Reason"), *end = p;
    while (end && (end = strstr(end, " [")) && !(end[2 + strcspn(end + 2, " @]")] == '@'))
        end++;
    return !p    ? ""
           : end ? arena_strndup(arena, p, (size_t)(end - p))
                 : arena_strdup(arena, p);
}

/* Returns the time that follows a reason; 0 when there is none. */
static double reason_time_of(const char *line)
{
    const char *p = behind(line, "Reason"), *at = p;
    while (at && (at = strstr(at, " [")) && (at += 2 + strcspn(at + 2, " @]"), *at != '@'))
        continue;
    return at ? strtod(at + 1, NULL) : 0;
}

static int number_of(const char *line, const char *key)
{
    char v[32];
    return whole(pair(line, key, v, sizeof v));
}

static bool node_fill(const char *line, struct arena *arena, struct slurm_node *n)
{
    char memory[32], boot[32];
    *n = (struct slurm_node){
        .name = value_of(line, "NodeName", arena),
        .state = value_of(line, "State", arena),
        .reason = reason_of(line, arena),
        .reason_at = reason_time_of(line),
        .boot_at = time_of(pair(line, "BootTime", boot, sizeof boot)),
        .gres = value_of(line, "Gres", arena),
        .partitions = value_of(line, "Partitions", arena),
        .cpus = number_of(line, "CPUTot"),
        .sockets = number_of(line, "Sockets"),
        .cores_per_socket = number_of(line, "CoresPerSocket"),
        .threads_per_core = number_of(line, "ThreadsPerCore"),
        .memory_bytes = (int64_t)strtoll(pair(line, "RealMemory", memory, sizeof memory), NULL, 10)
                        << 20};
    n->gpus = n->gres ? slurm_text_gpus(n->gres) : 0;
    return n->name && n->state && n->reason && n->gres && n->partitions;
}

/* Reads a switch or block. The name of an aggregated block is the list of its blocks: "b[1-2]". */
static bool switch_fill(const char *line, struct arena *arena, struct slurm_switch *s,
                        const char **kind)
{
    bool tree = str_starts(line, "SwitchName="), blocks = str_starts(line, "AggregatedBlock=");
    *kind = tree ? "tree" : blocks || str_starts(line, "BlockName=") ? "block" : "unknown";
    s->name = value_of(line, tree ? "SwitchName" : blocks ? "AggregatedBlock" : "BlockName", arena);
    s->nodes = value_of(line, "Nodes", arena);
    s->children = tree ? value_of(line, "Switches", arena) : blocks ? s->name : "";
    return s->name && s->nodes && s->children;
}

int slurm_text_net(const char *nodes, const char *topology, struct arena *arena,
                   struct slurm_net *out, struct err *err)
{
    struct slurm_net net = {
        .nodes = arena_array(arena, lines_count(nodes), sizeof *net.nodes),
        .switches = arena_array(arena, lines_count(topology), sizeof *net.switches),
        .kind = "none"};
    char *copy = arena_strdup(arena, nodes), *save = NULL, *lines = arena_strdup(arena, topology);
    bool failed = !net.nodes || !net.switches || !copy || !lines;
    for (char *line = failed ? NULL : strtok_r(copy, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save))
        if (str_starts(line, "NodeName="))
            failed |= !node_fill(line, arena, &net.nodes[net.n_nodes++]);
    for (char *line = failed ? NULL : strtok_r(lines, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save))
        if (strchr(line, '='))
            failed |= !switch_fill(line, arena, &net.switches[net.n_switches++], &net.kind);
    if (failed)
        return err_set(err, ERR_NOMEM, "out of memory");
    if (strcmp(net.kind, "unknown") == 0)
        net.n_switches = 0;
    *out = net;
    return 0;
}

/* ---- error messages of the commands ---- */

static const struct {
    const char *words;
    int code;
} failures[] = {
    /* These are the texts of slurm/slurm_errno.c; the order matters where one text contains
     * another. */
    {"Invalid job id", ERR_NOT_FOUND},
    {"Job/step already completing or completed", ERR_STATE},
    {"Job/step already completed", ERR_STATE},
    {"Requested operation is presently disabled", ERR_STATE},
    {"Job is not pending nor running", ERR_STATE},
    {"Job is not running", ERR_STATE},
    {"Job has already finished", ERR_STATE},
    {"Job has already started", ERR_STATE},
    {"Job is pending execution", ERR_STATE},
    {"job has not yet started", ERR_STATE},
    {"Only batch jobs are accepted or processed", ERR_STATE},
    {"Job can not be altered now", ERR_TEMP},
    {"Unable to contact slurm controller", ERR_TEMP},
    {"Socket timed out", ERR_TEMP},
    {"Zero Bytes were transmitted", ERR_TEMP},
    {"Message receive failure", ERR_TEMP},
    {"Communication connection failure", ERR_TEMP},
    {"Communication shutdown failure", ERR_TEMP},
    {"Slurm backup controller in standby mode", ERR_TEMP},
    {"Slurm temporarily unable to accept job", ERR_TEMP},
    {"Resource is busy", ERR_TEMP},
    {"Rate limit exceeded", ERR_TEMP},
    {"Unexpected message received", ERR_TEMP},
    {"Message send failure", ERR_TEMP},
    {"Failed to send entire message", ERR_TEMP},
    {"Received zero length message", ERR_TEMP},
    {"Failed to connect to authentication agent", ERR_TEMP},
    {"Controller is in standby mode", ERR_TEMP},
    {"Unable to create job record, try again", ERR_TEMP},
    {"Requested nodes are busy", ERR_TEMP},
    {"I/O error writing script/environment to file", ERR_TEMP},
    {"Protocol authentication error", ERR_TEMP},
    {"Invalid authentication credential", ERR_TEMP},
    {"Unable to process configuration file", ERR_ENV},
    {"Could not establish a configuration source", ERR_ENV},
    {"Incompatible versions of client and server", ERR_ENV},
    {"Job dependency problem", ERR_INPUT},
    {"Requested node configuration is not available", ERR_LIMIT},
    {"More processors requested than permitted", ERR_LIMIT},
    {"Node count specification invalid", ERR_LIMIT},
    {"CPU count specification invalid", ERR_LIMIT},
    {"Memory required by task is not available", ERR_LIMIT},
    {"Requested time limit is invalid", ERR_LIMIT},
    {"violates accounting", ERR_LIMIT},
    {"Job exceeds the limits", ERR_LIMIT},
    {"nvalid partition", ERR_INPUT},
    {"nvalid account", ERR_INPUT},
    {"nvalid qos", ERR_INPUT},
    {"nvalid feature", ERR_INPUT},
    {"nvalid generic resource", ERR_INPUT},
    {"nvalid node name", ERR_INPUT},
    {"nvalid wckey", ERR_INPUT},
    {"Invalid directive", ERR_INPUT},
    {"unrecognized option", ERR_INPUT},
    {"Unable to open file", ERR_INPUT},
    {"Required partition not available", ERR_INPUT},
    {"No partition specified or system default partition", ERR_INPUT},
    {"not permitted to use this partition", ERR_INPUT},
    {"Access/permission denied", ERR_INPUT},
    {"Invalid user id", ERR_INPUT},
};

/* These errnos mean that the system gave no answer; slurm_strerror prints their strerror(3)
 * texts. */
static const int transport_errnos[] = {
    EAGAIN, EINTR, EIO, EPIPE, ENOMEM, ENOBUFS, EMFILE, ENFILE, ECONNREFUSED, ECONNRESET,
    ECONNABORTED, ENOTCONN, ESHUTDOWN, ETIMEDOUT, EHOSTDOWN, ENETDOWN, EHOSTUNREACH, ENETUNREACH,
    ENETRESET, EADDRINUSE, EADDRNOTAVAIL};

/* Finds the first line that is not empty, without a leading "sbatch: error: ". If it is one word,
 * the name of a limit, the next line follows it. */
static void sentence_of(const char *text, char *buf, size_t size)
{
    text += strspn(text, "\n");
    const char *end = text + strcspn(text, "\n"), *colon = strstr(text, "error: ");
    const char *line = colon && colon < end ? colon + 7 : text;
    int n = snprintf(buf, size, "%.*s", (int)(end - line), line);
    if (n > 0 && (size_t)n + 2 < size && !strchr(buf, ' ') && end[strspn(end, "\n")]) {
        memcpy(buf + n, ": ", 2);
        sentence_of(end, buf + n + 2, size - (size_t)n - 2);
    }
}

int slurm_text_error(const char *what, const char *stderr_text, struct err *err)
{
    char said[300];
    int code = ERR_CHILD;
    sentence_of(stderr_text, said, sizeof said);
    for (size_t i = 0; i < sizeof transport_errnos / sizeof transport_errnos[0]; i++)
        if (strstr(stderr_text, strerror(transport_errnos[i])))
            code = ERR_TEMP;
    for (size_t i = sizeof failures / sizeof failures[0]; i-- > 0;) /* backwards, so that the first
                                                                     * match is used */
        if (strstr(stderr_text, failures[i].words))
            code = failures[i].code;
    return err_set(err, said[0] ? code : ERR_TEMP, "%s: %s", what,
                   said[0] ? said : "it failed and said nothing");
}
