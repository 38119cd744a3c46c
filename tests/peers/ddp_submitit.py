"""tests/peers/ddp.py as a submitit job: ddp_submitit.py FOLDER LOGS MINUTES prints the job's id. It
is written as submitit's documentation has it: a callable with checkpoint(), which gives back what
is to be submitted again."""
import os
import sys

import ddp
import submitit


class Training:
    def __init__(self, argv):
        self.argv = argv

    def __call__(self):
        env = submitit.JobEnvironment()
        port = 20000 + int(env.raw_job_id) % 5000
        ddp.train(ddp.arguments(self.argv), env.global_rank, env.num_tasks, port, lambda: False)

    def checkpoint(self):
        return submitit.helpers.DelayedSubmission(Training(self.argv))


if __name__ == "__main__":
    folder, logs, minutes, *more = sys.argv[1:]
    executor = submitit.SlurmExecutor(folder=logs, max_num_timeout=5)
    executor.update_parameters(job_name=os.path.basename(folder), partition="low", nodes=2,
                               ntasks_per_node=1, time=int(minutes), signal_delay_s=20,
                               use_srun=True,
                               additional_parameters={"requeue": True, "open_mode": "append"})
    print(executor.submit(Training([folder, *more])).job_id)
