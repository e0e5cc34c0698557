"""Modules with tuples and dicts as inputs and outputs, frozen parts, and Hugging Face models."""

import math
from dataclasses import dataclass
from importlib.util import find_spec

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import aquila
from aquila.core.random import Key

# the tests import them, because importing takes seconds
for package in ("peft", "transformers"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)

X = torch.randn(24, 5, generator=torch.Generator().manual_seed(0))
Y = (X.sum(1) > 0).long() + (X[:, 0] > 1).long()


class Network(nn.Module):
    """Takes one or two inputs, and returns its scores in a given form."""

    def __init__(self, form=lambda scores: scores):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.last, self.form = nn.Linear(5, 7), nn.Linear(7, 3), form

    def forward(self, x, shift=None):
        x = x if shift is None else x + shift
        return self.form(self.last(self.first(x).tanh()))


@dataclass
class Returned:
    logits: torch.Tensor


OUTPUTS = {
    "tuple": lambda scores: (scores, scores * 0),
    "list": lambda scores: [scores],
    "dict": lambda scores: {"hidden": scores * 0, "logits": scores},
    "object": Returned,
}
ZEROS = torch.zeros_like(X)
INPUTS = {
    "tuple": (X, ZEROS),
    "list": [X, ZEROS],
    "dict": {"x": X, "shift": ZEROS},
    "dict in another order": {"shift": ZEROS, "x": X},
    "arrays": {"x": X.numpy(), "shift": ZEROS.double().numpy()},
}


def results(module, inputs, **arguments):
    made = aquila.problem(module, [(inputs, Y)], test=(inputs, Y), batch_size=5, **arguments)
    method = aquila.create("fedavg", alpha=0.1)
    run = aquila.simulate(method, made.theta0, made.devices, rounds=2, evaluate=made.evaluate)
    return run.theta, {
        name: run.records[-1].metrics[name] for name in ("test_loss", "test_accuracy")
    }


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("form", OUTPUTS)
def test_outputs_of_every_form_give_the_same_bits(form, precision):
    options = aquila.ProblemOptions(precision=precision)
    theta, metrics = results(Network(OUTPUTS[form]), X, options=options)
    expected, expected_metrics = results(Network(), X, options=options)
    assert torch.equal(theta, expected)
    assert metrics == expected_metrics


@pytest.mark.parametrize("form", INPUTS)
def test_inputs_of_every_form_give_the_same_bits(form):
    theta, metrics = results(Network(), INPUTS[form])
    expected, expected_metrics = results(Network(), X)
    assert torch.equal(theta, expected)
    assert metrics == pytest.approx(expected_metrics, rel=1e-6)


def test_full_batches_of_dicts_are_split_into_passes():
    many, classes = X.repeat(500, 1), Y.repeat(500)
    gradients = []
    for inputs in (many, {"x": many, "shift": torch.zeros_like(many)}):
        made = aquila.problem(Network(), [(inputs, classes)])
        gradients.append(made.devices[0].oracle(Key((0, 0, 0))).gradient(made.theta0)[1])
    assert torch.equal(*gradients)


def test_a_loss_of_the_user_gets_the_outputs_as_they_are():
    def loss(outputs, targets):
        assert isinstance(outputs, dict)
        return nn.functional.cross_entropy(outputs["a"], targets)

    made = aquila.problem(
        Network(lambda scores: {"a": scores}), [(X, Y)], test=(X, Y), loss=loss, batch_size=5
    )
    theta = made.devices[0].oracle(Key((0, 0, 0))).train(made.theta0, 0.1)[1]
    plain = aquila.problem(Network(), [(X, Y)], batch_size=5)
    assert torch.equal(theta, plain.devices[0].oracle(Key((0, 0, 0))).train(plain.theta0, 0.1)[1])
    expected = nn.functional.cross_entropy(Network()(X), Y).item()
    assert made.evaluate(made.theta0) == {"test_loss": pytest.approx(expected)}


def test_frozen_parameters_stay_as_they_are():
    module = Network()
    module.first.requires_grad_(False)
    made = aquila.problem(module, [(X, Y)], batch_size=5)
    assert made.theta0.numel() == 24
    run = aquila.simulate(aquila.create("fedavg", alpha=0.1), made.theta0, made.devices, rounds=2)
    trained = made.builder.module_for(run.theta)
    assert torch.equal(trained.first.weight, module.first.weight)
    assert torch.equal(nn.utils.parameters_to_vector(trained.last.parameters()), run.theta)
    assert not trained.first.weight.requires_grad


def test_a_part_in_eval_mode_stays_in_eval_mode():
    module = nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 3))
    module[0].eval()
    made = aquila.problem(module, [(X, Y)])
    assert made.devices[0].thread_safe
    module.eval()
    assert not aquila.problem(module, [(X, Y)]).devices[0].thread_safe  # as a loaded model


class Counts(nn.Linear):
    """Counts its calls in a buffer, and divides by the count."""

    def __init__(self):
        super().__init__(5, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return super().forward(x) / self.calls


def test_buffers_start_every_round_with_their_first_values():
    module = Counts()
    made = aquila.problem(module, [(X, Y)], batch_size=5)
    oracle = made.devices[0].oracle(Key((0, 0, 0)))
    first, second = (oracle.train(made.theta0, 0.1)[1] for _ in range(2))
    assert torch.equal(first, second)
    assert made.builder.module_for(made.theta0).calls == 0
    assert module.calls == 0


def bert(**options):
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=8, **options,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def texts(samples=32):
    ids = torch.randint(1, 30, (samples, 8), generator=torch.Generator().manual_seed(3))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids[:, 0] % 2}


