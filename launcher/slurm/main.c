/* reel-slurm: talks to a Slurm controller on behalf of reel, which does not link libslurm, and
 * prints the answers as lines of JSON (launcher/sched/slurm_wire.h).
 *
 * stderr is redirected to a file in memory, because libslurm prints messages there, and ends the
 * process if it finds no configuration. The last line of that file is then the error of the reply
 * that reel waits for. A request that takes longer than the deadline ends the process by SIGALRM.
 */
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/json.h"
#include "base/program.h"
#include "launcher/sched/slurm_wire.h"
#include "launcher/slurm/api.h"

static const struct opt opts[] = {
    {"deadline", 0, OPT_SECONDS, "TIME", "longest time a request may take", .fallback = "50s",
     .min = 1, .max = 86400},
};
static const struct opt_cmd command = {
    "reel-slurm",
    "ask Slurm's controller for reel",
    "", opts, ARRAY_LEN(opts), 0, 0,
    "Started by reel where it finds this program beside itself; REEL_SLURM_VIA=commands does "
    "without. Reads requests as lines of JSON from standard input and answers each with one line, "
    "until end of file."};

/* ---- libslurm's messages ---- */

static bool owed; /* reel waits for a reply */

static void stderr_take(void)
{
    int fd = memfd_create("reel-slurm", MFD_CLOEXEC);
    if (fd >= 0 && dup2(fd, STDERR_FILENO) >= 0)
        close(fd);
}

static void stderr_forget(void)
{
    if (ftruncate(STDERR_FILENO, 0) == 0)
        lseek(STDERR_FILENO, 0, SEEK_SET);
}

/* Reads the last line that libslurm printed, without "reel-slurm: error: " in front. */
static void stderr_last(char *buf, size_t size)
{
    off_t end = lseek(STDERR_FILENO, 0, SEEK_END), room = (off_t)size - 1;
    ssize_t n = pread(STDERR_FILENO, buf, size - 1, end > room ? end - room : 0);
    while (n > 0 && buf[n - 1] == '\n')
        n--;
    buf[n > 0 ? n : 0] = '\0';
    char *line = strrchr(buf, '\n'), *mark;
    line = line ? line + 1 : buf;
    if ((mark = strstr(line, "error: ")) || (mark = strstr(line, "fatal: ")))
        line = mark + strlen("error: ");
    memmove(buf, line, strlen(line) + 1);
}

/* ---- replies ---- */

static void reply(struct str *text)
{
    str_addc(text, '\n');
    owed = false;
    fwrite(text->p, 1, text->len, stdout);
    fflush(stdout);
}

static void reply_error(int code, const char *said)
{
    struct str text = STR_INIT;
    struct json_out o;
    json_out_init(&o, &text, 0);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "error", err_name(code));
    json_put_text(&o, "text", said);
    json_obj_end(&o);
    reply(&text);
    str_release(&text);
}

/* Is the code of the error reply if libslurm ends the process; ERR_TEMP after the greeting */
static int unclear = ERR_ENV;

static void last_words(void)
{
    char said[512];
    if (!owed)
        return;
    stderr_last(said, sizeof said);
    reply_error(unclear, said[0] ? said : "libslurm ended reel-slurm");
    _exit(err_exit_code(unclear));
}

static void hello(void)
{
    struct str text = STR_INIT;
    struct json_out o;
    json_out_init(&o, &text, 0);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", SLURM_WIRE_SCHEMA);
    json_put_text(&o, "slurm", api_release());
    json_obj_end(&o);
    reply(&text);
    str_release(&text);
}

/* ---- requests: each is read in full before Slurm is asked ---- */

typedef int request_fn(const struct json_doc *request, struct arena *arena, struct json_out *o,
                       struct err *err);

static int do_site(const struct json_doc *request, struct arena *arena, struct json_out *o,
                   struct err *err)
{
    struct slurm_site site;
    (void)request;
    int rc = api_site(arena, &site, err);
    if (rc < 0)
        return rc;
    json_obj_begin(o, "site");
    slurm_wire_site_write(&site, o);
    json_obj_end(o);
    return 0;
}

static int do_net(const struct json_doc *request, struct arena *arena, struct json_out *o,
                  struct err *err)
{
    struct slurm_net net;
    int rc = api_net(cJSON_IsTrue(json_member(request->root, "nodes")), arena, &net, err);
    if (rc < 0)
        return rc;
    json_obj_begin(o, "net");
    slurm_wire_net_write(&net, o);
    json_obj_end(o);
    return 0;
}

static int do_jobs(const struct json_doc *request, struct arena *arena, struct json_out *o,
                   struct err *err)
{
    struct slurm_jobs jobs;
    int rc = api_jobs(json_text(request->root, "id", NULL), arena, &jobs, err);
    if (rc < 0)
        return rc;
    json_arr_begin(o, "jobs");
    for (size_t i = 0; i < jobs.n; i++)
        slurm_wire_job_write(&jobs.v[i], o);
    json_arr_end(o);
    return 0;
}

