# bash completion for reel: asks the program's own option tables, so it cannot drift from them
_reel() {
    local cur=${COMP_WORDS[COMP_CWORD]} words
    if [ "$COMP_CWORD" -eq 1 ]; then
        words=$(reel help --complete 2> /dev/null | cut -f1)
    else
        words=$(reel help --complete "${COMP_WORDS[1]}" 2> /dev/null | cut -f1)
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    [ ${#COMPREPLY[@]} -gt 0 ] || mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}
complete -F _reel reel
