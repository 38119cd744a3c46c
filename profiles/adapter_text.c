#include "profiles/adapter_text.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"

#define WORD_BYTES 32
static const char *const key_names[] = {
#define KEY_NAME(id, name, what) name,
    ADAPTER_KEY_LIST(KEY_NAME)
#undef KEY_NAME
    NULL};
static const char name_letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";

static int index_of(const char *word, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(word, names[i]) == 0)
            return i;
    return -1;
}

/* ---- values ---- */

struct adapter_values adapter_values(const struct adapter_facts *f)
{
    const struct layout *l = f->layout;
    return (struct adapter_values){
        {[ADAPTER_TP] = l->tp, [ADAPTER_SP] = l->sp,
         [ADAPTER_CP] = l->cp, [ADAPTER_CP_KIND] = l->cp_kind,
         [ADAPTER_A2A_RANKS] = layout_a2a_group(l, f->model),
         [ADAPTER_PP] = l->pp, [ADAPTER_VPP] = l->vpp,
         [ADAPTER_DP] = l->dp, [ADAPTER_ZERO] = l->zero,
         [ADAPTER_SHARD] = l->zero ? layout_shard_group(l) : 1,
         [ADAPTER_MBS] = l->mbs,
         [ADAPTER_RECOMPUTE] = l->recompute, [ADAPTER_RECOMPUTE_LAYERS] = l->recompute_layers,
         [ADAPTER_RANKS] = layout_world(l),
         [ADAPTER_GBS] = f->gbs, [ADAPTER_SEQ] = seq_tokens(f->seq),
         [ADAPTER_LAYERS] = f->model->layers, [ADAPTER_KV_HEADS] = f->model->kv_heads,
         [ADAPTER_STEPS] = f->steps}};
}

/* ---- expressions ---- */

static int operand_fail(const char *word, struct err *err)
{
    const char *near = str_nearest(word, key_names);
    struct str keys = STR_INIT;
    for (int i = 0; key_names[i]; i++)
        str_addf(&keys, "%s%s", i ? ", " : "", key_names[i]);
    int rc = *word ? err_set(err, ERR_INPUT,
                             "'%s' is no key%s%s%s: give one of %s, a whole number, or a word of "
                             "cp_kind or recompute",
                             word, near ? " (did you mean '" : "", near ? near : "",
                             near ? "'?)" : "", keys.p)
                   : err_set(err, ERR_INPUT,
                             "a key or a number is missing: write expressions like layers/pp, and "
                             "conditions like zero=1 & dp>1");
    str_release(&keys);
    return rc;
}

/* Reads a key, a number, or a word of cp_kind or recompute, which stands for its enum value. */
static int operand_parse(const char **text, int *key, int64_t *number, struct err *err)
{
    char word[WORD_BYTES];
    const char *at = *text + strspn(*text, " ");
    size_t n = strspn(at, name_letters);
    int known;
    snprintf(word, sizeof word, "%.*s", (int)n, at);
    *key = -1;
    *text = at + n;
    if (n > 0 && n < 10 && strspn(word, "0123456789") == n)
        return num_parse_i64(word, "number", number, err);
    if ((*key = index_of(word, key_names)) >= 0)
        return 0;
    if ((known = index_of(word, cp_kind_names)) < 0 &&
        (known = index_of(word, recompute_names)) < 0)
        return operand_fail(word, err);
    *number = known;
    return 0;
}

static int expression_parse(const char **text, struct adapter_expression *out, struct err *err)
{
    struct adapter_expression e = {0};
    char op = '*';
    int rc;
    for (;;) {
        if (e.n == ADAPTER_OPERANDS)
            return err_set(err, ERR_INPUT, "an expression has more than %d operands: give fewer",
                           ADAPTER_OPERANDS);
        e.operand[e.n].op = op;
        if ((rc = operand_parse(text, &e.operand[e.n].key, &e.operand[e.n].number, err)) < 0)
            return rc;
        e.n++;
        *text += strspn(*text, " ");
        if (!**text || !strchr("*/%", **text))
            break;
        op = *(*text)++;
    }
    *out = e;
    return 0;
}

/* Computes an expression; false: it divides by zero, is too large, or, if `exact`, a division has a
 * remainder. */
static bool expression_value(const struct adapter_expression *e, const struct adapter_values *v,
                             bool exact, int64_t *out)
{
    int64_t value = 1;
    for (int i = 0; i < e->n; i++) {
        int64_t x = e->operand[i].key >= 0 ? v->v[e->operand[i].key] : e->operand[i].number;
        char op = e->operand[i].op;
        if (op == '*' && __builtin_mul_overflow(value, x, &value))
            return false;
        if (op != '*' && (x <= 0 || (exact && op == '/' && value % x != 0)))
            return false;
        value = op == '/' ? value / x : op == '%' ? value % x : value;
    }
    *out = value;
    return true;
}