class Rows(Dataset):
    """The samples of a batch, as dicts."""

    def __init__(self, batch):
        self.batch = batch

    def __len__(self):
        return len(self.batch["labels"])

    def __getitem__(self, index):
        return {name: part[index] for name, part in self.batch.items()}


def test_a_classifier_of_hugging_face_trains():
    batch = texts()
    shards = aquila.split(batch, None, 4)
    made = aquila.problem(bert(), shards, test=batch, batch_size=4)
    method = aquila.create("aquila", alpha=0.5, work="epochs")
    run = aquila.simulate(method, made.theta0, made.devices, rounds=4, evaluate=made.evaluate)
    metrics = [record.metrics for record in run.records]
    assert metrics[-1]["test_loss"] < made.evaluate(made.theta0)["test_loss"]
    trained = made.builder.module_for(run.theta)
    outputs = trained(**batch)
    accuracy = (outputs.logits.argmax(-1) == batch["labels"]).double().mean().item()
    assert metrics[-1]["test_accuracy"] == accuracy
    assert metrics[-1]["test_loss"] == pytest.approx(outputs.loss.item(), rel=1e-5)
    assert "perplexity" not in metrics[-1]


def batch_encoding(batch):
    import transformers

    return transformers.BatchEncoding(batch)


@pytest.mark.parametrize("form", [Rows, batch_encoding])
def test_dicts_of_every_form_give_the_same_bits(form):
    thetas = []
    for make in (dict, form):
        made = aquila.problem(bert(), [make(texts())], batch_size=4)
        oracle = made.devices[0].oracle(Key((0, 0, 0)))
        thetas.append(oracle.train(made.theta0, 0.1)[1])
    assert torch.equal(*thetas)


def test_a_loader_of_dicts_trains():
    loader = DataLoader(Rows(texts()), batch_size=8)
    made = aquila.problem(bert(), [loader], test=loader)
    run = aquila.simulate(
        aquila.create("fedavg", alpha=0.1), made.theta0, made.devices, rounds=1,
        evaluate=made.evaluate,
    )  # fmt: skip
    assert 0 <= run.records[0].metrics["test_accuracy"] <= 1


def test_a_causal_language_model_has_a_perplexity():
    import transformers

    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=20, n_positions=8, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    ids = torch.randint(0, 20, (6, 8), generator=torch.Generator().manual_seed(3))
    labels = ids.clone()
    labels[0, 5:] = -100
    batch = {"input_ids": ids, "labels": labels}
    module = transformers.GPT2LMHeadModel(config)
    made = aquila.problem(module, [batch], test=batch, batch_size=4)
    metrics = made.evaluate(made.theta0)
    outputs = module.eval()(**batch)
    assert metrics["test_loss"] == pytest.approx(outputs.loss.item(), rel=1e-5)
    assert metrics["perplexity"] == pytest.approx(math.exp(outputs.loss.item()), rel=1e-5)
    predicted, expected = outputs.logits[:, :-1].argmax(-1), labels[:, 1:]
    counted = expected != -100
    accuracy = (predicted == expected)[counted].double().mean().item()
    assert metrics["test_accuracy"] == pytest.approx(accuracy)


def test_a_model_without_classes_has_only_a_loss():
    batch = texts()
    batch["labels"] = torch.randn(32)
    made = aquila.problem(bert(num_labels=1), [batch], test=batch)
    assert set(made.evaluate(made.theta0)) == {"test_loss"}


def test_labels_out_of_range_name_the_shard():
    right, wrong = texts(), texts()
    wrong["labels"] = wrong["labels"].clone()
    wrong["labels"][5] = 2
    with pytest.raises(ValueError, match=r"shard 1 has target 2, but .* the classes 0 to 1"):
        aquila.problem(bert(), [right, wrong])


def test_a_loss_needs_targets():
    with pytest.raises(ValueError, match="leave out loss, or pass pairs"):
        aquila.problem(bert(), [texts()], loss=nn.functional.mse_loss)


def test_lora_trains_adapters_only():
    import peft

    base = bert()
    config = peft.LoraConfig(r=2, target_modules=["query", "value"], task_type="SEQ_CLS")
    module = peft.get_peft_model(base, config)
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    trainable = {name for name, p in module.named_parameters() if p.requires_grad}
    made = aquila.problem(module, [texts()], test=texts(), batch_size=8)
    assert made.theta0.numel() == sum(before[name].numel() for name in trainable)
    method = aquila.create("fedavg", alpha=0.5)
    run = aquila.simulate(method, made.theta0, made.devices, rounds=3, evaluate=made.evaluate)
    trained = made.builder.module_for(run.theta)
    changed = {name for name, p in trained.named_parameters() if not torch.equal(p, before[name])}
    assert changed <= trainable
    assert any("lora_B" in name for name in changed)
    assert all(torch.equal(p, before[name]) for name, p in module.named_parameters())
    outputs = trained(**texts())
    accuracy = (outputs.logits.argmax(-1) == texts()["labels"]).double().mean().item()
    assert run.records[-1].metrics["test_accuracy"] == accuracy
