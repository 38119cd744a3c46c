# Makes a dataset of three clips, trains a small model on it, and generates samples of the model.
# Source this after tests/lib.sh.
train=$REEL_BIN/reel-train curate=$REEL_BIN/reel-curate
clips_make() {
    mkdir clips
    for i in 0 1 2; do
        ffmpeg -loglevel error -f lavfi -i "testsrc2=size=64x64:rate=12:duration=2" \
            -vf "hue=h=$((i * 100))" -frames:v 9 -c:v ffv1 clips/$i.mkv
        echo "clip number $i" > clips/$i.txt
    done
    "$curate" clips -o data --size 32x32 --frames 9 --jobs 1 > out 2> err
}
cat > run.json << 'JSON'
{"schema": "reel.run/1", "name": "r", "stages": [{"data": "data", "gbs": 3, "steps": 2}],
 "adamw": {"lr": 1e-2, "ema_decay": 0.5}, "schedule": {"warmup_steps": 0},
 "model": {"schema": "reel.model/1", "name": "small", "family": "dit", "layers": 2, "hidden": 48,
 "heads": 2, "kv_heads": 2, "ffn": 96, "text_width": 64,
           "text_len": 16, "adaln": "full", "patch_h": 2, "patch_w": 2, "latent_channels": 16,
           "cond_channels": 17}}
JSON
model_make() {
    mkdir r && cp run.json r/ && "$train" train --run run.json --run-dir r > out 2> err
}
ckpt=r/ckpt/step-00000002
gen() { # DIR OPTIONS...
    local to=$1; shift
    "$train" generate $ckpt -o "$to" --samples 3 --steps "${steps:-4}" "$@" > out 2> err
}
