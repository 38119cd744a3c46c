# Films that scripts of the curator share: sourced behind tests/lib.sh. Each start of ffmpeg takes a
# tenth of a second of the processor before it does anything.
films() { # LAST: film-0.mp4 ... of a second, each of another hue, by one start
    local i made=()
    for ((i = 0; i <= $1; i++)); do
        made+=(-vf "hue=h=$((i * 70))" -pix_fmt yuv420p "film-$i.mp4")
    done
    ffmpeg -nostdin -v error -y -f lavfi -t 1 -i testsrc2=s=96x64:r=24 "${made[@]}"
}
# footage FOLDER: 16 s of contrib/make-footage, seed 3, which is made once for all scripts and copied.
footage() {
    local kept=$REEL_BIN/tests/footage
    (
        flock 9
        [ "$kept/truth.json" -nt "$REEL_SRC/contrib/make-footage" ] ||
            { rm -rf "$kept" "$kept.new"
              "$REEL_SRC/contrib/make-footage" "$kept.new" 16 3 > out 2>&1 &&
                mv "$kept.new" "$kept"; }
    ) 9> "$kept.lock" && cp -r "$kept" "$1"
}
