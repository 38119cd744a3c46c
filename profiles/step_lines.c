#include "profiles/step_lines.h"

#include <ctype.h>
#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"

enum group {
    G_NONE,
    G_STEP, G_INDEX, G_TOTAL, G_EPOCH,
    G_LOSS, G_GRAD_NORM, G_LR,
    G_TIME_MS, G_TIME_S,
    G_TOKENS, G_TPS,
    N_GROUPS
};
static const char *const group_names[N_GROUPS] = {
    "", "step", "index", "total", "epoch", "loss", "grad_norm", "lr", "time_ms", "time_s", "tokens",
    "tps"};
enum { MAX_PATTERNS = 8, MAX_PARENS = 16, NUMBER_BYTES = 512 };

struct pattern {
    regex_t compiled;
    enum group group[MAX_PARENS + 1]; /* index: number of the parenthesis, from 1 */
};
struct step_reader {
    struct pattern patterns[MAX_PATTERNS];
    int n;
    const struct format *format; /* NULL: the user's own pattern */
    struct pattern bar;          /* of the format, if has_bar */
    bool has_bar;
    int64_t bar_n, bar_before;   /* the bar's count in its newest line, and before; -1: not known */
    double total; /* total of the training's bar; 0: not known yet. Other bars have other totals. */
};

/* These patterns match what trainers print: Megatron-LM's training_log; torchtitan's
 * MetricsProcessor; NeMo's and Lightning's progress bars and NeMo's text lines; Transformers'
 * ProgressCallback, which prints a dictionary of losses between two drawings of its bar. NeMo's bar
 * tells its losses with the global_step that they are of, but rounds that where it is shorter,
 * 1e+4: then the bar's own count is taken, which restarts in each epoch. The bar is drawn with its
 * new count and the losses of the step before, and then, by some versions, again with the new
 * losses. So what is told where a count comes first is of the count before. Lightning's bar is
 * tqdm's or rich's; only tqdm's has a colon after the epoch. tqdm's is drawn when a step is done,
 * and again when its losses are known. Transformers' bar is drawn at most ten times a second, but
 * always after such a dictionary. */
#define NEMO_BAR "Epoch 0:.*[ |](?<step>[0-9]+)/[0-9]+[, ]"
#define VALUE(name) "(?<" name ">[-+.0-9a-zA-Z]+)"
static const struct format {
    const char *patterns[MAX_PATTERNS];
    enum step_loss loss;
    bool one_bar;
    const char *bar; /* its first group is the bar's count, in every line of the bar; NULL: none */
} formats[] = {
    {{"iteration +(?<step>[0-9]+)/ *(?<total>[0-9]+) *[|]",
      "elapsed time per iteration [(]ms[)]: *(?<time_ms>[0-9.]+)",
      "lm loss: *" VALUE("loss"),
      "grad norm: *" VALUE("grad_norm"),
      "learning rate: *" VALUE("lr")}},
    {{"(^|[^e] |[^ ])step: *(?<step>[0-9]+)",
      "loss: *" VALUE("loss"),
      "grad_norm: *" VALUE("grad_norm"),
      "tps: *(?<tps>[0-9.,]+)"}},
    {{NEMO_BAR ".*global_step=[0-9.]+e|"
      "global_step[=:] *(?<index>[0-9.]+)([^0-9.e]|$)",
      "reduced_train_loss[=:] *" VALUE("loss"),
      "train_step_timing in s[=:] *(?<time_s>[0-9.]+)",
      "grad_norm[=:] *" VALUE("grad_norm"),
      "lr[=:] *" VALUE("lr")},
     .bar = NEMO_BAR},
    {{"Epoch *(?<epoch>[0-9]+)(: .*[|]|(/[0-9-]+)? .*[^ -~]) *(?<step>[0-9]+)/"
      "(?<total>[0-9]+|[?]|--) *([[]|[0-9-]+:)",
      "[ ,](train_)?loss(_step)?(=|: )" VALUE("loss")},
     .loss = STEP_LOSS_REDRAWN},
    {{"^ *[0-9]+%[|].*[|] *(?<step>[0-9]+)/(?<total>[0-9]+) *[[]",
      "'loss': *'?" VALUE("loss"),
      "'grad_norm': *'?" VALUE("grad_norm"),
      "'learning_rate': *'?" VALUE("lr")},
     .loss = STEP_LOSS_BEFORE_BAR, .one_bar = true},
};
const char *const step_format_names[] = {"megatron", "torchtitan", "nemo", "lightning", "hf", NULL};

