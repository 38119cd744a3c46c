/* Adapters of other trainers: the flags of a layout, which layouts they exclude, bad files. */
#include "tests/lib/test_profiles.h"

#include "profiles/adapter.h"
#include "profiles/adapter_text.h"
#include "tests/lib/scratch.h"

static struct model model;
static const struct seq seq = {1, 1, 8192};

static struct adapter_facts facts_of(const struct layout *l)
{
    return (struct adapter_facts){l, &model, seq, 64, 5, "/tmp/trial"};
}

/* Writes the flags, parted by blanks. */
static int flags_of(const char *adapter, const char *layout, bool trial, struct str *out,
                    struct err *err)
{
    struct adapter *a;
    struct layout l;
    struct arena arena = {0};
    const char **words = NULL;
    assert_ok(model_load("llama-3-8b", &model, err), err);
    assert_ok(adapter_load(adapter, &a, err), err);
    assert_ok(layout_parse(layout, &l, err), err);
    struct adapter_facts facts = facts_of(&l);
    int rc = adapter_words(a, &facts, trial, &arena, &words, err);
    str_clear(out);
    for (size_t i = 0; rc == 0 && words[i]; i++)
        str_addf(out, "%s%s", i ? " " : "", words[i]);
    arena_release(&arena);
    adapter_free(a);
    return rc;
}

