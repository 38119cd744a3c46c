# Makes run files that are edited and launched again under the same name. Source this after
# tests/lib/launch.sh.
export REEL_DB=$dir/reel.db
model='{"schema": "reel.model/1", "name": "mini", "family": "dit", "layers": 1, "hidden": 32,
 "heads": 2, "kv_heads": 2, "ffn": 64,
 "text_width": 16, "text_len": 4, "adaln": "full", "patch_t": 1, "patch_h": 2, "patch_w": 2,
 "latent_channels": 16}'
run_file() { # FILE NAME STEPS [MORE [STAGES]]
    cat > "$1" << JSON
{"schema": "reel.run/1", "name": "$2", "model": $model,
 "stages": [{"data": "synthetic:1x4x4", "gbs": 2, "steps": $3}${5:-}]${4:-$(rates 1e-3)}}
JSON
}
rates() {
    echo ', "adamw": {"lr": '"$1"', "ema_decay": 0.9}, "schedule": {"warmup_steps": 2}'"${2:-}"
}
run_of() { echo "home/runs/$(cat "home/names/$1")"; }
asks() { "$reel" db query "$1" | tail -n +2; }
