# Makes five films of one second, and tells which of them a curation used. Source this after
# tests/lib.sh.
. "$REEL_SRC/tests/lib/footage.sh"
curate=$REEL_BIN/reel-curate dump=$REEL_BIN/tests/lib/wds-dump
opts=(--size 32x32 --frames 9 -q)
value() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p" "$2"; }
film() { # HUE FILE...
    ffmpeg -nostdin -v error -y -f lavfi -t 1 -i "testsrc2=s=96x64:r=24,hue=h=$1" \
        -pix_fmt yuv420p "${@:2}"
}
films 4 || exit 1
taken() { # DATASET: prints the films from which its samples are
    rm -rf got; mkdir got; "$dump" "$1"/*.tar got > keys
    cat got/*.json | grep -o '"source": "[^"]*"' | sort -u | cut -d'"' -f4 | paste -sd' '
}
curate() {
    rm -rf ds ds.partial*; timeout 300 "$curate" "$@" -o ds --json "${opts[@]}" > sum 2> err
}
