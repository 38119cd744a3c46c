/* opt_help: prints an option table as --help, man page and completion. */
#include <ctype.h>
#include <string.h>

#include "base/json.h"
#include "base/opt.h"

enum { LINE_CELLS = 80, HELP_CELL = 26 };

/* Returns the number of terminal cells that UTF-8 text takes, counting one cell for each character
 * (an approximation). */
static size_t cells(const char *text, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        k += ((unsigned char)text[i] & 0xc0) != 0x80;
    return k;
}

static void pad(struct str *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        str_addc(out, ' ');
}

/* Appends n bytes of text, wrapped to lines of at most 80 cells. The cursor is at cell `at`, and
 * further lines are indented by `indent`. */
static void wrap(struct str *out, const char *text, size_t n, size_t at, size_t indent)
{
    const char *end = text + n;
    for (bool first = true; text < end; first = false) {
        text += strspn(text, " \n");
        const char *stop = text + strcspn(text, " \n");
        if (stop > end)
            stop = end;
        if (text >= stop)
            break;
        size_t width = cells(text, (size_t)(stop - text));
        if (!first && at + 1 + width > LINE_CELLS) {
            str_addc(out, '\n');
            pad(out, indent);
            at = indent;
        } else if (!first) {
            str_addc(out, ' ');
            at++;
        }
        str_addn(out, text, (size_t)(stop - text));
        at += width;
        text = stop;
    }
    str_addc(out, '\n');
}

/* Adds paragraphs, which empty lines separate. A paragraph that begins with a space is an example
 * and is not wrapped. */
static void add_paragraphs(struct str *out, const char *text)
{
    while (*text != '\0') {
        const char *end = strstr(text, "\n\n");
        size_t n = end != NULL ? (size_t)(end - text) : strlen(text);
        if (*text == ' ') {
            str_addn(out, text, n);
            str_addc(out, '\n');
        } else {
            wrap(out, text, n, 0, 0);
        }
        str_addc(out, '\n');
        text += n;
        text += strspn(text, "\n");
    }
}

/* Adds the separator before a note in the brackets after the help clause, and counts the note in
 * *n. */
static void begin_note(struct str *s, int *n)
{
    str_add(s, (*n)++ == 0 ? " (" : "; ");
}

static void add_note(struct str *s, int *n, const char *text)
{
    begin_note(s, n);
    str_add(s, text);
}

static void add_choices(struct str *s, const char *const *choices)
{
    str_add(s, "one of ");
    for (size_t i = 0; choices[i] != NULL; i++)
        str_addf(s, "%s%s", i == 0 ? "" : ", ", choices[i]);
}

/* Adds the help clause and, in brackets, its choices, bounds and default, and whether the option is
 * required or a setting. */
static void add_help_text(struct str *s, const struct opt *o)
{
    char low[JSON_NUM_BYTES], high[JSON_NUM_BYTES];
    int n = 0;
    str_add(s, o->help);
    if (o->type == OPT_ENUM) {
        begin_note(s, &n);
        add_choices(s, o->choices);
    }
    if (o->max > o->min) {
        begin_note(s, &n);
        str_addf(s, "from %s to %s", json_format_num(o->min, low), json_format_num(o->max, high));
    }
    if (o->fallback != NULL) {
        begin_note(s, &n);
        str_addf(s, "default %s", o->fallback);
    }
    if (o->flags & OPT_REQUIRED)
        add_note(s, &n, "required");
    if (o->flags & OPT_SETTING)
        add_note(s, &n, "setting");
    if (n > 0)
        str_addc(s, ')');
}

static void add_option(struct str *out, char letter, const char *name, const char *arg,
                       const char *help)
{
    size_t start = out->len;
    if (letter != '\0')
        str_addf(out, "  -%c, ", letter);
    else
        pad(out, 6);
    str_addf(out, "--%s%s%s", name, arg != NULL ? "=" : "", arg != NULL ? arg : "");
    size_t width = cells(out->p + start, out->len - start);
    if (width + 2 > HELP_CELL) {
        str_addc(out, '\n');
        width = 0;
    }
    pad(out, HELP_CELL - width);
    wrap(out, help, strlen(help), HELP_CELL, HELP_CELL);
}

typedef void add_option_fn(struct str *out, char letter, const char *name, const char *arg,
                           const char *help);

/* Calls `add` for every option that is not hidden. */
static void add_all(const struct opt_cmd *cmd, struct str *out, add_option_fn *add)
{
    for (size_t i = 0; i < cmd->n_opts; i++) {
        const struct opt *o = &cmd->opts[i];
        if (o->flags & OPT_HIDDEN)
            continue;
        struct str help = STR_INIT;
        add_help_text(&help, o);
        add(out, o->letter, o->name, o->arg, help.p);
        out->failed |= help.failed;
        str_release(&help);
    }
}

