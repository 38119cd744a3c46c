# Memory of a rank, planned and taken: sourced behind tests/lib.sh. Where ranks of a node may not
# read each other's memory, MPI copies messages through segments that they share, and fills them as
# timing has it. These are no buffer of ours (ours are private), the kernel tells them apart
# (RssShmem), and a trial reports their growth: it is taken off what is compared with the plan, and
# held to the 4 MiB that Open MPI makes of each rank's segment.
train=$REEL_BIN/reel-train
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
case $REEL_BIN in
*/asan | */tsan)
    echo "ok 1 # SKIP a sanitizer's shadow takes more address space than any limit would leave"
    echo 1..1; exit ;;
esac
export MALLOC_ARENA_MAX=1 # MPI's threads would reserve 64 MiB of addresses each, and use none
run() { # RANKS LAYOUT: a trial of $file, below $limited
    local launcher=
    [ "$1" -gt 1 ] && launcher="mpirun --oversubscribe --quiet -n $1"
    timeout 400 $launcher ${limited:-} "$train" train --run "$file" --layout "$2" \
        --trial --steps 2 --run-dir t > out 2> err < /dev/null
}
number() { grep -o "\"$1\": [0-9]*" out | head -n 1 | grep -o '[0-9]*$'; }
planned() { # CATEGORY FILE: its bytes, by the plan that was printed
    sed -n "s/^.*info:   $1  *\([0-9.]*\) \([KMG]*\)i*B\$/\1 \2/p" "$2" |
        awk '{ print $1 * ($2 == "K" ? 1024 : $2 == "M" ? 1048576 : $2 == "G" ? 1073741824 : 1) }'
}
share() { # CATEGORY FILE LEAST MOST: of one rank's, which are in the file that $one names
    awk -v a="$(planned "$1" "$2")" -v one="$(planned "$1" "$one")" -v least="$3" -v most="$4" '
        BEGIN { r = a / one; printf "%.3f", r; exit !(one > 0 && r >= least && r <= most) }'
}
resident() { # [RANKS]: over what the plan says
    awk -v a="$(number peak_bytes)" -v b="$(number planned_bytes)" -v s="$(number mpi_bytes)" \
        -v n="${1:-2}" '
        BEGIN { r = (a - s) / b; printf "%.3f", r
            exit !(b > 0 && r < 1.05 && r > 0.95 && s != "" && s <= n * 4198400) }'
}
