/* reel calibrate: fits the constants of predictions on tables of measurements and on reel's own
 * trials, or measures them on this machine. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/held_out.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/progress.h"
#include "launcher/cmd/calibrate_db.h"
#include "launcher/cmd/calibrate_probe.h"
#include "launcher/cmd/cmd.h"

static const struct opt opts[] = {
    {"constants", 0, OPT_TEXT, "FILE",
     "constants that count before, and stay where no row tells otherwise (default: none)"},
    {"output", 'o', OPT_TEXT, "FILE", "write the fitted constants there (default: print them)"},
    {"db", 0, OPT_BOOL, NULL, "fit on the trials of the database too"},
    {"probe", 0, OPT_TEXT, "MODEL",
     "measure this model's shapes here, and set the constants of --cluster's device by that"},
    {"cluster", 0, OPT_TEXT, "NAME|FILE", "with --probe: whose device this machine has"},
    {"seq", 0, OPT_TEXT, "TxHxW", "with --probe: tokens of a sample", .fallback = "1x16x16"},
    {"dtype", 0, OPT_ENUM, "NAME", "with --probe: of activations", .fallback = "f32",
     .choices = (const char *const[]){"bf16", "f32", NULL}},
    {"name", 0, OPT_TEXT, "NAME", "of the set, which plans will name", "calibrated"},
    {"no-held-out", 0, OPT_BOOL, NULL,
     "fit once, on all rows, and leave the held-out error unknown"},
    {"list", 0, OPT_BOOL, NULL, "say which constants there are, and fit none"},
};
const struct opt_cmd cmd_calibrate = {
    "calibrate",
    "fit the constants of predictions on tables of measurements",
    "[TABLE.csv...]", opts, ARRAY_LEN(opts), 0, -1,
    "TABLE is what 'reel score' reads. All constants that its rows depend on are fitted at once, "
    "each in its own scope: of a device, of a stack, of both or of neither. Time is learnt from "
    "measured steps; memory from published peaks, and from which rows fitted and which ran out. "
    "What the rows do not tell keeps its prior. With --db the trials of 'reel tune --cluster' are "
    "rows too: each knows its model, layout, stack and cluster. --probe measures this machine.\n\n"
    "The result is a file reel.constants/1 with its held-out error: models of as many layers of "
    "the same width are one size; each size, or each of four parts of more sizes, is predicted by "
    "a fit on the others, and the errors of all rows are told together. That takes once more as "
    "long as the fit for two sizes, and three times more for four or more; --no-held-out leaves it "
    "out. A file with one size of model, or with what --probe measured, has null there, and why. "
    "'reel score TABLE --constants FILE' says how good a set is on rows of your own.",
};

static void list_constants(struct str *out)
{
    static const char *const scopes[] = {"all", "device", "stack", "device and stack"};
    for (int i = 0; i < CONSTANTS; i++) {
        const struct constant_info *k = &constant_table[i];
        str_addf(out, "%-20s %-7s of %-17s %s\n", k->name, k->unit, scopes[k->scope], k->what);
    }
}

static int set_write(const struct constants *c, const char *path, struct err *err)
{
    struct str out = STR_INIT;
    char place[LIMIT_PATH_BYTES];
    int rc;
    constants_format(c, &out);
    if ((rc = str_check(&out, err)) == 0)
        rc = path ? file_publish(cmd_output_place(path, place), out.p, out.len, err)
                  : cmd_print(&out, err);
    str_release(&out);
    return rc;
}

/* Checks that no table is given twice. */
static int once_check(const char *const *paths, size_t n, struct err *err)
{
    for (size_t i = 1; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(paths[i], paths[k]) == 0)
                return err_set(err, ERR_USAGE,
                               "%s is given twice, and its rows would count twice: give it once",
                               paths[i]);
    return 0;
}

/* Reads the constants that count before. Rows of tables are of devices that have profiles; trials
 * and a probe also of those that a cluster's file describes, whatever their names. */
