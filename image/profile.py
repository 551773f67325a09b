"""What an image is made of: a profile, the versions chosen, and where this builder gets things from."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

HERE = Path(__file__).parent
_Model = TypeVar("_Model", bound=BaseModel)
_Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.+_-]*$")]


class RecipeError(Exception):
    """The recipe or the builder's sources cannot be used, or a step of the build failed; says which and why."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Profile(_Strict):
    """profiles/NAME.toml. `configure`: maintainer scripts run. `compile`: scripts of compile/, run in the image. `start`:
    programs of guest/start.d, run at each boot before the VM can be reached. `modules`: loaded by then. `left_out`: paths,
    as dpkg's path-exclude has them."""

    name: _Name
    configure: bool
    compressed_kernel: bool
    packages: tuple[_Name, ...]
    build_packages: tuple[_Name, ...]
    compile: tuple[_Name, ...]
    start: tuple[_Name, ...]
    modules: tuple[_Name, ...]
    left_out: tuple[str, ...]


class Debian(_Strict):
    suite: _Name


class PinnedSource(_Strict):
    """`repository`: its name below the builder's `git`. `commit` in full: it is the digest of the content."""

    repository: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$")]
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


class Cuda(_Strict):
    home: str
    architectures: tuple[Annotated[str, Field(pattern=r"^[0-9]{2,3}$")], ...] = Field(min_length=1)


class Versions(_Strict):
    """versions.toml."""

    version: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}$")]
    debian: Debian
    pins: Mapping[str, Annotated[str, Field(pattern=r"^[0-9][A-Za-z0-9.+:~-]*$")]]
    sources: Mapping[_Name, PinnedSource]
    cuda: Cuda

    @property
    def driver(self) -> str:
        """Of the kernel modules and the fabric manager, without the package's revision."""
        return self.pins["/nvidia/"].partition("-")[0]

    def preferences(self) -> str:
        """For apt: above every other version, also an installed or a newer one."""
        return "\n".join(f"Package: {p}\nPin: version {v}\nPin-Priority: 1001\n" for p, v in self.pins.items())


class Sources(_Strict):
    """The builder's own (sources.example). `apt`: lines of a sources.list; none: Debian as mmdebstrap finds it. `git`: a server
    or a directory that has the repositories of `Versions.sources`."""

    apt: tuple[str, ...] = ()
    git: str = ""


DEBIAN_ALONE = Sources()


def profile(name: str) -> Profile:
    """Raises RecipeError."""
    path = HERE / "profiles" / f"{name}.toml"
    if not path.is_file():
        there = ", ".join(sorted(p.stem for p in path.parent.glob("*.toml")))
        raise RecipeError(f"there is no profile {name!r}: {there}")
    return _read(Profile, path, name=name)


def versions() -> Versions:
    """Raises RecipeError."""
    return _read(Versions, HERE / "versions.toml")


def sources(path: Path | None) -> Sources:
    """Raises RecipeError."""
    return DEBIAN_ALONE if path is None else _read(Sources, path)


def _read(kind: type[_Model], path: Path, **more: str) -> _Model:
    try:
        return kind.model_validate({**tomllib.loads(path.read_text()), **more})
    except OSError as exc:
        raise RecipeError(f"{path}: {exc.strerror}") from exc
    except tomllib.TOMLDecodeError as exc:
        raise RecipeError(f"{path}: {exc}") from exc
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        raise RecipeError(f"{path}: {'.'.join(str(part) for part in first['loc'])}: {first['msg']}") from exc
