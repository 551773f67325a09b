"""The test image's files as they are on the host: read there once, known for as long as they have not changed."""

import hashlib
import os
import time
from pathlib import Path

import pytest

from fleet.core.clock import Deadline
from fleet.core.errors import HypervisorError
from fleet.hypervisor import image
from fleet.hypervisor.base import ImageView
from fleet.hypervisor.site import Flavor, ImageSpec, Site
from tests.contract.hypervisor.host import Host, machine, soon


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Its image, a direct kernel beside it, and a `sha256sum` that says when it ran."""
    files = tmp_path / "images"
    files.mkdir()
    (files / "root.ext4").write_bytes(b"root")
    (files / "vmlinux").write_bytes(b"kernel")
    host = Host(tmp_path, Site(ImageSpec(str(files / "root.ext4"), kernel=str(files / "vmlinux")), Flavor(8, 4096)))
    host.tool("sha256sum", 'echo read >> "$FAKE/reads"; exec /usr/bin/sha256sum "$@"')
    return host


def image_of(host: Host) -> Path:
    return host.fake.parent / "images/root.ext4"


def seen(host: Host) -> ImageView:
    """What the host says when it has read everything."""
    for _ in Deadline.after(30).poll(0.01):
        if not (view := host.libvirt.read_image(machine(), soon())).reading:
            return view
    raise AssertionError("the host does not stop reading")


def reads(host: Host) -> int:
    return (host.fake / "reads").read_text().count("read")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_files_are_read_once_and_then_known(host: Host) -> None:
    assert host.libvirt.read_image(machine(), soon()).reading
    expected = {"image": sha256(b"root"), "kernel": sha256(b"kernel")}
    assert seen(host).digests == expected
    assert host.libvirt.read_image(machine(), soon()) == ImageView(expected)
    assert reads(host) == 2


def test_a_changed_file_is_read_again_and_its_old_digest_forgotten(host: Host) -> None:
    seen(host)
    image_of(host).write_bytes(b"toor")
    os.utime(image_of(host), (1, 1))
    assert seen(host).digests == {"image": sha256(b"toor"), "kernel": sha256(b"kernel")}
    assert reads(host) == 3
    assert len([path for path in (host.state / "digests").iterdir() if path.name != "lock"]) == 2


def test_a_file_given_to_another_user_is_the_same_file(host: Host) -> None:
    """libvirt does that at each start and end of a VM."""
    seen(host)
    image_of(host).chmod(0o400)
    assert not host.libvirt.read_image(machine(), soon()).reading


def test_two_who_ask_at_once_have_it_read_once(host: Host) -> None:
    host.tool(
        "sha256sum", 'echo read >> "$FAKE/reads"; until [ -e "$FAKE/go" ]; do sleep 0.01; done; exec /usr/bin/sha256sum'
    )
    for _ in range(3):
        assert host.libvirt.read_image(machine(), soon()).reading
    (host.fake / "go").touch()
    seen(host)
    assert reads(host) == 2


def test_a_file_that_changes_while_it_is_read_is_not_known(host: Host) -> None:
    """It is being copied there."""
    host.tool("sha256sum", ': > "$FAKE/at"; until [ -e "$FAKE/go" ]; do sleep 0.01; done; exec /usr/bin/sha256sum')
    assert host.libvirt.read_image(machine(), soon()).reading
    while not (host.fake / "at").exists():
        time.sleep(0.01)
    image_of(host).write_bytes(b"more of it")
    (host.fake / "go").touch()
    assert seen(host).digests["image"] == sha256(b"more of it")


def test_a_missing_file_is_named(host: Host) -> None:
    image_of(host).unlink()
    assert f"{image_of(host)} on m-01 cannot be read" in seen(host).why
    assert "No such file" in seen(host).why


def test_a_file_that_cannot_be_read_is_named_with_the_reason_and_tried_again(host: Host) -> None:
    host.tool("sha256sum", "echo 'sha256sum: -: Input/output error' >&2; exit 1")
    assert "Input/output error" in seen(host).why
    host.tool("sha256sum", 'exec /usr/bin/sha256sum "$@"')
    assert seen(host).digests["image"] == sha256(b"root")


@pytest.mark.parametrize(
    "answer",
    [b"", b"known abc\n", b"known " + b"0" * 64 + b"\nreading\n", b"\x1b[2J\n", b"known \n", b"reading 5\n\n\n"],
)
def test_an_answer_that_is_none_is_refused(answer: bytes) -> None:
    with pytest.raises(HypervisorError, match="m-01: image:"):
        image.parse(answer, {"image": "/images/root.ext4"}, "m-01")


def test_words_of_a_host_are_made_printable() -> None:
    view = image.parse(b"failed \x1b[2Jboo\n", {"image": "/images/root.ext4"}, "m-01")
    assert "\x1b" not in view.why
