"""Other orders of summation over the last dimension, in the dtype of the terms, and what is computed with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional


def in_lanes(lanes: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Sum each lane one term after the other in float32 (float64 for float64), then the lanes."""

    def total(terms: torch.Tensor) -> torch.Tensor:
        flat = terms.detach().cpu()
        flat = flat if flat.dtype == torch.float64 else flat.float()
        flat = functional.pad(flat, (0, -flat.shape[-1] % lanes))
        rows = flat.reshape(*flat.shape[:-1], -1, lanes).movedim(-2, 0).contiguous().numpy()
        partial = rows[0].copy()
        for row in rows[1:]:
            partial += row
        sums = partial[..., 0].copy()
        for lane in range(1, lanes):
            sums = sums + partial[..., lane]
        return torch.as_tensor(sums).to(terms.device, terms.dtype)

    return total


def pairwise(terms: torch.Tensor) -> torch.Tensor:
    """Sum halves recursively down to single terms."""
    terms = terms if terms.dtype == torch.float64 else terms.float()
    while terms.shape[-1] > 1:
        terms = functional.pad(terms, (0, terms.shape[-1] % 2))
        terms = terms[..., ::2] + terms[..., 1::2]
    return terms[..., 0]


def backwards(terms: torch.Tensor) -> torch.Tensor:
    """Sum from the last term to the first."""
    return terms.flip(-1).contiguous().sum(-1)


ORDERS = {"pairwise": pairwise, "8 lanes": in_lanes(8), "16 lanes": in_lanes(16), "reversed": backwards}


def with_orders(function: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Return a function of `total` and the inputs with every order of summation."""
    return {
        name: lambda *args, total=total: function(lambda terms: total(terms).to(terms.dtype), *args)
        for name, total in ORDERS.items()
    }


def mean_of(total: Callable[..., Any], x: torch.Tensor) -> torch.Tensor:
    """Mean over the last dimension."""
    return total(x) / x.shape[-1]


def variance_of(total: Callable[..., Any], x: torch.Tensor) -> torch.Tensor:
    """Variance over the last dimension, in two passes."""
    mean = (total(x) / x.shape[-1]).unsqueeze(-1)
    return total((x - mean).square()) / (x.shape[-1] - 1)


def softmax_of(total: Callable[..., Any], x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension."""
    shifted = (x - x.amax(-1, keepdim=True)).exp()
    return shifted / total(shifted).unsqueeze(-1)


def log_softmax_of(total: Callable[..., Any], x: torch.Tensor) -> torch.Tensor:
    """Logarithm of the softmax over the last dimension."""
    shifted = x - x.amax(-1, keepdim=True)
    return shifted - total(shifted.exp()).log().unsqueeze(-1)


def layer_norm_of(total: Callable[..., Any], x: torch.Tensor) -> torch.Tensor:
    """Layer normalisation over the last dimension."""
    centred = x - (total(x) / x.shape[-1]).unsqueeze(-1)
    return centred * torch.rsqrt(total(centred.square()) / x.shape[-1] + 1e-5).unsqueeze(-1)


def product_of(total: Callable[..., Any], a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Matrix product, 64 columns at a time."""
    parts = [total(a.unsqueeze(1) * part.T.unsqueeze(0)) for part in b.split(64, dim=1)]
    return torch.cat(parts, 1)
