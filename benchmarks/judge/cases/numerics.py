"""Cases whose numbers another implementation computes in another order: recurrences, sparse, quantized, normalised."""

import torch

from recapture import case


def randoms(seed, *shapes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(*shape, generator=generator).to(dtype) for shape in shapes)


def three_of(make):
    """The arguments of a decorator: an example and two held-out inputs, which `make` makes from a seed."""
    return {"example": lambda: make(0), "held_out": [lambda: make(1), lambda: make(2)]}


@case(**three_of(lambda seed: randoms(seed, (3, 12, 8))))
class LongShortTerm(torch.nn.Module):
    """A recurrent layer with gates."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.LSTM(8, 10, num_layers=2, batch_first=True)

    def forward(self, x):
        return self.layer(x)


@case(**three_of(lambda seed: randoms(seed, (3, 12, 8))))
class GatedRecurrent(torch.nn.Module):
    """A recurrent layer with fewer gates, in both directions."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.GRU(8, 10, bidirectional=True)

    def forward(self, x):
        return self.layer(x)[0]


@case(**three_of(lambda seed: randoms(seed, (2, 3, 9, 9))))
class FoldableNorm(torch.nn.Module):
    """A convolution and a normalisation at inference, whose statistics are not 0 and 1."""

    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 8, 3)
        self.norm = torch.nn.BatchNorm2d(8)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2.0)
        self.eval()

    def forward(self, x):
        return self.norm(self.convolution(x))


def mostly_zeros(seed):
    matrix, other = randoms(seed, (30, 30), (30, 8))
    return torch.where(matrix > 1, matrix, 0.0).to_sparse(), other


@case(**three_of(mostly_zeros))
def sparse_product(a, b):
    """Multiplies a sparse matrix with a dense one."""
    return torch.sparse.mm(a, b)


@case(**three_of(mostly_zeros))
def sparse_row_sums(a, b):
    """Sums the rows of a sparse matrix, and adds a product in the CSR layout."""
    return torch.sparse.sum(a, 1).to_dense(), a.to_sparse_csr() @ b


def quantized_matrix(seed):
    return torch.quantize_per_tensor(*randoms(seed, (16, 16)), 0.05, 3, torch.quint8), *randoms(seed + 9, (16, 16))


@case(**three_of(quantized_matrix))
def dequantized_product(q, x):
    """Multiplies numbers that were quantized."""
    return q.dequantize() @ x


@case(**three_of(lambda seed: randoms(seed, (16, 64), (64, 64))))
def quantized_product(x, y):
    """Quantizes a product, in which a rounding moves single numbers to the next step."""
    return torch.quantize_per_tensor(x @ y, 0.1, 10, torch.qint8), torch.fake_quantize_per_tensor_affine(
        x @ y, 0.1, 0, -128, 127
    )


def heads(dtype):
    return lambda seed: randoms(seed, *[(2, 4, 24, 16)] * 3, dtype=dtype)


@case(**three_of(heads(torch.float32)))
def attention(q, k, v):
    """Attention in float32."""
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


@case(**three_of(heads(torch.bfloat16)))
def attention_in_half(q, k, v):
    """Attention in a half type."""
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


@case(**three_of(lambda seed: randoms(seed, (64, 300))))
def normalised_rows(x):
    """Divides each row by its length, its sum of absolute values and its number of elements."""
    return x / x.norm(dim=-1, keepdim=True), x / x.abs().sum(-1, keepdim=True), x.sum(-1) / x.shape[-1], x / 3


@case(**three_of(lambda seed: randoms(seed, (200_000,))))
def large_sums(x):
    """Sums so many terms that several threads share them."""
    return x.sum(), x.square().mean(), x.cumsum(0)
