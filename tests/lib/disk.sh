# Mounts a disk of a few megabytes at small/. Source this after tests/lib.sh. If it cannot be
# mounted, the script ends here.
export REEL_LOCAL_CORES=2 REEL_DB=$dir/reel.db
mkdir small
if ! mount -t tmpfs -o size=8m reel-disk small 2> /dev/null; then
    echo "ok 1 - a full disk # skip needs the right to mount"; echo "1..1"; exit 0
fi
finish() {
    local run
    for run in full words spool later; do "$reel" cancel $run; done > /dev/null 2>&1
    umount -l "$dir/small" "$dir/wrapped" "$dir/home/sched" 2> /dev/null
    rm -rf "$dir"
}
trap finish EXIT
model='{"schema": "reel.model/1", "name": "mini", "family": "dit", "layers": 2, "hidden": 64,
 "heads": 2, "kv_heads": 2, "ffn": 128,
 "text_width": 16, "text_len": 4, "adaln": "full", "patch_t": 1, "patch_h": 2, "patch_w": 2,
 "latent_channels": 16}'
run_file() { # NAME STEPS EVERY KEEP [ASYNC]
    cat > "$1.json" << JSON
{"schema": "reel.run/1", "name": "$1", "model": $model,
 "stages": [{"data": "synthetic:1x4x4", "gbs": 2, "steps": $2}], "adamw": {"ema_decay": 0.9},
 "checkpoint": {"every_steps": $3, "keep": $4, "async": ${5:-false}}}
JSON
}
events() { cat "$1"/events/*.evlog 2> /dev/null | tr -d '\0' | grep -ao "\"ev\": *\"$2\".*"; }
saved() { (cd "$1/ckpt" && ls -d step-*) | tr '\n' ' '; }
room() { mount -o "remount,size=$1" "$dir/small"; }
attempts() { "$reel" status "$1" --json | grep -c '"attempt":'; }
cause_of() { "$reel" status "$1" --json | sed -n 's/.*"cause": "\([a-z_]*\)".*/\1/p' | tail -1; }
