"""The command line: a client of the API, one module per noun. Modules are loaded when their command is called."""


def main() -> int:
    """The console script `fleet`; the exit status is `fleet.cli.exits.Exit`."""
    from fleet.cli.root import run  # here, so that importing fleet.cli costs nothing

    return run()
