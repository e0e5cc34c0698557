import pytest
import torch
from torch import nn

from aquila.core.random import Key
from aquila.sim.problem import problem
from aquila.tasks.models import build_model
from aquila.tasks.transformer import Attention, EncoderLayer, Sizes, token_loss
from aquila.tasks.widths import Scaler

SIZES = Sizes(embedding=6, heads=2, head=3, hidden=8, layers=1)
VOCABULARY = 40
KEY = Key((0,))


def model(**options: object) -> nn.Module:
    torch.manual_seed(0)
    return build_model("transformer_small", vocabulary=VOCABULARY, length=16, **options)


def text(rows: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCABULARY, (rows, 16), generator=generator)


def embedded_tokens(module: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Return the tokens that reach the embedding."""
    seen: list[torch.Tensor] = []
    embedding = module.get_submodule("tokens")
    handle = embedding.register_forward_hook(lambda _, inputs, out: seen.append(inputs[0]))
    module(tokens)
    handle.remove()
    return seen[0]


def test_encoder_layer_equals_torch() -> None:
    torch.manual_seed(0)
    mine = EncoderLayer(SIZES, dropout=0.0, scaler=Scaler(1.0))
    for parameter in mine.parameters():
        nn.init.normal_(parameter)
    theirs = nn.TransformerEncoderLayer(6, 2, 8, 0.0, activation="gelu", batch_first=True)
    own = dict(mine.named_parameters())
    into = [f"attention.0.{name}" for name in ("query", "key", "value")]
    pairs = {
        "self_attn.in_proj_weight": torch.cat([own[f"{n}.weight"].view(6, 6) for n in into]),
        "self_attn.in_proj_bias": torch.cat([own[f"{n}.bias"].view(6) for n in into]),
        "self_attn.out_proj.weight": own["attention.0.output.weight"].view(6, 6),
        "self_attn.out_proj.bias": own["attention.0.output.bias"],
    }
    renamed = [("linear1", "feed_forward.0"), ("linear2", "feed_forward.4")]
    for theirs_name, name in [*renamed, ("norm1", "norm1"), ("norm2", "norm2")]:
        for kind in ("weight", "bias"):
            pairs[f"{theirs_name}.{kind}"] = own[f"{name}.{kind}"]
    theirs.load_state_dict(pairs)
    x = torch.randn(2, 5, 6)
    torch.testing.assert_close(mine(x), theirs(x))


def test_attention_divides_projections_by_width_in_training() -> None:
    torch.manual_seed(0)
    width = 0.5
    attention = Attention(SIZES, Scaler(width))
    x = torch.randn(2, 5, 6)
    for mode, r in [(True, width), (False, 1.0)]:
        q, k, v = (into(x) / r for into in (attention.query, attention.key, attention.value))
        weights = (q @ k.transpose(-2, -1) / SIZES.head**0.5).softmax(-1)
        expected = attention.output(weights @ v) / r
        torch.testing.assert_close(attention.train(mode)(x), expected)


def test_narrow_model_divides_in_training_only() -> None:
    module = model(width=0.5, dropout=0.0, mask_rate=0.0)
    tokens = text(3)
    trained, tested = module.train()(tokens), module.eval()(tokens)
    for part in module.modules():
        if isinstance(part, Scaler):
            part.width = 1.0
    torch.testing.assert_close(module.train()(tokens), tested)
    assert not torch.allclose(trained, tested)


def test_training_masks_the_given_fraction() -> None:
    module, tokens = model(), text(500)
    embedded = embedded_tokens(module.train(), tokens)
    masked = embedded == VOCABULARY
    assert torch.equal(embedded[~masked], tokens[~masked])
    assert abs(masked.float().mean() - 0.15) < 4 * (0.15 * 0.85 / tokens.numel()) ** 0.5
    assert not torch.equal(embedded, embedded_tokens(module, tokens))


def test_eval_mask_is_fixed_and_uses_no_global_random_numbers() -> None:
    module, tokens = model().eval(), text(500)
    state = torch.get_rng_state()
    embedded = embedded_tokens(module, tokens)
    assert torch.equal(embedded, embedded_tokens(module, tokens))
    assert torch.equal(state, torch.get_rng_state())
    masked = embedded == VOCABULARY
    assert abs(masked.float().mean() - 0.15) < 4 * (0.15 * 0.85 / tokens.numel()) ** 0.5
    assert not torch.equal(masked, embedded_tokens(module, text(500, seed=1)) == VOCABULARY)


@pytest.mark.parametrize("training", [True, False])
def test_mask_rate_zero_and_one(training: bool) -> None:
    tokens = text(2)
    assert torch.equal(embedded_tokens(model(mask_rate=0).train(training), tokens), tokens)
    blind = model(mask_rate=1, dropout=0).train(training)
    torch.testing.assert_close(blind(tokens), blind(text(2, seed=1)))


def test_positions_matter_and_are_limited() -> None:
    module = model(mask_rate=0).eval()
    logits = module(torch.full((1, 4), 7))
    assert not torch.allclose(logits[0, 0], logits[0, 1])
    with pytest.raises(ValueError, match="at most 16 tokens per sequence, not 17"):
        module(torch.zeros(1, 17, dtype=torch.long))


def test_loss_covers_all_tokens() -> None:
    logits, tokens = torch.randn(2, 3, VOCABULARY), text(2)[:, :3]
    single = [
        -logits[row, position].log_softmax(-1)[tokens[row, position]]
        for row in range(2)
        for position in range(3)
    ]
    torch.testing.assert_close(token_loss(logits, tokens), torch.stack(single).mean())


def test_transformer_learns_as_federated_problem() -> None:
    tokens = text(8)
    made = problem(model(dropout=0), [(tokens, tokens)], (tokens, tokens), loss=token_loss)
    assert made.evaluate is not None
    theta, model_ = made.theta0, made.devices[0].models.original
    start = made.evaluate(theta)
    for _ in range(30):
        _, gradient = model_.gradient(theta, (tokens, tokens), KEY)
        theta = theta - 0.5 * gradient
    end = made.evaluate(theta)
    assert end["test_loss"] < start["test_loss"] / 2
    assert end["test_accuracy"] > 0.8 > start["test_accuracy"]


def test_initial_values_follow_heterofl() -> None:
    own = dict(model().named_parameters())
    assert all(own[name].abs().max() == 0 for name in own if name.endswith(("0.bias", "4.bias")))
    for name in ("feed_forward.0", "feed_forward.4"):
        assert own[f"layers.0.{name}.weight"].std().item() == pytest.approx(0.02, rel=0.05)
    for name in ("query", "output"):
        weight = own[f"layers.1.attention.0.{name}.weight"]
        assert weight.abs().max().item() == pytest.approx(64**-0.5, rel=0.01)
        assert weight.std().item() == pytest.approx((3 * 64) ** -0.5, rel=0.05)
    assert own["tokens.weight"].std().item() == pytest.approx(1, rel=0.1)
