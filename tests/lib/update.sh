# Makes films, and datasets that grow with more of them. Source this after tests/lib.sh. The folder
# ab has the two films of a and two more.
curate=$REEL_BIN/reel-curate
opts=(--size 32x32 --frames 9 -q --shard-bytes 40K)
. "$REEL_SRC/tests/lib/footage.sh"
films 4 || exit 1
mkdir a ab; cp film-1.mp4 film-3.mp4 a; cp film-[0-3].mp4 ab
whole() { # DATASET: checks that each shard in split.yaml exists, with its index and its count
    local shard
    grep -o 'shard-[0-9]*.tar' "$1/.nv-meta/split.yaml" > listed || return 1
    for shard in $(cat listed); do
        [ -s "$1/$shard" ] && [ -s "$1/$shard.idx" ] &&
            grep -q "\"$shard\"" "$1/.nv-meta/.info.json" || return 1
    done
}