static const struct {
    const char *adapter, *layout, *flags;
} flag_rows[] = {
    {"megatron", "tp=4,sp=1,pp=2,vpp=4,dp=8,zero=1,fsdp=8,mbs=2,recompute=selective",
     "--tensor-model-parallel-size 4 --sequence-parallel --context-parallel-size 1 "
     "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 4 "
     "--micro-batch-size 2 --global-batch-size 64 --use-distributed-optimizer "
     "--overlap-grad-reduce --overlap-param-gather --recompute-granularity selective"},
    {"megatron-lm", "cp=4,cp_kind=a2a,dp=2,recompute=full,recompute_layers=8",
     "--tensor-model-parallel-size 1 --context-parallel-size 4 --cp-comm-type a2a "
     "--pipeline-model-parallel-size 1 --micro-batch-size 1 --global-batch-size 64 "
     "--overlap-grad-reduce --recompute-granularity full --recompute-method block "
     "--recompute-num-layers 8"},
    {"megatron-lm", "cp=2,dp=4,zero=1",
     "--tensor-model-parallel-size 1 --context-parallel-size 2 --cp-comm-type p2p "
     "--pipeline-model-parallel-size 1 --micro-batch-size 1 --global-batch-size 64 "
     "--use-distributed-optimizer --num-distributed-optimizer-instances 2 "
     "--overlap-grad-reduce --overlap-param-gather"},
    {"megatron-bridge", "dp=8,zero=3",
     "model.tensor_model_parallel_size=1 model.sequence_parallel=false "
     "model.context_parallel_size=1 model.pipeline_model_parallel_size=1 "
     "model.virtual_pipeline_model_parallel_size=null train.micro_batch_size=1 "
     "train.global_batch_size=64 ddp.use_distributed_optimizer=true "
     "optimizer.use_distributed_optimizer=true ddp.overlap_grad_reduce=true "
     "ddp.overlap_param_gather=true optimizer.overlap_param_gather=true "
     "dist.use_megatron_fsdp=true ddp.use_megatron_fsdp=true "
     "model.gradient_accumulation_fusion=false checkpoint.ckpt_format=fsdp_dtensor "
     "ddp.data_parallel_sharding_strategy=optim_grads_params "
     "model.recompute_granularity=null"},
    {"torchtitan", "tp=2,sp=1,cp=2,dp=8,zero=3,fsdp=4,mbs=2,recompute=full",
     "--parallelism.tensor_parallel_degree 2 --parallelism.enable_sequence_parallel "
     "--parallelism.context_parallel_degree 2 "
     "--parallelism.pipeline_parallel_degree 1 --parallelism.data_parallel_shard_degree 2 "
     "--parallelism.data_parallel_replicate_degree 4 "
     "--parallelism.fsdp_reshard_after_forward always --training.local_batch_size 2 "
     "--training.global_batch_size 64 --training.seq_len 8192 "
     "activation-checkpoint:full"},
    {"torchtitan", "pp=2,vpp=2,dp=4,zero=2,mbs=4",
     "--parallelism.tensor_parallel_degree 1 --parallelism.context_parallel_degree 1 "
     "--parallelism.pipeline_parallel_degree 2 --parallelism.data_parallel_shard_degree 4 "
     "--parallelism.data_parallel_replicate_degree 1 "
     "--parallelism.fsdp_reshard_after_forward never "
     "--parallelism.pipeline_parallel_schedule Interleaved1F1B "
     "--parallelism.pipeline_parallel_layers_per_stage 8 "
     "--parallelism.pipeline_parallel_first_stage_less_layers 0 "
     "--parallelism.pipeline_parallel_last_stage_less_layers 0 "
     "--training.disable_cuda_graphs "
     "--parallelism.pipeline_parallel_microbatch_size 4 --training.local_batch_size 16 "
     "--training.global_batch_size 64 --training.seq_len 8192 "
     "activation-checkpoint:none"},
    {"torchtitan", "tp=2,dp=2,recompute=selective",
     "--parallelism.tensor_parallel_degree 2 --parallelism.no_enable_sequence_parallel "
     "--parallelism.context_parallel_degree 1 --parallelism.pipeline_parallel_degree 1 "
     "--parallelism.data_parallel_shard_degree 1 --parallelism.data_parallel_replicate_degree 2 "
     "--training.local_batch_size 1 --training.global_batch_size 64 --training.seq_len 8192 "
     "activation-checkpoint:selective"},
    {"torchtitan-0.2", "tp=2,sp=1,cp=2,dp=8,zero=3,fsdp=4,mbs=2,recompute=full",
     "--parallelism.tensor_parallel_degree 2 --parallelism.context_parallel_degree 2 "
     "--parallelism.context_parallel_rotate_method alltoall "
     "--parallelism.pipeline_parallel_degree 1 --parallelism.data_parallel_shard_degree 2 "
     "--parallelism.data_parallel_replicate_degree 4 "
     "--parallelism.fsdp_reshard_after_forward always --training.local_batch_size 2 "
     "--training.global_batch_size 64 --training.seq_len 8192 "
     "--activation_checkpoint.mode full"},
    {"torchtitan-0.2", "pp=2,vpp=2,dp=4,zero=2,mbs=4",
     "--parallelism.tensor_parallel_degree 1 --parallelism.context_parallel_degree 1 "
     "--parallelism.pipeline_parallel_degree 2 --parallelism.data_parallel_shard_degree 4 "
     "--parallelism.data_parallel_replicate_degree 1 "
     "--parallelism.fsdp_reshard_after_forward never "
     "--parallelism.pipeline_parallel_schedule Interleaved1F1B "
     "--parallelism.pipeline_parallel_layers_per_stage 8 "
     "--parallelism.pipeline_parallel_first_stage_less_layers 0 "
     "--parallelism.pipeline_parallel_last_stage_less_layers 0 "
     "--parallelism.pipeline_parallel_microbatch_size 4 --training.local_batch_size 16 "
     "--training.global_batch_size 64 --training.seq_len 8192 "
     "--activation_checkpoint.mode none"},
    {"generic", "tp=2,dp=2,zero=1",
     "--tp=2 --sp=0 --cp=1 --cp-kind=ring --pp=1 --vpp=1 --dp=2 --zero=1 --shard=2 --mbs=1 "
     "--gbs=64 --recompute=none --recompute-layers=0"},
};

static void flags(void **state)
{
    struct str out = STR_INIT;
    struct err err;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(flag_rows); i++) {
        assert_ok(flags_of(flag_rows[i].adapter, flag_rows[i].layout, false, &out, &err), &err);
        assert_string_equal(out.p, flag_rows[i].flags);
    }
    assert_ok(flags_of("torchtitan", "dp=2", true, &out, &err), &err);
    assert_non_null(strstr(out.p, "--training.steps 5 --metrics.log_freq 1 --dump_folder "
                                  "/tmp/trial/dump activation-checkpoint:none"));
    assert_ok(flags_of("megatron-bridge", "dp=2", true, &out, &err), &err);
    assert_non_null(strstr(out.p, "logger.log_interval=1 validation.eval_iters=0 "));
    str_release(&out);
}