/* ---- conditions ---- */

static int op_parse(const char **text, char op[3], struct err *err)
{
    static const char *const ops[] = {"!=", "<=", ">=", "=", "<", ">"};
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        if (strncmp(*text, ops[i], strlen(ops[i])) == 0) {
            snprintf(op, 3, "%s", ops[i]);
            *text += strlen(ops[i]);
            return 0;
        }
    return err_set(err, ERR_INPUT, "a comparison is missing: give one of = != < <= > >= between "
                   "two expressions");
}

int adapter_condition_parse(const char *text, struct adapter_condition *out, struct err *err)
{
    struct adapter_condition c = {0};
    int rc;
    for (bool more = text[strspn(text, " ")]; more;) {
        if (c.n == ADAPTER_COMPARISONS)
            return err_set(err, ERR_INPUT, "a condition has more than %d comparisons: give fewer",
                           ADAPTER_COMPARISONS);
        if ((rc = expression_parse(&text, &c.comparison[c.n].left, err)) < 0)
            return rc;
        if ((rc = op_parse(&text, c.comparison[c.n].op, err)) < 0)
            return rc;
        if ((rc = expression_parse(&text, &c.comparison[c.n].right, err)) < 0)
            return rc;
        c.n++;
        if (*text && *text != '&')
            return err_set(err, ERR_INPUT, "'%.20s' is not expected: give & between comparisons",
                           text);
        more = *text++ == '&';
    }
    *out = c;
    return 0;
}

static bool comparison_holds(const char *op, int64_t left, int64_t right)
{
    bool equal = left == right && strchr(op, '=') && *op != '!';
    return equal || (*op == '<' && left < right) || (*op == '>' && left > right) ||
           (*op == '!' && left != right);
}

bool adapter_condition_holds(const struct adapter_condition *c, const struct adapter_values *v)
{
    for (int i = 0; i < c->n; i++) {
        int64_t left, right;
        if (!expression_value(&c->comparison[i].left, v, false, &left) ||
            !expression_value(&c->comparison[i].right, v, false, &right) ||
            !comparison_holds(c->comparison[i].op, left, right))
            return false;
    }
    return true;
}

static bool expression_names(const struct adapter_expression *e, uint32_t keys)
{
    for (int i = 0; i < e->n; i++)
        if (e->operand[i].key >= 0 && keys >> e->operand[i].key & 1)
            return true;
    return false;
}

bool adapter_condition_names(const struct adapter_condition *c, uint32_t keys)
{
    for (int i = 0; i < c->n; i++)
        if (expression_names(&c->comparison[i].left, keys) ||
            expression_names(&c->comparison[i].right, keys))
            return true;
    return false;
}

/* ---- words ---- */

/* Reads what follows an opening brace: an expression, or "dir", and the closing brace. Sets *dir to
 * whether it is {dir}. */
static int braces_parse(const char **text, struct adapter_expression *out, bool *dir,
                        struct err *err)
{
    int rc;
    *dir = strncmp(*text, "dir}", 4) == 0;
    if (*dir) {
        *text += 4;
        return 0;
    }
    if ((rc = expression_parse(text, out, err)) < 0)
        return rc;
    if (*(*text)++ != '}')
        return err_set(err, ERR_INPUT, "a brace has no end: give expressions like {layers/pp}");
    return 0;
}

int adapter_word_check(const char *word, struct err *err)
{
    struct adapter_expression e;
    bool dir;
    int rc;
    while ((word = strchr(word, '{'))) {
        word++;
        if ((rc = braces_parse(&word, &e, &dir, err)) < 0)
            return rc;
    }
    return 0;
}

static int value_add(const struct adapter_expression *e, const struct adapter_values *v,
                     struct str *out, struct err *err)
{
    int64_t value;
    int key = e->n == 1 ? e->operand[0].key : -1;
    if (!expression_value(e, v, true, &value))
        return err_set(err, ERR_INPUT, "its expression is no whole number for this layout");
    if (key == ADAPTER_CP_KIND)
        str_add(out, cp_kind_names[value]);
    else if (key == ADAPTER_RECOMPUTE)
        str_add(out, recompute_names[value]);
    else
        str_addf(out, "%lld", (long long)value);
    return 0;
}

int adapter_word_add(const char *word, const struct adapter_values *v, const char *dir,
                     struct str *out, struct err *err)
{
    struct adapter_expression e;
    bool is_dir;
    int rc;
    while (*word) {
        if (*word != '{') {
            str_addc(out, *word++);
            continue;
        }
        word++;
        if ((rc = braces_parse(&word, &e, &is_dir, err)) < 0)
            return rc;
        if (is_dir)
            str_add(out, dir ? dir : "");
        else if ((rc = value_add(&e, v, out, err)) < 0)
            return rc;
    }
    return str_check(out, err);
}
