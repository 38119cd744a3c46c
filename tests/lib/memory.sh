# Compares the memory that a rank takes with the plan. Source this after tests/lib.sh. If the ranks
# of a node may not read each other's memory, MPI copies messages through shared segments, and how
# much of them is touched depends on timing. These segments are not among our buffers, which are
# private memory; the kernel counts them apart (RssShmem), and a trial reports their growth. It is
# subtracted before the comparison with the plan, and must not exceed the 4 MiB that Open MPI
# gives the segment of each rank.
train=$REEL_BIN/reel-train
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
case $REEL_BIN in
*/asan | */tsan)
    echo "ok 1 # SKIP a sanitizer's shadow takes more address space than any limit would leave"
    echo 1..1; exit ;;
esac
export MALLOC_ARENA_MAX=1 # else each MPI thread reserves 64 MiB of address space without using it
run() { # RANKS LAYOUT: runs a trial of $file, with the limits that the command $limited sets
    local launcher=
    [ "$1" -gt 1 ] && launcher="mpirun --oversubscribe --quiet -n $1"
    timeout 400 $launcher ${limited:-} "$train" train --run "$file" --layout "$2" \
        --trial --steps 2 --run-dir t > out 2> err < /dev/null
}
number() { grep -o "\"$1\": [0-9]*" out | head -n 1 | grep -o '[0-9]*$'; }
planned() { # CATEGORY FILE: prints its bytes in the plan that FILE holds
    sed -n "s/^.*info:   $1  *\([0-9.]*\) \([KMG]*\)i*B\$/\1 \2/p" "$2" |
        awk '{ print $1 * ($2 == "K" ? 1024 : $2 == "M" ? 1048576 : $2 == "G" ? 1073741824 : 1) }'
}
# share CATEGORY FILE LEAST MOST: prints the ratio of its bytes to those of the file $one, which is
# the plan of one rank, and checks that it is from LEAST to MOST
share() {
    awk -v a="$(planned "$1" "$2")" -v one="$(planned "$1" "$one")" -v least="$3" -v most="$4" '
        BEGIN { r = a / one; printf "%.3f", r; exit !(one > 0 && r >= least && r <= most) }'
}
resident() { # [RANKS]: prints resident over planned bytes, and checks that they agree to 5 %
    awk -v a="$(number peak_bytes)" -v b="$(number planned_bytes)" -v s="$(number mpi_bytes)" \
        -v n="${1:-2}" '
        BEGIN { r = (a - s) / b; printf "%.3f", r
            exit !(b > 0 && r < 1.05 && r > 0.95 && s != "" && s <= n * 4198400) }'
}