static bool has(const struct opt_cmd *cmd, bool (*test)(const struct opt *))
{
    for (size_t i = 0; i < cmd->n_opts; i++)
        if (!(cmd->opts[i].flags & OPT_HIDDEN) && test(&cmd->opts[i]))
            return true;
    return false;
}

static bool is_setting(const struct opt *o)
{
    return (o->flags & OPT_SETTING) != 0;
}

static bool is_bool(const struct opt *o)
{
    return o->type == OPT_BOOL;
}

static bool is_h(const struct opt *o)
{
    return o->letter == 'h';
}

static const char no_form_note[] = "Every option without a value has a --no-NAME form.";
static const char setting_note[] =
    "An option marked 'setting' is also read from REEL_NAME in the environment and from the run "
    "file, the user's and the site's config; `reel config` shows where each value comes from.";

static const char exit_note[] =
    "0 done or yes, 1 no, 2 usage, 3 invalid input, 4 environment missing, 5 operation failed, "
    "75 temporary, 128+n a child died of signal n.";

static void add_synopsis(const struct opt_cmd *cmd, const char *program, struct str *out)
{
    str_addf(out, "%s%s%s [OPTION...]%s%s\n", program ? program : "", program ? " " : "", cmd->name,
             cmd->operands[0] != '\0' ? " " : "", cmd->operands);
}

void opt_help(const struct opt_cmd *cmd, const char *program, struct str *out)
{
    str_add(out, "Usage: ");
    add_synopsis(cmd, program, out);
    str_addc(out, '\n');
    add_paragraphs(out, cmd->summary);
    if (cmd->description != NULL)
        add_paragraphs(out, cmd->description);
    str_add(out, "Options:\n");
    add_all(cmd, out, add_option);
    add_option(out, has(cmd, is_h) ? '\0' : 'h', "help", NULL, "show this help");
    if (has(cmd, is_bool) || has(cmd, is_setting))
        str_addc(out, '\n');
    if (has(cmd, is_bool))
        wrap(out, no_form_note, sizeof no_form_note - 1, 0, 0);
    if (has(cmd, is_setting))
        wrap(out, setting_note, sizeof setting_note - 1, 0, 0);
}

/* Tells whether a note applies to this command or page; NULL stands for the whole program. */
static bool concerns(const struct opt_note *note, const char *of)
{
    size_t n = of != NULL ? strlen(of) : 0;
    for (const char *at = note->of; of != NULL && at != NULL && *at != '\0';
         at += strspn(at, " ")) {
        size_t width = strcspn(at, " ");
        if (width == n && strncmp(at, of, n) == 0)
            return true;
        at += width;
    }
    return of == NULL || note->of == NULL;
}

void opt_help_examples(const struct opt_cmd *cmd, const struct opt_page *page, struct str *out)
{
    bool first = true;
    for (const struct opt_note *note = page->examples; note != NULL && note->name != NULL; note++) {
        if (!concerns(note, cmd->name))
            continue;
        str_addf(out, "%s  %s\n", first ? "\nExamples:\n" : "", note->name);
        pad(out, 6);
        wrap(out, note->text, strlen(note->text), 6, 6);
        first = false;
    }
}

void opt_help_end(const struct opt_page *page, struct str *out)
{
    const char *status = page->exit_status != NULL ? page->exit_status : exit_note;
    str_add(out, "Exit status: ");
    wrap(out, status, strlen(status), 13, 0);
    str_add(out, "\nenvironment:\n");
    for (const struct opt_note *note = page->environment; note != NULL && note->name != NULL;
         note++) {
        size_t width = cells(note->name, strlen(note->name)) + 2;
        str_addf(out, "  %s", note->name);
        if (width + 2 > HELP_CELL)
            str_addc(out, '\n');
        pad(out, width + 2 > HELP_CELL ? HELP_CELL : HELP_CELL - width);
        wrap(out, note->text, strlen(note->text), HELP_CELL, HELP_CELL);
    }
}

/* ---- roff: man(7) ---- */

/* Adds text with roff's special characters escaped: a backslash would start an escape, a '-' would
 * be printed as a hyphen, and a '.' or quote at the start of a line would be a request. */
void opt_roff(struct str *out, const char *text)
{
    if (*text == '.' || *text == '\'')
        str_add(out, "\\&");
    for (; *text != '\0'; text++) {
        if (*text == '\\')
            str_add(out, "\\e");
        else if (*text == '-')
            str_add(out, "\\-");
        else
            str_addc(out, *text);
        if (*text == '\n' && (text[1] == '.' || text[1] == '\''))
            str_add(out, "\\&");
    }
}

static void add_man_option(struct str *out, char letter, const char *name, const char *arg,
                           const char *help)
{
    str_add(out, ".TP\n");
    if (letter != '\0')
        str_addf(out, "\\fB\\-%c\\fR, ", letter);
    str_add(out, "\\fB\\-\\-");
    opt_roff(out, name);
    str_add(out, "\\fR");
    if (arg != NULL) {
        str_add(out, "=\\fI");
        opt_roff(out, arg);
        str_add(out, "\\fR");
    }
    str_addc(out, '\n');
    opt_roff(out, help);
    str_addc(out, '\n');
}

