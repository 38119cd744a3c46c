# Completes words for reel's programs in bash. It asks the programs for the words, so that it always
# agrees with them.
_reel() {
    local program=${COMP_WORDS[0]} cur=${COMP_WORDS[COMP_CWORD]} words
    local typed=("${COMP_WORDS[@]:1:COMP_CWORD}")
    if [ "${program##*/}" = reel ] && [ "${typed[0]}" = curate ] && [ ${#typed[@]} -gt 1 ]; then
        program=${program}-curate typed=("${typed[@]:1}") # this program knows the options of reel curate
    fi
    words=$("$program" help --words "${typed[@]}" 2> /dev/null | cut -f1)
    [ "$cur" != = ] || cur=
    mapfile -t COMPREPLY < <(compgen -W "${words//:files/}" -- "$cur")
    case $words in
    *:files*) compopt -o filenames 2> /dev/null; mapfile -t \
    -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$cur") ;;
    esac
}
complete -F _reel reel reel-train reel-curate reel-slurm
