"""titan_args.py TORCHTITAN LAYERS < LINES: reads command lines with torchtitan's own parser
(torchtitan/config), without a GPU, and goes through what its start checks: ranks, batches, stages.
A line is the number of ranks, a tab and the words; it is answered by "ok DP VPP" (replicas, stages
of a rank) or by "no" and why. Fits v0.2, which needs torch and tyro, and v0.3, whose parser needs
all that torchtitan does.
"""
import contextlib
import io
import logging
import math
import os
import shlex
import sys
import types


def package(name, path, **names):
    """Stands in for a package whose own start would need a GPU."""
    module = types.ModuleType(name)
    module.__path__ = [path]
    module.__dict__.update(names)
    sys.modules[name] = module


def parser_old(root):
    """That of v0.2, where one file holds the options."""
    package("torchtitan", os.path.join(root, "torchtitan"))
    package("torchtitan.tools", "")
    package("torchtitan.tools.logging", "", logger=logging.getLogger())
    from torchtitan.config.manager import ConfigManager
    return ConfigManager


def parser_new(root):
    """That of v0.3, with the defaults of its trainer in place of a model's."""
    sys.path.insert(0, root)
    from torchtitan.config.manager import ConfigManager
    from torchtitan.trainer import Trainer

    class Plain(ConfigManager):
        def _load_config(self, args):
            return Trainer.Config(), args

        def _validate_config(self):
            pass

    return Plain


root, layers = sys.argv[1], int(sys.argv[2])
is_old = os.path.exists(os.path.join(root, "torchtitan", "config", "job_config.py"))
parser = parser_old(root) if is_old else parser_new(root)


def checked(config, ranks):
    """What torchtitan/train.py, distributed/parallel_dims.py and pipeline_parallel.py assert."""
    p, t = config.parallelism, config.training
    dp = p.data_parallel_replicate_degree * p.data_parallel_shard_degree
    pp = p.pipeline_parallel_degree
    if dp * p.context_parallel_degree * p.tensor_parallel_degree * pp != ranks:
        return "no the degrees are not %d ranks" % ranks
    if t.global_batch_size % (t.local_batch_size * dp):
        return "no global_batch_size is not a multiple of local_batch_size x %d" % dp
    stages = 1
    if pp > 1:
        less = (p.pipeline_parallel_first_stage_less_layers +
                p.pipeline_parallel_last_stage_less_layers)
        stages, rest = divmod(math.ceil((layers + less) / p.pipeline_parallel_layers_per_stage), pp)
        if rest or (stages == 1) != (p.pipeline_parallel_schedule == "1F1B"):
            return "no %d and %d stages on %d ranks" % (stages, rest, pp)
        if t.local_batch_size % p.pipeline_parallel_microbatch_size:
            return "no micro-batches are not equal"
    return "ok %d %d" % (dp, stages)


def answer(ranks, words):
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            config = parser().parse_args(words)
    except (SystemExit, Exception) as e:
        return "no %s %s" % (e, " ".join(said.getvalue().split()[-30:]))
    return checked(config, ranks)


for line in sys.stdin:
    ranks, words = line.rstrip("\n").split("\t")
    print(answer(int(ranks), shlex.split(words)), flush=True)
