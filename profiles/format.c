/* This file lists the formats, each with an example, and prints them from their field tables. */
#include "profiles/format.h"

#include <string.h>

#include "base/opt.h"
#include "profiles/adapter.h"

static const struct format run = {
    "run", "what a run trains: the file that 'reel launch' and 'reel-train train' take",
    "{\"schema\": \"reel.run/1\", \"name\": \"demo\", \"model\": \"dit-tiny\",\n"
    " \"stages\": [{\"data\": \"data\", \"gbs\": 8, \"steps\": 100}],\n"
    " \"resources\": {\"ranks_per_node\": 2, \"cores_per_rank\": 1}}\n",
    "Everything but model and stages has a default. The file never says how the run is spread over "
    "ranks: that is the plan's business, and any layout may resume any run.\n\n"
    "Validation, checkpoint, budget and resources do not decide the numbers. They may be edited "
    "while the run goes on: they hold from the next attempt.",
    run_format};
static const struct format plan = {
    "plan", "a chosen layout, with what was predicted and measured of it",
    "{\"schema\": \"reel.plan/1\", \"layout\": \"dp=2,zero=1,mbs=2\", \"model\": \"dit-tiny\",\n"
    " \"seq\": {\"t\": 3, \"h\": 8, \"w\": 8}, \"gbs\": 8, \"dtype\": \"f32\"}\n",
    "'reel tune' writes it, and 'reel launch --plan' takes it. One that is written by hand needs "
    "schema, layout, model, seq, gbs and dtype.",
    plan_format};
static const struct format model = {
    "model", "a network: what 'model' is in a run's file, or a file of its own",
    "{\"schema\": \"reel.model/1\", \"name\": \"small\", \"family\": \"dit\",\n"
    " \"layers\": 4, \"hidden\": 192, \"heads\": 4, \"latent_channels\": 16,\n"
    " \"text_width\": 64, \"text_len\": 16, \"patch_h\": 2, \"patch_w\": 2}\n",
    "A name may carry a variant: dit-7b+none, +full, +lora_separate, +lora_fused, +lora_single, "
    "+global. "
    "'reel model' lists the names that are compiled in, and shows what a model is made of.",
    model_format};
static const struct format device = {
    "device", "a device: its peaks, memory and first guesses of its efficiency",
    "{\"schema\": \"reel.gpu/1\", \"name\": \"mine\", \"peak_source\": \"its datasheet, dense\",\n"
    " \"peak_flops\": {\"f32\": 67e12, \"bf16\": 990e12}, \"memory_bytes\": 85520809984,\n"
    " \"memory_bytes_per_s\": 3.35e12, \"gemm_efficiency\": 0.8,\n"
    " \"attn_fwd_efficiency\": 0.65, \"attn_bwd_efficiency\": 0.56}\n",
    "Peaks are dense, of one device. MFU is the share of them that went into the model.\n\n"
    "A curve's sizes are FLOPs (gemm_flops), the least side of a product (gemm_side), tokens of a "
    "sample (attn_fwd, attn_bwd), samples x heads x tokens (attn_*_fill) and bytes of a tensor or "
    "message (the others). Its values are shares: of the peak in its dtype, with a causal mask "
    "counted as half the FLOPs and a backward as 2.5 forwards; for attn_*_fill of what enough rows "
    "reach; for norms, fused or of a framework's own ops, of the memory's bandwidth, with 2 "
    "tensors moved forward and 3 backward. all_reduce's are bus bandwidth in B/s, inside a node."
    "\n\nPredictions read attn_fwd and attn_bwd of two points or more, for the device's fastest "
    "kernel in that dtype; the size is the side of a square of as many scores. The other kinds are "
    "for whoever compares: with them predictions were worse somewhere (docs/predictions.md), and "
    "no program reads them.",
    device_format};
static const struct format cluster = {
    "cluster", "a cluster: its device, its nodes and the switches between them",
    "{\"schema\": \"reel.cluster/1\", \"name\": \"mine\", \"device\": \"h100-sxm\", \"nodes\": 4,\n"
    " \"node\": {\"devices\": 8, \"link_bytes_per_s\": 450e9, \"link_latency_s\": 3.4e-6,\n"
    "          \"nics\": 8, \"nic_bytes_per_s\": 50e9, \"nic_latency_s\": 14e-6,\n"
    "          \"cores\": 112, \"memory_bytes\": 2199023255552}}\n",
    "The tree of switches has two levels: leaf_nodes nodes share a leaf, and all leaves share the "
    "spine. Where NVLink reaches beyond a node, domain_nodes nodes are one domain: a group of "
    "ranks inside it uses no network interface.",
    cluster_format};
