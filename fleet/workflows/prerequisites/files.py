"""The files that a test VM is made from: there, of the format that the settings say, and readable by QEMU."""

from collections.abc import Iterator, Mapping

from fleet.hypervisor.base import ImageView
from fleet.hypervisor.inspected_host import File, Folder, Host
from fleet.hypervisor.site import ImageSpec
from fleet.workflows.prerequisites.row import Row, met, missing, not_tried

_QCOW2 = b"QFI\xfb"


def rows(image: ImageSpec, paths: tuple[str, ...], host: Host, qemu: tuple[int, int] | None) -> Iterator[Row]:
    """`qemu`: the user and group that QEMU runs as, where libvirt told."""
    parts = {path: part for part, path in image.files.items()}
    for path in paths:
        name = f"file {parts.get(path, path)}"
        yield _file(name, path, host.files.get(path), image if path == image.path else None, host, qemu)


def not_read(why: str) -> Row:
    return not_tried("image digest", why)


def digest(image: ImageSpec, stated: str, seen: ImageView | str) -> Row:
    """`seen` is a sentence where the host could not be asked."""
    if isinstance(seen, str):
        return not_read(seen)
    if seen.why or "image" not in seen.digests:
        return not_read(seen.why or "the host did not read the image in time")
    found = seen.digests["image"]
    if not stated:
        return met("image digest", f"{found}; the settings state none")
    if found == stated:
        return met("image digest", f"{found}, as stated")
    return missing(
        "image digest",
        f"it is {found}, the settings say {stated}",
        f"copy the stated image to {image.path} on the host, or set `hypervisor.image_digest: {found}`",
    )


def _file(
    name: str, path: str, file: File | None, image: ImageSpec | None, host: Host, qemu: tuple[int, int] | None
) -> Row:
    if file is None:
        return missing(
            name,
            f"{path} is not there, or out of reach for {host.user}",
            f"`ls -l {path}` on the host; copy the file there",
        )
    if not file.regular or file.size_bytes == 0:
        return missing(name, f"{path} is empty, or no file", f"copy the file to {path} again")
    if file.head is None:
        return missing(name, f"{host.user} may not read {path}", f"chmod a+r {path}")
    if image is not None and (wrong := _format(image, file.head)):
        return missing(name, *wrong)
    if qemu is not None and (closed := next((f for f in file.folders if not _may_enter(f, *qemu)), None)):
        return missing(name, f"QEMU (uid {qemu[0]}) may not enter {closed.path}", f"chmod o+x {closed.path}")
    return met(name, f"{path}, {file.size_bytes} bytes")


def _format(image: ImageSpec, head: bytes) -> tuple[str, str] | None:
    is_qcow2 = head == _QCOW2
    if is_qcow2 == (image.format == "qcow2"):
        return None
    found = "qcow2" if is_qcow2 else "raw"
    return f"{image.path} is {found}, the settings say {image.format}", f"hypervisor: {{image_format: {found}}}"


def _may_enter(folder: Folder, uid: int, gid: int) -> bool:
    """By the mode alone; a group that QEMU is in beside its own, or an access list, is not seen here."""
    if uid == 0:
        return True
    if folder.uid == uid:
        return bool(folder.mode & 0o100)
    return bool(folder.mode & (0o010 if folder.gid == gid else 0o001))


def unreached(files: Mapping[str, str], why: str) -> Iterator[Row]:
    return (not_tried(f"file {part}", why) for part in files)
