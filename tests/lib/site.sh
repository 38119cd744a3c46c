# Plays sites by stand-ins for Slurm's commands, and runs reel there.
mkdir slurm; export PATH=$dir/slurm:/usr/bin:/bin REEL_SLURM_VIA=commands
fake() { printf '#!/bin/sh\n%s\n' "$2" > "slurm/$1"; chmod +x "slurm/$1"; }
site() { # PREEMPT GRACE KILLWAIT CONFIG-LINES...: what the stand-ins tell from now on
    local preempt=$1 grace=$2 wait=$3; shift 3
    printf '%s\n' 'ClusterName = west' 'SLURM_VERSION = 22.05.8' \
        'PreemptType = preempt/partition_prio' 'PreemptMode = REQUEUE' "KillWait = $wait sec" "$@" \
        > config
    echo PartitionName=low Default=YES "GraceTime=$grace" MaxTime=UNLIMITED \
        "PreemptMode=$preempt" TotalNodes=4 > partition
}
fake scontrol "[ \"\$2\" = config ] && cat $dir/config || cat $dir/partition"
fake sinfo '[ "$1" = --version ] && echo slurm 22.05.8 || echo "low|8|gpu:8"'
fake sbatch 'echo 1'
fake squeue 'exit 0'
fake srun "cat $dir/mpi"
echo 'MPI plugin types are... none pmi2 pmix' > mpi
run() { "$reel" "$@" > out 2> err; }
