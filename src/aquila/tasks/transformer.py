"""Transformer encoder (Vaswani et al., 2017, arXiv 1706.03762) as a masked language model.

Narrowed as in HeteroFL (Diao et al., ICLR 2021, arXiv 2010.01264), which trains it to fill in
hidden words (Devlin et al., 2018, arXiv 1810.04805): a share of the tokens gives way to one token
more than the vocabulary has, and the loss goes over all tokens, hidden or not. Each head keeps the
first part of its own dimensions; heads are an axis of their own here, so that this too is a prefix.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import nn

from aquila.core.parameter import Bounds
from aquila.tasks.widths import Scaler, Width, narrow

Vocabulary = Annotated[int, Bounds("words that can be read and predicted", 2)]
Length = Annotated[int, Bounds("most tokens of one sequence", 1)]
Dropout = Annotated[float, Bounds("share of values dropped in training", 0, 0.99)]
MaskRate = Annotated[float, Bounds("share of tokens hidden", 0, 1)]

FEED_FORWARD_STD = 0.02

GPU_ALIGNMENT = 8
"""Rows of which length a GPU's matrix units take in whole."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a transformer."""

    heads: int
    layers: int
    embedding: int
    head: int
    hidden: int

    def narrow(self, width: float) -> "Sizes":
        """Return the sizes at a width; heads and layers are never cut."""
        cut = (narrow(size, width) for size in (self.embedding, self.head, self.hidden))
        return Sizes(self.heads, self.layers, *cut)


PAPER_SIZES = Sizes(heads=8, layers=4, embedding=256, head=32, hidden=512)
SMALL_SIZES = Sizes(heads=4, layers=2, embedding=64, head=16, hidden=128)


class IntoHeads(nn.Module):
    """Linear map of every token into every head."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.weight = _uniform(sizes.heads, sizes.head, sizes.embedding, inputs=sizes.embedding)
        self.bias = nn.Parameter(torch.zeros(sizes.heads, sizes.head))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, token, embedding) to (batch, head, token, dimension)."""
        return torch.einsum("bte,hde->bhtd", x, self.weight) + self.bias[:, None]


class FromHeads(nn.Module):
    """Linear map of what all heads say of a token into one embedding."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        inputs = sizes.heads * sizes.head
        self.weight = _uniform(sizes.embedding, sizes.heads, sizes.head, inputs=inputs)
        self.bias = nn.Parameter(torch.zeros(sizes.embedding))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, head, token, dimension) to (batch, token, embedding)."""
        return torch.einsum("bhtd,ehd->bte", x, self.weight) + self.bias


class Attention(nn.Module):
    """Every token looks at every token of its sequence, once in each head."""

    def __init__(self, sizes: Sizes, scaler: Scaler) -> None:
        super().__init__()
        self.query, self.key, self.value = (IntoHeads(sizes) for _ in range(3))
        self.output = FromHeads(sizes)
        self.scaler = scaler

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return softmax(q kᵀ / √d) v of each head, put together."""
        q, k, v = (self.scaler(into(x)) for into in (self.query, self.key, self.value))
        attended = nn.functional.scaled_dot_product_attention(q, k, v)
        out: torch.Tensor = self.scaler(self.output(attended))
        return out


class WordScores(nn.Linear):
    """Linear map of a token to a score for every word.

    On a GPU the product has some scores more than there are words: with rows of an odd length, as
    33,279 is, it would be left to slow kernels.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, token, embedding) to (batch, token, word)."""
        missing = -self.out_features % GPU_ALIGNMENT if x.is_cuda else 0
        if not missing:
            return super().forward(x)
        weight = nn.functional.pad(self.weight, (0, 0, 0, missing))
        bias = nn.functional.pad(self.bias, (0, missing))
        return nn.functional.linear(x, weight, bias)[..., : self.out_features]


class EncoderLayer(nn.Module):
    """Attention and a feed-forward part, each added to its input and then normalized."""

    def __init__(self, sizes: Sizes, dropout: float, scaler: Scaler) -> None:
        super().__init__()
        self.attention = nn.Sequential(Attention(sizes, scaler), nn.Dropout(dropout))
        self.norm1 = nn.LayerNorm(sizes.embedding)
        self.feed_forward = nn.Sequential(
            _linear(sizes.embedding, sizes.hidden, FEED_FORWARD_STD),
            scaler,
            nn.GELU(),
            nn.Dropout(dropout),
            _linear(sizes.hidden, sizes.embedding, FEED_FORWARD_STD),
            scaler,
            nn.Dropout(dropout),
        )
        self.norm2 = nn.LayerNorm(sizes.embedding)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the tokens after one layer."""
        x = self.norm1(x + self.attention(x))
        out: torch.Tensor = self.norm2(x + self.feed_forward(x))
        return out


