"""Building an image: a Debian tree, our own files in it, and out of that a kernel, an initrd and a read-only root."""

import hashlib
import json
import lzma
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from image import manifest, pinned
from image.command import run
from image.profile import DEBIAN_ALONE, HERE, Profile, Sources, Versions

GUEST = HERE / "guest"
BOOT_MODULES = ("virtio_pci", "virtio_blk", "ext4", "overlay")  # what it takes to mount the root
CMDLINE = (
    "console=ttyS0 loglevel=4 panic=-1"  # the kernel's errors on the serial console, which is evidence; nothing less
)


@dataclass(frozen=True)
class Image:
    """The three files that a host needs (hypervisor.image, .kernel, .initrd), in one directory."""

    folder: Path

    @property
    def kernel(self) -> Path:
        return next(path for name in ("vmlinux", "vmlinuz") if (path := self.folder / name).exists())

    @property
    def initrd(self) -> Path:
        return self.folder / "initrd.img"

    @property
    def root(self) -> Path:
        """ext4, label `fleet-root`: the VM mounts it read-only and puts a tmpfs over it."""
        return self.folder / "root.ext4"


@dataclass(frozen=True)
class Recipe:
    """`overlay`: a directory of the builder's own, copied over the tree; what is in etc/fleet/start.d runs at each boot."""

    profile: Profile
    versions: Versions
    sources: Sources = DEBIAN_ALONE
    overlay: Path | None = None

    @property
    def digest(self) -> str:
        """Over everything of ours that an image is made from. Debian's own packages may have moved on since."""
        parts = [path for path in sorted(HERE.rglob("*")) if path.suffix != ".pyc" and path.is_file()]
        over = [] if self.overlay is None else sorted(path for path in self.overlay.rglob("*") if path.is_file())
        digest = hashlib.sha256(f"{self.profile} {self.versions} {self.sources}".encode())
        for base, paths in ((HERE, parts), (self.overlay or HERE, over)):
            for path in paths:
                digest.update(f"{path.relative_to(base)} {path.stat().st_mode & 0o111:o}".encode() + b"\0")
                digest.update(path.read_bytes() + b"\0")
        return digest.hexdigest()[:16]

    def build(self, work: Path, to: Path) -> Image:
        """In `work`, an empty directory; the image is complete when `to` is there. Root only. Raises RecipeError."""
        tree, out, profile = work / "tree", work / "image", self.profile
        out.mkdir()
        self._unpack(tree)
        kernel = next((tree / "lib/modules").iterdir()).name
        document = manifest.write(tree, profile, self.versions, self.digest, kernel)
        shutil.rmtree(tree / "var/cache/apt/archives")
        pinned.build(tree, profile, self.versions, self.sources, kernel)
        _install_ours(tree, profile, self.overlay)
        run("chroot", tree, "ldconfig")
        # Without this every start of Python in the VM compiles its library again, in software emulation.
        run("chroot", tree, "python3", "-m", "compileall", "-q", "/usr/lib/python3.11")
        run("depmod", "-b", tree, kernel)
        _write_kernel(tree / f"boot/vmlinuz-{kernel}", out, compressed=profile.compressed_kernel)
        shutil.rmtree(tree / "boot")
        _write_initrd(tree, kernel, work / "initrd", out / "initrd.img")
        _write_root(tree, out / "root.ext4")
        (out / "manifest.json").write_text(json.dumps(document, indent=1) + "\n")
        out.rename(to)
        return Image(to)

    def _unpack(self, tree: Path) -> None:
        profile = self.profile
        variant = "apt" if profile.configure else "extract"
        preferences = tree.with_name("preferences")
        preferences.write_text(self.versions.preferences())
        run(
            *("mmdebstrap", "--quiet", f"--variant={variant}", "--mode=root", "--format=directory"),
            *("--skip=check/empty,cleanup/apt/cache", "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"),
            f'--setup-hook=mkdir -p "$1/etc/apt/preferences.d" && cp \'{preferences}\' "$1/etc/apt/preferences.d/fleet"',
            '--aptopt=Acquire::Languages "none"',
            '--aptopt=Apt::Install-Recommends "false"',
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in profile.left_out),
            f"--include={','.join((*profile.packages, *profile.build_packages))}",
            self.versions.debian.suite,
            tree,
            *self.sources.apt,
        )


