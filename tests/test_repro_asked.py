"""What a case asks of its comparison is in its script as it is in its cell."""

import pytest
from planted_scripts import in_process

from recapture.run.cell import CellSpec, examine

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("restored")]

ASKS = """\
import torch
from recapture import case, compiler

LOG = []


def forget():
    LOG.clear()


@case(example=lambda: (torch.ones(3, requires_grad=True),), held_out=[lambda: (torch.ones(3, requires_grad=True),)])
def trains(x):
    return x * 2


@case(example=lambda: (torch.ones(3, requires_grad=True),), backward=False)
def does_not_train(x):
    return x * 2


@compiler("another-gradient")
def another_gradient(fn, example):
    return lambda x: fn(x) + 3 * (x - x.detach())


@case(example=lambda: (torch.ones(2, 3),))
def any_stride(x):
    return x + 1


@case(example=lambda: (torch.ones(2, 3),), strict=("stride",))
def one_stride(x):
    return x + 1


@compiler("transposes")
def transposes(fn, example):
    return lambda x: fn(x).t().contiguous().t()


def last(target, result):
    return target.scale, result.sum()


@case(example=lambda: (torch.ones(2),), watch=last)
class Watched(torch.nn.Module):
    scale = 2

    def forward(self, x):
        return x * self.scale


@case(example=lambda: (torch.ones(2),), held_out=[lambda: (torch.ones(2),)], reset=forget, watch=lambda: len(LOG))
def logs(x):
    LOG.append(1)
    return x


@compiler("once-more")
def once_more(fn, example):
    fn(*example)
    return fn


@case(example=lambda: (torch.ones(4),), held_out=[lambda: (torch.ones(2),), lambda: (torch.ones(6),)])
def sums(x):
    return (x + 1).sum()


@compiler("reads-on", checks_inputs=False)
def reads_on(fn, example):
    size = example[0].numel()
    return lambda x: fn(x.as_strided((size,), (1,)))
"""


@pytest.fixture(scope="module")
def asks(tmp_path_factory):
    path = tmp_path_factory.mktemp("asks") / "asks.py"
    path.write_text(ASKS)
    return path


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("trains::another-gradient", ["(gradient): ", "== verdict: wrong on example"]),
        ("does_not_train::another-gradient", ["== verdict: pass"]),
        ("any_stride::transposes", ["note: example: result (metadata): stride", "== verdict: pass"]),
        ("one_stride::transposes", ["DIFFERENT: result (metadata): stride", "== verdict: wrong on example"]),
        ("Watched::fx", ["== verdict: pass"]),
        ("logs::once-more", ["== verdict: pass"]),
        (
            "sums::reads-on",
            [
                "DIFFERENT: result (value): value differs; args[0] has shape (2,), the example's (4,)",
                "DIFFERENT: result (value): value differs: eager 12, this 8; args[0] has shape (6,), the example's (4,)",
                "== verdict: specialized on held_out[0]",
            ],
        ),
    ],
)
def test_what_a_case_asks_is_in_its_script_and_in_its_cell(asks, run_script, cell, expected):
    case, compiler = cell.split("::")
    output = run_script(in_process(f"{asks}::{cell}"))
    for text in expected:
        assert text in output
    own = compiler != "fx"
    suite, file = ("asks", str(asks)) if own else (None, None)
    result = examine(CellSpec("asks", str(asks), case, compiler, "cpu", suite, file), lambda _: None)
    assert f"== verdict: {result.verdict}" in expected[-1]
    listed = [line for line in output.splitlines() if line.startswith("DIFFERENT: ")]
    assert listed == [
        f"DIFFERENT: {difference.where} ({difference.kind}): {difference.detail}" for difference in result.differences
    ]