static void add_man_paragraph(struct str *out, const char *text)
{
    str_add(out, ".PP\n");
    opt_roff(out, text);
    str_addc(out, '\n');
}

void opt_man_head(const char *title, int section, const char *summary, struct str *out)
{
    str_add(out, ".TH \"");
    for (const char *c = title; *c != '\0'; c++)
        str_addc(out, (char)toupper((unsigned char)*c));
    str_addf(out, "\" %d \"\" \"reel\"\n.SH NAME\n", section);
    opt_roff(out, title);
    str_add(out, " \\- ");
    opt_roff(out, summary);
    str_add(out, section == 1 ? "\n.SH SYNOPSIS\n" : "\n");
}

static void add_man_note(struct str *out, const char *name, const char *text)
{
    str_add(out, ".TP\n.B ");
    opt_roff(out, name);
    str_addc(out, '\n');
    opt_roff(out, text);
    str_addc(out, '\n');
}

/* Adds the notes that apply to `of` (NULL: all notes). */
static void add_man_notes(const char *of, const struct opt_note *notes, struct str *out)
{
    for (const struct opt_note *note = notes; note != NULL && note->name != NULL; note++)
        if (concerns(note, of))
            add_man_note(out, note->name, note->text);
}

static void add_man_section(const char *heading, const struct str *content, struct str *out)
{
    str_addf(out, ".SH %s\n%s", heading, content->len > 0 ? content->p : "None.\n");
    out->failed |= content->failed;
}

void opt_man_notes(const char *heading, const char *of, const struct opt_note *notes,
                   struct str *out)
{
    struct str content = STR_INIT;
    add_man_notes(of, notes, &content);
    add_man_section(heading, &content, out);
    str_release(&content);
}

/* Adds the environment variables that set options: REEL_MIN_GAIN sets --min-gain. */
static void add_man_settings(const struct opt_cmd *cmd, struct str *out)
{
    for (size_t i = 0; i < cmd->n_opts; i++) {
        const struct opt *o = &cmd->opts[i];
        struct str name = STR_INIT, text = STR_INIT;
        str_addf(&name, "REEL_%s", o->name);
        for (char *c = name.p; c != NULL && *c != '\0'; c++)
            *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
        str_addf(&text, "stands in for --%s", o->name);
        if (is_setting(o) && !(o->flags & OPT_HIDDEN))
            add_man_note(out, name.p, text.p);
        out->failed |= name.failed || text.failed;
        str_release(&name);
        str_release(&text);
    }
}

void opt_man_end(const struct opt_cmd *cmd, const struct opt_page *page, struct str *out)
{
    const char *of = cmd != NULL ? cmd->name : NULL;
    struct str variables = STR_INIT;
    opt_man_notes("EXAMPLES", of, page->examples, out);
    opt_man_notes("FILES", of, page->files, out);
    add_man_notes(of, page->environment, &variables);
    if (cmd != NULL)
        add_man_settings(cmd, &variables);
    add_man_section("ENVIRONMENT", &variables, out);
    str_add(out, ".SH EXIT STATUS\n");
    opt_roff(out, page->exit_status != NULL ? page->exit_status : exit_note);
    str_addc(out, '\n');
    str_release(&variables);
}

void opt_man(const struct opt_cmd *cmd, const struct opt_page *page, struct str *out)
{
    const char *program = strcmp(cmd->name, page->program) != 0 ? page->program : NULL;
    struct str title = STR_INIT, synopsis = STR_INIT;
    str_addf(&title, "%s%s%s", program ? program : "", program ? "-" : "", cmd->name);
    opt_man_head(title.p, 1, cmd->summary, out);
    add_synopsis(cmd, program, &synopsis);
    opt_roff(out, synopsis.p);
    if (cmd->description != NULL) {
        str_add(out, ".SH DESCRIPTION\n");
        opt_roff(out, cmd->description);
        str_addc(out, '\n');
    }
    str_add(out, ".SH OPTIONS\n");
    add_all(cmd, out, add_man_option);
    add_man_option(out, has(cmd, is_h) ? '\0' : 'h', "help", NULL, "show the help text");
    if (has(cmd, is_bool))
        add_man_paragraph(out, no_form_note);
    if (has(cmd, is_setting))
        add_man_paragraph(out, setting_note);
    opt_man_end(cmd, page, out);
    out->failed |= title.failed || synopsis.failed;
    str_release(&title);
    str_release(&synopsis);
}

void opt_complete(const struct opt_cmd *cmd, struct str *out)
{
    for (size_t i = 0; i < cmd->n_opts; i++) {
        const struct opt *o = &cmd->opts[i];
        if (!(o->flags & OPT_HIDDEN))
            str_addf(out, "--%s\t%s\n", o->name, o->help);
    }
    str_add(out, "--help\tshow the help text\n");
}
