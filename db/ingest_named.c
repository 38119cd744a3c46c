/* This file makes an event of the end of an attempt that only a file's name tells (fold/named.h).
 * It has a writer of its own, and a number that is higher than any in a log, so that an end in a
 * log counts rather than it (fold/end.h). */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "db/ingest_priv.h"
#include "fold/named.h"

/* Writes the run whose logs lie in the folder; "": none was read there. */
static int run_find(struct store *db, const char *path, size_t folder, char run[LIMIT_NAME_BYTES],
                    struct err *err)
{
    static const char sql[] = "SELECT run FROM file WHERE run IS NOT NULL"
                              " AND substr(path, 1, ?2) = substr(?1, 1, ?2) LIMIT 1";
    struct store_query *q = NULL;
    int rc;
    if ((rc = store_ask(db, sql, &q, err)) < 0)
        return rc;
    store_bind_text(q, 1, path);
    store_bind_int(q, 2, (int64_t)folder);
    if ((rc = store_next(q, err)) >= 0)
        snprintf(run, LIMIT_NAME_BYTES, "%s", rc > 0 ? store_text(q, 0) : "");
    store_end(q);
    return rc < 0 ? rc : 0;
}

static void event_format(const struct fold_named *n, const char *run, struct str *out)
{
    struct json_out o;
    json_out_init(&o, out, 0);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "run", run);
    json_put_int(&o, "attempt", n->attempt);
    json_put_text(&o, "writer", "end-name");
    json_put_int(&o, "seq", (int64_t)(1e3 * n->at));
    json_put_text(&o, "ev", "attempt_ended");
    json_put_num(&o, "wall", n->at);
    json_put_num(&o, "mono", 0); /* of no clock that is known: the wall clock is believed */
    json_put_text(&o, "host", "unknown");
    json_put_text(&o, "boot", "unknown");
    json_put_text(&o, "cause", n->cause);
    json_put_int(&o, "exit_code", n->exit_code);
    json_put_int(&o, "signal", n->exit_signal);
    json_obj_end(&o);
}

int ingest_named_event(struct store *db, const char *path, struct str *text, struct err *err)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char run[LIMIT_NAME_BYTES];
    struct fold_named n;
    int rc;
    str_clear(text);
    if (!fold_named_parse(name, &n) || (n.end != NAMED_ENDED && n.end != NAMED_AGENT_DIED))
        return 0;
    if ((rc = run_find(db, path, (size_t)(name - path), run, err)) < 0)
        return rc;
    if (run[0])
        event_format(&n, run, text);
    return str_check(text, err);
}