/* Writes what the environment must have, and checks what a plan says of it. */
static void environment_check(const struct adapter *a, const char *layout, const char *list,
                              const char *told)
{
    struct plan plan = {.seq = seq, .gbs = 64};
    struct arena arena = {0};
    struct str out = STR_INIT;
    const char **words;
    struct err err;
    assert_ok(model_load("llama-3-8b", &model, &err), &err);
    assert_ok(layout_parse(layout, &plan.layout, &err), &err);
    struct adapter_facts facts = facts_of(&plan.layout);
    assert_ok(adapter_environment(a, &facts, &arena, &words, &err), &err);
    str_add(&out, "");
    for (size_t i = 0; words[i]; i++)
        str_addf(&out, "%s%s", i ? " " : "", words[i]);
    assert_string_equal(out.p, list);
    assert_ok(adapter_plan(a, &model, &plan, &err), &err);
    assert_string_equal(plan.environment, told);
    str_release(&out);
    arena_release(&arena);
}

static void environment(void **state)
{
    static const struct { const char *layout, *list, *told; } rows[] = {
        {"dp=8", "", ""},
        {"dp=8,zero=1", "", ""},
        {"tp=2", "CUDA_DEVICE_MAX_CONNECTIONS=1", "CUDA_DEVICE_MAX_CONNECTIONS=1"},
        {"cp=2", "CUDA_DEVICE_MAX_CONNECTIONS=1", "CUDA_DEVICE_MAX_CONNECTIONS=1"},
        {"tp=2,sp=1,cp=2,pp=2,dp=2,zero=1", "CUDA_DEVICE_MAX_CONNECTIONS=1",
         "CUDA_DEVICE_MAX_CONNECTIONS=1"},
        {"dp=8,zero=3", "CUDA_DEVICE_MAX_CONNECTIONS", "-u CUDA_DEVICE_MAX_CONNECTIONS"},
        {"tp=2,cp=2,dp=2,zero=2,fsdp=4", "CUDA_DEVICE_MAX_CONNECTIONS",
         "-u CUDA_DEVICE_MAX_CONNECTIONS"},
    };
    static const char own[] =
        "{\"schema\": \"reel.adapter/1\", \"name\": \"x\", \"source\": \"s\", \"stack\": "
        "\"fsdp\", \"format\": \"hf\", \"arguments\": [], \"environment\": [{\"name\": \"A\", "
        "\"value\": \"{tp}x {recompute}\"}, {\"name\": \"B\"}, {\"name\": \"A_2\", \"value\": "
        "\"\"}, {\"name\": \"A\", \"value\": \"last\", \"when\": \"dp>1\"}]}";
    struct adapter *a;
    struct err err;
    (void)state;
    assert_ok(adapter_load("megatron", &a, &err), &err);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        environment_check(a, rows[i].layout, rows[i].list, rows[i].told);
    adapter_free(a);
    assert_ok(file_publish(in_scratch("e.json"), own, strlen(own), &err), &err);
    assert_ok(adapter_load(in_scratch("e.json"), &a, &err), &err);
    environment_check(a, "tp=4", "A=4x none B A_2=", "-u B 'A=4x none' A_2=");
    environment_check(a, "dp=2", "A=last B A_2=", "-u B A=last A_2=");
    adapter_free(a);
}

