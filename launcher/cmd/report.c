/* reel report: one run as one HTML file. */
#include <stdio.h>

#include "base/file.h"
#include "db/ingest.h"
#include "launcher/cmd/cmd.h"
#include "launcher/home.h"
#include "launcher/report.h"

static const struct opt opts[] = {
    CMD_OPT_JSON,
    CMD_OPT_DB,
    {"out", 'o', OPT_TEXT, "FILE", "where to write the page", .fallback = "report.html"},
};
const struct opt_cmd cmd_report = {
    "report", "write a run's report: MFU, loss, trials, where the time went", "RUN", opts, ARRAY_LEN(opts), 1, 1,
    "Reads what is new in the logs first. One HTML file without outside assets; with --json the headline numbers on standard output."};

static int numbers_print(const struct report_numbers *n, struct err *err)
{
    struct str text = STR_INIT;
    struct json_out o;
    json_out_init(&o, &text, 2);
    report_numbers_write(n, &o);
    str_addc(&text, '\n');
    int rc = cmd_print(&text, err);
    str_release(&text);
    return rc;
}

int cmd_report_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *const *operands, *const dirs[] = {env->home};
    struct store *db = NULL;
    struct report_numbers n;
    struct str page = STR_INIT;
    char id[ID_TEXT_BYTES];
    bool stale = false;
    opt_operands(v, &operands);
    int rc = home_run_find(env->home, operands[0], id, err);
    if (rc == 0)
        rc = ingest_open(env->db_path, dirs, 1, 5, &db, &stale, err);
    if (rc == 0 && stale)
        fprintf(stderr, "reel: another process fills the database: the report may lack the newest events\n");
    if (rc == 0)
        rc = report_numbers_read(db, id, &n, err);
    if (rc == 0)
        rc = report_html(db, &n, &page, err);
    if (rc == 0)
        rc = file_publish(opt_text(v, "out"), page.p, page.len, err);
    if (rc == 0)
        rc = opt_bool(v, "json") ? numbers_print(&n, err) : 0;
    if (rc == 0)
        fprintf(stderr, "report: %s\n", opt_text(v, "out"));
    store_close(db);
    str_release(&page);
    return rc;
}
