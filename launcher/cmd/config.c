/* reel config: shows the effective value of every setting and where it comes from. */
#include <string.h>

#include "base/json.h"
#include "launcher/cmd/cmd.h"

static const struct opt opts[] = {
    CMD_OPT_JSON,
};
const struct opt_cmd cmd_config = {
    "config",
    "show the effective settings and where each comes from",
    "[KEY]", opts, ARRAY_LEN(opts), 0, 1,
    "Order, strongest first: flag, run file, environment (REEL_KEY), user file, site file, "
    "default. Flags and run files belong to one call, so this shows the layers from the "
    "environment down.",
};

struct setting_row {
    const struct opt *o;
    const char *value, *origin;
};

/* Collects the settings: those options of all tables that are marked OPT_SETTING, each once, with
 * value and origin. */
static size_t rows_collect(const struct cmd_env *env, struct setting_row *rows, size_t max)
{
#define CMD_TABLE(name) &cmd_##name,
    const struct opt_cmd *const tables[] = {CMD_LIST(CMD_TABLE)};
    size_t n = 0;
    for (size_t t = 0; t < ARRAY_LEN(tables); t++)
        for (size_t k = 0; k < tables[t]->n_opts; k++) {
            const struct opt *o = &tables[t]->opts[k];
            bool seen = !(o->flags & OPT_SETTING);
            for (size_t j = 0; j < n && !seen; j++)
                seen = strcmp(rows[j].o->name, o->name) == 0;
            if (seen || n == max)
                continue;
            struct setting_row row = {o, o->fallback, "default"};
            const char *origin, *value = settings_get(env->settings, o->name, &origin);
            if (value)
                row = (struct setting_row){o, value, origin};
            rows[n++] = row;
        }
    return n;
}

/* Keeps only the row of the setting `name`. ERR_USAGE: there is no such setting. */
static int rows_pick(struct setting_row *rows, size_t *n, const char *name, struct err *err)
{
    for (size_t i = 0; i < *n; i++)
        if (strcmp(rows[i].o->name, name) == 0) {
            rows[0] = rows[i];
            *n = 1;
            return 0;
        }
    return err_set(err, ERR_USAGE, "'%s' is not a setting: 'reel config' lists them all", name);
}

static void rows_json(const struct setting_row *rows, size_t n, struct str *text)
{
    struct json_out out;
    json_out_init(&out, text, 2);
    json_obj_begin(&out, NULL);
    json_put_text(&out, "schema", "reel.config/1");
    json_obj_begin(&out, "settings");
    for (size_t i = 0; i < n; i++) {
        json_obj_begin(&out, rows[i].o->name);
        json_put_text(&out, "value", rows[i].value);
        json_put_text(&out, "origin", rows[i].origin);
        json_obj_end(&out);
    }
    json_obj_end(&out);
    json_obj_end(&out);
    str_addc(text, '\n');
}

int cmd_config_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    struct setting_row rows[256];
    const char *const *operands;
    size_t n = rows_collect(env, rows, ARRAY_LEN(rows));
    struct str text = STR_INIT;
    int rc;
    if (opt_operands(v, &operands) && (rc = rows_pick(rows, &n, operands[0], err)) < 0)
        return rc;
    for (size_t i = 0; i < n; i++)
        if (rows[i].value &&
            (rc = opt_setting_check(rows[i].o, rows[i].value, rows[i].origin, err)) < 0)
            return rc;
    if (opt_bool(v, "json"))
        rows_json(rows, n, &text);
    for (size_t i = 0; i < n && !opt_bool(v, "json"); i++)
        str_addf(&text, "%-18s = %-24s  (%s)\n", rows[i].o->name,
                 rows[i].value ? rows[i].value : "", rows[i].origin);
    rc = cmd_print(&text, err);
    str_release(&text);
    return rc;
}
