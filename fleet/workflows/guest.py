"""The orchestrator's side of the runner in a test VM (``validators/guest``): begin it, look at it, stop it.

Every call is one round trip and may be repeated. What comes back was written by a guest: sizes are bounded while reading,
shapes are strict, words are made printable.
"""

import json
import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, ValidationError

from fleet.core.clock import Deadline
from fleet.core.errors import FleetError, InvalidInput
from fleet.remote.base import Output, Shell
from fleet.remote.printable import printable
from validators.base import Ended
from validators.guest.build import runner_zipapp

STATE_LIMIT_BYTES = 64 << 10
MANIFEST_LIMIT_BYTES = 32 << 10
STALE_S = 10.0  # the runner's heart beats every half second
_STREAMS_IN_FULL = 4  # how many streams of the largest size one poll may bring
_VALIDATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_STEP = r"^[a-z][a-z0-9_]{0,39}(\.[0-9]{1,3})?$"
_BOOT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|")


class GuestError(FleetError):
    """The guest answered, and could not do it; says what it said. Trying again does not help."""

    code = "guest"


class GuestGarbage(GuestError):
    """The answer is not what the runner writes: another program, a broken disk, or a guest that lies."""

    code = "guest-garbage"


class RunState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"  # by our order; what had not ended says so
    BROKEN = "broken"  # the runner or the guest went down; see the reason


def _lines(text: str) -> str:
    return re.sub(r"[^\n -~]", lambda found: "\n" if found[0] == "\r" else "?", text)


