"""The benchmark that compares models nobody here wrote: which models it takes, and the table that it prints."""

import msgspec
import pytest
import torch
from click.testing import CliRunner

from benchmarks.drift_models import Compared, chosen, main, table
from benchmarks.own_models import TARGETS
from recapture.cases.own_code import OwnCode
from recapture.tools.drift.answer import DriftReport, FirstPlace
from recapture.tools.drift.causes import Trial
from recapture.tools.drift.facts import Operator, Part, SideReport

ROUNDING = Part(name="result", verdict="rounding", digits=1.4)
PLACE = Operator(name="convolution.default", forms=("bfloat16[2, 8]",))


def compared(model, **fields):
    """Return what the benchmark keeps of a model whose result differs within rounding."""
    about = (SideReport(torch="2.11.0"), SideReport(torch="2.11.0"))
    report = DriftReport(target=model, sides=("cpu", "cuda"), about=about, parts=(ROUNDING,), **fields)
    return Compared(model=model, report=report)


def test_models_are_chosen_by_name_and_those_of_images_get_a_dtype():
    assert list(chosen(("timm:test_vit", "torchvision:alexnet"), None)) == ["torchvision:alexnet", "timm:test_vit"]
    ((name, request),) = chosen(("torchvision:squeezenet1_1",), "bfloat16").items()
    assert name == "torchvision:squeezenet1_1 bfloat16"
    assert request.inputs == (((2, 3, 64, 64), "bfloat16"),)
    assert not any("photographs" in str(request.inputs_from) for request in chosen((), "bfloat16").values())


@pytest.mark.slow
def test_the_target_of_a_dtype_has_all_its_weights_in_it():
    model = OwnCode(place=TARGETS, name="bfloat16_squeezenet1_1").load()
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_the_table_says_where_models_differ_and_because_of_what():
    place = FirstPlace(old=(PLACE,), new=(PLACE,))
    trial = Trial(name="TF32", kind="setting", verdict="rounding", digits=5.8)
    rows = {
        "one": compared("one", place=place, trials=(trial,)),
        "two": Compared(model="two", error="cuda: still running after 100 s"),
    }
    text = table(rows)
    (line,) = [line for line in text.splitlines() if line.startswith("| one")]
    assert [cell.strip() for cell in line.split("|")[1:-1]] == [
        *("one", "rounding", "1.4", "`convolution in bfloat16`", "TF32")
    ]
    assert "not compared: cuda: still running after 100 s" in text
    assert text.endswith("1 rounding, 1 not compared\n")


def test_what_a_file_holds_is_printed_and_sides_that_do_not_differ_are_one_line(tmp_path):
    records = tmp_path / "models.jsonl"
    records.write_bytes(msgspec.json.encode(compared("one")) + b"\n")
    printed = CliRunner().invoke(main, ["--records", str(records), "--table"])
    assert printed.exit_code == 0
    assert "| one" in printed.output
    refused = CliRunner().invoke(main, ["--records", str(records)])
    assert refused.exit_code == 2, refused.output
    assert "name what the two sides differ in" in refused.output
