"""docs/test-image.md says what is so."""

import json
import re
from pathlib import Path

import yaml

from fleet.settings import HypervisorSettings
from fleet.workflows.test_image import Versions
from image.profile import HERE, profile
from image.recipe import CMDLINE

PAGE = (Path(__file__).parents[3] / "docs/test-image.md").read_text()


def block(language: str) -> str:
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(text)


def test_the_manifest_shown_is_one() -> None:
    assert Versions.model_validate_json(block("json")).profile == "ours"
    assert json.loads(block("json"))["format"] == 1


def test_the_settings_shown_are_settings() -> None:
    shown = yaml.safe_load(block("yaml"))["hypervisor"]
    assert set(shown) <= set(HypervisorSettings.model_fields)
    assert shown["cmdline"] == CMDLINE


def test_the_table_has_every_profile_and_each_has_what_it_says() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE))
    assert set(rows) == {path.stem for path in (HERE / "profiles").glob("*.toml")}
    for name, has in rows.items():
        built = {*profile(name).packages, *profile(name).compile}
        named = [word for word in re.findall(r"[a-z][a-z0-9-]+", has) if word in {*_everything()}]
        assert set(named) <= built, name


def _everything() -> set[str]:
    return {word for path in (HERE / "profiles").glob("*.toml") for word in _of(path.stem)}


def _of(name: str) -> set[str]:
    return {*profile(name).packages, *profile(name).compile}
