import socket

import pytest

from fleet.app import listening
from fleet.core.errors import InvalidInput


@pytest.mark.parametrize(
    ("listen", "url"), [("127.0.0.1:0", "http://127.0.0.1:{}"), ("localhost:0", "http://127.0.0.1:{}")]
)
def test_a_free_port_is_taken_and_answers_to_its_url(listen, url):
    with listening.bind(listen, insecure=False) as bound:
        assert listening.url(bound) == url.format(bound.getsockname()[1])
        socket.create_connection(bound.getsockname()).close()


def test_every_address_is_reached_here_by_loopback():
    with listening.bind("0.0.0.0:0", insecure=True) as bound:
        assert listening.url(bound).startswith("http://127.0.0.1:")


def test_beyond_this_machine_needs_a_word():
    with pytest.raises(InvalidInput, match="--insecure-listen"):
        listening.bind("0.0.0.0:0", insecure=False)


def test_a_port_that_is_taken_says_how_to_choose_another():
    with listening.bind("127.0.0.1:0", insecure=False) as bound:
        port = bound.getsockname()[1]
        with pytest.raises(InvalidInput, match=f"127.0.0.1:{port} cannot be used: .*--listen"):
            listening.bind(f"127.0.0.1:{port}", insecure=False)


@pytest.mark.parametrize(
    "listen", ["", "8470", ":8470", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:-1", "::1"]
)
def test_what_is_no_address_is_named(listen):
    with pytest.raises(InvalidInput, match="is not ADDRESS:PORT"):
        listening.bind(listen, insecure=False)


def test_a_name_that_nobody_knows_is_named():
    with pytest.raises(InvalidInput, match=r"'no.such.host.invalid' is no address"):
        listening.bind("no.such.host.invalid:1", insecure=False)