static int do_act(const struct json_doc *request, struct arena *arena, struct json_out *o,
                  struct err *err)
{
    const char *op = json_text(request->root, "op", ""), *id = json_text(request->root, "id", NULL);
    const char *comment = json_text(request->root, "comment", NULL);
    int64_t signo = json_int(request->root, "signal", 0);
    (void)arena;
    (void)o;
    if (!id)
        return err_set(err, ERR_INPUT, "request: there is no text 'id'");
    if (strcmp(op, "requeue") == 0)
        return api_requeue(id, err);
    if (strcmp(op, "cancel") == 0)
        return api_cancel(id, err);
    if (strcmp(op, "comment") == 0)
        return comment ? api_comment(id, comment, err)
                       : err_set(err, ERR_INPUT, "request: there is no text 'comment'");
    if (signo < 1 || signo > SIGRTMAX)
        return err_set(err, ERR_INPUT, "request: 'signal' is %lld: give 1 to %d", (long long)signo,
                       SIGRTMAX);
    return api_signal(id, (int)signo, cJSON_IsTrue(json_member(request->root, "all")), err);
}

struct numbers {
    int64_t nice, nodes, cores, gpus, minutes, signal, lead_s;
    bool requeue, outlives_nodes, test_only;
};
#define NUMBER(key, member, low, high) \
    {key, JSON_INT, offsetof(struct numbers, member), .min = (low), .max = (high)}
static const struct json_field submit_fields[] = {
    NUMBER("nice", nice, -2147483645, 2147483645),
    NUMBER("nodes", nodes, 1, 1 << 20),
    NUMBER("cores_per_node", cores, 0, UINT16_MAX - 2),
    NUMBER("gpus_per_node", gpus, 0, UINT16_MAX),
    NUMBER("time_limit_min", minutes, 0, 1 << 30),
    NUMBER("signal", signal, 0, 127),
    NUMBER("signal_lead_s", lead_s, 0, UINT16_MAX),
    {"requeue", JSON_BOOL, offsetof(struct numbers, requeue)},
    {"outlives_nodes", JSON_BOOL, offsetof(struct numbers, outlives_nodes), .optional = true},
    {"test_only", JSON_BOOL, offsetof(struct numbers, test_only), .optional = true},
    {"op", JSON_ANY},
    {"name", JSON_ANY},
    {"comment", JSON_ANY},
    {"cwd", JSON_ANY},
    {"log", JSON_ANY},
    {"script", JSON_ANY},
    {"env", JSON_ANY},
    {"partition", JSON_ANY, .optional = true},
    {"account", JSON_ANY, .optional = true},
    {"qos", JSON_ANY, .optional = true},
    {"exclude", JSON_ANY, .optional = true},
    {"after", JSON_ANY, .optional = true},
};

/* Reads a mandatory text, and restores its escaped bytes. */
static int bytes_read(const cJSON *v, const char *key, const char **out, struct err *err)
{
    if (!cJSON_IsString(v))
        return err_set(err, ERR_INPUT, "request: '%s' is no text", key);
    slurm_wire_unescape(v->valuestring);
    *out = v->valuestring;
    return 0;
}

/* Reads the environment. An empty one is refused, because Slurm refuses it too. */
static int env_read(const cJSON *list, struct arena *arena, const char *const **out,
                    struct err *err)
{
    const cJSON *v;
    size_t n = 0;
    int rc;
    if (cJSON_GetArraySize(list) < 1)
        return err_set(err, ERR_INPUT, "request: 'env' has no variable");
    const char **env = arena_array(arena, (size_t)cJSON_GetArraySize(list) + 1, sizeof *env);
    if (!env)
        return err_set(err, ERR_NOMEM, "out of memory");
    cJSON_ArrayForEach(v, list)
        if ((rc = bytes_read(v, "env", &env[n++], err)) < 0)
            return rc;
    *out = env;
    return 0;
}

