"""Settings: errors name the file and the key; the command line comes before the environment, that before the file."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from fleet.core.errors import InvalidInput
from fleet.settings import load


@pytest.fixture
def config(tmp_path, monkeypatch):
    for name in ("FLEET_LISTEN", "FLEET_DATABASE", "FLEET_DATA_DIR", "FLEET_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def write(text: str, name: str = "fleet.yaml") -> Path:
        file = tmp_path / name
        file.write_text(text)
        return file

    return write


def test_a_file_in_either_language(config):
    assert load(config("worker: {threads: 3}")).worker.threads == 3
    assert load(config("[worker]\nthreads = 3\n", "fleet.toml")).worker.threads == 3
    assert load(config("# nothing yet\n")).worker.threads == 8


def test_flags_before_environment_before_file(config, monkeypatch):
    file = config("listen: 'file:1'\nworker: {threads: 3, poll_s: 2}")
    monkeypatch.setenv("FLEET_LISTEN", "env:1")
    monkeypatch.setenv("FLEET_WORKER__THREADS", "5")
    settings = load(file, {"listen": "flag:1"})
    assert (settings.listen, settings.worker.threads, settings.worker.poll_s) == ("flag:1", 5, 2)
    assert load(file).listen == "env:1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("worker: {thread: 3}", "worker.thread: unknown key; did you mean threads?"),
        ("wroker: {}", "wroker: unknown key; did you mean worker?"),
        ("validation: {boot_deadline: 3}", "validation.boot_deadline: unknown key; did you mean boot_deadline_s?"),
        ("worker: {threads: many}", "worker.threads: Input should be a valid integer"),
        ("worker: {threads: 0}", "worker.threads: Input should be greater than 0"),
        ("validation: {abort_retries_s: [60, -1]}", "validation.abort_retries_s.1: Input should be greater"),
        ("validation: {call_deadline_s: 60}", "validation.call_deadline_s: Input should be less than or equal to 10"),
        ("site: {mode: enforced}", "site.mode: Input should be 'enforce' or 'observe'"),
        ("- worker", "a file is a mapping of keys to values"),
        ("worker: [", "fleet.yaml:1: no YAML: expected the node content"),
        ("site: {mode: observe}\nsite: {mode: enforce}", "fleet.yaml:2: site: is given twice, first in line 1"),
        ("hooks: [{name: wipe}]", "hooks.0: has either a command or a url"),
    ],
)
def test_an_error_names_file_and_key(config, text, said):
    file = config(text)
    with pytest.raises(InvalidInput) as caught:
        load(file)
    assert str(file) in str(caught.value)
    assert said in str(caught.value)


def test_every_error_is_listed(config):
    with pytest.raises(InvalidInput) as caught:
        load(config("worker: {threads: 0, poll_s: 0, thread: 1}"))
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("FLEET_WORKER__THREADS", "many", "FLEET_WORKER__THREADS: Input should be a valid integer"),
        ("FLEET_WORKER__THREDS", "3", "FLEET_WORKER__THREDS: unknown key; did you mean threads?"),
        ("FLEET_WROKER__THREADS", "3", "FLEET_WROKER__THREADS: unknown section; did you mean worker?"),
        ("FLEET_PLAYBOOKS__DIRECTORIES", "/a", 'error parsing value for field "playbooks"'),
    ],
)
def test_an_error_in_the_environment_names_the_variable(config, monkeypatch, name, value, said):
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidInput) as caught:
        load(config("worker: {}"))
    assert said in str(caught.value)


def test_variables_of_the_client_are_not_settings(config, monkeypatch):
    monkeypatch.setenv("FLEET_URL", "http://x")
    monkeypatch.setenv("FLEET_ROOT", "/x")
    assert load(config("")).listen == "127.0.0.1:8470"


def test_settings_are_frozen(config):
    settings = load(config(""))
    with pytest.raises(ValidationError):
        settings.worker.threads = 1


def test_the_data_directory_has_a_place_of_its_own(config, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert load().data_dir == Path("/state/fleet")
    monkeypatch.setenv("FLEET_HOME", "/home/of/fleet")
    assert load().data_dir == Path("/home/of/fleet")


@pytest.mark.parametrize(("name", "said"), [("fleet.ini", "a .yaml or .toml file"), ("none.yaml", "cannot be read")])
def test_a_file_that_cannot_be_used_is_named(config, tmp_path, name, said):
    config("", "fleet.ini")
    with pytest.raises(InvalidInput, match=said):
        load(tmp_path / name)


def test_the_settings_in_the_readme_are_settings(config):
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    example = next(block for block in readme.split("```") if block.startswith("yaml\n   database:"))
    digest = "5f2c" + 60 * "0"  # written out, it would be most of the line
    settings = load(config(example.removeprefix("yaml\n").replace("5f2c...", digest)))
    assert (settings.hypervisor.flavor.vcpus, settings.site.mode) == (96, "observe")
