/* reel format: describes reel's files, settings and environment variables. The pages are printed
 * from the tables with which reel reads these. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "launcher/cmd/cmd.h"
#include "profiles/dataset.h"
#include "profiles/environment.h"
#include "profiles/format.h"

static const struct opt opts[] = {
    {"man", 0, OPT_BOOL, NULL, "the page in roff, for man"},
};
const struct opt_cmd cmd_format = {
    "format",
    "say what may stand in a file: run, plan, model, and where files lie",
    "[PAGE]", opts, ARRAY_LEN(opts), 0, 1,
    "PAGE is run, plan, model, device, cluster, stack, adapter or constants, which are files in "
    "JSON; "
    "dataset, config, environment or files. "
    "Without it the names are listed, with what they are.\n\n"
    "Reading is strict: a field that is not known, one that is given twice and a value outside its "
    "bounds are errors, which name the file and the field.",
};

#define SETTINGS_TEXT                                                                              \
    "A flag counts before a variable, that before the user's file (~/.config/reel/config, or "     \
    "below $XDG_CONFIG_HOME), and that before the site's (/etc/reel/config, or "                   \
    "REEL_SITE_CONFIG). 'reel config' lists the keys, with each value and where it comes from."

/* Holds the pages that describe no format of `profiles/`: a dataset, the settings, variables and
 * files. */
static const struct own_page {
    const char *name, *title, *text;
    int section;
    const struct opt_note *notes; /* NULL: the settings, or the records of a dataset's index */
} own_pages[] = {
    {"dataset", "a dataset: a folder of shards, with the index that the trainer reads",
     "'reel curate' makes it: shards in the form of WebDataset, the files that Megatron-Energon "
     "reads beside them (.nv-meta, *.tar.idx), and .reel/index, which alone tells the trainer what "
     "there is. The indexes of before an update stay as .reel/generations/FINGERPRINT.index.\n\n"
     "A sample of a shard is four files: latent.npy, float16 or float32 [channels, t, h, w]; "
     "text.npy, float32 [tokens, width]; txt, the caption; json, where the clip is from.\n\n"
     "The index is one file, little-endian, without padding: the header; a record for each shard; "
     "a record for each sample, shard by shard; the shards' paths, one after the other, not "
     "terminated; and the XXH3-128 of all before it, high half first, which is the dataset's "
     "fingerprint. A text has 128 bytes, padded with NUL. Behind a field's name stand its place in "
     "the record and its type.",
     5, NULL},
    {"config", "settings: what stands for options in files and in the environment",
     "Lines 'key = value', where # begins a comment. REEL_KEY in the environment stands for a key, "
     "with underscores for dashes.\n\n" SETTINGS_TEXT,
     5, NULL},
    {"environment", "variables that reel and reel-train heed",
     "A variable REEL_KEY stands for each key of reel-config(5) too. " SETTINGS_TEXT "\n\n"
     "The last ones are those of reel-train, which jobs take over from the shell that submits "
     "them.", 7,
     cmd_environment},
    {"files", "files and folders of reel",
     "REEL_HOME is a folder of the user: $XDG_STATE_HOME/reel, else ~/.local/state/reel. "
     "Checkpoints of runs lie there too. On Slurm it has to be one that login and compute nodes "
     "see.",
     7, cmd_files},
};

typedef void add_entry_fn(struct str *out, const char *name, const char *text);
typedef void add_head_fn(struct str *out, const char *name);

static void markdown_head(struct str *out, const char *name)
{
    bool empty = out->len >= 2 && strcmp(out->p + out->len - 2, "\n\n") == 0;
    str_addf(out, "%s### %s in dataset\n\n", empty ? "" : "\n", name);
}

static void man_head(struct str *out, const char *name)
{
    str_addf(out, ".SH %s\n", name);
}

static void markdown_entry(struct str *out, const char *name, const char *text)
{
    struct str line = STR_INIT;
    str_addf(&line, "- `%s`: %s", name, text);
    format_line(out, line.p ? line.p : "", 2);
    out->failed |= line.failed;
    str_release(&line);
}

static void man_entry(struct str *out, const char *name, const char *text)
{
    str_add(out, ".TP\n.B ");
    opt_roff(out, name);
    str_addc(out, '\n');
    opt_roff(out, text);
    str_addc(out, '\n');
}

/* Tells whether one of these n commands has the option `name`. */
static bool is_told(const struct opt_cmd *const *tables, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < tables[i]->n_opts; k++)
            if (strcmp(tables[i]->opts[k].name, name) == 0)
                return true;
    return false;
}

/* Adds the options that can be set in files, each once, with the help text of the last command that
 * has it. */
