"""Everything that can go wrong, by what is true of the world afterwards.

FleetError
├── InvalidInput            a person's or a program's input; names the field
├── NotFound                no such object
├── Refused                 the state, a hold, a role forbids it; says who, since when and why
│   ├── IllegalMove         the machine's state has no such move
│   ├── Unauthenticated     no token, or one that is not valid (any more)
│   └── Forbidden           the token's role may not do this
├── Conflict                somebody else changed the record first, or the same key came with another body
├── LeaseLost               another worker owns the row now: drop everything, write nothing
├── StoreError              the database: full, or of a newer schema
│   ├── StoreBusy           it does not answer now; nothing was written
│   │   └── StoreUnconfirmed  the answer to a commit was lost: it may have been written
│   └── EvidenceError       the evidence store cannot be used
│       ├── EvidenceFull    it takes no more
│       └── EvidenceBusy    it does not answer now (a StoreBusy too)
├── RemoteError             SSH to a host or a test VM, a call to a receiver of webhooks
│   ├── Unreachable         no connection, or it broke before the command was sent
│   ├── LoginRefused        the host does not accept our user or key
│   ├── HostKeyRefused      the host shows another key than the pinned one, or none is pinned
│   ├── CommandNotFound     the command is not installed there
│   ├── DeadlinePassed      no answer in time: the command may have run
│   ├── ConnectionBroken    the connection broke after the command was sent: it may have run
│   └── OutputTooLarge      more output than the caller is ready to keep
└── HypervisorError         virsh answered, and the answer was no
    └── HypervisorBusy      the host is still at an earlier act: the same call again, later

Callers act on two facts, never on words in a message: `retryable` (may the same call simply be made again?) and
`effect_unknown` (may the outside world have changed anyway?).
"""

from typing import ClassVar


class FleetError(Exception):
    retryable: ClassVar[bool] = False
    effect_unknown: ClassVar[bool] = False
    code: ClassVar[str] = "error"  # machine-readable name, the last part of a problem+json `type`


class InvalidInput(FleetError):
    code = "invalid-input"

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class NotFound(FleetError):
    code = "not-found"


class Refused(FleetError):
    code = "refused"


class IllegalMove(Refused):
    code = "illegal-move"


class Unauthenticated(Refused):
    code = "unauthenticated"


class Forbidden(Refused):
    code = "forbidden"


class Conflict(FleetError):
    code = "conflict"
    retryable = True


class LeaseLost(FleetError):
    code = "lease-lost"


class StoreError(FleetError):
    code = "store"


class StoreBusy(StoreError):
    code = "store-busy"
    retryable = True


class EvidenceError(StoreError):
    code = "evidence"


class EvidenceFull(EvidenceError):
    code = "evidence-full"


class EvidenceBusy(EvidenceError, StoreBusy):
    code = "evidence-busy"


class StoreUnconfirmed(StoreBusy):
    code = "store-unconfirmed"
    effect_unknown = True


class RemoteError(FleetError):
    code = "remote"


class Unreachable(RemoteError):
    code = "unreachable"
    retryable = True


class LoginRefused(RemoteError):
    code = "login-refused"


class HostKeyRefused(RemoteError):
    code = "host-key-refused"


class CommandNotFound(RemoteError):
    code = "command-not-found"


class DeadlinePassed(RemoteError):
    code = "deadline-passed"
    retryable = True
    effect_unknown = True


class ConnectionBroken(RemoteError):
    code = "connection-broken"
    retryable = True
    effect_unknown = True


class OutputTooLarge(RemoteError):
    code = "output-too-large"
    effect_unknown = True


class HypervisorError(FleetError):
    code = "hypervisor"


class HypervisorBusy(HypervisorError):
    code = "hypervisor-busy"
    retryable = True
