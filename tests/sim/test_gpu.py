"""Runs on a CUDA GPU agree with the CPU, and are deterministic on request."""

from itertools import pairwise

import pytest
import torch
from torch import nn

import aquila
from aquila.core.innovation import measure
from aquila.core.packet import Dense, Packet
from aquila.core.random import Key
from aquila.core.wire import pack, unpack
from aquila.sim.hardware import configure_torch
from aquila.tasks import build_model
from aquila.tasks.transformer import WordScores
from aquila.training.flat_module import FlatModule

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@pytest.fixture(autouse=True)
def plain_hardware():
    configure_torch("cuda", "float32", deterministic=False)
    yield
    configure_torch("cuda", "float32", deterministic=False)


def images(samples: int = 96, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 10, (samples,), generator=generator)
    x = torch.randn(samples, 3, 32, 32, generator=generator) + y[:, None, None, None] / 5
    return x, y


def small_resnet(width: float = 0.25) -> nn.Module:
    torch.manual_seed(0)
    return build_model("resnet18", width=width)


def problem(device: str, precision: str = "float32", **options: object) -> aquila.Problem:
    x, y = images()
    shards = [(x[m::4], y[m::4]) for m in range(4)]
    given = aquila.ProblemOptions(device=device, precision=precision, **options)
    return aquila.problem(small_resnet(), shards, test=(x, y), batch_size=8, options=given)


def train(
    made: aquila.Problem, rounds: int = 3, name: str = "aquila", workers: int = 0
) -> aquila.Run:
    method = aquila.create(name, alpha=0.02, work="epochs")
    return aquila.simulate(
        method,
        made.theta0,
        made.devices,
        rounds=rounds,
        evaluate=made.evaluate,
        options=aquila.RunOptions(fleet=made.fleet, workers=workers),
    )


def test_gradients_agree_with_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    gradients = {}
    for device in ("cpu", "cuda"):
        made = problem(device)
        gradients[device] = made.devices[0].oracle(Key((0,))).gradient(made.theta0)[1]
    error = (gradients["cuda"].cpu() - gradients["cpu"]).norm() / gradients["cpu"].norm()
    assert error < 1e-4


def test_run_agrees_with_the_cpu():
    on_cpu, on_gpu = train(problem("cpu")), train(problem("cuda"))
    for mine, theirs in zip(on_cpu.records, on_gpu.records, strict=True):
        assert theirs.loss == pytest.approx(mine.loss, rel=2e-2)
    first = on_cpu.records[0]
    assert on_gpu.records[0].levels == first.levels
    assert on_gpu.records[0].paper_bits == first.paper_bits


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_low_precision_stays_close(precision):
    configure_torch("cuda", precision, deterministic=False)
    exact, short = train(problem("cpu")), train(problem("cuda", precision))
    assert short.records[0].loss == pytest.approx(exact.records[0].loss, rel=5e-2)


def test_graphs_take_the_same_steps_as_plain_calls():
    configure_torch("cuda", "float32", deterministic=True)
    x, y = (part.cuda() for part in images(20))
    batches = [(x[:8], y[:8]), (x[8:16], y[8:16]), (x[16:], y[16:])]  # the last batch is smaller
    graphed, plain = (
        FlatModule(small_resnet(), nn.functional.cross_entropy, "cuda") for _ in range(2)
    )
    plain._graphs = None
    theta = graphed.theta.clone()
    for _ in range(2):  # a capture must not change the result
        results = [model.train(theta, batches, 0.05, Key((1,))) for model in (graphed, plain)]
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-3)
    moved = [local - theta for _, local in results]
    assert (moved[0] - moved[1]).norm() < 1e-2 * moved[1].norm()


def test_dropout_in_graphs_depends_on_the_key():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 64), nn.Dropout(0.5), nn.Linear(64, 3))
    model = FlatModule(module, nn.functional.cross_entropy, "cuda")
    theta = model.theta.clone()
    batches = [(torch.randn(8, 6).cuda(), torch.randint(0, 3, (8,)).cuda())] * 3
    once, again, other = (model.train(theta, batches, 0.1, Key((k,)))[1] for k in (1, 1, 2))
    torch.testing.assert_close(once, again)
    assert not torch.allclose(once, other)


def test_devices_can_train_on_the_thread_of_the_probe():
    one_worker, three_workers = (train(problem("cuda"), workers=workers) for workers in (1, 3))
    for mine, theirs in zip(one_worker.records, three_workers.records, strict=True):
        assert theirs.loss == pytest.approx(mine.loss, rel=2e-2)