static void excluded(void **state)
{
    static const struct {
        const char *adapter, *layout, *says;
    } rows[] = {
        {"megatron-lm", "dp=3", "megatron-batch: Megatron gives every replica as many"},
        {"megatron-lm", "dp=4,mbs=5", "megatron-micro-batch"},
        {"megatron-lm", "pp=3", "pp must divide the layers"},
        {"megatron-lm", "pp=2,vpp=3", "megatron-virtual-layers"},
        {"megatron-lm", "pp=4,vpp=2,dp=32", "megatron-interleaved"},
        {"megatron-lm", "pp=2,dp=2,zero=3", "megatron-fsdp-stages"},
        {"megatron-lm", "cp=2,dp=2,zero=2,fsdp=2", "megatron-fsdp-group"},
        {"torchtitan-0.2", "tp=2,dp=2,zero=3", "sp must be 1 with tp above 1"},
        {"torchtitan", "dp=2,zero=1", "zero must be 0, 2 or 3"},
        {"torchtitan-0.2", "tp=2,sp=1,dp=2", "torchtitan-replicas"},
        {"torchtitan", "tp=2,sp=1,cp=2,dp=2", "torchtitan-replicas"},
        {"torchtitan", "cp=4,dp=4,zero=3,fsdp=2", "torchtitan-shard"},
        {"torchtitan", "cp=2,cp_kind=a2a,dp=2,zero=3,fsdp=4", "cp_kind must be ring"},
        {"torchtitan", "recompute=full,recompute_layers=2", "torchtitan-partial"},
    };
    struct str out = STR_INIT;
    struct err err;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_fails(flags_of(rows[i].adapter, rows[i].layout, false, &out, &err), ERR_INPUT, &err,
                     rows[i].says);
    str_release(&out);
}

/* ---- every layout that no rule excludes has flags ---- */

static int64_t state_try(const struct adapter *a, struct layout l, struct arena *arena)
{
    const char **words;
    struct err err;
    struct adapter_facts facts = facts_of(&l);
    if (layout_broken_rule(&l, &model, seq, 64, layout_world(&l)) >= 0 ||
        adapter_broken_rule(a, &facts) >= 0)
        return 0;
    assert_ok(adapter_words(a, &facts, true, arena, &words, &err), &err);
    arena_reset(arena);
    return 1;
}

static int64_t grid_try(const struct adapter *a, struct layout l, struct arena *arena)
{
    int64_t n = 0;
    for (l.zero = 0; l.zero <= 3; l.zero++)
        for (l.fsdp = 0; l.fsdp <= l.dp * l.cp; l.fsdp += l.zero ? 2 : 100)
            for (l.mbs = 1; l.mbs <= 8; l.mbs *= 2)
                for (int r = 0; r <= RECOMPUTE_FULL; r++) {
                    l.recompute = (enum recompute)r;
                    n += state_try(a, l, arena);
                }
    return n;
}

static void all_have_flags(void **state)
{
    static const char *const names[] = {"megatron-lm", "megatron-bridge", "torchtitan",
                                       "torchtitan-0.2", "generic"};
    struct err err;
    (void)state;
    assert_ok(model_load("llama-3-8b", &model, &err), &err);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct adapter *a;
        struct arena arena = {0};
        int64_t n = 0;
        assert_ok(adapter_load(names[i], &a, &err), &err);
        for (int64_t k = 0; k < 4 * 4 * 4 * 4 * 2 * 3; k += 5) {
            static const int64_t sizes[] = {1, 2, 3, 4};
            struct layout l = layout_default();
            l.tp = sizes[k % 4], l.cp = sizes[k / 4 % 4], l.pp = sizes[k / 16 % 4];
            l.dp = sizes[k / 64 % 4], l.vpp = l.pp > 1 ? 1 + k % 5 : 1;
            l.sp = l.tp > 1 ? k / 256 % 2 : 0;
            l.cp_kind = l.cp > 1 ? (enum cp_kind)(k / 512) : CP_RING;
            n += grid_try(a, l, &arena);
        }
        if (n < 100)
            fail_msg("%s has only %lld layouts", names[i], (long long)n);
        arena_release(&arena);
        adapter_free(a);
    }
}

/* ---- bad files ---- */

#define HEAD "{\"schema\": \"reel.adapter/1\", \"name\": \"x\", \"source\": \"s\", \"stack\": "
#define GOOD HEAD "\"fsdp\", \"format\": \"hf\", "

