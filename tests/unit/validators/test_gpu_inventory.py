import pytest

from tests.unit.validators.machine import SKU, SLOTS, failures, gaps, inventory, judge, subject
from validators import CHECKS
from validators.base import Ended, Measurement, Outcome, Subject


def test_eight_healthy_gpus_pass_with_their_serials() -> None:
    result = judge("gpu_inventory", inventory(), inventory())
    assert result.outcome is Outcome.PASSED
    assert {finding.device for finding in result.findings} == {f"gpu{i}" for i in range(8)}
    assert result.facts["gpu_inventory"]["gpus"][3]["serial"] == "1654922006533"
    assert result.limits["memory_mib"] == 40960


def test_missing_gpu_is_named_by_its_slot() -> None:
    result = judge("gpu_inventory", inventory(missing=[5]))
    assert failures(result) == {("gpu5", "missing")}
    assert result.reason == "gpu5: NVML lists 7 of 8 GPUs; none at 0000:15:00.0"


def test_missing_gpu_fails_the_machine_where_no_slot_map_is() -> None:
    assert failures(judge("gpu_inventory", inventory(missing=[5]), of=subject(slots=False))) == {(None, "missing")}


def test_gpu_gone_in_the_second_reading_was_lost_under_load() -> None:
    result = judge("gpu_inventory", inventory(), inventory(missing=[2]))
    assert failures(result) == {("gpu2", "lost_under_load")}
    assert "7 of 8 GPUs after the stress, 8 before" in result.reason


@pytest.mark.parametrize(
    ("name", "outcome", "code"),
    [
        ("NVML_ERROR_GPU_IS_LOST", Outcome.FAILED, "gpu_lost"),
        ("NVML_ERROR_RESET_REQUIRED", Outcome.FAILED, "reset_required"),
        ("NVML_ERROR_INSUFFICIENT_POWER", Outcome.FAILED, "no_power"),
        ("NVML_ERROR_UNKNOWN", Outcome.NOT_RUN, "nvml_error"),
    ],
)
def test_error_of_one_gpu(name: str, outcome: Outcome, code: str) -> None:
    error = {"call": "nvmlDeviceGetHandleByIndex", "code": 15, "name": name}
    nothing = {"uuid": None, "name": None, "pci_bus_id": None, "memory_total_mib": None, "nvlinks_active": None}
    result = judge("gpu_inventory", inventory({4: {"error": error, **nothing}}))
    assert result.outcome is outcome
    assert [(f.device, f.code) for f in result.findings if f.outcome is outcome] == [("gpu4", code)]


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"ecc_volatile_uncorrected": 3}, "ecc_uncorrected", "3 uncorrectable memory errors"),
        ({"memory_total_mib": 40000}, "memory_size", "40000 MiB of memory, expected 40960"),
        ({"nvlinks_active": 11}, "nvlinks_down", "11 of 12 NVLinks are active"),
        ({"remapped_rows": {"failure": True}}, "remap_failure", "could not be remapped"),
        ({"name": "NVIDIA A100-PCIE-40GB"}, "wrong_gpu", "NVIDIA A100-PCIE-40GB"),
    ],
)
def test_bad_reading_fails_the_gpu(changes: dict[str, object], code: str, said: str) -> None:
    result = judge("gpu_inventory", inventory({6: changes}))
    assert failures(result) == {("gpu6", code)}
    assert said in result.reason


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"ecc_aggregate_uncorrected": 8}, "ecc_uncorrected"),
        ({"remapped_rows": {"uncorrectable": 2, "pending": False, "failure": False}}, "rows_remapped"),
        ({"remapped_rows": {"uncorrectable": 1, "pending": True, "failure": False}}, "remap_pending"),
    ],
)
def test_rise_under_load_fails_the_gpu(changes: dict[str, object], code: str) -> None:
    before = {
        1: {"ecc_aggregate_uncorrected": 7, "remapped_rows": {"uncorrectable": 1, "pending": False, "failure": False}}
    }
    assert judge("gpu_inventory", inventory(before)).outcome is Outcome.PASSED
    result = judge("gpu_inventory", inventory(before), inventory({1: {**before[1], **changes}}))
    assert failures(result) == {("gpu1", code)}
    assert "after the stress" in result.reason


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"remapped_rows": {"pending": True}}, "remap_pending"),
        ({"processes": [{"pid": 4242, "kind": "compute"}]}, "foreign_process"),
        ({"nvlinks_active": None}, "not_measured"),
        ({"memory_total_mib": None}, "not_measured"),
        ({"name": None}, "not_measured"),
    ],
)
def test_what_cannot_be_told_is_not_run(changes: dict[str, object], code: str) -> None:
    result = judge("gpu_inventory", inventory({0: changes}))
    assert result.outcome is Outcome.NOT_RUN
    assert code in gaps(result)


