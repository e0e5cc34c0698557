"""Runs with `rows="owners"`: who owns which rows, exact memories, and refusals."""

import numpy as np
import pytest
import torch
from torch import nn

import aquila
from aquila.core.method import server_memory
from aquila.core.random import Key
from aquila.sim.problem import ProblemOptions
from aquila.tasks import build_model
from aquila.tasks.transformer import token_loss
from helpers.problems import device_states

CLASSES = [[0, 1], [1, 2], [0, 2]]
OWNERS = aquila.RunOptions(rows="owners")


def classifier(mask=False, widths=False):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    module, narrow = (
        build_model("mlp", width=width, inputs=4, hidden=6, classes=4).double()
        for width in (1.0, 0.5)
    )
    shards = [
        (torch.randn(8, 4, generator=generator).double(), torch.tensor(classes * 4))
        for classes in CLASSES
    ]
    options = ProblemOptions(
        narrower=[narrow] if widths else [],
        groups=[0, 1, 0] if widths else None,
        classes=4 if mask else None,
    )
    return aquila.problem(module, shards, options=options)


def test_devices_own_the_rows_of_their_classes():
    problem = classifier()
    tensors = len(problem.fleet.shapes[0])
    for device, classes in zip(problem.devices, CLASSES, strict=True):
        owned = device.owned_rows
        assert list(owned) == [tensors - 2, tensors - 1]
        expected = [number in classes for number in range(4)]
        assert [mask.tolist() for mask in owned.values()] == [expected, expected]


def test_devices_own_the_embeddings_of_their_words():
    """The mask token, the row after those of the words, belongs to all. Positions do not count."""
    torch.manual_seed(0)
    module = build_model("transformer_small", vocabulary=10, length=4, dropout=0.0)
    texts = [torch.tensor([[0, 1, 2, 3]]), torch.tensor([[3, 3, 9, 9]])]
    problem = aquila.problem(module, [(text, text) for text in texts], loss=token_loss)
    names = [name for name, _ in module.named_parameters()]
    owned = [{names[n]: m.nonzero()[:, 0].tolist() for n, m in d.owned_rows.items()}
             for d in problem.devices]  # fmt: skip
    for found, words in zip(owned, ([0, 1, 2, 3], [3, 9]), strict=True):
        expected = {"tokens.weight": [*words, 10], "decoder.4.weight": words}
        assert found == {**expected, "decoder.4.bias": words}


def test_step_on_class_rows_is_the_mean_over_owners():
    problem = classifier(mask=True)
    method = aquila.create("fedsgd", alpha=1.0)
    run = problem.train(method, rounds=1, options=OWNERS)
    gradients = torch.stack(
        [device.oracle(Key((0,))).gradient(problem.theta0)[1] for device in problem.devices]
    )
    bias = slice(problem.theta0.numel() - 4, None)
    step = (problem.theta0 - run.theta)[bias]
    # every class of 0, 1, 2 has two owners, and the gradient of the others is zero
    torch.testing.assert_close(step[:3], gradients[:, bias].sum(0)[:3] / 2)
    assert step[3] == 0
    hidden = slice(0, 24)
    expected = gradients[:, hidden].mean(0)
    torch.testing.assert_close((problem.theta0 - run.theta)[hidden], expected)


@pytest.mark.parametrize("name", ["aquila", "laq", "lag", "lena", "diana", "ef21", "aquila_topk"])
def test_average_memory_stays_that_of_the_owners_whatever_is_lost(name):
    problem = classifier(widths=True)
    method = aquila.create(name)
    options = aquila.RunOptions(
        rows="owners", weights="samples", fleet=problem.fleet, uplink_loss=0.3, downlink_loss=0.1
    )
    run = aquila.Simulation(method, problem.theta0, problem.devices, 3, options)
    for _ in range(12):
        run.advance()
    memories = [method.device.memory(state) for state in device_states(run)]
    expected = run.fleet.mean_over_holders(enumerate(memories))
    average = server_memory(method.server).memory(run.server.state)
    np.testing.assert_allclose(average, expected, rtol=1e-9, atol=1e-12)
    assert float(expected.abs().max()) > 0
    # nobody has samples of class 3
    assert expected[-1] == average[-1] == 0


def test_forgotten_device_leaves_the_average_of_its_rows():
    problem = classifier()
    method = aquila.create("lag")
    options = aquila.RunOptions(rows="owners", fleet=problem.fleet)
    run = aquila.Simulation(method, problem.theta0, problem.devices, options=options)
    replies = []
    orders = run.server.open_round()
    for number, device in enumerate(run.devices):
        replies.append(device.answer(orders[number]))
        run.server.receive(number, device.pack(replies[-1]))
    run.server.close_round()
    memory = server_memory(method.server)
    sent_by_one = [memory.contribution(replies[1])]
    state = memory.forget(run.server.state, run.fleet, 1, sent_by_one)
    sent = [(m, replies[m].vector.decode()) for m in (0, 2)]
    expected = run.fleet.mean_over_holders(sent)
    torch.testing.assert_close(memory.memory(state), expected, rtol=1e-6, atol=1e-9)


def test_all_classes_everywhere_change_nothing():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    shards = [(torch.randn(6, 4), torch.tensor([0, 1, 2] * 2)) for _ in range(3)]
    problem = aquila.problem(module, shards)
    runs = [problem.train(aquila.create("aquila"), 3, options=o)
            for o in (OWNERS, aquila.RunOptions())]  # fmt: skip
    assert torch.equal(runs[0].theta, runs[1].theta)


def test_refusals_name_the_way_out():
    method, theta = aquila.create("fedsgd"), torch.zeros(3)
    with pytest.raises(ValueError, match="device 0 does not have the attribute owned_rows"):
        aquila.simulate(method, theta, [lambda at: (0.0, at)], 1, options=OWNERS)
    regression = aquila.problem(
        nn.Linear(2, 1), [(torch.randn(4, 2), torch.randn(4, 1))], loss=nn.functional.mse_loss
    )
    with pytest.raises(ValueError, match="is not a pair of tensors with classes as targets"):
        regression.train(method, 1, options=OWNERS)
    convolution = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten())
    no_output = aquila.problem(convolution, [(torch.randn(4, 1, 3), torch.tensor([0, 1, 0, 1]))])
    with pytest.raises(ValueError, match=r"needs an nn\.Linear as output layer"):
        no_output.train(method, 1, options=OWNERS)
    problem = classifier()
    with pytest.raises(ValueError, match=r"pass RunOptions\(fleet=problem.fleet\)"):
        aquila.simulate(method, problem.theta0, problem.devices, 1, options=OWNERS)
    with pytest.raises(ValueError, match="rows must be one of all, owners"):
        aquila.RunOptions(rows="own")


def test_flower_refuses_owners():
    pytest.importorskip("flwr")
    from aquila.flower import strategy

    with pytest.raises(ValueError, match="rows=owners works in the simulator only"):
        strategy(aquila.create("fedsgd"), torch.zeros(3), 2, 1, options=OWNERS)
