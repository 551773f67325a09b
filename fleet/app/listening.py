"""The address that the API listens on, taken before anything else is started."""

import ipaddress
import re
import socket

from fleet.core.errors import InvalidInput


def bind(listen: str, *, tls: bool = False, insecure: bool = False) -> socket.socket:
    """A bound socket for `ADDRESS:PORT`; port 0 takes a free one. Raises InvalidInput: not an address, in use, or beyond
    this machine without `tls` or `insecure` (tokens would cross the network in clear text)."""
    host, port = _parsed(listen)
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except socket.gaierror as exc:
        raise InvalidInput(f"listen: {host!r} is no address: {exc.strerror}", "listen") from exc
    if not tls and not insecure and not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        raise InvalidInput(
            f"listen: {listen} can be reached from other machines and has no TLS. Set network.certificate and network.key, "
            "or listen on 127.0.0.1 behind a proxy with TLS, or accept clear text with --insecure-listen",
            "listen",
        )
    # with the protocol named, asyncio turns Nagle's algorithm off; without, every answer waits 40 ms for an acknowledgement
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    # lets a restart take the port over from connections that linger; a listener that is alive still refuses
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
        bound.listen(128)  # now, since two sockets may both bind and only one may listen
    except OSError as exc:
        bound.close()
        raise InvalidInput(
            f"listen: {listen} cannot be used: {exc.strerror}. Choose another with --listen 127.0.0.1:PORT; "
            "port 0 takes a free one",
            "listen",
        ) from exc
    return bound


def url(bound: socket.socket, *, tls: bool = False) -> str:
    """What a client on this machine uses."""
    scheme = "https" if tls else "http"
    host, port = bound.getsockname()[:2]
    if ipaddress.ip_address(host.partition("%")[0]).is_unspecified:
        host = "::1" if bound.family is socket.AF_INET6 else "127.0.0.1"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _parsed(listen: str) -> tuple[str, int]:
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%a-z]+)\]|([^\[\]:]+)):([0-9]{1,5})", listen)
    if found is None or int(found[3]) >= 1 << 16:
        raise InvalidInput(f"listen: {listen!r} is not ADDRESS:PORT, such as 127.0.0.1:8470 or [::1]:8470", "listen")
    return found[1] or found[2], int(found[3])
