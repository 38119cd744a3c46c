# $nap SECONDS: sleeps without a process of its own, by reading what nobody writes. Sourced by stand-in
# trainers, which wait ten times a second for minutes, and each call of sleep takes two milliseconds
# of the processor. It is no function, in which a trap would see other arguments; its status is not
# 0, which a loop at a script's end hands on. A bash that reads so has handlers of its own for
# signals that would end it: one that shall have none calls sleep.
exec {nap}<> <(:)
nap="read -ru $nap -t"
