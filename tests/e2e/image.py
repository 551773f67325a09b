"""The test VM's image: Debian 12 with the real tools, booted by QEMU directly. Built once, kept by content in a cache."""

import fcntl
import hashlib
import lzma
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
GUEST = HERE / "guest"  # our own files in the image
STANDIN = HERE.parent / "data" / "nvml" / "standin.c"

PACKAGES = (
    "linux-image-amd64",  # the -cloud kernel has no rdma_rxe
    "dash,coreutils,util-linux,grep,sed,findutils,procps,libc-bin,busybox-static,kmod,iproute2",
    "openssh-server,python3,fio,rdma-core,ibverbs-providers,perftest",
)
# What a test VM never uses; the kernel's drivers are most of the image.
EXCLUDED = (
    "/usr/share/*",
    *(f"/lib/modules/*/kernel/{part}/*" for part in ("sound", "drivers/gpu", "drivers/media", "drivers/iio")),
    *(f"/lib/modules/*/kernel/drivers/{part}/*" for part in ("usb", "net/ethernet", "net/wireless", "staging")),
)
BOOT_MODULES = ("virtio_pci", "virtio_blk", "ext4", "overlay")  # what it takes to mount the root
KEPT_IMAGES = 3


@dataclass(frozen=True)
class Image:
    kernel: Path  # an uncompressed ELF: saves QEMU's guest almost three seconds of unpacking in software
    initrd: Path
    root: Path  # ext4, label `fleet-root`, read-only: the VM puts a tmpfs over it


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fleet-e2e"


def image() -> Image:
    """The image for the present content of our files; built (half a minute, root, the package mirror) if not cached."""
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / _key()
    with _locked(cache / "lock"):
        if not folder.is_dir():
            for left in cache.glob("building-*"):  # by a run that was killed
                shutil.rmtree(left)
            work = Path(tempfile.mkdtemp(dir=cache, prefix="building-"))
            try:
                _build(work)
                (work / "image").rename(folder)
            finally:
                shutil.rmtree(work)
        os.utime(folder)
        _drop_oldest(cache)
    return Image(folder / "vmlinux", folder / "initrd.img", folder / "root.ext4")


def _key() -> str:
    digest = hashlib.sha256()
    for path in (Path(__file__), STANDIN, *sorted(GUEST.iterdir())):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _drop_oldest(cache: Path) -> None:
    images = sorted((p for p in cache.iterdir() if (p / "root.ext4").exists()), key=lambda p: p.stat().st_mtime)
    for folder in images[:-KEPT_IMAGES]:
        shutil.rmtree(folder)


def _run(*command: str | Path, **more: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload]
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return str(done.stdout)


def _build(work: Path) -> None:
    tree, out = work / "tree", work / "image"
    out.mkdir()
    _unpack(tree)
    version = next((tree / "lib/modules").iterdir()).name
    _install_ours(tree)
    _run("chroot", tree, "ldconfig")
    # Without this every start of Python in the VM compiles its library again, in software emulation.
    _run("chroot", tree, "python3", "-m", "compileall", "-q", "/usr/lib/python3.11")
    _run("depmod", "-b", tree, version)
    _write_kernel(tree / f"boot/vmlinuz-{version}", out / "vmlinux")
    shutil.rmtree(tree / "boot")
    _write_initrd(tree, version, work / "initrd", out / "initrd.img")
    _write_root(tree, out / "root.ext4")


def _unpack(tree: Path) -> None:
    """Download and unpack only, no maintainer scripts: half the time of a minimal installation."""
    _run(
        *("mmdebstrap", "--quiet", "--variant=extract", "--mode=root", "--format=directory", "--skip=check/empty"),
        "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
        '--aptopt=Acquire::Languages "none"',
        '--aptopt=Apt::Install-Recommends "false"',
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in EXCLUDED),
        f"--include={','.join(PACKAGES)}",
        *("bookworm", tree),
    )


def _install_ours(tree: Path) -> None:
    for name in ("proc", "sys", "run", "dev", "root/.ssh", "etc/ssh", "var/empty", "opt"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    for applet in _run(tree / "bin/busybox", "--list").split():
        link = tree / "usr/bin" / applet
        if not any(os.path.lexists(tree / place / applet) for place in ("usr/bin", "usr/sbin")):
            link.symlink_to("busybox")
    (tree / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\nnobody:x:65534:65534::/:/bin/false\n"
    )
    (tree / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    (tree / "etc/shadow").write_text("root:*:19000:0:99999:7:::\n")
    (tree / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")
    (tree / "etc/hosts").write_text("127.0.0.1 localhost\n")
    shutil.copy(GUEST / "sshd_config", tree / "etc/ssh/sshd_config")
    for name in ("init", "provision.py"):
        shutil.copy(GUEST / name, tree / "usr/sbin" / f"lab-{name}")
        (tree / "usr/sbin" / f"lab-{name}").chmod(0o755)
    library = tree / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    _run("gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-Wl,-soname,libnvidia-ml.so.1", "-o", library, STANDIN)


def _write_kernel(compressed: Path, kernel: Path) -> None:
    data = compressed.read_bytes()
    kernel.write_bytes(lzma.LZMADecompressor().decompress(data[data.index(b"\xfd7zXZ\x00") :]))


def _write_initrd(tree: Path, version: str, initrd: Path, out: Path) -> None:
    for name in ("bin", "dev", "proc", "sys", "lower", "upper", "root"):
        (initrd / name).mkdir(parents=True)
    shutil.copy(tree / "bin/busybox", initrd / "bin/busybox")
    shutil.copy(GUEST / "initramfs", initrd / "init")
    (initrd / "init").chmod(0o755)
    modules: list[str] = []  # in the order of loading
    for module in BOOT_MODULES:
        for line in _run("modprobe", "-d", tree, "-S", version, "-D", module).splitlines():
            verb, path = line.split()[:2]
            if verb == "insmod" and Path(path).name not in modules:
                shutil.copy(path, initrd)
                modules.append(Path(path).name)
    (initrd / "modules").write_text("\n".join(modules) + "\n")
    names = "\0".join(str(path.relative_to(initrd)) for path in sorted(initrd.rglob("*")))
    with out.open("wb") as archive:  # uncompressed on purpose, like the kernel
        command = ["cpio", "--null", "--create", "--format=newc", "--quiet"]
        subprocess.run(command, input=names.encode(), stdout=archive, cwd=initrd, check=True)


def _write_root(tree: Path, out: Path) -> None:
    used_kib = int(_run("du", "-sk", tree).split()[0])
    inodes = sum(1 for _ in tree.rglob("*")) + 200
    features = "^has_journal,^metadata_csum"
    size = f"{used_kib + used_kib // 16 + 8192}k"
    _run("mkfs.ext4", "-q", "-L", "fleet-root", "-O", features, "-m", "0", "-N", str(inodes), "-d", tree, out, size)
    out.chmod(0o444)