/* ---- compiling ---- */

static int pattern_fail(const char *pattern, const char *why, struct err *err)
{
    return err_set(err, ERR_USAGE, "the step pattern '%s' %s", pattern, why);
}

static enum group group_find(const char *name, size_t n)
{
    for (int g = 1; g < N_GROUPS; g++)
        if (strlen(group_names[g]) == n && memcmp(group_names[g], name, n) == 0)
            return (enum group)g;
    return G_NONE;
}

/* Copies the pattern without the names of its groups, which it stores by number in p->group. */
static int names_take(const char *pattern, struct pattern *p, struct str *text, struct err *err)
{
    int parens = 0;
    bool set = false; /* between [ and ] */
    for (const char *c = pattern; *c; c++) {
        if (*c == '\\' && c[1] && !set)
            str_addc(text, *c++);
        else if (*c == '[' && !set) {
            size_t n = c[1] == '^' ? 2 : 1; /* a ] in first place belongs to the set */
            str_addn(text, c, n + (c[n] == ']') - 1);
            c += n + (c[n] == ']') - 1;
            set = true;
        } else if (*c == ']')
            set = false;
        else if (*c == '(' && !set) {
            if (++parens > MAX_PARENS)
                return pattern_fail(pattern, "has more than 16 groups", err);
            const char *end = c[1] == '?' && c[2] == '<' ? strchr(c, '>') : NULL;
            if (end && !(p->group[parens] = group_find(c + 3, (size_t)(end - c - 3))))
                return err_set(err, ERR_USAGE,
                               "the step pattern '%s' has a group '%.*s': the names are step, "
                               "index, total, epoch, loss, grad_norm, lr, time_ms, time_s, tokens "
                               "and tps",
                               pattern, (int)(end - c - 3), c + 3);
            if (end) {
                str_addc(text, '(');
                c = end;
                continue;
            }
        }
        str_addc(text, *c);
    }
    return str_check(text, err);
}

static bool tells(const struct pattern *p, enum group g)
{
    for (int i = 1; i <= MAX_PARENS; i++)
        if (p->group[i] == g)
            return true;
    return false;
}

static bool has_names(const struct pattern *p)
{
    for (int i = 1; i <= MAX_PARENS; i++)
        if (p->group[i])
            return true;
    return false;
}

static int pattern_compile(const char *pattern, struct pattern *p, struct err *err)
{
    char why[128], text[192];
    struct str plain = STR_INIT;
    memset(p->group, 0, sizeof p->group);
    int rc, status;
    if ((rc = names_take(pattern, p, &plain, err)) < 0)
        goto out;
    if ((status = regcomp(&p->compiled, plain.p, REG_EXTENDED)) != 0) {
        regerror(status, &p->compiled, why, sizeof why);
        snprintf(text, sizeof text, "is no POSIX extended regular expression: %s", why);
        rc = pattern_fail(pattern, text, err);
    }
out:
    str_release(&plain);
    return rc;
}

/* Checks that the user's pattern has a step: a named group, or a first group if none has a name. */
static int own_check(const char *pattern, struct pattern *p, struct err *err)
{
    if (p->compiled.re_nsub == 0)
        return pattern_fail(
            pattern, "has no group: put the number in parentheses, like 'iteration +([0-9]+)'",
            err);
    if (!has_names(p))
        p->group[1] = G_STEP;
    if (!tells(p, G_STEP) && !tells(p, G_INDEX))
        return pattern_fail(
            pattern, "tells no step: name a group, like 'iteration +(?<step>[0-9]+)'", err);
    return 0;
}