static const struct format stack = {
    "stack", "the software that trains: what it fuses, hides, gathers and keeps",
    "{\"schema\": \"reel.stack/1\", \"name\": \"mine\", \"source\": \"its manual\",\n"
    " \"kind\": \"megatron\", \"attention\": \"flash\", \"fused_norm\": true,\n"
    " \"gradient_bytes\": 4, \"optimizer_bytes\": 12, \"logit_bytes\": 10,\n"
    " \"gradients_overlap\": true, \"scatter\": true, \"zero\": 1}\n",
    "These are facts. How much is hidden in fact, and at what speed, are constants that are "
    "fitted.",
    stack_format};
#define ADAPTER_KEY_TEXT(id, name, what) name " (" what "), "
#define ADAPTER_KEYS_TEXT ADAPTER_KEY_LIST(ADAPTER_KEY_TEXT)
static const struct format adapter = {
    "adapter", "somebody else's trainer: how it is told a layout, and how its log is read",
    "{\"schema\": \"reel.adapter/1\", \"name\": \"mine\", \"source\": \"my trainer 1.2\",\n"
    " \"stack\": \"fsdp\",\n"
    " \"step_pattern\": \"step (?<step>[0-9]+) took (?<time_s>[0-9.]+) s\",\n"
    " \"arguments\": [{\"words\": [\"--tp\", \"{tp}\"]},\n"
    "               {\"words\": [\"--shard\", \"{shard}\"], \"when\": \"zero=3\"},\n"
    "               {\"words\": [\"--steps={steps}\"], \"trial\": true}],\n"
    " \"excludes\": [{\"rule\": \"no-stages\", \"when\": \"pp>1\",\n"
    "               \"because\": \"it has no pipeline: pp must be 1\"}],\n"
    " \"oom_device\": [\"CUDA out of memory\"]}\n",
    "An expression is made of keys, whole numbers, and * / % from left to right, as in "
    "{layers/pp/vpp}; a division in braces must be exact. A condition is comparisons by = != < <= "
    "> >=, with & between them. {dir}, the folder of a trial, is for trials alone.\n\n"
    "The keys are " ADAPTER_KEYS_TEXT "and no others. cp_kind is compared with ring, a2a or 2d, "
    "and recompute with none, selective or full.",
    adapter_format};
static const struct format constants = {
    "constants", "what predictions rest on that is fitted, and not derived",
    "{\"schema\": \"reel.constants/1\", \"name\": \"mine\",\n"
    " \"held_out\": {\"rule\": \"each of 2 model sizes by a fit on the other\",\n"
    "  \"of\": \"mine.csv\", \"devices\": \"h100-sxm\", \"rows\": 60,\n"
    "  \"mape_pct\": 4.8, \"hash\": \"82dc131f57833d730000000000000002\"},\n"
    " \"constants\": [\n"
    "  {\"name\": \"gemm_share\", \"device\": \"h100-sxm\", \"value\": 0.72,\n"
    "   \"lo\": 0.70, \"hi\": 0.74},\n"
    "  {\"name\": \"step_s\", \"stack\": \"reel\", \"value\": 0.02}]}\n",
    "'reel calibrate' writes such a file, and '--constants FILE' uses it. Of several constants of "
    "one name, the one that names more of the device and the stack counts; what the file leaves "
    "out has its prior.\n\n"
    "Plans, their explanations and scores tell the held-out error beside the name of the set. No "
    "prediction depends on it. It is of these very constants: with another value, or one more or "
    "less, the file's hash is not theirs, and the error is not known. A plan for a device that is "
    "not among 'devices' says so beside the error.",
    constants_format_parts};
const struct format *const formats[] = {&run, &plan, &model, &device, &cluster, &stack, &adapter,
                                        &constants, NULL};

/* ---- what a table says by itself ---- */

static void add_words(struct str *out, const char *const *names)
{
    for (size_t i = 0; names[i]; i++)
        str_addf(out, "%s%s", i ? ", " : "one of ", names[i]);
}

static void add_bounds(struct str *out, const struct json_field *f, const char *word)
{
    char low[JSON_NUM_BYTES], high[JSON_NUM_BYTES];
    str_add(out, word);
    if (f->max > f->min)
        str_addf(out, " from %s to %s", json_format_num(f->min, low),
                 json_format_num(f->max, high));
    if (f->names)
        str_addf(out, ", or %s", f->names[0]);
}

/* Adds the type of the field; nothing for JSON_ANY, whose sentence describes it. */
static void add_type(struct str *out, const struct json_field *f)
{
    switch (f->type) {
    case JSON_INT: add_bounds(out, f, "integer"); break;
    case JSON_NUM: add_bounds(out, f, "number"); break;
    case JSON_BOOL: str_add(out, "true or false"); break;
    case JSON_TEXT: str_add(out, "text"); break;
    case JSON_ENUM: add_words(out, f->names); break;
    case JSON_U64TEXT: str_add(out, "integer, as a text"); break;
    case JSON_ANY: break;
    }
}

