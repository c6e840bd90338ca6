"""The tensors that programs of Python work on, and the operators that such programs apply to them."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Operands(enum.Enum):
    """What the tensors of a program are. On whole numbers eager is exact, so that every difference is a fault."""

    INTEGERS = "int64"
    BYTES = "uint8"
    FLOATS = "float32"
    GRADIENTS = "float32 that requires a gradient"

    @property
    def source(self) -> str:
        """The source of a tensor with `{rows}` rows, drawn with `{seed}`."""
        return SOURCES[self]


SEEDED = "generator=torch.Generator().manual_seed({seed})"

SOURCES = {
    Operands.INTEGERS: f"torch.randint(-4, 5, ({{rows}}, 4), {SEEDED})",
    Operands.BYTES: f"torch.randint(0, 256, ({{rows}}, 4), {SEEDED}).to(torch.uint8)",
    Operands.FLOATS: f"torch.randn({{rows}}, 4, {SEEDED})",
    Operands.GRADIENTS: f"torch.randn({{rows}}, 4, {SEEDED}).requires_grad_()",
}
"""How each kind of operand is drawn."""

WHOLE = frozenset({Operands.INTEGERS, Operands.BYTES})
REAL = frozenset({Operands.FLOATS, Operands.GRADIENTS})
ANY = WHOLE | REAL
SIGNED = ANY - {Operands.BYTES}


class Expression(NamedTuple):
    """An operator in two spellings, with `{0}` and `{1}` for tensors of one shape; the result has this shape."""

    plain: str
    rewritten: str = ""
    operands: frozenset[Operands] = ANY

    @property
    def name(self) -> str:
        """The expression with letters for the tensors."""
        return self.plain.format("a", "b")


EXPRESSIONS = (
    Expression("{0} + {1}", "torch.add({0}, {1})"),
    Expression("{0} - {1}", "torch.sub({0}, {1})"),
    Expression("torch.sub({0}, {1}) * 2", "({0} - {1}) * 2"),
    Expression("{0} * 3 + {1}", "torch.add({1}, {0}, alpha=3)"),
    Expression("{0} * {1}", "{0}.mul({1})"),
    Expression("torch.maximum({0}, {1})", "torch.max({0}, {1})"),
    Expression("torch.minimum({0}, {1} + 1)", "torch.min({0}, {1} + 1)"),
    Expression("torch.where({0} > {1}, {0}, {1} + 1)", "({1} + 1).where({0}.le({1}), {0})"),
    Expression("{0}.roll(1, 0) + {1}", "torch.cat([{0}[-1:], {0}[:-1]]) + {1}"),
    Expression("{0}.flip(1) - {1}", "{0}.flip(-1) - {1}"),
    Expression("torch.rot90({0}, 2) + {1}", "{0}.flip((0, 1)) + {1}"),
    Expression("{0}.cumsum(0) + {1}", "torch.cumsum({0}, dim=0) + {1}"),
    Expression("{0}.cummax(1).values + {1}", "torch.cummax({0}, 1)[0] + {1}", SIGNED),
    Expression("{0}.sort(1).values + {1}", "torch.sort({0}, dim=-1)[0] + {1}"),
    Expression("{0}.topk(2, 1).values.repeat(1, 2) + {1}", "{0}.sort(1, True)[0][:, :2].tile(2) + {1}"),
    Expression("{0} + {1}.sum(0)", "{0} + {1}.sum(0, keepdim=True)"),
    Expression("{0} + {1}.amax(1, keepdim=True)", "{0} + {1}.max(1)[0].unsqueeze(1)", WHOLE),
    Expression("{0} + {1}.argmax(1, keepdim=True)", "{0} + {1}.argmax(-1).unsqueeze(-1)"),
    Expression("{0} + {1}.t().argmin()", "{0} + {1}.transpose(0, 1).argmin()"),
    Expression("{0} + {1}[:, :1]", "{0} + {1}.narrow(1, 0, 1)"),
    Expression("{0} + {1}[:, 1::2].repeat_interleave(2, 1)", "{0} + {1}[..., [1, 1, 3, 3]]"),
    Expression("({0}.t() + {1}.t()).t()", "({0}.mT + {1}.mT).mT"),
    Expression("{0}.clamp(1, 3) + {1}.abs()", "{0}.clamp_min(1).clamp_max(3) + torch.abs({1})"),
    Expression("{0}.neg() + {1}", "-{0} + {1}"),
    Expression("torch.maximum({0}[:1], torch.neg({1}))", "torch.maximum({0}[:1], -{1})"),
    Expression("{0}.square() - {1}", "{0} * {0} - {1}"),
    Expression("{0}.sign() * {1}", "torch.sign({0}) * {1}"),
    Expression("torch.tril({0}) + torch.triu({1}, 1)", "{0}.tril() + {1}.triu(1)"),
    Expression("{0}.unfold(1, 2, 2).sum(2).repeat(1, 2) + {1}", "{0}.reshape(-1, 2, 2).sum(2).tile(2) + {1}"),
    Expression("torch.slice_scatter({0}, {1}[:1], 0, 1, 2)", "{0}.slice_scatter({1}[:1], start=1, end=2)"),
    Expression("torch.select_scatter({0}, {1}[0], 0, 1)", "{0}.select_scatter({1}[0], 0, 1)"),
    Expression("torch.diagonal_scatter({0}, {1}.diagonal())", "{0}.diagonal_scatter({1}.diagonal(), 0)"),
    Expression(
        "{0}.index_add(0, torch.tensor([1, 1]), {1}[:2])", "{0}.index_put((torch.tensor([1, 1]),), {1}[:2], True)"
    ),
    Expression(
        "{0}.scatter(1, {1}.argsort(dim=1, stable=True), {1})",
        "torch.scatter({0}, 1, {1}.argsort(dim=-1, stable=True), {1})",
        SIGNED,
    ),
    Expression(
        "{0}.gather(1, {1}.argsort(dim=1, stable=True))",
        "torch.take_along_dim({0}, {1}.argsort(dim=1, stable=True), 1)",
        SIGNED,
    ),
    Expression("torch.einsum('ij,kj->ik', {0}, {1}) @ {1}", "{0} @ {1}.t() @ {1}"),
    Expression("{0} % 3 + {1}", "torch.remainder({0}, 3) + {1}"),
    Expression("{0} // 2 + {1}", "torch.div({0}, 2, rounding_mode='floor') + {1}", ANY - {Operands.GRADIENTS}),
    Expression("torch.fmod({0}, 3) - {1}", "{0}.fmod(3) - {1}"),
    Expression("({0} << 1) ^ {1}", "{0}.bitwise_left_shift(1).bitwise_xor({1})", WHOLE),
    Expression("({0} >> ({1} & 7)) | {1}", "{0}.bitwise_right_shift({1} % 8).bitwise_or({1})", WHOLE),
    Expression("{0}.relu() + {1}", "torch.relu({0}) + {1}", SIGNED),
    Expression("torch.nn.functional.silu({0}) + {1}", "torch.nn.SiLU()({0}) + {1}", REAL),
    Expression("torch.nn.functional.gelu({0}) - {1}", "torch.nn.GELU()({0}) - {1}", REAL),
    Expression("torch.sin({0}) * {1}", "{0}.sin() * {1}", REAL),
    Expression("torch.sin({0}) * torch.cos({0}) * {1}", "{0}.sin() * {0}.cos() * {1}", REAL),
    Expression("torch.log1p({0}.abs()) + {1}", "{0}.abs().log1p() + {1}", REAL),
    Expression("torch.softmax({0}, 1) + {1}", "{0}.softmax(-1) + {1}", REAL),
    Expression("{0}.logsumexp(1, keepdim=True) + {1}", "torch.logsumexp({0}, 1).unsqueeze(1) + {1}", REAL),
    Expression("torch.nn.functional.pad({0}, (1, -1)) + {1}", "torch.nn.functional.pad({0}[:, :3], (1, 0)) + {1}"),
    Expression("torch.nn.functional.layer_norm({0}, (4,)) + {1}", "", REAL),
)
"""All expressions."""
