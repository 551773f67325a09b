"""perftest's ib_write_bw: a server, and a client that meets it over TCP, as the real ones do. Faults: rail-down, slow-rail.

One half of the recording is the server's, the other the client's; both print the same figures."""

import re
import socket
import time

from fleet.lab.standins.stage import complain, recording, say, scene

_SECONDS = 0.06
_RECORDED_MB_S = 24056.72
_SLOWER = 4
_TAKES_VALUE = frozenset(
    ["-d", "-i", "-p", "-s", "-n", "-q", "-x", "-t", "-m", "-D", "-u", "-S", "-T", "-c", "-l", "-I"]
)
_LONG_VALUE = {
    **{"--ib-dev": "-d", "--ib-port": "-i", "--port": "-p", "--size": "-s", "--iters": "-n", "--qp": "-q"},
    **{"--gid-index": "-x", "--tx-depth": "-t", "--mtu": "-m", "--duration": "-D"},
}
_PLAIN = frozenset(
    ["-F", "-a", "-b", "-R", "-H", "-N", "-z", "--report_gbits", "--CPU-freq", "--all", "--report-per-port"]
)
_MB = 1 << 20
_WAIT_S = 60.0
_WAITING = "\n************************************\n* Waiting for client to connect... *\n************************************\n"


def main(words: list[str]) -> int:
    options = _read(words)
    if options is None:
        return 1
    now = scene()
    device = options.get("-d", "mlx5_0")
    rail = next((rail for rail in now["rails"] if rail["device"] == device), None)
    if rail is None:
        complain(f"IB device {device} not found\n Unable to find the Infiniband/RoCE device\n")
        return 1
    if rail["down"]:
        complain(" Port number 1 state is Down\n Couldn't set the link layer\n Couldn't get context for the device\n")
        return 1
    port = int(options.get("-p", "18515"))
    met = _call(options["host"], port) if "host" in options else _listen(port)
    if not met:
        return 1
    time.sleep(_SECONDS)
    slower = _SLOWER if "slow-rail" in now["faults"] and device == now["suspect_rail"] else 1
    text = _half("host" in options, device, options, slower)
    say(text)
    return 0


def _read(words: list[str]) -> dict[str, str] | None:
    """None after a complaint."""
    options: dict[str, str] = {}
    rest = list(words)
    while rest:
        word, _, given = rest.pop(0).partition("=")
        flag = _LONG_VALUE.get(word, word)
        if flag in _TAKES_VALUE and (given or rest):
            options[flag] = given or rest.pop(0)
        elif flag in _PLAIN:
            options[flag] = ""
        elif word.startswith("-") or "host" in options:
            complain(f"ib_write_bw: invalid option -- '{word.lstrip('-')}'\n Invalid Command or flag.\n")
            complain(" Please check command line and run again.\n\n")
            return None
        else:
            options["host"] = word
    for flag in ("-p", "-s", "-D", "-q", "-i", "-n", "-x"):
        if flag in options and not options[flag].isdigit():
            complain(f" Invalid value for '{flag}'\n")
            return None
    if "-D" in options and "-n" in options:
        complain(" Duration and number of iterations can't be given together\n")
        return None
    return options


def _listen(port: int) -> bool:
    say(_WAITING)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.settimeout(_WAIT_S)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen(1)
            client, _ = listener.accept()
        except OSError:
            complain(f"Couldn't listen to port {port}\n")
            return False
        client.close()
    return True


def _call(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5.0).close()
    except OSError:
        complain(f"Couldn't connect to {host}:{port}\nUnable to open file descriptor for socket connection\n")
        return False
    return True


def _half(client: bool, device: str, options: dict[str, str], slower: int) -> str:
    first, _, second = recording("ib-write-bw-loopback.txt").partition(_WAITING.strip("\n"))
    text = first if client else second.strip("\n") + "\n"
    text = text.rstrip("-\n") + "\n" + "-" * 87 + "\n"
    size = int(options.get("-s", "65536"))
    megabytes = _RECORDED_MB_S / slower
    average, unit = megabytes, "MB/sec"
    if "--report_gbits" in options:
        average, unit = megabytes * _MB * 8 / 1e9, "Gb/sec"
    peak = 0.0 if "-D" in options else average  # not measured in duration mode
    rate = megabytes * _MB / size / 1e6
    iterations = int(rate * 1e6 * int(options["-D"])) if "-D" in options else int(options.get("-n", "5000"))
    row = f" {size:<10} {iterations:<16} {peak:<17.2f}  {average:.2f}\t\t   {rate:.6f}"
    text = re.sub(r"(Device +: )ib0", rf"\g<1>{device}", text)
    text = re.sub(r"(Number of qps +: )1", rf"\g<1>{options.get('-q', '1')}", text)
    text = text.replace("MB/sec", unit)
    return re.sub(r"^ 8388608 .*$", lambda _: row, text, flags=re.M)
