"""ask_self: questions about visit itself, for its test: every way in which a case can end."""
import os
import signal
import subprocess
import time

from place import Case, Skipped, Wrong


def crash(place):
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(place):
    """Hangs beside a child in a group of its own, which writes its number down."""
    path = os.path.join(place.work, "child")
    child = subprocess.Popen(["sleep", "100000"], preexec_fn=os.setpgrp)
    with open(path, "w") as f:
        f.write(str(child.pid))
    time.sleep(100000)


def wrong(place):
    raise Wrong("the answer is no", {"value": 3, "unit": "apples"})


def skip(place):
    raise Skipped("nobody has one")


def defect(place):
    return {}["missing"]


def program(place):
    place.must(["sh", "-c", "echo no such thing >&2; exit 3"])


def cases(place):
    return [
        Case("figure", "a value", lambda p: {"value": 2.0, "unit": "TB/s", "share": 0.5,
                                             "spread": 0.01}),
        Case("crash", "ends by a signal", crash),
        Case("hang", "never ends", hang, limit_s=float(os.environ.get("HANG_S", 3))),
        Case("wrong", "a wrong answer", wrong),
        Case("skip", "cannot be asked", skip),
        Case("defect", "a defect of the case", defect),
        Case("program", "a program that fails", program),
        Case("last", "is asked whatever went before", lambda p: {"says": "here"}),
        Case("long", "does not fit into a small budget", lambda p: {"says": "at last"},
             expected_s=1000),
    ]
