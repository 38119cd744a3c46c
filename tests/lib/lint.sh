# Makes small source trees for tests/lint and checks what it finds in them. Source this after
# tests/lib.sh.
plant() { # FILE: writes it from standard input
    mkdir -p "$dir/t/$(dirname "$1")"
    cat > "$dir/t/$1"
}

clean() { # makes a tree that breaks no rule
    rm -rf "$dir/t"
    plant Makefile << 'END'
MODULES := base db db/deep launcher
MAY_base :=
MAY_db := base
MAY_db/deep := base
MAY_launcher := base
END
    plant base/a.h << 'END'
#ifndef BASE_A_H
#define BASE_A_H
#include <stddef.h>
size_t a(void);
#endif
END
    plant base/a.c << 'END'
#include "base/a.h"
/* sprintf(buf) and printf( in a comment,
 * system("x") too, are no calls */
static const char text[] = "popen(\"x\") // exit(1)";
static int my_printf(int x) { return x; } // don't exit(2)
size_t a(void) { return sizeof text + (size_t)my_printf('"'); }
END
    plant db/deep/d.c << 'END'
#include "base/a.h"
static size_t d(void) { return a(); }
END
    plant launcher/cmd/go.c << 'END'
#include <stdio.h>
int go(void);
int go(void) { return printf("x"); }
END
    plant tests/cli/t1-go << 'END'
reel go
END
}

look() { # [RULES...]: runs the lint on the tree, which breaks these rules and no others
    wanted=$*
    "$REEL_SRC"/tests/lint --build "$dir/none" --root "$dir/t" > "$dir/out" 2> "$dir/err"
    looked=$? bad=$(sed -n 's/^not ok \([0-9]*\).*/\1/p' "$dir/out" | tr '\n' ' ')
}

# told RULE PLACE NAME: checks that the last look reported this rule at this place; rule 0: that all
# rules passed. A tree breaks several rules at once, since a look takes a fifth of a second.
told() {
    n=$((n + 1))
    if [ "$1" -eq 0 ] && [ $looked -eq 0 ] && [ -z "$bad" ]; then echo "ok $n - $3"
    elif [ "$1" -gt 0 ] && [ $looked -eq 1 ] && [ "$bad" = "$wanted " ] &&
        sed -n "/^not ok $1 /,/^\(not \)\?ok /p" "$dir/out" | grep -q "^# $2"; then
        echo "ok $n - $3"
    else echo "not ok $n - $3"; sed 's/^/# /' "$dir/out" "$dir/err" | tee /dev/stderr
    fi
}

expect() { look ${1#0}; told "$@"; } # RULE PLACE NAME: looks and checks, for a tree that breaks one rule