def test_machine_of_another_sku_is_a_wrong_record_not_eight_wrong_gpus() -> None:
    result = judge("gpu_inventory", inventory({i: {"name": "NVIDIA H200"} for i in range(8)}))
    assert (result.outcome, gaps(result)) == (Outcome.NOT_RUN, {"other_sku"})


def test_more_gpus_than_the_sku_has_is_not_run() -> None:
    sku = subject().sku
    small = sku.model_copy(update={"gpus": sku.gpus.model_copy(update={"count": 4})})
    assert "gpu_count" in gaps(judge("gpu_inventory", inventory(), of=subject(small)))


def test_nvml_that_cannot_be_used_is_not_run() -> None:
    error = {"call": "nvmlInit", "code": 12, "name": "NVML_ERROR_LIBRARY_NOT_FOUND"}
    result = judge("gpu_inventory", inventory(missing=range(8), error=error))
    assert (result.outcome, failures(result)) == (Outcome.NOT_RUN, set())
    assert "NVML_ERROR_LIBRARY_NOT_FOUND" in result.reason


def test_nvml_that_lost_a_gpu_fails_the_machine_once() -> None:
    error = {"call": "nvmlDeviceGetCount", "code": 15, "name": "NVML_ERROR_GPU_IS_LOST"}
    assert failures(judge("gpu_inventory", inventory(missing=range(8), error=error))) == {(None, "gpu_lost")}


def test_slot_of_a_gpu_that_does_not_tell_its_address_is_its_index() -> None:
    error = {"call": "nvmlDeviceGetHandleByIndex", "code": 15, "name": "NVML_ERROR_GPU_IS_LOST"}
    slots = [{**slot, "slot": f"tray-{slot['slot']}"} for slot in SLOTS]
    measured = Measurement("gpu_inventory", inventory({4: {"error": error, "pci_bus_id": None}}))
    assert failures(CHECKS["gpu_inventory"].judge([measured], Subject(SKU, slots))) == {("tray-gpu4", "gpu_lost")}


def test_lost_guest_in_the_second_reading_keeps_the_first_from_passing() -> None:
    assert judge("gpu_inventory", inventory(), "", ended=Ended.LOST).outcome is Outcome.NOT_RUN


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("Traceback (most recent call last):\n  ImportError: pynvml", "no JSON object"),
        (inventory()[:-40], "broken or cut"),
        (inventory({0: {"memory_total_mib": "NaN MiB"}}), "gpus.0.memory_total_mib"),
        (inventory({0: {"uuid": "GPU-00000001"}}), "two GPUs have the same uuid"),
        (inventory(tool="ib_links"), "tool"),
        ('{"tool": "gpu_inventory"}', "gpus"),
        ('{"tool": "gpu_inventory", "gpus": []}', "0 GPUs are listed, device_count is None"),
        (inventory(device_count=9), "8 GPUs are listed, device_count is 9"),
        ('{"a": NaN}', "NaN is no number"),
    ],
)
def test_output_that_is_no_inventory_is_not_run(output: str, said: str) -> None:
    result = judge("gpu_inventory", output)
    assert (result.outcome, gaps(result)) == (Outcome.NOT_RUN, {"unparsable"})
    assert said in result.reason


@pytest.mark.parametrize(
    ("refused", "outcome"),
    [
        ("NVML_ERROR_NOT_SUPPORTED", Outcome.PASSED),
        ("NVML_ERROR_FUNCTION_NOT_FOUND", Outcome.PASSED),
        ("NVML_ERROR_UNKNOWN", Outcome.NOT_RUN),
        ("NVML_ERROR_TIMEOUT", Outcome.NOT_RUN),
    ],
)
@pytest.mark.parametrize("counter", ["ecc_volatile_uncorrected", "remapped_rows"])
def test_a_counter_that_cannot_be_read_is_not_nought(counter: str, refused: str, outcome: Outcome) -> None:
    """Unless this kind of GPU, or this driver, has none."""
    unread = {counter: None, "unsupported": {counter: refused}}
    assert judge("gpu_inventory", inventory({2: unread})).outcome is outcome
