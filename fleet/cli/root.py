"""The root command: which nouns and verbs there are, loaded only when called, and how errors become exit statuses."""

import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from itertools import takewhile
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from fleet.cli.exits import CommandError, Exit
from fleet.cli.output import complain, print_json
from fleet.cli.session import Session


@dataclass(frozen=True)
class Entry:
    """`attribute` of `module` is the noun's Typer app, or the function of a command without a noun."""

    module: str
    attribute: str
    summary: str


COMMANDS: Mapping[str, Entry] = {
    "up": Entry(
        "fleet.cli.server", "up", "Start the service: API and worker in one process, with --lab a simulated rack."
    ),
    "serve": Entry("fleet.cli.server", "serve", "Start the API alone."),
    "worker": Entry("fleet.cli.server", "worker", "Start a worker alone."),
    "machine": Entry(
        "fleet.cli.machine",
        "app",
        "Fleet records: list, show, add, import, check, discover, hold, claim, override, withdraw, retire.",
    ),
    "event": Entry("fleet.cli.event", "app", "Report what the control plane did: placed, vacated, kept."),
    "revalidate": Entry("fleet.cli.validation", "revalidate", "Validate a machine now."),
    "abort": Entry("fleet.cli.validation", "abort", "End a running validation; the machine gets its prior state back."),
    "validation": Entry("fleet.cli.validation", "app", "Validations: list, show, logs."),
    "ticket": Entry("fleet.cli.ticket", "app", "Hardware tickets: list, show, fixed."),
    "attention": Entry("fleet.cli.attention", "app", "What waits for a person: list, show, resolve."),
    "notice": Entry("fleet.cli.notice", "app", "What the scheduler and people are told: list, show, ack."),
    "audit": Entry("fleet.cli.audit", "app", "Who did what, when, from where: list, export."),
    "approval": Entry("fleet.cli.approval", "app", "What waits for a second person: list, show, approve, reject."),
    "token": Entry("fleet.cli.token", "app", "API tokens: create, list, revoke."),
    "site": Entry("fleet.cli.site", "app", "The site's mode, pause and rules: show, mode."),
    "pause": Entry("fleet.cli.site", "pause", "Stop every new automatic act, fleet-wide."),
    "resume": Entry("fleet.cli.site", "resume", "Let automation go on."),
    "lab": Entry("fleet.cli.lab", "app", "The simulated rack: faults, break, mend."),
}


class LazyGroup(TyperGroup):
    """Knows its commands by the table and imports one when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            close = get_close_matches(cmd_name, COMMANDS)
            return ctx.fail(f"no such command: {cmd_name!r}." + (f" Did you mean {close[0]!r}?" if close else ""))
        found = getattr(import_module(entry.module), entry.attribute)
        if isinstance(found, typer.Typer):
            return get_command(found)
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(cmd_name)(found)
        return get_command(app)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


app = typer.Typer(cls=LazyGroup, add_completion=False, rich_markup_mode=None, no_args_is_help=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("fleet-revalidation"))
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    url: Annotated[
        str | None, typer.Option("--url", help="Address of the service; FLEET_URL, or the profile's.")
    ] = None,
    token: Annotated[str | None, typer.Option("--token", help="API token; FLEET_TOKEN, or the profile's.")] = None,
    ca: Annotated[
        str | None,
        typer.Option("--ca", metavar="FILE", help="Certificates to trust, PEM; FLEET_CA, or the profile's."),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Re-validate bare-metal GPU machines between tenants. --json, --url, --token and --ca may stand anywhere."""
    for option, value in (("--url", url), ("--token", token), ("--ca", ca)):
        if value == "":  # a variable of the shell that is not set must not mean "whoever the profile is"
            raise CommandError(f"{option}: is empty; leave it out, or give it a value", Exit.USAGE)
    context.obj = Session(json, url, token, ca)


_VALUES = {"--json": 0, "--url": 1, "--token": 1, "--ca": 1}


def lifted(arguments: Sequence[str]) -> list[str]:
    """The options that may stand anywhere, moved to the front, where the root command takes them."""
    front: list[str] = []
    rest: list[str] = []
    words: Iterator[str] = iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in _VALUES:
            front += [word, *(value for _, value in zip(range(_VALUES[word]), words, strict=False))]
        elif word.startswith(("--url=", "--token=", "--ca=")):
            front.append(word)
        else:
            rest.append(word)
    return front + rest


_LONGEST_LINE = 600


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Whatever happens, the answer is an exit status of `Exit` and at most a few lines on stderr."""
    arguments = lifted(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in takewhile(lambda word: word != "--", arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a letter still gets its answer
    try:
        return _invoke(list(arguments))
    except CommandError as exc:
        if as_json:
            print_json(exc.document)
        complain(_bounded(f"fleet: {exc}"))
        return exc.status
    except typer.TyperException as exc:
        return _misused(exc, as_json)
    except (KeyboardInterrupt, typer.Abort):
        if as_json:
            print_json({"title": "interrupted", "code": "interrupted"})
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # whoever read our output has seen enough, and Python would complain again when it closes stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.DONE
    except Exception as exc:
        import traceback  # 20 ms that only a fault is worth

        traceback.print_exc()
        complain(f"fleet: this is a fault of the program: {type(exc).__name__}: {exc}")
        return Exit.INTERNAL


def _invoke(arguments: list[str]) -> int:
    """What typer's `main` does, but for its view of a reader that has gone: exit status 1, which here is a failed verdict."""
    command = get_command(app)
    try:
        with command.make_context("fleet", arguments) as context:
            status = command.invoke(context)
    except typer.Exit as exc:
        status = exc.exit_code
    sys.stdout.flush()
    return int(status or Exit.DONE)


def _misused(exc: typer.TyperException, as_json: bool) -> int:
    said = exc.format_message().replace("Value error, ", "").replace("Input should be", "must be")
    is_help = said.startswith("Usage: ")  # a noun without its verb
    if not is_help:
        said = " ".join(said.split())
    if as_json:
        print_json({"title": "a command is missing" if is_help else _bounded(said), "code": "usage"})
    context = getattr(exc, "ctx", None)
    where = f" Try `{context.command_path} --help`." if context is not None and not is_help else ""
    complain(said if is_help else _bounded(f"fleet: {said if said.endswith(('.', '?')) else said + '.'}") + where)
    return Exit.USAGE


def _bounded(text: str) -> str:
    """Each line short enough to be read: what was typed may be in it."""
    return "\n".join(line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}..." for line in text.split("\n"))
