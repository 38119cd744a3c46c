"""place: where the programs of a visit are, and how a case runs them."""
import dataclasses
import json
import os
import shutil
import subprocess
import traceback
from typing import Callable

import machine


@dataclasses.dataclass
class Case:
    """A question: ask(place) returns what was measured. It raises Wrong when the answer is no, and
    Skipped when it cannot be asked here."""
    name: str
    formula: str
    ask: Callable
    expected_s: float = 5
    limit_s: float = 60


class Wrong(Exception):
    def __init__(self, why, measured=None):
        super().__init__(why)
        self.measured = measured


class Skipped(Exception):
    pass


class Place:
    def __init__(self, programs, work, shim):
        self.bin, self.work, self.shim, self.commands = programs, work, shim, []
        self.mpi = os.path.join(machine.ROOT, "mpi")  # a pack has one of its own

    def program(self, name):
        return os.path.join(self.bin, name)

    def environment(self, more=None):
        path = self.program("shim/libreel-cuda.so" if self.shim else "libreel-cuda.so")
        env = {**os.environ, "REEL_CUDA_LIBRARY": path, "OMPI_ALLOW_RUN_AS_ROOT": "1",
               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "REEL_HOME": self.work + "/home"}
        env.setdefault("HOME", self.work)  # PMIx ends with a fault where nobody has a home
        libraries = machine.library_path()
        if libraries:
            env["LD_LIBRARY_PATH"] = libraries
        if os.path.isdir(self.mpi):
            env.update(OPAL_PREFIX=self.mpi, PMIX_INSTALL_PREFIX=self.mpi,
                       PATH=self.mpi + "/bin:" + env.get("PATH", "/usr/bin:/bin"))
        return {**env, **(more or {})}

    def shown(self, argv):
        """A command with paths of the tree and of the work folder taken relative."""
        text = " ".join(argv)
        for at, name in ((self.work, "WORK"), (self.bin, "build/release"), (machine.ROOT, ".")):
            text = text.replace(at, name)
        return text

    def run(self, argv, env=None, cwd=None):
        self.commands.append(self.shown(argv))
        return subprocess.run(argv, capture_output=True, text=True, cwd=cwd,
                              env=self.environment(env), stdin=subprocess.DEVNULL)

    def must(self, argv, env=None, cwd=None):
        """Returns stdout; raises CalledProcessError."""
        p = self.run(argv, env, cwd)
        p.check_returncode()
        return p.stdout

    def folder(self, name):
        """A new folder for a case's files."""
        path = os.path.join(self.work, name.replace("/", "-"))
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        return path

    def ranks(self, n, argv, env=None, cwd=None):
        """Runs a program on n ranks of this machine, by shared memory alone. No other machine is
        asked for, so that neither ssh nor its settings are looked at."""
        if not shutil.which("mpirun", path=self.environment()["PATH"]):
            raise Skipped("there is no mpirun: not in the pack, and not on this machine")
        return self.must(["mpirun", "--oversubscribe", "--mca", "btl", "self,vader", "--mca",
                          "btl_vader_single_copy_mechanism", "none", "--mca", "pml", "ob1",
                          "--mca", "plm", "isolated", "--quiet", "-n", str(n), *argv], env, cwd)

    def ask(self, case):
        try:
            return {"state": "ok", "measured": case.ask(self)}
        except Wrong as e:
            return {"state": "failed", "why": str(e)[-2000:], "measured": e.measured}
        except Skipped as e:
            return {"state": "skipped", "why": str(e)}
        except subprocess.CalledProcessError as e:
            why = f"{self.shown(e.cmd)} ended with {e.returncode}: {(e.stderr or '').strip()}"
            return {"state": "failed", "why": why[-2000:]}
        except Exception:  # a case's own defect is a failed line, and the rest goes on
            return {"state": "failed", "why": traceback.format_exc()[-2000:]}

    def answer(self, case):
        """Asks, and prints what a line says of it as one JSON object."""
        answer = self.ask(case)
        print(json.dumps({**answer, "commands": self.commands}), flush=True)