_Line = Annotated[str, Field(max_length=500), AfterValidator(printable)]
_Lines = Annotated[str, Field(max_length=500), AfterValidator(_lines)]
_Seconds = Annotated[NonNegativeFloat, Field(le=1e11)]
_Bytes = Annotated[NonNegativeInt, Field(le=1 << 50)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class GuestCheck(_Strict):
    """One step. `started_at` is the guest's wall clock and only for display; `tail` the end of its output, for progress."""

    state: Literal["waiting", "running", "ended"]
    ended: Ended | None
    exit_status: Annotated[int, Field(ge=-255, le=255)] | None
    started_at: _Seconds | None
    duration_s: _Seconds | None
    stdout_bytes: _Bytes
    stderr_bytes: _Bytes
    truncated: bool
    tail: _Lines


class GuestState(_Strict):
    version: Literal[1]
    state: RunState
    reason: _Line
    boot_id: Annotated[str, Field(pattern=f"^({_BOOT_ID.pattern})$")]
    beat: _Seconds  # on the scale of the guest's /proc/uptime
    checks: Mapping[Annotated[str, Field(pattern=_STEP)], GuestCheck] = Field(max_length=64)


@dataclass(frozen=True)
class GuestOutput:
    """`truncated`: the guest printed more than this."""

    stdout: bytes
    stderr: bytes
    truncated: bool


@dataclass(frozen=True)
class GuestPoll:
    """`outputs` has every check that has ended and that the caller did not know. `state` is None before the start."""

    state: GuestState | None
    outputs: Mapping[str, GuestOutput] = field(default_factory=dict)
    boot_id: str = ""
    uptime_s: float = 0.0

    @property
    def stale(self) -> bool:
        """Does the state say "running" while nothing runs (any more)?"""
        if self.state is None or self.state.state is not RunState.RUNNING:
            return False
        return self.state.boot_id != self.boot_id or self.uptime_s - self.state.beat > STALE_S


class GuestRun:
    """The run of one validation in one test VM. Raises RemoteError, GuestError, GuestGarbage."""

    def __init__(self, shell: Shell, validation: str) -> None:
        if not _VALIDATION.fullmatch(validation):
            raise InvalidInput(f"{validation!r} cannot name a directory", "validation")
        self._shell = shell
        self._home = f"fleet/{validation}"

    def begin(self, plan: Mapping[str, Any], deadline: Deadline) -> None:
        """Push runner and plan and start it. What was begun before is left alone, whatever its plan was."""
        archive = runner_zipapp()
        upload = json.dumps(plan).encode() + b"\n" + archive
        self._ask(_command(_BEGIN, home=self._home, size=len(archive)), deadline, stdin=upload)

    def poll(self, known: Collection[str], limit_bytes: int, deadline: Deadline) -> GuestPoll:
        """State, and the outputs of checks that have ended and are not `known`, each stream cut at `limit_bytes`. A
        run whose runner is dead is closed first, so that it is seen as broken, with what was running as lost."""
        seen = self._look(known, limit_bytes, deadline)
        if not seen.stale:
            return seen
        self._ask(_command(_START, home=self._home), deadline)
        return self._look(known, limit_bytes, deadline)

    def stop(self, deadline: Deadline) -> None:
        """Ask the runner to end everything; it takes up to a few seconds. Nothing happens where there is no run."""
        self._ask(_command(_STOP, home=self._home), deadline)

    def boot_id(self, deadline: Deadline) -> str:
        return _boot_id(self._ask(_BOOT, deadline, limit_bytes=256))

    def image_manifest(self, deadline: Deadline) -> bytes:
        """What the image says is in it; a manifest of more than 32 KiB is cut, and so is no JSON any more."""
        return self._ask(
            _command(_MANIFEST, limit=MANIFEST_LIMIT_BYTES), deadline, limit_bytes=2 * MANIFEST_LIMIT_BYTES
        )

    def kernel_log(self, limit_bytes: int, deadline: Deadline) -> bytes:
        """The last `limit_bytes` of it. The guest has not been up for long: its ring buffer holds everything."""
        log = self._ask(_command(_KERNEL_LOG, limit=limit_bytes), deadline, limit_bytes=limit_bytes + 4096)
        if not log:
            raise GuestError("the guest's kernel log is empty, or dmesg does not work there")
        return log

    def _look(self, known: Collection[str], limit_bytes: int, deadline: Deadline) -> GuestPoll:
        budget = _STREAMS_IN_FULL * limit_bytes
        names = " ".join(sorted(known))
        command = _command(
            _LOOK, home=self._home, known=names, limit=limit_bytes, left=budget, state_limit=STATE_LIMIT_BYTES
        )
        return read_poll(self._ask(command, deadline, limit_bytes=budget + 2 * STATE_LIMIT_BYTES), known)

    def _ask(self, command: str, deadline: Deadline, *, stdin: bytes = b"", limit_bytes: int = 4096) -> bytes:
        answer: Output = self._shell.run(command, deadline, stdin=stdin, limit_bytes=limit_bytes)
        if answer.exit_status != 0:
            said = printable(answer.stderr) or "it said nothing"
            raise GuestError(f"the guest could not do it (exit status {answer.exit_status}): {said}")
        return answer.stdout


def read_poll(answer: bytes, known: Collection[str]) -> GuestPoll:
    """Parse what `_LOOK` prints. Raises GuestGarbage."""
    if not answer:
        return GuestPoll(None)
    boot, _, rest = answer.partition(b"\n")
    uptime, _, rest = rest.partition(b"\n")
    document, _, blocks = rest.partition(b"\n")
    try:
        uptime_s = float(uptime.split()[0])
        state = GuestState.model_validate_json(document)
    except (ValueError, IndexError) as exc:
        raise GuestGarbage(f"the runner's state cannot be read: {_first_error(exc)}") from exc
    outputs = {
        name: output if not state.checks[name].truncated else GuestOutput(output.stdout, output.stderr, True)
        for name, output in _read_blocks(blocks).items()
        if name in state.checks and state.checks[name].state == "ended"
    }
    ended = {name for name, check in state.checks.items() if check.state == "ended"}
    if missing := ended - set(known) - set(outputs):
        raise GuestGarbage(f"no output of {', '.join(sorted(missing))}, which the runner says has ended")
    return GuestPoll(state, outputs, _boot_id(boot), uptime_s)


_HEAD = re.compile(rb"(?P<name>[a-z][a-z0-9_.]{0,44}) (\d{1,15}) (\d{1,15}) (\d{1,15}) (\d{1,15})")


def _read_blocks(blocks: bytes) -> dict[str, GuestOutput]:
    """Each: `NAME printed sent printed sent` for stdout and stderr, a line end, and the bytes that were sent."""
    outputs: dict[str, GuestOutput] = {}
    at = 0
    while at < len(blocks):
        end = blocks.find(b"\n", at, at + 200)
        head = _HEAD.fullmatch(blocks, at, end) if end >= 0 else None
        if head is None:
            raise GuestGarbage("an output has no proper heading")
        out, out_sent, err, err_sent = (int(number) for number in head.groups()[1:])
        middle, last = end + 1 + out_sent, end + 1 + out_sent + err_sent
        if last > len(blocks):
            raise GuestGarbage(f"the output of {head['name'].decode()} is shorter than announced")
        cut = out_sent < out or err_sent < err
        outputs[head["name"].decode()] = GuestOutput(blocks[end + 1 : middle], blocks[middle:last], cut)
        at = last
    return outputs


def _boot_id(answer: bytes) -> str:
    text = answer.decode("ascii", "replace").strip()
    if not _BOOT_ID.fullmatch(text):
        raise GuestGarbage(f"not a boot id: {printable(text, 60)}")
    return text


def _first_error(exc: Exception) -> str:
    if isinstance(exc, ValidationError):
        first = exc.errors(include_url=False, include_input=False)[0]
        return printable(f"{'.'.join(str(part) for part in first['loc']) or 'document'}: {first['msg']}")
    return printable(str(exc))


def _command(script: str, **variables: str | int) -> str:
    """The script with its variables set before it, quoted."""
    return "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in variables.items()) + script


_BOOT = 'cat "${FLEET_ROOT:-}/proc/sys/kernel/random/boot_id"'

_MANIFEST = 'head -c "$limit" "${FLEET_ROOT:-}/etc/fleet-image.json"'

_START = 'cd "$home" && python3 -I -S runner.pyz start'

# The plan is the first line, which `read` takes byte by byte; all the rest is the archive. `cat` writes both, because it
# says "No space left on device" where a shell's own printf only says "I/O error".
_BEGIN = """\
set -e; umask 077; mkdir -p "$home"; cd "$home"
if [ -e state.json ]; then
  cat > /dev/null
else
  trap 'rm -f plan.$$ runner.$$' EXIT
  IFS= read -r plan; printf '%s\\n' "$plan" | cat > plan.$$; cat > runner.$$
  if [ "$(wc -c < runner.$$)" -ne "$size" ]; then echo "the upload was cut" >&2; exit 1; fi
  mv plan.$$ plan.json; mv runner.$$ runner.pyz
fi
python3 -I -S runner.pyz start"""

_STOP = 'if [ -d "$home" ]; then : > "$home/stop"; fi'

_LOOK = f"""\
cd "$home" 2>/dev/null && [ -e state.json ] || exit 0
{_BOOT} || echo; cat /proc/uptime; head -c "$state_limit" state.json
for d in out/*; do
  n=${{d#out/}}
  case $n in *.part|'*') continue;; esac
  case " $known " in *" $n "*) continue;; esac
  o=$(wc -c < "$d/stdout") && e=$(wc -c < "$d/stderr") || continue
  a=$o; [ "$a" -le "$limit" ] || a=$limit; [ "$a" -le "$left" ] || a=$left; left=$((left - a))
  b=$e; [ "$b" -le "$limit" ] || b=$limit; [ "$b" -le "$left" ] || b=$left; left=$((left - b))
  printf '%s\\n' "$n $o $a $e $b"; head -c "$a" "$d/stdout"; head -c "$b" "$d/stderr"
done"""

_KERNEL_LOG = '{ dmesg --time-format iso 2>/dev/null || dmesg; } | tail -c "$limit"'