int step_reader_new(const char *pattern, const char *format, int64_t total,
                    struct step_reader **out, struct err *err)
{
    struct step_reader *r = calloc(1, sizeof *r);
    int rc = 0;
    if (!r)
        return err_set(err, ERR_NOMEM, "out of memory");
    r->total = (double)total;
    r->bar_n = r->bar_before = -1;
    for (size_t i = 0; format && i < ARRAY_LEN(formats); i++)
        if (strcmp(step_format_names[i], format) == 0)
            r->format = &formats[i];
    if (format && !r->format) {
        rc = err_set(err, ERR_USAGE, "no format '%s'", format);
        goto out;
    }
    const char *const *list = r->format ? r->format->patterns
                                        : (const char *const[]){pattern, NULL};
    for (; r->n < MAX_PATTERNS && list[r->n]; r->n++)
        if ((rc = pattern_compile(list[r->n], &r->patterns[r->n], err)) < 0)
            goto out;
    if (!r->format && (rc = own_check(pattern, &r->patterns[0], err)) < 0)
        goto out;
    if (r->format && r->format->bar && (rc = pattern_compile(r->format->bar, &r->bar, err)) < 0)
        goto out;
    r->has_bar = r->format && r->format->bar;
    *out = r;
    r = NULL;
out:
    step_reader_free(r);
    return rc;
}

void step_reader_free(struct step_reader *r)
{
    for (int i = 0; r && i < r->n; i++)
        regfree(&r->patterns[i].compiled);
    if (r && r->has_bar)
        regfree(&r->bar.compiled);
    free(r);
}

enum step_loss step_reader_loss(const struct step_reader *r)
{
    return r->format ? r->format->loss : STEP_LOSS_IN_LINE;
}

/* ---- reading ---- */

/* Removes what a terminal would not show: ESC [ … letter, ESC ] … BEL, ESC and one more byte. Other
 * control bytes become spaces. */
static size_t escapes_strip(char *line, size_t n)
{
    size_t to = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)line[i];
        if (c != 0x1b) {
            line[to++] = c < ' ' ? ' ' : (char)c;
        } else if (i + 1 < n && line[i + 1] == '[') {
            for (i += 2; i < n && ((unsigned char)line[i] < '@' || (unsigned char)line[i] > '~');
                 i++)
                ;
        } else if (i + 1 < n && line[i + 1] == ']') {
            for (i += 2; i < n && line[i] != '\a'; i++)
                ;
        } else {
            i++;
        }
    }
    line[to] = 0;
    return to;
}

/* Reads the number in a match; commas between its digits and a full stop after it are allowed.
 * Returns whether it is one: it may be NaN or infinite. */
static bool number_parse(const char *line, regmatch_t m, double *out)
{
    char text[NUMBER_BYTES], *end;
    size_t n = 0;
    for (regoff_t i = m.rm_so; i < m.rm_eo; i++) {
        if (n + 1 == sizeof text)
            return false;
        if (line[i] != ',')
            text[n++] = line[i];
    }
    text[n] = 0;
    *out = strtod(text, &end);
    return n && (!*end || strcmp(end, ".") == 0);
}

/* Returns the number in a match; NaN: it is none, or not finite. */
static double number_read(const char *line, regmatch_t m)
{
    double value;
    return number_parse(line, m, &value) && isfinite(value) ? value : NAN;
}

/* Returns the end of a number whose digits end at `at`: after its exponent, if there is one. */
static regoff_t exponent_end(const char *line, regoff_t at)
{
    const char *c = line + at;
    if (*c != 'e' && *c != 'E')
        return at;
    c += c[1] == '-' || c[1] == '+' ? 2 : 1;
    if (!isdigit((unsigned char)*c))
        return at;
    while (isdigit((unsigned char)*c))
        c++;
    return (regoff_t)(c - line);
}

/* Says whether the text directly after a number gives it another unit than its group has. */
static bool other_unit(enum group g, const char *behind)
{
    if (g == G_TOKENS || g == G_TPS)
        return *behind && strchr("kKmMgGB", *behind);
    if (g == G_TIME_MS)
        return isalpha((unsigned char)*behind) && !str_starts(behind, "ms");
    return g == G_TIME_S && isalpha((unsigned char)*behind) && *behind != 's';
}

/* Returns the greatest time or rate that a step can have; 0: the group is of something else. */
static double most_of(enum group g)
{
    return g == G_TIME_MS ? 1e12 : g == G_TIME_S ? 1e9 : g == G_TPS ? 1e15 : 0;
}