static int start_read(const struct opt_values *v, struct constants *c, struct err *err)
{
    const char *path = opt_text(v, "constants"), *name = opt_text(v, "name");
    int rc;
    if (path && (rc = constants_load(path, c, err)) < 0)
        return rc;
    if (path && !opt_bool(v, "db") && !opt_given(v, "probe"))
        cmd_constants_note(path, c, NULL);
    if (!*name)
        return err_set(err, ERR_USAGE, "--name has no letter: give a name");
    if (name[str_plain(name)])
        return err_set(err, ERR_USAGE, "--name has a control character: give a name without");
    if (snprintf(c->name, sizeof c->name, "%s", name) >= (int)sizeof c->name)
        return err_set(err, ERR_USAGE, "--name is longer than %zu bytes: give a shorter one",
                       sizeof c->name - 1);
    return 0;
}

static void say(const struct calibrate_report *r)
{
    fprintf(stderr, "fitted %lld constants on %lld times", (long long)r->constants,
            (long long)r->timed);
    if (isfinite(r->time_rms))
        fprintf(stderr, " (%.1f %% off, root mean square)", 100 * r->time_rms);
    fprintf(stderr, " and %lld rows of memory", (long long)r->fitted_memory);
    if (isfinite(r->memory_rms))
        fprintf(stderr, " (peaks %.1f %% off)", 100 * r->memory_rms);
    fprintf(stderr, "\n");
}

/* Measures this machine if --probe is given. A constant that is measured here replaces a fitted
 * one. */
static int probe(const struct opt_values *v, const struct cmd_env *env, struct constants *c,
                 struct err *err)
{
    struct calibrate_probe p = {.model = opt_text(v, "probe"), .cluster = opt_text(v, "cluster"),
                                .dtype = opt_enum(v, "dtype") == 1 ? DTYPE_F32 : DTYPE_BF16};
    struct err why;
    if (!p.model)
        return 0;
    if (!p.cluster)
        return err_set(err, ERR_USAGE,
                       "--probe measures shares of a device's peaks: give --cluster, which has "
                       "them");
    if (seq_parse(opt_text(v, "seq"), "--seq", &p.seq, &why) < 0)
        return err_set(err, ERR_USAGE, "%s", why.text);
    return calibrate_probe(env, &p, c, err);
}

static int tables_fit(const struct table *tables, size_t n, const char *source, struct constants *c,
                      struct calibrate_report *out, struct err *err)
{
    struct progress progress;
    progress_start(&progress, "calibrate", 0, false);
    return calibrate_tables(tables, n, source, &(struct told_rows){cmd_rows_tell, &progress}, c,
                            out, err);
}

/* Finds how far off such a fit is on rows that it has not seen, and says so. */
static int held_out_find(const struct table *tables, size_t n, const char *source,
                         const struct constants *start, struct constants *c, struct err *err)
{
    struct progress progress;
    struct str text = STR_INIT;
    double began = clock_mono_s();
    int rc;
    progress_start(&progress, "held out", 0, false);
    if ((rc = held_out_judge(tables, n, source, &(struct told_rows){cmd_rows_tell, &progress},
                             start, &c->held_out, err)) < 0)
        return rc;
    constants_seal(c);
    held_out_say(&c->held_out, NULL, &text);
    if ((rc = str_check(&text, err)) == 0)
        fprintf(stderr, "%s; found in %.2g s\n", text.p, clock_mono_s() - began);
    str_release(&text);
    return rc;
}

/* Fits on the rows of n tables, and judges the fit unless that is not asked for or means nothing:
 * the errors of a fit are not those of constants that a probe replaces. */