def _install_ours(tree: Path, profile: Profile, overlay: Path | None) -> None:
    for name in ("proc", "sys", "run", "dev", "root/.ssh", "etc/ssh", "etc/fleet/start.d", "var/empty", "opt"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    for applet in run(tree / "bin/busybox", "--list").split():
        link = tree / "usr/bin" / applet
        if not any(os.path.lexists(tree / place / applet) for place in ("usr/bin", "usr/sbin")):
            link.symlink_to("busybox")
    if profile.configure:
        drop_host_keys(tree)
    else:
        _make_users(tree)
    (tree / "etc/hosts").write_text("127.0.0.1 localhost\n")
    (tree / "etc/fleet/modules").write_text("\n".join(profile.modules) + "\n")
    shutil.copy(GUEST / "sshd_config", tree / "etc/ssh/sshd_config")
    shutil.copy(GUEST / "init", tree / "usr/sbin/fleet-init")
    shutil.copy(GUEST / "provision.py", tree / "usr/sbin/fleet-provision")
    for name in profile.start:
        shutil.copy(GUEST / "start.d" / name, tree / "etc/fleet/start.d" / name)
    if overlay is not None:
        shutil.copytree(overlay, tree, dirs_exist_ok=True, symlinks=True)


def drop_host_keys(tree: Path) -> None:
    """openssh-server's maintainer script makes some. Whoever has the image has them; each VM gets a key of its own."""
    for key in (tree / "etc/ssh").glob("ssh_host_*"):
        key.unlink()


def _make_users(tree: Path) -> None:
    """As maintainer scripts would."""
    (tree / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\nnobody:x:65534:65534::/:/bin/false\n"
    )
    (tree / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    (tree / "etc/shadow").write_text("root:*:19000:0:99999:7:::\n")
    (tree / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")


def _write_kernel(built: Path, out: Path, *, compressed: bool) -> None:
    if compressed:
        shutil.copy(built, out / "vmlinuz")
        return
    data = built.read_bytes()
    unpacked = lzma.LZMADecompressor().decompress(data[data.index(b"\xfd7zXZ\x00") :])
    (out / "vmlinux").write_bytes(unpacked)


def _write_initrd(tree: Path, kernel: str, initrd: Path, out: Path) -> None:
    for name in ("bin", "dev", "proc", "sys", "lower", "upper", "root"):
        (initrd / name).mkdir(parents=True)
    shutil.copy(tree / "bin/busybox", initrd / "bin/busybox")
    shutil.copy(GUEST / "initramfs", initrd / "init")
    modules: list[str] = []  # in the order of loading
    for module in BOOT_MODULES:
        for line in run("modprobe", "-d", tree, "-S", kernel, "-D", module).splitlines():
            verb, path = line.split()[:2]
            if verb == "insmod" and Path(path).name not in modules:
                shutil.copy(path, initrd)
                modules.append(Path(path).name)
    (initrd / "modules").write_text("\n".join(modules) + "\n")
    names = "\0".join(str(path.relative_to(initrd)) for path in sorted(initrd.rglob("*")))
    with out.open("wb") as archive:  # uncompressed on purpose: it is small, and unpacked in software emulation
        command = ["cpio", "--null", "--create", "--format=newc", "--quiet"]
        subprocess.run(command, input=names.encode(), stdout=archive, cwd=initrd, check=True)


def _write_root(tree: Path, out: Path) -> None:
    used_kib = int(run("du", "-sk", tree).split()[0])
    inodes = sum(1 for _ in tree.rglob("*")) + 200
    features = "^has_journal,^metadata_csum"
    size = f"{used_kib + used_kib // 16 + 8192}k"
    run("mkfs.ext4", "-q", "-L", "fleet-root", "-O", features, "-m", "0", "-N", str(inodes), "-d", tree, out, size)
    out.chmod(0o444)