class MaskedLanguageModel(nn.Module):
    """Reads sequences with some tokens hidden, and predicts all of them."""

    def __init__(
        self, sizes: Sizes, words: int, length: int, width: float, dropout: float, mask_rate: float
    ) -> None:
        super().__init__()
        sizes, scaler = sizes.narrow(width), Scaler(width)
        self.mask_token, self.length, self.mask_rate = words, length, mask_rate
        self.tokens = nn.Embedding(words + 1, sizes.embedding)
        self.positions = nn.Embedding(length, sizes.embedding)
        self.scaler = scaler
        self.embedding_norm = nn.Sequential(nn.LayerNorm(sizes.embedding), nn.Dropout(dropout))
        self.layers = nn.Sequential(
            *(EncoderLayer(sizes, dropout, scaler) for _ in range(sizes.layers))
        )
        self.decoder = nn.Sequential(
            _linear(sizes.embedding, sizes.embedding),
            scaler,
            nn.GELU(),
            nn.LayerNorm(sizes.embedding),
            _linear(sizes.embedding, words, layer_type=WordScores),
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits (batch, token, word) for token ids (batch, token)."""
        if tokens.shape[1] > self.length:
            raise ValueError(f"{tokens.shape[1]} tokens are more than the {self.length} it reads")
        hidden = tokens.masked_fill(self._draw_mask(tokens), self.mask_token)
        positions = self.positions.weight[: tokens.shape[1]]
        x = self.embedding_norm(self.scaler(self.tokens(hidden)) + self.scaler(positions))
        logits: torch.Tensor = self.decoder(self.layers(x))
        return logits

    def _draw_mask(self, tokens: torch.Tensor) -> torch.Tensor:
        """Draw which tokens to hide; in testing the text decides, so that tests compare models."""
        if self.training:
            return torch.rand(tokens.shape, device=tokens.device) < self.mask_rate
        generator = torch.Generator().manual_seed(int(tokens.sum()))
        return (torch.rand(tokens.shape, generator=generator) < self.mask_rate).to(tokens.device)


def transformer(
    vocabulary: Vocabulary = 33_279,
    length: Length = 64,
    width: Width = 1.0,
    dropout: Dropout = 0.2,
    mask_rate: MaskRate = 0.15,
) -> nn.Module:
    """Return the Transformer of HeteroFL; 19,263,999 parameters for the words of WikiText-2."""
    return MaskedLanguageModel(PAPER_SIZES, vocabulary, length, width, dropout, mask_rate)


def transformer_small(
    vocabulary: Vocabulary = 2_000,
    length: Length = 32,
    width: Width = 1.0,
    dropout: Dropout = 0.2,
    mask_rate: MaskRate = 0.15,
) -> nn.Module:
    """Return the same model in sizes for a laptop; 331,472 parameters for 2,000 words."""
    return MaskedLanguageModel(SMALL_SIZES, vocabulary, length, width, dropout, mask_rate)


def token_loss(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy over all tokens, hidden or not; its exp is the perplexity."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def _uniform(*shape: int, inputs: int) -> nn.Parameter:
    bound = inputs**-0.5
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))


def _linear(
    inputs: int, outputs: int, std: float | None = None, layer_type: type[nn.Linear] = nn.Linear
) -> nn.Linear:
    layer = layer_type(inputs, outputs)
    nn.init.zeros_(layer.bias)
    if std is not None:
        nn.init.normal_(layer.weight, std=std)
    return layer
