"""sessions: a process and all that it starts, ended together.

A process begins a session, of which every child and grandchild is a member however it is grouped
(mpirun gives each rank a group of its own). So that is what is ended.
"""
import os
import signal
import subprocess
import tempfile

TOO_LONG = "too long"


def members(session):
    """The processes of a session, by the sixth field of /proc/PID/stat."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as f:
                fields = f.read().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(name))
    return found


def end(session):
    """Kills until nobody is left: who is killed may have started another just before."""
    while True:
        there = members(session)
        if not there:
            return
        for pid in there:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def run(argv, limit_s):
    """Returns the exit status or TOO_LONG, and what it wrote to stdout and stderr."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                             start_new_session=True)
        try:
            status = p.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = TOO_LONG
        finally:
            end(p.pid)
            p.wait()
        for f in (out, err):
            f.seek(0)
        return status, out.read(), err.read()
