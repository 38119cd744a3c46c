"""megatron_args.py MEGATRON < LINES: reads command lines with Megatron-LM's own parser and its own
check of them (megatron/training/arguments.py), without a GPU. A line is the number of ranks, a tab
and the words; it is answered by "ok DP VPP" (replicas, virtual stages of a rank) or by "no" and
what Megatron says.

Of core_v0.14 and v0.15 only that file and its enumerations are Megatron's: the rest of
megatron.core, which needs CUDA to be imported, is stood in for by objects that say yes to
everything. Of core_v0.19, whose options are made of its configurations, all is Megatron's.
"""
import contextlib
import enum
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import shlex
import sys
import types
from unittest import mock


class Stand(types.ModuleType):
    """A module that has every name."""
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, mock.MagicMock(name=name))
        return self.__dict__[name]


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives a Stand for all that is Megatron's."""
    def find_spec(self, name, path, target=None):
        mine = name.split(".")[0] in ("megatron", "transformer_engine")
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if mine else None

    def create_module(self, spec):
        return Stand(spec.name)

    def exec_module(self, module):
        pass


class StrictHandling(enum.Enum):
    ASSUME_OK_UNEXPECTED = "assume_ok_unexpected"


def load(root, name):
    """Reads a module of Megatron's for true."""
    path = os.path.join(root, *name.split(".")) + ".py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def arguments(root):
    """Megatron's module of arguments, on a machine of the Hopper generation."""
    if os.path.exists(os.path.join(root, "megatron", "training", "argument_utils.py")):
        sys.path.insert(0, root)
        whole = importlib.import_module("megatron.training.arguments")
        whole.get_device_arch_version = lambda: 9
        return whole
    return arguments_alone(root)


def arguments_alone(root):
    sys.meta_path.insert(0, Finder())
    load(root, "megatron.core.transformer.enums")
    importlib.import_module("megatron.core.dist_checkpointing.validation").StrictHandling = \
        StrictHandling
    importlib.import_module("megatron.core.rerun_state_machine").RerunStateMachine.rerun_mode = None
    utils = importlib.import_module("megatron.training.utils")
    utils.get_device_arch_version = lambda: 9
    utils.update_use_dist_ckpt = lambda a: setattr(a, "use_dist_ckpt", a.ckpt_format != "torch")
    return load(root, "megatron.training.arguments")


def answer(module, ranks, words):
    # Megatron-FSDP refuses 1, and tensor and context parallelism without it refuse all else
    connections = "8" if "--use-megatron-fsdp" in words else "1"
    os.environ.update(WORLD_SIZE=ranks, RANK="0", CUDA_DEVICE_MAX_CONNECTIONS=connections)
    sys.argv = ["pretrain"] + words
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            args = module.parse_args()
            module.validate_args(args)
    except (SystemExit, Exception) as e:
        return "no %s %s" % (e, " ".join(said.getvalue().split()[-30:]))
    return "ok %d %d" % (args.data_parallel_size, args.virtual_pipeline_model_parallel_size or 1)


module = arguments(sys.argv[1])
for line in sys.stdin:
    ranks, words = line.rstrip("\n").split("\t")
    print(answer(module, ranks, shlex.split(words)), flush=True)
