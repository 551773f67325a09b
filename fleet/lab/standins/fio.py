"""fio on the guest's scratch disk, its JSON output. Faults: disk-errors.

Recorded was a random job with blocks of 4 KiB; jobs with other blocks are given its bandwidth with the operations that fit."""

import copy
import json
import time
from typing import Any

from fleet.lab.standins.lab import tell
from fleet.lab.standins.stage import complain, recording, say, scene

_SECONDS = 0.6
_RECORDED_BLOCK = 4096
_EIO = 5
_READS = ("read", "randread", "rw", "randrw")
_WRITES = ("write", "randwrite", "rw", "randrw")
_UNITS = {"k": 1 << 10, "m": 1 << 20}
_WITH_VALUE = frozenset(
    {"name", "filename", "rw", "bs", "iodepth", "numjobs", "runtime", "ramp_time", "size", "ioengine", "direct"}
    | {"output-format", "rwmixread", "offset", "fsync", "verify", "randseed", "eta", "lat_percentiles", "norandommap"}
)
_ALONE = frozenset(
    {
        "time_based",
        "group_reporting",
        "stonewall",
        "norandommap",
        "thread",
        "direct",
        "refill_buffers",
        "lat_percentiles",
    }
)


class _Usage(Exception):
    pass


def main(words: list[str]) -> int:
    now = scene()
    try:
        jobs = _read(words)
    except _Usage as exc:
        complain(f"fio: {exc}\n")
        return 1
    wrong = next((job["filename"] for job in jobs if job.get("filename") != now["scratch_disk"]), None)
    if wrong is not None:
        complain(f"fio: pid=0, err=2/file:filesetup.c:1055, func=open, error=No such file or directory: {wrong}\n")
        return 1
    return _run(now, jobs)


def _read(words: list[str]) -> list[dict[str, str]]:
    """The jobs, each with the options before the first `--name` too."""
    shared: dict[str, str] = {}
    jobs: list[dict[str, str]] = []
    for word in words:
        name, separator, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name not in (_WITH_VALUE if separator else _ALONE):
            raise _Usage(f"unrecognized option '{word}'")
        if name == "name":
            jobs.append({**shared})
        (jobs[-1] if jobs else shared)[name] = value
    if not jobs:
        raise _Usage("no jobs(s) defined")
    if shared.get("output-format", jobs[0].get("output-format")) != "json":
        raise _Usage("only the JSON output was recorded")
    for job in jobs:
        job.setdefault("filename", "(none)")
        if job.setdefault("rw", "read") not in {*_READS, *_WRITES}:
            raise _Usage(f"bad value <{job['rw']}> for option rw")
        if not job.setdefault("bs", "4k").rstrip("kKmM").isdigit():
            raise _Usage(f"bad value <{job['bs']}> for option bs")
    return jobs


def _run(now: dict[str, Any], jobs: list[dict[str, str]]) -> int:
    time.sleep(_SECONDS)
    document = json.loads(recording("fio-randrw.json"))
    wall = time.time() + now["clock_shift_s"]
    document.update(timestamp=int(wall), timestamp_ms=int(wall * 1000), time=time.strftime("%c", time.gmtime(wall)))
    document["global options"] = {name: jobs[0][name] for name in jobs[0] if name not in ("name", "rw", "bs")}
    recorded = document["jobs"][0]
    document["jobs"] = [_job(recorded, job) for job in jobs]
    document["disk_util"][0]["name"] = now["scratch_disk"].rpartition("/")[2]
    failing = "disk-errors" in now["faults"] and any(job["rw"] in _WRITES for job in jobs)
    if failing:
        tell("disk-errors")
        document["jobs"][0]["error"] = _EIO
        where = f"file {now['scratch_disk']}: Input/output error: write offset=3298668904448, buflen=4096"
        complain(f"fio: io_u error on {where}\n")
        complain(f"fio: pid=4321, err={_EIO}/file:io_u.c:1845, func=io_u error, error=Input/output error\n")
    say(json.dumps(document, indent=2) + "\n")
    return 1 if failing else 0


def _job(recorded: dict[str, Any], wanted: dict[str, str]) -> dict[str, Any]:
    job = copy.deepcopy(recorded)
    job["jobname"] = wanted["name"]
    job["job options"] = {name: wanted[name] for name in ("name", "rw", "bs")}
    block = int(wanted["bs"].rstrip("kKmM")) * _UNITS.get(wanted["bs"][-1].lower(), 1)
    for direction, patterns in (("read", _READS), ("write", _WRITES)):
        way = job[direction]
        if wanted["rw"] not in patterns:
            job[direction] = copy.deepcopy(recorded["trim"])  # all zero
            continue
        for operations in ("iops", "total_ios", "iops_min", "iops_max", "iops_mean", "iops_stddev"):
            way[operations] = type(way[operations])(way[operations] * _RECORDED_BLOCK / block)
    return job
