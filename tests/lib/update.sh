# Films, and a dataset of them that grows: sourced behind tests/lib.sh. ab has the two of a and two
# more.
curate=$REEL_BIN/reel-curate
opts=(--size 32x32 --frames 9 -q --shard-bytes 40K)
. "$REEL_SRC/tests/lib/footage.sh"
films 4 || exit 1
mkdir a ab; cp film-1.mp4 film-3.mp4 a; cp film-[0-3].mp4 ab
whole() { # DATASET: each shard that Energon is told of is there, with its index and its count
    local shard
    grep -o 'shard-[0-9]*.tar' "$1/.nv-meta/split.yaml" > listed || return 1
    for shard in $(cat listed); do
        [ -s "$1/$shard" ] && [ -s "$1/$shard.idx" ] &&
            grep -q "\"$shard\"" "$1/.nv-meta/.info.json" || return 1
    done
}
