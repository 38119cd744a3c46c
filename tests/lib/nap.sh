# $nap SECONDS: sleeps without starting a process, by reading from a pipe into which nobody writes.
# Stand-in trainers source this file, because they wait ten times a second for minutes, and each call
# of sleep costs two milliseconds of CPU time. $nap is not a function, because a trap would see other
# arguments inside one. Its exit status is not 0, so a loop at the end of a script must not return
# it. While it reads, bash has its own handlers for signals that would kill it; a script that must
# die of a signal calls sleep instead.
exec {nap}<> <(:)
nap="read -ru $nap -t"
