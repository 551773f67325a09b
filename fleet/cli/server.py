"""`fleet up`, `fleet serve`, `fleet worker`: the servers. Everything else of the command line is a client of them."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.exits import CommandError, Exit
from fleet.cli.output import say
from fleet.core.errors import InvalidInput, Refused, RemoteError, StoreBusy, StoreError

if TYPE_CHECKING:
    from fleet.app.start import Service

Config = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Settings, YAML or TOML.")]
DatabaseUrl = Annotated[
    str | None, typer.Option("--database", metavar="URL", help="sqlite:///PATH or postgresql://USER@HOST/NAME.")
]
Listen = Annotated[
    str | None,
    typer.Option("--listen", metavar="ADDR:PORT", help="127.0.0.1:8470 if left out; port 0 takes a free one."),
]
InsecureListen = Annotated[
    bool, typer.Option("--insecure-listen", help="Listen beyond this machine without TLS: tokens cross in clear text.")
]


def up(
    lab: Annotated[int, typer.Option("--lab", metavar="N", min=0, max=64, help="Simulate N machines beside it.")] = 0,
    demo: Annotated[bool, typer.Option("--demo", help="Vacate three of them and show what happens.")] = False,
    database: DatabaseUrl = None,
    listen: Listen = None,
    config: Config = None,
    insecure_listen: InsecureListen = False,
) -> None:
    """Start the service: API and worker in one process; Ctrl-C ends it and all that it started."""
    from fleet.cli import demo as demonstration

    if demo and lab < demonstration.MACHINES:
        raise CommandError(f"--demo: needs a rack of {demonstration.MACHINES} machines at least: --lab 6", Exit.USAGE)
    with _server():
        from fleet.app import start

        then = demonstration.run if demo else _say_hello
        start.up(config, _flags(database, listen), lab=lab, insecure=insecure_listen, then=then)


def serve(
    database: DatabaseUrl = None, listen: Listen = None, config: Config = None, insecure_listen: InsecureListen = False
) -> None:
    """Start the API alone; at least one `fleet worker` on the same database does the work."""
    with _server():
        from fleet.app import start

        start.serve(config, _flags(database, listen), insecure=insecure_listen, then=_say_hello)


def worker(database: DatabaseUrl = None, config: Config = None) -> None:
    """Start a worker alone, on the database of a `fleet serve`."""
    with _server():
        from fleet.app import start

        start.work(config, _flags(database, None))


@contextmanager
def _server() -> Iterator[None]:
    """Around a server: why it did not start, as a sentence and an exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a server's reader, such as a log file, does not wait for its end
    before = os.umask(0o077)  # database and evidence tell of tenants, and of a test VM's keys while it lives
    try:
        yield
    except InvalidInput as exc:
        raise CommandError(str(exc), Exit.USAGE) from exc
    except (StoreBusy, RemoteError) as exc:  # the other one: the simulated rack did not start
        raise CommandError(str(exc), Exit.NOT_REACHED) from exc
    except (Refused, StoreError) as exc:
        raise CommandError(str(exc), Exit.REFUSED) from exc
    except OSError as exc:
        if exc.filename is None:
            raise
        raise CommandError(f"{exc.filename}: cannot be used: {exc.strerror}", Exit.USAGE) from exc
    finally:
        os.umask(before)


def _flags(database: str | None, listen: str | None) -> dict[str, str]:
    return {name: value for name, value in (("database", database), ("listen", listen)) if value is not None}


def _say_hello(service: "Service") -> None:
    say(
        f"fleet is up at {service.url}; Ctrl-C ends it. Profile: {service.profile}, log: {service.log or 'standard error'}"
    )
    if service.lab:
        say(
            f"The rack has {service.lab} simulated machines: try `fleet machine list`, `fleet revalidate lab-02 --wait`."
        )
