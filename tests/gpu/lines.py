"""lines: what visits of a GPU found out, one JSON object a line (reel.visit/1).

    kind, case          the question: check, tune or bench, and its name
    state, why          ok, failed or skipped, and why where it is not ok
    formula             what the answer is, in words
    measured            the answer: value, unit, peak, share and spread where there is one figure
    commands            what was run, with paths relative to the tree
    device, libraries, commit, host    what it was run on, and which build
    before, after       clocks, temperature and power, or null where nvidia-smi is not there
    began, took_s, limit_s, shim       when, how long; shim: no GPU at all, never a figure
"""
import datetime
import json
import os

SCHEMA = "reel.visit/1"
STATES = ("ok", "failed", "skipped")


class WrongLines(Exception):
    pass


def last_object(text):
    """The last line that is a JSON object, or None."""
    for line in reversed(text.splitlines()):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return None


def load(path):
    """The lines of a file. A last one that was cut off is none."""
    with open(path) as f:
        text = f.read()
    found = []
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if not line.endswith("\n"):
            break
        try:
            value = json.loads(line)
        except ValueError as e:
            raise WrongLines(f"{path}, line {number}: it is no JSON ({e}): take the line out")
        if not isinstance(value, dict) or value.get("schema") != SCHEMA:
            raise WrongLines(f"{path}, line {number}: it is no {SCHEMA}: give a file of visit's")
        if value.get("state") not in STATES:
            raise WrongLines(f"{path}, line {number}: state is {value.get('state')!r}: it must be "
                             "one of " + ", ".join(STATES))
        found.append(value)
    return found


def cut(path):
    """Takes a last line without an end out of a file, so that the next one begins a line."""
    with open(path, "rb+") as f:
        f.truncate(f.read().rfind(b"\n") + 1)


class Book:
    """The lines of one visit: a file that grows, and those that were made before."""

    SAME = ("kind", "shim", "commit", "device")

    def __init__(self, path, seen, common):
        self.path, self.common, self.all = path, common, []
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        for p in [*seen, path]:
            if os.path.exists(p):
                self.take(p, seen)
            elif p in seen:
                raise WrongLines(f"{p}: it is not there: --seen wants a file of lines")
        if os.path.exists(path):
            cut(path)

    def take(self, path, seen):
        for line in load(path):
            if path in seen and line["kind"] != self.common["kind"]:
                continue
            for key in self.SAME:
                if line.get(key) != self.common[key]:
                    raise WrongLines(f"{path}: its {key} is {line.get(key)!r}, and that of this "
                                     f"visit is {self.common[key]!r}: give --out another file")
            self.all.append(line)

    def has(self, name):
        return any(x["case"] == name for x in self.all)

    def add(self, line):
        now = datetime.datetime.now(datetime.timezone.utc)
        began = now - datetime.timedelta(seconds=line.get("took_s", 0))
        line = {"schema": SCHEMA, **self.common, **line,
                "began": began.isoformat(timespec="seconds")}
        with open(self.path, "a") as f:
            f.write(json.dumps(line) + "\n")
            f.flush()
            os.fsync(f.fileno())
        self.all.append(line)


def number(x):
    return f"{x:.4g}" if isinstance(x, float) else str(x)


def figure(line):
    """The answer in a few words."""
    m = line.get("measured") or {}
    if "value" not in m:
        text = m.get("says", "")
    else:
        text = f"{number(m['value'])} {m.get('unit', '')}".strip()
        text += f", {100 * m['share']:.1f} % of {m.get('peak_name', 'peak')}" if m.get("share") else ""
        text += f", spread {100 * m['spread']:.1f} %" if m.get("spread") is not None else ""
    return text or (line.get("why") or "").replace("\n", " ")[:90]


def row(line):
    return f"  {line['state']:8}{line['case']:28}{line['took_s']:7.1f} s  {figure(line)}"


def table(found):
    if not found:
        return "no lines"
    head = found[0]
    title = f"{head['device']}, {head['commit']}" + (" (shim: no GPU)" if head["shim"] else "")
    return "\n".join([title] + [row(x) for x in found])


def markdown(found):
    rows = ["| case | state | answer | formula |", "|---|---|---|---|"]
    for x in found:
        cells = (f"{x['kind']} {x['case']}", x["state"], figure(x), x.get("formula", ""))
        rows.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    return "\n".join(rows)