static int do_submit(const struct json_doc *request, struct arena *arena, struct json_out *o,
                     struct err *err)
{
    const cJSON *root = request->root;
    struct numbers n = {0};
    struct sched_spec spec = SCHED_SPEC_INIT;
    struct slurm_submit what = {.spec = &spec, .comment = json_text(root, "comment", NULL)};
    char id[SCHED_ID_BYTES];
    int rc = json_read(request, root, "", submit_fields, ARRAY_LEN(submit_fields), NULL, &n, err);
    if (rc < 0 || (rc = bytes_read(json_member(root, "cwd"), "cwd", &spec.cwd, err)) < 0 ||
        (rc = bytes_read(json_member(root, "log"), "log", &spec.log_path, err)) < 0 ||
        (rc = bytes_read(json_member(root, "script"), "script", &what.script, err)) < 0 ||
        (rc = env_read(json_member(root, "env"), arena, &what.env, err)) < 0)
        return rc;
    spec.name = json_text(root, "name", NULL);
    spec.partition = json_text(root, "partition", NULL);
    spec.account = json_text(root, "account", NULL);
    spec.qos = json_text(root, "qos", NULL);
    spec.exclude = json_text(root, "exclude", NULL);
    spec.after = json_text(root, "after", NULL);
    spec.nodes = (int)n.nodes;
    spec.cores_per_node = (int)n.cores;
    spec.gpus_per_node = (int)n.gpus;
    spec.time_limit_s = (double)n.minutes * 60;
    spec.requeue = n.requeue;
    spec.outlives_nodes = n.outlives_nodes;
    spec.signal = (int)n.signal;
    spec.signal_lead_s = (double)n.lead_s;
    what.nice = (int)n.nice;
    what.test_only = n.test_only;
    if (!spec.name || !what.comment)
        return err_set(err, ERR_INPUT, "request: 'name' or 'comment' is no text");
    if ((rc = api_submit(&what, id, err)) < 0)
        return rc;
    json_put_text(o, "id", what.test_only ? "" : id);
    return 0;
}

static int dispatch(const struct json_doc *request, struct arena *arena, struct json_out *o,
                    struct err *err)
{
    static const struct {
        const char *op;
        request_fn *run;
    } ops[] = {{"site", do_site},  {"net", do_net},     {"jobs", do_jobs}, {"submit", do_submit},
               {"signal", do_act}, {"requeue", do_act}, {"cancel", do_act}, {"comment", do_act}};
    const char *op = json_text(request->root, "op", "");
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        if (strcmp(ops[i].op, op) == 0)
            return ops[i].run(request, arena, o, err);
    return err_set(err, ERR_INPUT,
                   "request: op is '%s': give site, net, jobs, submit, signal, requeue, cancel or "
                   "comment",
                   op);
}

/* Writes the reply to a request. */
static int answer(const char *line, size_t n, struct str *text, struct err *err)
{
    struct arena arena;
    struct json_doc request = {0};
    struct json_out o;
    int rc;
    arena_init(&arena, 0);
    json_out_init(&o, text, 0);
    json_obj_begin(&o, NULL);
    if ((rc = json_parse(line, n, "request", &request, err)) < 0)
        goto out;
    if ((rc = dispatch(&request, &arena, &o, err)) < 0)
        goto out;
    json_obj_end(&o);
    rc = str_check(text, err);
out:
    json_release(&request);
    arena_release(&arena);
    return rc;
}

static void serve(const char *line, size_t n)
{
    struct str text = STR_INIT;
    struct err err = {0};
    int rc;
    if ((rc = answer(line, n, &text, &err)) < 0)
        reply_error(rc, err.text);
    else
        reply(&text);
    str_release(&text);
}

/* ---- the program ---- */

static int run(unsigned deadline_s)
{
    struct err err = {0};
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    owed = true;
    alarm(deadline_s);
    int rc = api_open(&err);
    alarm(0);
    if (rc < 0) {
        reply_error(rc, err.text);
        return rc;
    }
    hello();
    unclear = ERR_TEMP;
    while ((n = getline(&line, &room, stdin)) > 0) {
        stderr_forget();
        owed = true;
        alarm(deadline_s);
        serve(line, (size_t)n - (line[n - 1] == '\n'));
        alarm(0);
    }
    free(line);
    return 0;
}

static const struct opt_note examples[] = {
    {"echo '{\"op\": \"site\"}' | reel-slurm", "what the controller says of the site", NULL},
    {NULL, NULL, NULL},
};
static const struct opt_note files[] = {
    {"slurm.conf", "Slurm's configuration, where SLURM_CONF or the cluster says", NULL},
    {NULL, NULL, NULL},
};
static const struct opt_note environment[] = {
    {"SLURM_CONF", "path of slurm.conf, where it does not lie where libslurm expects it", NULL},
    {NULL, NULL, NULL},
};
static void about(struct str *out)
{
    str_addf(out, "Slurm: %s\n", api_release());
}

static int command_run(const struct program_call *call, struct err *err)
{
    (void)err;
    setenv("SLURM_TIME_FORMAT", "%s", 1); /* libslurm then prints times as Unix seconds */
    signal(SIGALRM, SIG_DFL);
    /* In a job these signals come to this process too, while its agent still needs it. So it
     * ignores them, and ends at the end of its input. */
    for (const int *s = (const int[]){SIGTERM, SIGINT, SIGHUP, SIGUSR1, 0}; *s; s++)
        signal(*s, SIG_IGN);
    stderr_take();
    atexit(last_words);
    return run((unsigned)opt_num(call->values, "deadline"));
}

static const struct program program = {
    .page = {.program = "reel-slurm",
             .examples = examples,
             .files = files,
             .environment = environment},
    .summary = "ask Slurm's controller for reel",
    .alone = &command,
    .run = command_run,
    .about = about,
};

int main(int argc, char **argv)
{
    return program_main(&program, &build, argc, argv);
}
