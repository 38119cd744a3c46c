# Makes films for the scripts that test the curator. Source this after tests/lib.sh. Each start of
# ffmpeg costs a tenth of a second of CPU time before it does any work.
films() { # LAST: makes film-0.mp4 ... of one second with different hues, in one start of ffmpeg
    local i made=()
    for ((i = 0; i <= $1; i++)); do
        made+=(-vf "hue=h=$((i * 70))" -pix_fmt yuv420p "film-$i.mp4")
    done
    ffmpeg -nostdin -v error -y -f lavfi -t 1 -i testsrc2=s=96x64:r=24 "${made[@]}"
}
# footage FOLDER: copies 16 s of footage into it. contrib/make-footage makes them once for all
# scripts, with seed 3.
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
