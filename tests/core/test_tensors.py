"""Tensors inside a flat vector: shapes, floats as codes, and one grid per tensor."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import aquila
from aquila.core.fleet import Fleet
from aquila.core.packet import Codes, Dense, Packet, WireError
from aquila.core.quantize import midrise
from aquila.core.tensor_grid import TensorGridReader, TensorGrids, midrise_tensors
from aquila.core.tensors import (
    check_tensors,
    checksum_scalars,
    digits_per_float,
    from_digits,
    per_coordinate,
    shapes_of,
    split_tensors,
    to_digits,
)
from aquila.core.wire import pack, unpack

SHAPES = (torch.Size([2, 3]), torch.Size([4]), torch.Size([]))
SCALED = torch.tensor([1.0, -2, 3, 4, -5, 6, 1e-3, -2e-3, 3e-3, 4e-3, 7e4])


class OracleWithShapes:
    shapes = SHAPES


def test_shapes_come_from_the_oracle_or_are_one_tensor():
    assert shapes_of(OracleWithShapes(), torch.zeros(11)) == SHAPES
    assert shapes_of(object(), torch.zeros(11)) == (torch.Size([11]),)
    with pytest.raises(ValueError, match="oracle have 11 coordinates, but the model has 12"):
        shapes_of(OracleWithShapes(), torch.zeros(12))


def test_parts_and_values_per_coordinate_follow_the_shapes():
    parts = split_tensors(torch.arange(11.0), SHAPES)
    assert [part.tolist() for part in parts] == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9], [10]]
    values = per_coordinate(torch.tensor([1.0, 2.0, 3.0]), SHAPES)
    assert values.tolist() == [1.0] * 6 + [2.0] * 4 + [3.0]


@given(
    st.lists(st.floats(width=32), min_size=1, max_size=5),
    st.integers(1, 32),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_digits_keep_every_bit_of_a_float(numbers, bits, dtype):
    values = torch.tensor(numbers, dtype=dtype)
    digits = to_digits(values, bits)
    assert digits.numel() == len(numbers) * digits_per_float(values, bits)
    assert int(digits.min()) >= 0
    assert int(digits.max()) < 2**bits
    back = from_digits(digits, bits, values)
    assert back.numpy().tobytes() == values.numpy().tobytes()


def test_one_tensor_has_the_codes_of_the_whole_vector():
    for bits in (2, 6, 13, 31):
        grids, whole = midrise_tensors(SCALED, bits, (SCALED.shape,)), midrise(SCALED, bits)
        assert torch.equal(grids.codes, whole.codes)
        assert torch.equal(grids.decode(), whole.decode())


def test_each_tensor_has_its_own_range():
    """R = 6, 0.004 and 70000 at two bits: psi = floor((v + R) / (2 R / 3) + 1/2)."""
    grids = midrise_tensors(SCALED, 2, SHAPES)
    expected = []
    for part in (SCALED[:6], SCALED[6:10], SCALED[10:]):
        v, R = part.double().numpy(), float(part.abs().max())
        expected += np.floor((v + R) / (2 * R / 3) + 0.5).tolist()
    assert grids.codes.tolist() == expected
    error = (grids.decode() - SCALED).abs()
    R = per_coordinate(torch.tensor([6.0, 4e-3, 7e4]), SHAPES)
    assert bool((error <= R / 3 * (1 + 1e-6)).all())


def test_zero_tensors_become_zero_and_a_zero_vector_has_no_grid():
    v = SCALED.clone()
    v[6:10] = 0
    assert not midrise_tensors(v, 4, SHAPES).decode()[6:10].any()
    v[6:10] = 1e-45  # the step underflows
    assert not midrise_tensors(v, 4, SHAPES).decode()[6:10].any()
    assert midrise_tensors(torch.zeros(11), 4, SHAPES) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bits", [1, 2, 6, 13, 31])
def test_the_server_decodes_the_bits_that_the_device_decodes(bits, dtype):
    grids = midrise_tensors(SCALED.to(dtype), bits, SHAPES)
    reader = TensorGridReader()
    frame = pack(Packet(0, grids.to_codes(), checksum_scalars(SHAPES)))
    reply = unpack(frame, reader.dimensions(SHAPES))
    check_tensors(reply, SHAPES)
    read = reader.read(reply, SHAPES)
    assert (read.dimension, read.bits) == (11, bits)
    assert read.decode().numpy().tobytes() == grids.decode().numpy().tobytes()


def upload(low, step):
    codes = torch.zeros(11, dtype=torch.uint8)
    return Packet(0, TensorGrids(codes, 6, low, step, SHAPES).to_codes())


@pytest.mark.parametrize(
    ("low", "step"), [(np.nan, 1), (0, np.inf), (0, -1), (3e38, 3e37), (-np.inf, 1)]
)
def test_grids_that_are_not_finite_are_refused(low, step):
    reply = upload(torch.tensor([0.0, low, 0.0]), torch.tensor([1.0, step, 1.0]))
    with pytest.raises(WireError, match="not finite or has a negative step"):
        TensorGridReader().read(reply, SHAPES)


def test_other_forms_are_refused():
    reader = TensorGridReader()
    with pytest.raises(WireError, match="must hold codes"):
        reader.read(Packet(0, Dense(torch.zeros(17))), SHAPES)
    short = Codes(torch.zeros(20, dtype=torch.uint8), 6, torch.zeros(1), torch.ones(1), 20)
    with pytest.raises(WireError, match="two floats per tensor"):
        reader.read(Packet(0, short), SHAPES)
    with pytest.raises(WireError, match=r"pass RunOptions\(fleet=problem\.fleet\)"):
        check_tensors(Packet(0, None, checksum_scalars(SHAPES[:2])), SHAPES)
    with pytest.raises(WireError, match="lacks the scalar 'tensors'"):
        check_tensors(Packet(0), SHAPES)
    with pytest.raises(WireError, match="holds Dense or Codes, not TensorGrids"):
        pack(Packet(0, midrise_tensors(SCALED, 4, SHAPES)))


def test_fleet_keeps_the_shapes_of_its_groups():
    half = (torch.Size([2, 2]), torch.Size([1]))
    fleet = Fleet(11, [0, 1, 0], [None, torch.arange(5)], shapes=[SHAPES, half])
    for same in (fleet, fleet.with_weights([1, 2, 3]), fleet.with_participation(0.5)):
        assert [same.shapes_of(device) for device in same.devices] == [SHAPES, half, SHAPES]
    assert Fleet(11, [0, 1], [None, torch.arange(5)]).shapes_of(1) == (torch.Size([5]),)
    with pytest.raises(ValueError, match=r"have \[11, 11\] coordinates, but the groups hold"):
        Fleet(11, [0, 1], [None, torch.arange(5)], shapes=[SHAPES, SHAPES])


def test_problem_states_the_tensors_of_each_width():
    def module(hidden):
        return torch.nn.Sequential(torch.nn.Linear(4, hidden), torch.nn.Linear(hidden, 2))

    data = [(torch.zeros(2, 4), torch.zeros(2).long())] * 2
    options = aquila.ProblemOptions(narrower=[module(3)], groups=[0, 1])
    problem = aquila.problem(module(6), data, options=options)
    expected = [((6, 4), (6,), (2, 6), (2,)), ((3, 4), (3,), (2, 3), (2,))]
    assert [problem.fleet.shapes_of(d) for d in (0, 1)] == expected
    assert [shard.oracle(None).shapes for shard in problem.devices] == expected