static void refused(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"{\"schema\": \"reel.stack/1\"}", "give a file of schema 'reel.adapter/1'"},
        {HEAD "\"fsdq\", \"format\": \"hf\", \"arguments\": []}",
         "a.json: stack is 'fsdq': there is no stack 'fsdq' (did you mean 'fsdp'?)"},
        {HEAD "\"fsdp\", \"arguments\": []}", "a.json: give format or step_pattern, one of them"},
        {HEAD "\"fsdp\", \"format\": \"hg\", \"arguments\": []}", "a.json: format is 'hg'"},
        {HEAD "\"fsdp\", \"step_pattern\": \"step\", \"arguments\": []}",
         "a.json: step_pattern is 'step'"},
        {GOOD "\"start_s\": 0, \"arguments\": []}", "start_s is 0"},
        {GOOD "\"argument\": []}", "argument is not a known key"},
        {GOOD "\"arguments\": {}}", "arguments is no list of up to 64 objects"},
        {GOOD "\"arguments\": [3]}", "arguments[0]"},
        {GOOD "\"arguments\": [{\"words\": []}]}", "arguments[0].words is no list of 1 to 8 texts"},
        {GOOD "\"arguments\": [{\"words\": [1]}]}", "arguments[0].words[0] is no text"},
        {GOOD "\"arguments\": [{\"words\": [\"-t{tq}\"]}]}",
         "a.json: arguments[0].words is '-t{tq}': 'tq' is no key (did you mean"},
        {GOOD "\"arguments\": [{\"words\": [\"{tp\"]}]}", "a brace has no end"},
        {GOOD "\"arguments\": [{\"words\": [\"{}\"]}]}", "a key or a number is missing"},
        {GOOD "\"arguments\": [{\"words\": [\"{tp*tp*tp*tp*tp*tp*tp}\"]}]}", "more than 6 operands"},
        {GOOD "\"arguments\": [{\"words\": [\"{dir}\"]}]}", "only a trial has a folder"},
        {GOOD "\"arguments\": [{\"words\": [\"a\"], \"when\": \"tp\"}]}",
         "a.json: arguments[0].when is 'tp': a comparison is missing"},
        {GOOD "\"arguments\": [{\"words\": [\"a\"], \"when\": \"tp>1 or pp>1\"}]}",
         "'or pp>1' is not expected: give &"},
        {GOOD "\"arguments\": [], \"excludes\": [{\"rule\": \"r\", \"when\": \"recompute=some\", "
              "\"because\": \"b\"}]}", "excludes[0].when is 'recompute=some': 'some' is no key"},
        {GOOD "\"arguments\": [], \"excludes\": [{\"rule\": \"r\"}]}", "excludes[0].when is missing"},
        {GOOD "\"arguments\": [], \"environment\": \"A=1\"}",
         "a.json: environment is no list of up to 16 objects"},
        {GOOD "\"arguments\": [], \"environment\": [{\"value\": \"1\"}]}",
         "environment[0].name is missing"},
        {GOOD "\"arguments\": [], \"environment\": [{\"name\": \"2A\"}]}",
         "a.json: environment[0].name is '2A': it is no name of a variable"},
        {GOOD "\"arguments\": [], \"environment\": [{\"name\": \"A=1\"}]}",
         "environment[0].name is 'A=1'"},
        {GOOD "\"arguments\": [], \"environment\": [{\"name\": \"\"}]}", "environment[0].name is ''"},
        {GOOD "\"arguments\": [], \"environment\": [{\"name\": \"A\", \"value\": 1}]}",
         "environment[0].value is"},
        {GOOD "\"arguments\": [], \"environment\": [{\"name\": \"A\", \"value\": \"{tq}\"}]}",
         "environment[0].value is '{tq}': 'tq' is no key"},
        {GOOD "\"arguments\": [], \"environment\": [{\"name\": \"A\", \"value\": \"{dir}\"}]}",
         "only a trial has a folder: leave {dir} out"},
        {GOOD "\"arguments\": [], \"environment\": [{\"name\": \"A\", \"when\": \"tp\"}]}",
         "environment[0].when is 'tp': a comparison is missing"},
        {GOOD "\"arguments\": [], \"memory\": {\"pattern\": \"[0-9\", \"unit_bytes\": 1}}",
         "a.json: memory.pattern is '[0-9': it is no POSIX extended regular expression"},
        {GOOD "\"arguments\": [], \"memory\": {\"pattern\": \"mb\", \"unit_bytes\": 1}}",
         "it has no group"},
        {GOOD "\"arguments\": [], \"oom_device\": [\"(\"]}", "oom_device[0] is '('"},
        {GOOD "\"arguments\": [], \"timers\": [{\"pattern\": \"(x)\", \"unit_s\": 1, \"class\": "
              "\"gems\"}]}", "timers[0].class is \"gems\""},
    };
    struct adapter *a;
    struct err err;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_ok(file_publish(in_scratch("a.json"), rows[i].text, strlen(rows[i].text), &err),
                  &err);
        assert_fails(adapter_load(in_scratch("a.json"), &a, &err), ERR_INPUT, &err, rows[i].says);
    }
    assert_fails(adapter_load("torchtitam", &a, &err), ERR_NOT_FOUND, &err,
                 "there is no adapter 'torchtitam' (did you mean 'torchtitan'?)");
}