static int fit_and_judge(const struct opt_values *v, const struct table *tables, size_t n,
                         const char *source, struct constants *c, struct err *err)
{
    const char *because = opt_bool(v, "no-held-out") ? "--no-held-out was given"
                          : opt_given(v, "probe")    ? "a probe measured some of the constants"
                                                     : NULL;
    struct calibrate_report report;
    struct constants *start = malloc(sizeof *start);
    int rc;
    if (!start)
        return err_set(err, ERR_NOMEM, "out of memory for constants");
    *start = *c;
    if ((rc = tables_fit(tables, n, source, c, &report, err)) < 0)
        goto out;
    say(&report);
    c->held_out = (struct held_out){0};
    if (because)
        snprintf(c->held_out.because, sizeof c->held_out.because, "%s", because);
    else
        rc = held_out_find(tables, n, source, start, c, err);
out:
    free(start);
    return rc;
}

/* Refuses options that say what a probe measures if there is none. */
static int options_check(const struct opt_values *v, struct err *err)
{
    static const char *const probed[] = {"cluster", "seq", "dtype"};
    for (size_t i = 0; i < ARRAY_LEN(probed); i++)
        if (opt_given(v, probed[i]) && !opt_given(v, "probe"))
            return err_set(err, ERR_USAGE, "--%s is about what is measured here: give --probe too",
                           probed[i]);
    return 0;
}

static int fit(const struct opt_values *v, const struct cmd_env *env, const char *const *paths,
               struct table *tables, size_t n, struct constants *c, struct err *err)
{
    struct str source = STR_INIT;
    const char *output = opt_text(v, "output"), *from = opt_text(v, "constants");
    bool db = opt_bool(v, "db");
    int rc;
    if ((rc = cmd_spare("-o", output, paths, n, err)) < 0)
        return rc;
    if ((rc = cmd_spare("-o", output, &from, 1, err)) < 0)
        return rc;
    if ((rc = cmd_output_check("--output", output, err)) < 0)
        return rc;
    if ((rc = start_read(v, c, err)) < 0)
        return rc;
    if ((rc = once_check(paths, n, err)) < 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        const char *slash = strrchr(paths[i], '/');
        str_addf(&source, "%s%s", i ? ", " : "", slash ? slash + 1 : paths[i]);
        if ((rc = table_load(paths[i], &tables[i], err)) < 0)
            goto out;
        if ((rc = table_refused_check(&tables[i], err)) < 0)
            goto out;
        cmd_words_note(&tables[i]);
    }
    if (db)
        str_addf(&source, "%strials", n ? ", " : "");
    if (db && (rc = calibrate_db(env, &tables[n], err)) < 0)
        goto out;
    if ((rc = str_check(&source, err)) < 0)
        goto out;
    c->held_out = (struct held_out){.because = "nothing but a probe measured them"};
    if (n + db > 0 && (rc = fit_and_judge(v, tables, n + db, source.p, c, err)) < 0)
        goto out;
    if ((rc = probe(v, env, c, err)) < 0)
        goto out;
    rc = set_write(c, output, err);
out:
    str_release(&source);
    return rc;
}

int cmd_calibrate_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    const char *const *paths;
    size_t n = opt_operands(v, &paths);
    struct constants *c = calloc(1, sizeof *c);
    struct table *tables = calloc(n + 1, sizeof *tables);
    struct str list = STR_INIT;
    int rc;
    if (!c || !tables) {
        rc = err_set(err, ERR_NOMEM, "out of memory for %zu tables", n);
    } else if ((rc = options_check(v, err)) < 0) {
        goto out;
    } else if (opt_bool(v, "list")) {
        list_constants(&list);
        rc = cmd_print(&list, err);
    } else if (n == 0 && !opt_bool(v, "db") && !opt_given(v, "probe")) {
        rc = err_set(err, ERR_USAGE,
                     "no table to fit on: give TABLE.csv, --db, --probe, or --list");
    } else {
        rc = fit(v, env, paths, tables, n, c, err);
    }
out:
    for (size_t i = 0; tables && i <= n; i++)
        table_release(&tables[i]);
    free(tables);
    free(c);
    str_release(&list);
    return rc;
}
