"""Small transformers in PyTorch, written by both of its exporters: their attention is spelled in ways of its own in each of them."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, HEADS, ROWS = 32, 4, 16


class Vision(nn.Module):
    """A vision transformer: patches, a class token, torch's own encoder, a head on the token."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, activation="gelu", batch_first=True, norm_first=True)
        self.patches, self.encoder, self.head = nn.Conv2d(3, WIDTH, 4, 4), nn.TransformerEncoder(layer, 2), nn.Linear(WIDTH, 10)
        self.token, self.position = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(torch.randn(1, ROWS + 1, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Return class scores of images (n, 3, 16, 16)."""
        rows = self.patches(x).flatten(2).transpose(1, 2)
        rows = torch.cat([self.token.expand(rows.shape[0], -1, -1), rows], 1) + self.position
        return self.head(self.encoder(rows)[:, 0])


class Translation(nn.Module):
    """An encoder and a decoder that reads it, with a causal mask: torch's own layers."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(WIDTH, HEADS, 2 * WIDTH, batch_first=True)
        self.register_buffer("mask", torch.full((ROWS, ROWS), -1e4).triu(1))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the decoder's rows (n, 16, 32) for both sequences of that shape."""
        return self.decoder(y, self.encoder(x), tgt_mask=self.mask)


class Causal(nn.Module):
    """A layer of a language model as LLaMA has it: RMS norm, rotary positions, keys for two heads each, and a gated linear unit."""

    def __init__(self) -> None:
        super().__init__()
        self.size, self.shared = WIDTH // HEADS, HEADS // 2
        self.first, self.second = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.ones(WIDTH))
        self.q, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(WIDTH, WIDTH // 2, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        angles = torch.arange(ROWS)[:, None] / 100 ** (torch.arange(0, self.size, 2) / self.size)
        self.register_buffer("cosine", torch.cat([angles, angles], 1).cos())
        self.register_buffer("sine", torch.cat([angles, angles], 1).sin())
        self.register_buffer("mask", torch.full((ROWS, ROWS), -1e4).triu(1))

    @staticmethod
    def norm(x: Tensor, scale: Tensor) -> Tensor:
        """Return rows over the root of their mean square."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * scale

    def heads(self, x: Tensor) -> Tensor:
        """Return rows cut into heads (n, heads, rows, size)."""
        return x.view(x.shape[0], ROWS, -1, self.size).transpose(1, 2)

    def rotated(self, x: Tensor) -> Tensor:
        """Return rows turned by angles of their positions."""
        left, right = x.chunk(2, -1)
        return x * self.cosine + torch.cat([-right, left], -1) * self.sine

    def forward(self, x: Tensor) -> Tensor:
        """Return the next rows (n, 16, 32) for rows of that shape."""
        y = self.norm(x, self.first)
        q, k, v = self.rotated(self.heads(self.q(y))), self.rotated(self.heads(self.k(y))), self.heads(self.v(y))
        k, v = k.repeat_interleave(self.shared, 1), v.repeat_interleave(self.shared, 1)
        weights = F.softmax(q @ k.transpose(-1, -2) / self.size**0.5 + self.mask, -1)
        x = x + self.o((weights @ v).transpose(1, 2).reshape(x.shape))
        y = self.norm(x, self.second)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


NETWORKS: dict[str, tuple[type[nn.Module], tuple[tuple[int, ...], ...]]] = {
    "vision": (Vision, ((1, 3, 16, 16),)),
    "translation": (Translation, ((1, ROWS, WIDTH), (1, ROWS, WIDTH))),
    "causal": (Causal, ((1, ROWS, WIDTH),)),
}


def export(name: str, path: Path, dynamo: bool) -> None:
    """Write a network as one of the exporters writes it."""
    torch.manual_seed(0)
    kind, shapes = NETWORKS[name]
    network, inputs = kind().eval(), tuple(torch.randn(shape) for shape in shapes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            torch.onnx.export(network, inputs, str(path), dynamo=True, opset_version=20, external_data=False, verbose=False)
        else:
            torch.onnx.export(network, inputs, str(path), dynamo=False, opset_version=17)
