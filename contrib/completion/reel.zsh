#compdef reel reel-train reel-curate reel-slurm
# Completes words for reel's programs in zsh. It asks the programs for the words, so that it always
# agrees with them.
local program=$words[1] line
local -a typed lines offers
typed=("${(@)words[2,CURRENT]}")
if [[ ${program:t} == reel && $typed[1] == curate && $#typed -gt 1 ]]; then
    program=$program-curate # this program knows the options of reel curate
    shift typed
fi
lines=("${(@f)$("$program" help --words "${(@)typed}" 2> /dev/null)}")
for line in $lines; do
    [[ $line == :files* ]] || offers+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
done
_describe -t words word offers
[[ -z ${(M)lines:#:files*} ]] || _files