static void settings_add(struct str *out, add_entry_fn *add)
{
#define TABLE(name) &cmd_##name,
    static const struct opt_cmd *const tables[] = {CMD_LIST(TABLE)};
#undef TABLE
    for (size_t i = 0; i < ARRAY_LEN(tables); i++)
        for (size_t k = 0; k < tables[i]->n_opts; k++) {
            const struct opt *o = &tables[i]->opts[k];
            if (o->flags & OPT_SETTING &&
                !is_told(tables + i + 1, ARRAY_LEN(tables) - i - 1, o->name))
                add(out, o->name, o->help);
        }
}

/* Adds the fields of the index's records, each with its offset in the record. */
static void records_add(struct str *out, add_entry_fn *add, add_head_fn *head)
{
    static const char *const types[] = {"8 bytes", "text", "u32", "i32", "f32",
                                        "u64", "i64", "f64", "u32", "u64"};
    char text[256];
    for (size_t i = 0; i < DATASET_RECORDS; i++) {
        size_t at = 0;
        head(out, dataset_records[i].name);
        for (size_t k = 0; k < dataset_records[i].n; k++) {
            const struct dataset_field *f = &dataset_records[i].fields[k];
            snprintf(text, sizeof text, "at %zu, %s; %s", at, types[f->type], f->help);
            add(out, f->name, text);
            at += dataset_field_bytes(f->type);
        }
    }
}

static void entries_add(const struct own_page *page, struct str *out, add_entry_fn *add,
                        add_head_fn *head)
{
    if (strcmp(page->name, "dataset") == 0)
        records_add(out, add, head);
    else if (!page->notes)
        settings_add(out, add);
    for (const struct opt_note *note = page->notes; note && note->name; note++)
        add(out, note->name, note->text);
    bool both = page->notes == cmd_environment;
    for (const struct opt_note *note = train_environment; both && note->name; note++)
        add(out, note->name, note->text);
}

static void own_markdown(const struct own_page *page, struct str *out)
{
    str_addf(out, "## %s\n\n%s.\n\n", page->name, page->title);
    format_paragraphs(out, page->text);
    entries_add(page, out, markdown_entry, markdown_head);
}

/* Adds the sections that end a page of the manual. One page holds all the files, one all the
 * variables. */
static void man_end(const char *name, int section, struct str *out)
{
    bool files = strcmp(name, "files") == 0, variables = strcmp(name, "environment") == 0;
    char of[64];
    snprintf(of, sizeof of, "%s(%d)", name, section);
    opt_man_notes("FILES", files ? NULL : of, cmd_files, out);
    opt_man_notes("ENVIRONMENT", variables ? NULL : of, cmd_environment, out);
    for (const struct opt_note *note = train_environment; variables && note->name; note++)
        man_entry(out, note->name, note->text);
    str_add(out, ".SH SEE ALSO\n.BR reel (1)\n");
}

static void own_man(const struct own_page *page, struct str *out)
{
    char title[64], of[64];
    snprintf(title, sizeof title, "reel-%s", page->name);
    snprintf(of, sizeof of, "%s(%d)", page->name, page->section);
    opt_man_head(title, page->section, page->title, out);
    str_add(out, ".SH DESCRIPTION\n");
    opt_roff(out, page->text);
    str_addc(out, '\n');
    if (!page->notes)
        entries_add(page, out, man_entry, man_head);
    opt_man_notes("EXAMPLES", of, cmd_examples, out);
    man_end(page->name, page->section, out);
}

static void page_man(const struct format *f, struct str *out)
{
    format_man(f, out);
    man_end(f->name, 5, out);
}

void cmd_format_pages(struct str *out)
{
    for (size_t i = 0; formats[i]; i++)
        str_addf(out, "%s\t%s\n", formats[i]->name, formats[i]->title);
    for (size_t i = 0; i < ARRAY_LEN(own_pages); i++)
        str_addf(out, "%s\t%s\n", own_pages[i].name, own_pages[i].title);
}

static int page_add(const char *name, bool man, struct str *out, struct err *err)
{
    for (size_t i = 0; formats[i]; i++)
        if (strcmp(name, formats[i]->name) == 0)
            return (man ? page_man : format_markdown)(formats[i], out), 0;
    for (size_t i = 0; i < ARRAY_LEN(own_pages); i++)
        if (strcmp(name, own_pages[i].name) == 0)
            return (man ? own_man : own_markdown)(&own_pages[i], out), 0;
    return err_set(err, ERR_USAGE, "there is no page '%.64s': 'reel format' lists them", name);
}

int cmd_format_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    struct str out = STR_INIT;
    const char *const *names;
    int rc;
    (void)env;
    if (opt_operands(v, &names) == 0)
        cmd_format_pages(&out);
    else if ((rc = page_add(names[0], opt_bool(v, "man"), &out, err)) < 0)
        goto out;
    rc = cmd_print(&out, err);
out:
    str_release(&out);
    return rc;
}