/* Adds the default of a field, from the part's struct of defaults. */
static void add_default(struct str *out, const struct format_part *part, const struct json_field *f)
{
    const void *at = (const char *)part->defaults + f->offset;
    char text[JSON_NUM_BYTES];
    switch (f->type) {
    case JSON_INT: str_addf(out, "default %lld", (long long)*(const int64_t *)at); break;
    case JSON_NUM: str_addf(out, "default %s", json_format_num(*(const double *)at, text)); break;
    case JSON_BOOL: str_addf(out, "default %s", *(const bool *)at ? "true" : "false"); break;
    case JSON_ENUM: str_addf(out, "default %s", f->names[*(const int *)at]); break;
    case JSON_U64TEXT:
        str_addf(out, "default %llu", (unsigned long long)*(const uint64_t *)at);
        break;
    case JSON_TEXT:
    case JSON_ANY: break;
    }
}

/* Adds type, bounds and default. There is no default where the sentence itself says what a missing
 * field means. */
static void add_facts(struct str *out, const struct format_part *part, const struct json_field *f)
{
    struct str rule = STR_INIT;
    size_t begun = out->len;
    add_type(out, f);
    if (!f->optional)
        str_add(&rule, "required");
    else if (part->defaults && !strstr(f->help, "left out"))
        add_default(&rule, part, f);
    if (rule.len > 0)
        str_addf(out, "%s%s", out->len > begun ? "; " : "", rule.p);
    out->failed |= rule.failed;
    str_release(&rule);
}

/* ---- Markdown ---- */

enum { LINE_BYTES = 100 };

void format_line(struct str *out, const char *text, int indent)
{
    size_t at = 0;
    while (*text) {
        size_t n = strcspn(text, " ");
        if (at > 0 && at + 1 + n > LINE_BYTES) {
            str_addf(out, "\n%*s", indent, "");
            at = (size_t)indent;
        } else if (at > 0) {
            str_addc(out, ' ');
            at++;
        }
        str_addn(out, text, n);
        at += n;
        text += n + strspn(text + n, " ");
    }
    str_addc(out, '\n');
}

static void add_item(struct str *out, const struct format_part *part, const struct json_field *f)
{
    struct str line = STR_INIT, facts = STR_INIT;
    add_facts(&facts, part, f);
    str_addf(&line, "- `%s`", f->name);
    if (facts.len > 0)
        str_addf(&line, " (%s)", facts.p);
    str_addf(&line, ": %s", f->help);
    format_line(out, line.p ? line.p : "", 2);
    out->failed |= line.failed || facts.failed;
    str_release(&line);
    str_release(&facts);
}

void format_paragraphs(struct str *out, const char *text)
{
    while (*text) {
        const char *end = strstr(text, "\n\n");
        struct str one = STR_INIT;
        str_addn(&one, text, end ? (size_t)(end - text) : strlen(text));
        format_line(out, one.p ? one.p : "", 0);
        str_addc(out, '\n');
        out->failed |= one.failed;
        str_release(&one);
        text = end ? end + 2 : "";
    }
}

void format_markdown(const struct format *f, struct str *out)
{
    struct format_part parts[FORMAT_PARTS];
    size_t n = f->parts(parts);
    str_addf(out, "## %s\n\n%s.\n\n```json\n%s```\n\n", f->name, f->title, f->example);
    format_paragraphs(out, f->text);
    for (size_t i = 0; i < n; i++) {
        if (*parts[i].path)
            str_addf(out, "\n### %s in %s\n\n", parts[i].path, f->name);
        for (size_t k = 0; k < parts[i].n_fields; k++)
            add_item(out, &parts[i], &parts[i].fields[k]);
    }
}

/* ---- man(7) ---- */

static void add_man_item(struct str *out, const struct format_part *part,
                         const struct json_field *f)
{
    struct str facts = STR_INIT;
    add_facts(&facts, part, f);
    str_addf(out, ".TP\n\\fB%s\\fR", f->name);
    if (facts.len > 0) {
        str_add(out, " (");
        opt_roff(out, facts.p);
        str_addc(out, ')');
    }
    str_addc(out, '\n');
    opt_roff(out, f->help);
    str_addc(out, '\n');
    out->failed |= facts.failed;
    str_release(&facts);
}

void format_man(const struct format *f, struct str *out)
{
    struct format_part parts[FORMAT_PARTS];
    size_t n = f->parts(parts);
    struct str title = STR_INIT;
    str_addf(&title, "reel-%s", f->name);
    opt_man_head(title.p, 5, f->title, out);
    str_add(out, ".SH DESCRIPTION\n");
    opt_roff(out, f->text);
    str_addc(out, '\n');
    for (size_t i = 0; i < n; i++) {
        str_addf(out, ".SH %s\n", *parts[i].path ? parts[i].path : "FIELDS");
        for (size_t k = 0; k < parts[i].n_fields; k++)
            add_man_item(out, &parts[i], &parts[i].fields[k]);
    }
    str_add(out, ".SH EXAMPLES\n.nf\n");
    opt_roff(out, f->example);
    str_add(out, ".fi\n");
    out->failed |= title.failed;
    str_release(&title);
}