def test_deterministic_runs_give_the_same_bits():
    configure_torch("cuda", "bf16", deterministic=True)
    runs = [train(problem("cuda", "bf16"), workers=workers) for workers in (1, 1, 2, 2, 3)]
    for other in runs[1:]:
        assert torch.equal(runs[0].theta, other.theta)
        assert runs[0].records == other.records


def test_dropout_gives_the_same_bits_with_any_number_of_workers():
    configure_torch("cuda", "bf16", deterministic=True)
    x, y = images(160)
    shards = [(x[m::8], y[m::8]) for m in range(8)]
    module = nn.Sequential(small_resnet(), nn.Dropout(0.3))
    runs = []
    for workers in (1, 3, 4):
        made = aquila.problem(
            module,
            shards,
            test=(x, y),
            batch_size=8,
            options=aquila.ProblemOptions(device="cuda", precision="bf16"),
        )
        runs.append(train(made, workers=workers))
    for other in runs[1:]:
        assert torch.equal(runs[0].theta, other.theta)
        assert runs[0].records == other.records


@pytest.mark.parametrize("vector", ["dense", "codes"])
def test_frames_of_the_gpu_and_the_cpu_are_the_same_bytes(vector):
    v = torch.randn(100_003, generator=torch.Generator().manual_seed(0))
    memory = torch.zeros_like(v)
    made = {
        place: Dense(v.to(place))
        if vector == "dense"
        else measure(v.to(place), memory.to(place)).midrise(5).upload
        for place in ("cpu", "cuda")
    }
    frames = {place: pack(Packet(1, sent)) for place, sent in made.items()}
    assert frames["cuda"] == frames["cpu"]
    got = unpack(frames["cuda"], device="cuda").vector.decode()
    assert got.is_cuda
    assert torch.equal(got.cpu(), made["cpu"].decode())


@pytest.mark.parametrize(
    "name",
    [
        "aquila", "aquila_peak", "aquila_dither", "aquila_topk", "laq", "qsgd", "adaquantfl",
        "ladaq", "lena", "lag", "eden", "powersgd", "marina",
    ],
)  # fmt: skip
def test_methods_train_heterogeneous_fleets(name):
    made = problem("cuda", narrower=[small_resnet(0.125)], groups=[0, 0, 1, 1], classes=10)
    run = train(made, rounds=4, name=name)
    assert run.theta.is_cuda
    assert run.records[-1].loss < run.records[0].loss


def test_devices_of_many_sizes_capture_many_graphs():
    """Graphs are captured while replies of earlier devices are being packed."""
    x, y = images(400)
    ends = [0, 31, 70, 116, 170, 233, 306, 400]
    shards = [(x[a:b], y[a:b]) for a, b in pairwise(ends)]
    runs = []
    for device in ("cpu", "cuda"):
        made = aquila.problem(
            small_resnet(),
            shards,
            test=(x, y),
            batch_size=16,
            options=aquila.ProblemOptions(device=device),
        )
        runs.append(train(made, rounds=3))
    for on_cpu, on_gpu in zip(runs[0].records, runs[1].records, strict=True):
        assert on_gpu.loss == pytest.approx(on_cpu.loss, rel=2e-2)


def test_scores_for_an_odd_vocabulary_equal_the_cpu():
    scores = WordScores(16, 33)
    x = torch.randn(4, 5, 16)
    results = {}
    for place in ("cpu", "cuda"):
        scores = scores.to(place)
        scores.zero_grad()
        out = scores(x.to(place))
        out.square().sum().backward()
        results[place] = [
            t.detach().cpu().clone() for t in (out, scores.weight.grad, scores.bias.grad)
        ]
    for mine, theirs in zip(results["cpu"], results["cuda"], strict=True):
        torch.testing.assert_close(theirs, mine, rtol=1e-4, atol=1e-4)


def test_model_moves_if_all_devices_skip():
    made = problem("cuda")
    method = aquila.create("aquila", alpha=0.02, beta=1e6, work="epochs")
    run = aquila.Simulation(
        method, made.theta0, made.devices, options=aquila.RunOptions(fleet=made.fleet)
    )
    run.advance()
    before = run.theta.clone()
    record = run.advance()
    assert record.uploads == 0
    assert not torch.equal(run.theta, before)


@pytest.mark.filterwarnings("ignore")  # the compiler warns about torch's own code, and about TF32
def test_compiled_models_give_close_results():
    plain, compiled = train(problem("cuda")), train(problem("cuda", compile_model=True))
    assert compiled.records[-1].loss == pytest.approx(plain.records[-1].loss, rel=5e-2)