/* Notes how a time or rate was printed, and whether no step can have it. A time stands before a
 * rate, and what no step can have before both. Returns whether a step can. */
static bool told_note(const char *line, regmatch_t m, enum group g, struct step_line *out)
{
    double value;
    if (!number_parse(line, m, &value))
        return true;
    bool odd = !(value >= 0 && value <= most_of(g));
    if (!out->odd && (odd || g != G_TPS || !out->told[0]))
        snprintf(out->told, sizeof out->told, "%s: %.*s", group_names[g], (int)(m.rm_eo - m.rm_so),
                 line + m.rm_so);
    out->odd = out->odd || odd;
    return !odd;
}

/* Returns a group's number. Groups of times and rates often match only digits, so the text after
 * them is checked too. NaN: it is no number, has another unit, or no step can have it. */
static double group_read(const char *line, regmatch_t m, enum group g, struct step_line *out)
{
    if (g == G_TOKENS || most_of(g) > 0) {
        m.rm_eo = exponent_end(line, m.rm_eo);
        if (other_unit(g, line + m.rm_eo) || (most_of(g) > 0 && !told_note(line, m, g, out)))
            return NAN;
    }
    return number_read(line, m);
}

static void found_read(const struct pattern *p, const char *line, double found[N_GROUPS],
                       bool *any, struct step_line *out)
{
    regmatch_t m[MAX_PARENS + 1];
    if (regexec(&p->compiled, line, MAX_PARENS + 1, m, 0) != 0)
        return;
    for (int i = 1; i <= MAX_PARENS; i++)
        if (p->group[i] && m[i].rm_so >= 0) {
            found[p->group[i]] = group_read(line, m[i], p->group[i], out);
            *any = true;
            out->loss_nonfinite |= p->group[i] == G_LOSS && isnan(found[G_LOSS]);
        }
}

/* Notes the count of a bar whose losses may be of the count before. */
static void bar_look(struct step_reader *r, const char *line)
{
    regmatch_t m[2];
    if (!r->has_bar || regexec(&r->bar.compiled, line, 2, m, 0) != 0)
        return;
    double count = number_read(line, m[1]);
    int64_t n = count >= 0 && count < 1e15 ? (int64_t)count : -1;
    r->bar_before = n >= r->bar_n ? r->bar_n : -1; /* it went back */
    r->bar_n = n;
}

static int64_t steps_done(struct step_reader *r, const double found[N_GROUPS])
{
    double done = !isnan(found[G_INDEX]) ? found[G_INDEX] + 1
                  : r->has_bar           ? (double)r->bar_before
                                         : found[G_STEP];
    if (r->format && r->format->one_bar && !isnan(done)) {
        r->total = r->total > 0 ? r->total : found[G_TOTAL];
        done = found[G_TOTAL] == r->total ? done : NAN;
    }
    if (found[G_EPOCH] > 0 && (r->format || !isnan(found[G_TOTAL])))
        done += found[G_EPOCH] * found[G_TOTAL];
    return done >= 0 && done < 1e15 ? (int64_t)done : -1;
}

bool step_reader_take(struct step_reader *r, char *line, size_t *n, struct step_line *out)
{
    double found[N_GROUPS];
    bool any = false;
    struct step_line told = {.done = -1};
    *n = escapes_strip(line, *n);
    bar_look(r, line);
    for (int g = 0; g < N_GROUPS; g++)
        found[g] = NAN;
    for (int i = 0; i < r->n; i++) {
        found_read(&r->patterns[i], line, found, &any, &told);
        if (!any && step_reader_loss(r) != STEP_LOSS_BEFORE_BAR)
            return false; /* the first pattern is that of the step */
    }
    told.done = steps_done(r, found);
    told.loss = found[G_LOSS], told.grad_norm = found[G_GRAD_NORM], told.lr = found[G_LR];
    told.time_s = isnan(found[G_TIME_MS]) ? found[G_TIME_S] : 1e-3 * found[G_TIME_MS];
    told.tokens = found[G_TOKENS], told.tps = found[G_TPS];
    *out = told;
    return any && (out->done >= 0 || !isnan(out->loss));
}
