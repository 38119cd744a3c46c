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
    const char *key, *value, *origin;
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
                seen = strcmp(rows[j].key, o->name) == 0;
            if (seen || n == max)
                continue;
            struct setting_row row = {o->name, o->fallback, "default"};
            const char *origin, *value = settings_get(env->settings, o->name, &origin);
            if (value)
                row = (struct setting_row){o->name, value, origin};
            rows[n++] = row;
        }
    return n;
}

int cmd_config_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    struct setting_row rows[256];
    const char *const *operands;
    size_t n_operands = opt_operands(v, &operands), n = rows_collect(env, rows, ARRAY_LEN(rows)),
           shown = 0;
    bool json = opt_bool(v, "json");
    struct str text = STR_INIT;
    struct json_out out;

    json_out_init(&out, &text, 2);
    if (json) {
        json_obj_begin(&out, NULL);
        json_put_text(&out, "schema", "reel.config/1");
        json_obj_begin(&out, "settings");
    }
    for (size_t i = 0; i < n; i++) {
        if (n_operands && strcmp(rows[i].key, operands[0]) != 0)
            continue;
        shown++;
        if (json) {
            json_obj_begin(&out, rows[i].key);
            json_put_text(&out, "value", rows[i].value);
            json_put_text(&out, "origin", rows[i].origin);
            json_obj_end(&out);
        } else {
            str_addf(&text, "%-18s = %-24s  (%s)\n", rows[i].key,
                     rows[i].value ? rows[i].value : "", rows[i].origin);
        }
    }
    if (json) {
        json_obj_end(&out);
        json_obj_end(&out);
        str_addc(&text, '\n');
    }
    int rc = n_operands && !shown
                 ? err_set(err, ERR_USAGE, "'%s' is not a setting: 'reel config' lists them all",
                           operands[0])
                 : cmd_print(&text, err);
    str_release(&text);
    return rc;
}
