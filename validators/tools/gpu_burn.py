"""gpu-burn. Progress lines are rewritten with carriage returns, or joined when those were lost; each reads

    10.8%  proc'd: 88 (1784 Gflop/s) - 90 (1790 Gflop/s)   errors: 0 - 3  (WARNING!)   temps: 70 C - --

with one figure per GPU, in CUDA's order. The error figures start again after every "Summary at"."""

import re
from dataclasses import dataclass, field
from itertools import pairwise

from validators.tools.errors import ParseError
from validators.tools.lines import printable, unlabelled
from validators.tools.numbers import number

_PROGRESS = re.compile(r"(\d{1,3}(?:\.\d{1,4})?)%\s+proc'd:")
_WORK = re.compile(r"(-?\d{1,18}) \((\d{1,12}(?:\.\d{1,6})?) Gflop/s\)")
_ERRORS = re.compile(r"(-?\d{1,18})(?:\s+\((DIED!|WARNING!)\))?")
_GPU = re.compile(r"^GPU (\d{1,3}): (.{1,200}?) \(UUID: ([A-Za-z0-9-]{1,64})\)")
_RESULT = re.compile(r"^\s*GPU (\d{1,3}): (OK|FAULTY)\s*$")
_TESTED = re.compile(r"^Tested (\d{1,3}) GPUs:")
_MODE = re.compile(r"using (FLOATS|DOUBLES)(, using Tensor Cores)?")
_FAILURE = re.compile(r"Couldn't init|No CUDA devices|No clients are alive|Error in |^Error|[Nn]o such (?:file|device)")
_MAX_GPUS = 64


@dataclass
class BurnedGpu:
    """What was read of one GPU. `errors` sums the windows; a count after "DIED!" is no count and is left out."""

    index: int
    name: str | None = None
    uuid: str | None = None
    processed: int = 0  # matrix products of the last reading
    gflops: float = 0.0  # last reading
    errors: int = 0
    died: bool = False
    temperature_c: float | None = None  # last reading
    max_temperature_c: float | None = None
    result: str | None = None  # "OK" or "FAULTY", from the trailer
    _window: int = field(default=0, repr=False)


@dataclass(frozen=True)
class BurnRun:
    gpus: tuple[BurnedGpu, ...]
    percent: float | None  # of the last progress line
    tested: int | None  # "Tested N GPUs": None when the trailer is missing
    mode: str | None
    errors: tuple[str, ...]


def parse(output: str) -> BurnRun:
    """Raises ParseError when nothing of gpu-burn is in the text."""
    gpus: dict[int, BurnedGpu] = {}
    errors: list[str] = []
    percent = tested = mode = None
    for line in unlabelled(output):
        starts = [found.start() for found in _PROGRESS.finditer(line)]
        for start, end in pairwise([*starts, len(line)]):
            if (read := _read_progress(line[start:end], gpus)) is not None:
                percent = read
        if starts:
            continue
        if "Summary at:" in line:
            _close_window(gpus)
        elif (found := _RESULT.match(line)) and tested is not None and int(found[1]) < _MAX_GPUS:
            _gpu(gpus, int(found[1])).result = found[2]
        elif (found := _GPU.match(line)) and int(found[1]) < _MAX_GPUS:
            gpu = _gpu(gpus, int(found[1]))
            gpu.name, gpu.uuid = printable(found[2], 80), found[3]
        elif found := _TESTED.match(line):
            tested = int(found[1])
        elif found := _MODE.search(line):
            mode = found[1].lower() + ("_tensor" if found[2] else "")
        elif _FAILURE.search(line):
            errors.append(printable(line))
    _close_window(gpus)
    if not gpus and not errors and tested is None and mode is None:
        raise ParseError("no progress line, no GPU and no error of gpu-burn")
    return BurnRun(tuple(gpus[i] for i in sorted(gpus)), percent, tested, mode, tuple(errors[:20]))


def progress(tail: str) -> float | None:
    """Per cent done, from the end of the output."""
    percents = _PROGRESS.findall(tail[-20_000:])
    return min(100.0, float(percents[-1])) if percents else None


def _gpu(gpus: dict[int, BurnedGpu], index: int) -> BurnedGpu:
    return gpus.setdefault(index, BurnedGpu(index))


def _close_window(gpus: dict[int, BurnedGpu]) -> None:
    for gpu in gpus.values():
        gpu.errors += gpu._window
        gpu._window = 0


def _read_progress(text: str, gpus: dict[int, BurnedGpu]) -> float | None:
    """Take one progress line in; None when it was cut: its last figures could be too short to be true."""
    work_text, _, rest = text.partition("errors:")
    error_text, temps_mark, temps_text = rest.partition("temps:")
    if not temps_mark:
        return None
    work = _WORK.findall(work_text)[:_MAX_GPUS]
    errors = _ERRORS.findall(error_text)
    if not work or len(work) != len(errors):
        return None
    for index, ((processed, gflops), (count, note)) in enumerate(zip(work, errors, strict=True)):
        gpu = _gpu(gpus, index)
        gpu.processed, gpu.gflops = int(processed), float(gflops)
        if note == "DIED!" or int(processed) < 0:
            gpu.died = True
        else:
            gpu._window = int(count)
    # "--" is no reading, and " - " is also what separates two of them
    for index, reading in enumerate(re.split(r"\s+-\s+", temps_text.strip())[: len(work)]):
        celsius = number(reading.removesuffix("C").strip())
        if celsius is not None:
            gpu = gpus[index]
            gpu.temperature_c = celsius
            gpu.max_temperature_c = max(celsius, gpu.max_temperature_c or celsius)
    return float(text.partition("%")[0])
