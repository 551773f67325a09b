"""fio on the guest's scratch disk, its JSON output. Faults: disk-errors."""

import json
import time
from typing import Any

from fleet.lab.standins.stage import complain, recording, say, scene, tell

_SECONDS = 0.6
_VALUES = frozenset(
    [
        "name",
        "filename",
        "rw",
        "readwrite",
        "bs",
        "blocksize",
        "iodepth",
        "numjobs",
        "runtime",
        "ramp_time",
        "size",
        "ioengine",
        "direct",
        "output-format",
        "output",
        "group_reporting",
        "time_based",
        "norandommap",
        "randrepeat",
        "thread",
        "rwmixread",
        "offset",
        "loops",
        "fsync",
        "verify",
        "do_verify",
        "lat_percentiles",
        "percentile_list",
        "allow_file_create",
        "randseed",
        "eta",
        "refill_buffers",
        "buffer_compress_percentage",
        "status-interval",
        "unlink",
        "invalidate",
        "end_fsync",
        "nrfiles",
        "directory",
        "io_size",
        "number_ios",
        "rate",
        "rate_iops",
        "max-jobs",
    ]
)
_FLAGS = frozenset(
    [
        "group_reporting",
        "time_based",
        "norandommap",
        "thread",
        "direct",
        "lat_percentiles",
        "randrepeat",
        "refill_buffers",
        "minimal",
    ]
)
_READS = ("read", "randread", "rw", "readwrite", "randrw")
_WRITES = ("write", "randwrite", "rw", "readwrite", "randrw")
_EIO = 5


def main(words: list[str]) -> int:
    options: dict[str, str] = {}
    for word in words:
        name, separator, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not (name in _VALUES if separator else name in _FLAGS):
            complain(f"fio: unrecognized option '{word}'\n")
            return 1
        options[name] = value
    pattern = options.get("rw") or options.get("readwrite") or "read"
    if "name" not in options or pattern not in {*_READS, *_WRITES}:
        complain("fio: no jobs(s) defined\n" if "name" not in options else f"fio: unknown io pattern {pattern}\n")
        return 1
    now = scene()
    if options.get("filename") != now["scratch_disk"]:
        complain(
            f"fio: pid=0, err=2/file:filesetup.c:1055, func=open, error=No such file or directory: {options.get('filename')}\n"
        )
        return 1
    if options.get("output-format") != "json" or "output" in options:
        complain("fio: only JSON on the standard output was recorded\n")
        return 1
    return run(now, options, pattern)


def run(now: dict[str, Any], options: dict[str, str], pattern: str) -> int:
    time.sleep(_SECONDS)
    document = json.loads(recording("fio-randrw.json"))
    wall = time.time() + now["clock_shift_s"]
    document.update(timestamp=int(wall), timestamp_ms=int(wall * 1000), time=time.strftime("%c", time.gmtime(wall)))
    document["global options"] = {k: v for k, v in options.items() if k != "name"}
    job = document["jobs"][0]
    job["jobname"] = options["name"]
    job["job options"] = {"name": options["name"], "rw": pattern}
    disk = now["scratch_disk"].rpartition("/")[2]
    document["disk_util"][0]["name"] = disk
    failing = "disk-errors" in now["faults"] and pattern in _WRITES
    for direction, patterns in (("read", _READS), ("write", _WRITES)):
        if pattern not in patterns:
            job[direction] = dict.fromkeys(job[direction], 0) | {
                k: job["trim"][k] for k in ("slat_ns", "clat_ns", "lat_ns")
            }
    if failing:
        tell("disk-errors")
        job["error"] = _EIO
        complain(
            f"fio: io_u error on file {now['scratch_disk']}: Input/output error: write offset=3298668904448, buflen=4096\n"
            f"fio: pid=4321, err={_EIO}/file:io_u.c:1845, func=io_u error, error=Input/output error\n"
        )
    say(json.dumps(document, indent=2) + "\n")
    return 1 if failing else 0
