"""Link models from presets and CSV traces."""

import re
from collections import Counter
from pathlib import Path

import pytest

import aquila
from aquila.core.link import DeviceLink
from aquila.runtime.link_presets import MIXED_SHARES, PRESET_NAMES, PRESETS
from aquila.sim.link_source import preset_links, read_trace, resolve_link

KINDS = ("measured: ", "data sheet: ", "standard: ", "nominal: ")


@pytest.mark.parametrize("name", PRESETS)
def test_every_number_of_a_preset_has_a_source(name):
    preset, plain = PRESETS[name], DeviceLink(1, 1)
    fields = vars(preset.link)
    changed = {field for field, value in fields.items() if value != getattr(plain, field)}
    assert changed | {"snr_db", "compute_time"} == set(preset.sources)
    assert all(source.startswith(KINDS) for source in preset.sources.values())
    assert all(fields[f] > 0 for f in fields if f.endswith(("_rate", "_power", "_time")))


def test_measured_powers_follow_the_cited_model():
    for name, base, up, down in (
        ("lte", 1.28804, 0.43839, 0.05197),
        ("3g", 0.81788, 0.86898, 0.12212),
    ):
        link = PRESETS[name].link
        assert link.transmit_power == pytest.approx(base + up * link.uplink_rate / 1e6, abs=1e-3)
        assert link.receive_power == pytest.approx(base + down * link.downlink_rate / 1e6, abs=1e-3)


def test_page_states_the_numbers_of_the_presets():
    page = (Path(__file__).parents[2] / "docs" / "links.md").read_text()
    factors = {"kbit/s": 1e3, "Mbit/s": 1e6, "s": 1, "W": 1, "dB": 1}
    fields = (
        "uplink_rate", "downlink_rate", "latency", "jitter", "compute_time", "transmit_power",
        "receive_power", "compute_power", "snr_db",
    )  # fmt: skip
    for name, preset in PRESETS.items():
        [row] = re.findall(rf"^\| `{name}` \| (.*) \|$", page, re.MULTILINE)
        stated = [cell.partition(",")[0].split() for cell in row.split(" | ")]
        numbers = [float(number) * factors[unit] for number, unit in stated]
        assert numbers == [getattr(preset.link, field) for field in fields]
        assert ("1 % of the time" in row) == (preset.link.duty_cycle == 0.01)
    for kind, share in MIXED_SHARES.items():
        assert f"{share:.0%}".replace("%", " %") + f" `{kind}`" in page


@pytest.mark.parametrize("name", PRESET_NAMES)
@pytest.mark.parametrize("devices", [1, 3, 10])
def test_preset_has_a_link_per_device(name, devices):
    assert resolve_link(name, devices, 0).devices == devices


def test_mixed_fleet_has_the_stated_shares_in_a_seeded_order():
    models = [preset_links("mixed", 20, seed) for seed in (0, 0, 1)]
    assert models[0] == models[1] != models[2]
    for model in models:
        counts = Counter(model.links(0))
        assert counts == {PRESETS[kind].link: 20 * share for kind, share in MIXED_SHARES.items()}


def test_python_model_must_fit_the_run():
    model = aquila.LinkModel.constant([DeviceLink(1, 1)] * 3)
    assert resolve_link(model, 3, 0) is model
    with pytest.raises(ValueError, match="the link model has 3 devices, but the run has 2"):
        resolve_link(model, 2, 0)
    with pytest.raises(ValueError, match="the same devices in every round"):
        aquila.LinkModel(((DeviceLink(1, 1),), ()))
    with pytest.raises(TypeError, match=r"a link must be an aquila.DeviceLink\(...\), not 3"):
        aquila.LinkModel.constant([3])


def write(tmp_path, text):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return path


def test_trace_is_read_and_repeats(tmp_path):
    path = write(
        tmp_path,
        "device, round,uplink_rate,downlink_rate,latency\n"
        "1,0,100,200,0.5\n0,0,300,400,0\n0,1,0,400,0\n1,1,500,600,0.25\n7,0,1,1,1\n",
    )
    model = read_trace(path, 2)
    assert model.name == "csv:trace.csv"
    assert model.links(0) == (DeviceLink(300, 400), DeviceLink(100, 200, 0.5))
    assert model.links(1) == (DeviceLink(0, 400), DeviceLink(500, 600, 0.25))
    assert model.links(2) == model.links(0)


HEAD = "round,device,uplink_rate,downlink_rate\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lacks the column round; it needs round, device, uplink_rate, downlink_rate"),
        (HEAD, "has no rows"),
        ("round,device,uplink_rate\n0,0,1\n", "lacks the column downlink_rate"),
        (HEAD.replace("uplink_rate", "uplink_rte"), "no column 'uplink_rte'; did you mean"),
        (HEAD + "0,0,1,1\n", "no row for device 1 in round 0; it needs one per round and device"),
        (HEAD + "0,0,1,1\n0,1,1,1\n2,0,1,1\n", "no row for device 0 in round 1"),
        (HEAD + "0,0,1,1\n0,0,1,1\n", "line 3: a second row for device 0 in round 0"),
        (HEAD + "0,0,fast,1\n", "line 2: uplink_rate must be a number, not 'fast'"),
        (HEAD + "0,0,-1,1\n", "line 2: uplink_rate of a link must be a number >= 0, not -1.0"),
        (HEAD + "0.5,0,1,1\n", "line 2: round must be a whole number >= 0, not '0.5'"),
        (HEAD + "0,0,1\n", "line 2: the row and the heading have different numbers of columns"),
        (HEAD + "0,0,1,1,1\n", "line 2: the row and the heading have different numbers"),
    ],
)
def test_wrong_trace_gets_one_sentence(tmp_path, text, message):
    with pytest.raises(ValueError, match=f"trace.csv.* {re.escape(message)}"):
        read_trace(write(tmp_path, text), 2)


def test_trace_that_is_no_text_file(tmp_path):
    with pytest.raises(ValueError, match=r"there is no trace .*absent.csv"):
        read_trace(tmp_path / "absent.csv", 2)
    path = tmp_path / "trace.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="cannot be read"):
        read_trace(path, 2)
    path.write_text(HEAD + "inf,0,1,1\n")
    with pytest.raises(ValueError, match="round must be a whole number >= 0, not 'inf'"):
        read_trace(path, 2)
