# Checks tables of bad input: a row has a command line, its exit status, and words of its error
# message. Each row also checks the general rules: one line on standard error without control characters,
# nothing on standard output, no file left behind, an answer in time. Cases that only one command
# has are in that command's script. Source this after tests/lib.sh.
export PATH=$REEL_BIN:$PATH XDG_CONFIG_HOME=$dir/config
listing() {
    find . \( -name out -o -name err -o -name before -o -name after -o -name '*.lock' \) -prune -o \
        -type d -printf '%P %y\n' -o -printf '%P %y %s\n' | sort
}
row() { # COMMAND-LINE CODE WORDS
    local rc why=
    listing > before
    eval "timeout -k 1 200 env $1" > out 2> err < /dev/null; rc=$?
    listing > after
    [ $rc -eq "$2" ] || why="$why exit $rc,"
    LC_ALL=C grep -q -- "$3" err || why="$why words,"
    [ -s out ] && why="$why standard output,"
    [ "$(wc -l < err)" -eq 1 ] || why="$why $(wc -l < err) lines,"
    LC_ALL=C tr -d '\n' < err | LC_ALL=C grep -q '[[:cntrl:]]' && why="$why control characters,"
    cmp -s before after ||
        why="$why left behind: $(diff before after | sed -n 's/^[<>] //p' | head -2 | tr '\n' ' ')"
    [ -z "$why" ]; ok $? "$2: $(printf %s "$1" | cut -c1-90)${why:+ ($why)}"
}
table() { # rows COMMAND | CODE | WORDS on standard input
    local cmd code words
    while IFS='|' read -r cmd code words; do
        cmd=${cmd%"${cmd##*[! ]}"}; words=${words# }
        [ -z "$cmd" ] || row "$cmd" "${code// /}" "$words"
    done
}

# Creates a valid file of each kind, and files that no command accepts. The valid files have two
# lines, because errors name line and column.
printf '%s%s\n' '{"schema": "reel.run/1", "name": "r", "model": "dit-tiny", ' \
    '"stages": [{"data": "synthetic:1x8x8", "gbs": 2, "steps": 4}],' \
    ' "adamw": {"lr": 1e-4}, "schedule": {"warmup_steps": 0}, "random": {"seed": "7"}, ' \
    '"resources": {"priority": 0}}' > run.json
printf '%s%s\n' '{"schema": "reel.plan/1", "layout": {"dp": 1}, "model": "dit-tiny", ' \
    '"seq": {"t": 1, "h": 4, "w": 4}, "gbs": 2, "dtype": "f32",' \
    ' "device": "cpu", "peak_flops": 1e11, "peak_source": "given"}' '' > plan.json
sed 's/"name": "dit-tiny"/"name": "own"/' "$REEL_SRC/profiles/models/dit-tiny.json" > model.json
: > empty.json; echo 'true' > true.json; mkdir dir.json; ln -s loop.json loop.json
ln -s /dev/zero zero.json
seq 100000 | gzip -cn | head -c 3000 > noise.json
printf '{"schema": "reel.run/1"}x' > trailing.json
printf '%0100000d' 0 | tr 0 '[' > deep.json; printf '\357\273\277{}' > bom.json
head -c 100 run.json > cut.json
edit() { # FILE SED-COMMAND COPY: makes a copy with a mistake in it
    sed "$2" "$1.json" > "$3.json"
    cmp -s "$1.json" "$3.json" && ok 1 "the edit '$2' changes $1.json"
}
