"""Partitions by name and in files."""

import json

import pytest
import torch

from aquila.core.random import Key
from aquila.tasks.dataset import Dataset
from aquila.tasks.partition import (
    RULES,
    blocks,
    by_class,
    dirichlet,
    iid,
    load_partition,
    partition_content,
    split,
    unequal,
)

LABELS = torch.arange(1000) % 10
SPECS = ["iid", "classes:2", "dirichlet:0.5", "unequal:1.0", "blocks:50"]


def all_samples(parts):
    return torch.cat(parts).sort().values.tolist()


def dataset(labels=LABELS):
    return Dataset((labels.float(), labels), (labels.float(), labels), classes=10)


def numbers(parts):
    return [part.tolist() for part in parts]


@pytest.mark.parametrize("spec", SPECS)
def test_every_split_depends_on_key(spec):
    a, b, c = (numbers(split(spec, dataset(), 10, Key((seed,)))) for seed in (0, 0, 1))
    assert a == b
    assert a != c


@pytest.mark.parametrize("size", [-1, 0, 1001])
def test_invalid_number_of_devices_is_refused(size):
    for spec in SPECS:
        with pytest.raises(ValueError, match=rf"{size} devices|from {size} \(one per device\)"):
            split(spec, dataset(), size, Key((0,)))


def test_split_applies_the_named_rule():
    key = Key((3,))
    for spec, parts in (
        ("iid", iid(1000, 10, key)),
        ("classes:2", by_class(LABELS, 10, 2, key)),
        ("dirichlet:0.5", dirichlet(LABELS, 10, 0.5, key)),
        ("unequal:1.0", unequal(1000, 10, key, 1.0)),
        ("blocks:50", blocks(1000, 10, 50, key)),
    ):
        assert numbers(split(spec, dataset(), 10, key)) == numbers(parts)
    assert {spec.partition(":")[0] for spec in SPECS} == set(RULES)


KNOWN = "Known: iid, classes:COUNT, dirichlet:ALPHA, unequal:SPREAD, blocks:COUNT"


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("idd", f"no split 'idd'; did you mean 'iid'? {KNOWN}"),
        ("", f"no split ''. {KNOWN}"),
        ("classes", f"'classes' is not of the form classes:COUNT. {KNOWN}"),
        ("classes:two", f"'classes:two' is not of the form classes:COUNT. {KNOWN}"),
        ("classes:1.5", f"'classes:1.5' is not of the form classes:COUNT. {KNOWN}"),
        ("iid:3", f"'iid:3' is not of the form iid. {KNOWN}"),
        ("iid:", f"'iid:' is not of the form iid. {KNOWN}"),
        ("dirichlet:", f"'dirichlet:' is not of the form dirichlet:ALPHA. {KNOWN}"),
        ("classes:11", "from 1 to 10, not 11"),
        ("dirichlet:0", "alpha must be > 0 and <= 1e+06, not 0"),
        ("dirichlet:nan", "alpha must be > 0 and <= 1e+06, not nan"),
        ("dirichlet:inf", "alpha must be > 0"),
        ("unequal:-1", "spread must be from 0 to 100, not -1"),
        ("unequal:nan", "spread must be from 0 to 100, not nan"),
        ("blocks:3", "blocks must be from 10 (one per device) to 1000 (one per sample), not 3"),
        ("blocks:2000", "to 1000 (one per sample), not 2000"),
    ],
)
def test_invalid_spec_lists_valid_forms(spec, problem):
    with pytest.raises(ValueError, match=r"split|must be") as error:
        split(spec, dataset(), 10, Key((0,)))
    assert problem in str(error.value)


def test_texts_can_be_split_but_not_by_class():
    text = dataset(torch.arange(1200).reshape(300, 4))
    for spec in ("iid", "unequal:1", "blocks:20"):
        assert all_samples(split(spec, text, 10, Key((0,)))) == list(range(300))
    for spec in ("classes:2", "dirichlet:1"):
        with pytest.raises(ValueError, match="texts have no class"):
            split(spec, text, 10, Key((0,)))


@pytest.mark.parametrize("spec", SPECS)
def test_partition_survives_its_file(spec, tmp_path):
    parts = split(spec, dataset(), 10, Key((0,)))
    (tmp_path / "split.json").write_bytes(partition_content(parts))
    assert numbers(load_partition(tmp_path / "split.json")) == numbers(parts)
    text = (tmp_path / "split.json").read_text()
    assert len(text) < 2100
    assert json.loads(text)["device_of_sample"][int(parts[3][0])] == 3


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"device_of_sample":[]}', '{"device_of_sample":[0,2]}', "\xff",
        '{"device_of_sample":3}', '{"device_of_sample":["a"]}', '{"device_of_sample":[0,"a"]}',
    ],
)  # fmt: skip
def test_other_files_are_refused(text, tmp_path):
    (tmp_path / "split.json").write_text(text, encoding="latin1")
    with pytest.raises(ValueError, match="does not hold a partition"):
        load_partition(tmp_path / "split.json")


@pytest.mark.parametrize("parts", [[[0, 1], [1, 2]], [[0], [2]]])
def test_only_complete_partitions_are_saved(parts):
    with pytest.raises(ValueError, match="every sample exactly once"):
        partition_content([torch.tensor(part) for part in parts])