/* ---- the language ---- */

static void conditions(void **state)
{
    static const struct { const char *text; bool holds; } rows[] = {
        {"", true}, {"tp=4", true}, {" tp = 4 & dp!=8", true}, {"tp>=4 & pp<2", true},
        {"tp!=4", false}, {"tp>4", false}, {"tp<=3", false}, {"recompute=full", true},
        {"recompute!=full", false}, {"cp_kind=ring", true}, {"dp*tp/4=dp", true},
        {"gbs%7=1", true}, {"gbs/7=9", true}, {"tp%sp=0", false}, {"ranks=8 & seq=8192", true},
        {"tp*999999999*999999999*999999999>0", false}, {"shard=1", true}, {"layers=32", true},
    };
    struct layout l;
    struct adapter_condition c;
    struct err err;
    (void)state;
    assert_ok(model_load("llama-3-8b", &model, &err), &err);
    assert_ok(layout_parse("tp=4,dp=2,recompute=full", &l, &err), &err);
    struct adapter_facts facts = facts_of(&l);
    struct adapter_values v = adapter_values(&facts);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_ok(adapter_condition_parse(rows[i].text, &c, &err), &err);
        if (adapter_condition_holds(&c, &v) != rows[i].holds)
            fail_msg("'%s' should %shold", rows[i].text, rows[i].holds ? "" : "not ");
    }
    struct str out = STR_INIT;
    assert_fails(adapter_word_add("{layers/5}", &v, NULL, &out, &err), ERR_INPUT, &err,
                 "no whole number");
    str_release(&out);
}

/* Rules that name a key say nothing of layouts with another value of it. */
static void excluded_whole(void **state)
{
    static const struct { uint32_t keys; const char *rule; } cases[] = {
        {0, "megatron-micro-batch"},
        {1 << ADAPTER_ZERO, "megatron-micro-batch"},
        {1 << ADAPTER_MBS, "megatron-fsdp-stages"},
        {1 << ADAPTER_MBS | 1 << ADAPTER_ZERO, NULL},
    };
    struct adapter *a;
    struct layout l;
    struct err err;
    (void)state;
    assert_ok(model_load("llama-3-8b", &model, &err), &err);
    assert_ok(adapter_load("megatron-lm", &a, &err), &err);
    assert_ok(layout_parse("pp=2,dp=2,zero=2,mbs=5", &l, &err), &err);
    struct adapter_facts facts = facts_of(&l);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int rule = adapter_broken_rule_without(a, &facts, cases[i].keys);
        assert_int_equal(rule >= 0, cases[i].rule != NULL);
        if (rule >= 0)
            assert_string_equal(a->rules[rule].rule, cases[i].rule);
    }
    adapter_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags),          cmocka_unit_test(excluded),
        cmocka_unit_test(all_have_flags), cmocka_unit_test(conditions),
        cmocka_unit_test(excluded_whole),
        cmocka_unit_test_setup_teardown(environment, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(refused, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests_name("profiles_adapter", tests, NULL, NULL);
}
