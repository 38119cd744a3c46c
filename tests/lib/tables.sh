# Writes table.csv, which has rows that are used, a row for each reason to skip it, and one that ran
# out of memory. line() prints a row.
header=source,ref,gpu,gpu_mem_gb,n_gpus,gpus_per_node,framework,precision,task,model,family
header=$header,n_params_b,layers,hidden,ffn,heads,kv_heads,vocab,gated_mlp,seq_len,tp,sp,cp,pp,vpp
header=$header,dp,zero,fsdp_size,ep,mbs,gbs,recompute,attn,step_time_s,tokens_per_s_gpu,tflops_gpu
header=$header,mfu_pct,hfu_pct,peak_mem_gb,mem_kind,status,sweep_group,notes
# line MODEL FAMILY LAYERS GPU TP DP MBS STEP_S STATUS NOTES
line() {
    echo "made,up,$4,80,8,8,Megatron-LM,bf16,pretrain,$1,$2,,$3,2048,8192,16,16,32000,0,2048,$5,0" \
        "1,1,1,$6,1,,1,$7,64,none,flash2,$8,,,,,,,$9,sweep-$1,${10:-}" | sed 's/,0 1,/,0,1,/'
}
{
    echo "$header"
    for row in '1 8 1' '1 8 2' '1 8 4' '2 4 1' '2 4 2' '2 4 4' '4 2 1' '4 2 2' '8 1 1' '8 1 8'; do
        set -- $row
        # an invented machine: a step takes two seconds, and more with tp and with small mbs
        line small gpt 24 H100-SXM "$1" "$2" "$3" \
            "$(awk -v t="$1" -v b="$3" 'BEGIN { print 2 * (1 + t / 10) * (1 + 0.1 / b) }')" ok ''
    done
    line huge gpt 480 H100-SXM 1 8 8 '' oom ''
    line mixed moe 24 H100-SXM 1 8 1 1 ok ''
    line small gpt '' H100-SXM 1 8 1 1 ok ''
    line small gpt 24 Abacus 1 8 1 1 ok ''
    line small gpt 24 H100-SXM 1 8 1 1 ok '"with T5, encoded"'
    line small gpt 24 H100-SXM 1 8 1 1 predicted ''
} > table.csv

