"""Transformer encoder (Vaswani et al., 2017, arXiv 1706.03762) as a masked language model.

The model and its narrower widths follow HeteroFL (Diao et al., ICLR 2021, arXiv 2010.01264). It
predicts masked words (Devlin et al., 2018, arXiv 1810.04805). A fraction of the tokens is replaced
by a mask token, and the loss covers all tokens, masked or not. A narrow model keeps the first
dimensions of each head. The parameters have a separate axis for heads, so this is also a prefix.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import nn

from aquila.core.parameter import Bounds
from aquila.tasks.widths import Scaler, Width, narrow

Vocabulary = Annotated[int, Bounds("number of words", 2)]
Length = Annotated[int, Bounds("largest number of tokens per sequence", 1)]
Dropout = Annotated[float, Bounds("fraction of values dropped in training", 0, 0.99)]
MaskRate = Annotated[float, Bounds("fraction of tokens masked", 0, 1)]

FEED_FORWARD_STD = 0.02

GPU_ALIGNMENT = 8
"""Row lengths that are a multiple of this use a GPU's fast matrix kernels."""


@dataclass(frozen=True)
class Sizes:
    """Layer sizes of a transformer."""

    heads: int
    layers: int
    embedding: int
    head: int
    hidden: int

    def narrow(self, width: float) -> "Sizes":
        """Return the sizes for a width. The numbers of heads and layers stay the same."""
        cut = (narrow(size, width) for size in (self.embedding, self.head, self.hidden))
        return Sizes(self.heads, self.layers, *cut)


PAPER_SIZES = Sizes(heads=8, layers=4, embedding=256, head=32, hidden=512)
SMALL_SIZES = Sizes(heads=4, layers=2, embedding=64, head=16, hidden=128)


class HeadProjection(nn.Module):
    """Linear map of every token to the dimensions of every head."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.weight = _uniform(sizes.heads, sizes.head, sizes.embedding, inputs=sizes.embedding)
        self.bias = nn.Parameter(torch.zeros(sizes.heads, sizes.head))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, token, embedding) to (batch, head, token, dimension)."""
        return torch.einsum("bte,hde->bhtd", x, self.weight) + self.bias[:, None]


class OutputProjection(nn.Module):
    """Linear map of the outputs of all heads to one embedding per token."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        inputs = sizes.heads * sizes.head
        self.weight = _uniform(sizes.embedding, sizes.heads, sizes.head, inputs=inputs)
        self.bias = nn.Parameter(torch.zeros(sizes.embedding))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, head, token, dimension) to (batch, token, embedding)."""
        return torch.einsum("bhtd,ehd->bte", x, self.weight) + self.bias


class Attention(nn.Module):
    """Multi-head self-attention over all tokens of a sequence."""

    def __init__(self, sizes: Sizes, scaler: Scaler) -> None:
        super().__init__()
        self.query, self.key, self.value = (HeadProjection(sizes) for _ in range(3))
        self.output = OutputProjection(sizes)
        self.scaler = scaler

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the merged softmax(q kᵀ / √d) v of all heads."""
        q, k, v = (self.scaler(into(x)) for into in (self.query, self.key, self.value))
        attended = nn.functional.scaled_dot_product_attention(q, k, v)
        out: torch.Tensor = self.scaler(self.output(attended))
        return out


class WordScores(nn.Linear):
    """Linear map of a token to one score per word.

    On a GPU the weight is padded to a multiple of `GPU_ALIGNMENT` rows. An odd number of rows, such
    as 33,279, would use slow kernels.
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
    """Attention and a feed-forward network, each with a residual connection and layer norm."""

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
        """Return the embeddings (batch, token, embedding) after this layer."""
        x = self.norm1(x + self.attention(x))
        out: torch.Tensor = self.norm2(x + self.feed_forward(x))
        return out


class MaskedLanguageModel(nn.Module):
    """Masks some tokens of its input, and predicts all tokens."""

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
            raise ValueError(
                f"the model reads at most {self.length} tokens per sequence, not {tokens.shape[1]}"
            )
        masked = tokens.masked_fill(self._draw_mask(tokens), self.mask_token)
        positions = self.positions.weight[: tokens.shape[1]]
        x = self.embedding_norm(self.scaler(self.tokens(masked)) + self.scaler(positions))
        logits: torch.Tensor = self.decoder(self.layers(x))
        return logits

    def _draw_mask(self, tokens: torch.Tensor) -> torch.Tensor:
        """Draw the mask. In eval mode the text seeds it, so all models are tested on one mask."""
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
    """Return the Transformer of HeteroFL. It has 19,263,999 parameters for WikiText-2."""
    return MaskedLanguageModel(PAPER_SIZES, vocabulary, length, width, dropout, mask_rate)


def transformer_small(
    vocabulary: Vocabulary = 2_000,
    length: Length = 32,
    width: Width = 1.0,
    dropout: Dropout = 0.2,
    mask_rate: MaskRate = 0.15,
) -> nn.Module:
    """Return a smaller Transformer for a laptop. It has 331,472 parameters for 2,000 words."""
    return MaskedLanguageModel(SMALL_SIZES, vocabulary, length, width, dropout, mask_rate)


def token_loss(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy over all tokens. Its exponential is the perplexity."""
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
