"""machine: which GPU, driver, libraries and build a visit meets, and where CUDA's libraries are."""
import glob
import json
import os
import platform
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ASKED = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "power.limit",
         "clocks_throttle_reasons.active")
# What the backend is linked with or loads, by the major versions that it was built against.
WANTED = ("libcublasLt.so.13", "libcudnn.so.9", "libnccl.so.2")


def folders():
    """Where CUDA's libraries may lie: a toolkit's folders, and those of a PyTorch installation."""
    roots = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    found = [p for r in roots if r for p in (r + "/lib64", r + "/targets/x86_64-linux/lib")]
    found += sorted(glob.glob("/usr/local/cuda-*/lib64"), reverse=True)
    places = [p for p in sys.path if p.endswith("-packages")]
    places += glob.glob("/usr/lib/python3*/*-packages") + glob.glob("/opt/*/lib/python3*/*-packages")
    places += glob.glob("/usr/local/lib/python3*/*-packages")
    for p in dict.fromkeys(places):
        found += sorted(glob.glob(p + "/nvidia/*/lib")) + sorted(glob.glob(p + "/torch/lib"))
    return [p for p in dict.fromkeys(found) if os.path.isdir(p)]


def cuda_libraries():
    """The first folder that has each library, None for one that is nowhere."""
    there = folders()
    return {name: next((p for p in there if os.path.exists(os.path.join(p, name))), None)
            for name in WANTED}


def library_path():
    """LD_LIBRARY_PATH for reel's programs: CUDA's libraries, and what the pack carries."""
    found = [p for p in cuda_libraries().values() if p]
    given = [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    packed = [p for p in (os.path.join(ROOT, "lib"),) if os.path.isdir(p)]
    return ":".join(dict.fromkeys(given + found + packed))


def smi(fields):
    """What nvidia-smi says of the first GPU, or None."""
    if not shutil.which("nvidia-smi"):
        return None
    p = subprocess.run(["nvidia-smi", "--query-gpu=" + ",".join(fields), "--format=csv,noheader"],
                       capture_output=True, text=True)
    if p.returncode != 0 or not p.stdout.strip():
        return None
    values = [x.strip() for x in p.stdout.splitlines()[0].split(",")]
    return dict(zip(fields, values))


def state():
    return smi(ASKED)


def version_of(path, name):
    """A library's file behind its links, whose name has the version."""
    return os.path.basename(os.path.realpath(os.path.join(path, name))) if path else None


def facts(place):
    """What is the same in all lines of a visit. Raises CalledProcessError when reel-train does not
    run or there is no device."""
    told = place.must([place.program("reel-train"), "--version"]).splitlines()[0]
    device = json.loads(place.must([place.program("tests/gpu/check"), "device"]))
    driver = smi(("driver_version", "name", "uuid")) or {}
    libraries = {n: version_of(p, n) for n, p in cuda_libraries().items()}
    name = "shim" if place.shim else driver.get("name") or device["device"]
    return {"device": name, "memory_bytes": device["total_bytes"],
            "driver": driver.get("driver_version"),
            "libraries": {} if place.shim else libraries,
            "commit": told.partition("commit ")[2].split(",")[0] or "unknown",
            "host": {"cpu": cpu_name(), "cores": os.cpu_count(), "kernel": platform.release()}}


def cpu_name():
    with open("/proc/cpuinfo") as f:
        names = [x.partition(":")[2].strip() for x in f if x.startswith("model name")]
    return names[0] if names else platform.machine()
