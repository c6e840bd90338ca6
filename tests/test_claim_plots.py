"""Published speedups through the releases: a plot for each claim, from benchmarks of several releases."""

import math
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from recapture.command.main import main
from recapture.tools.speed.claim_plots import claim_histories, claim_svg
from recapture.tools.speed.speedups import Claimed, read_speedups, write_speedups

RESULTS = Path(__file__).parents[1] / "results"
ON_FILE = read_speedups(RESULTS / "bare-torch2.11.0-cu130" / "sm_90" / "speedups-nvidia-h200.json")
CLAIMED = next(row for row in ON_FILE.rows if row.claims and row.measured is not None)


def benchmark_on(release, speedup, holds, *, claim="T7", expected=">1", measured=True):
    """A benchmark of a release with one row that checks a claim."""
    row = replace(
        CLAIMED,
        measured=replace(CLAIMED.measured, speedup=speedup) if measured else None,
        claims=(Claimed(id=claim, expected=expected, published="2.91×", holds=holds),),
    )
    environment = replace(ON_FILE.environment, torch=replace(ON_FILE.environment.torch, version=f"{release}+cu126"))
    return replace(ON_FILE, environment=environment, rows=(row,))


PLANTED = [
    benchmark_on("2.10.0", (0.5, 0.45, 0.55), False),
    benchmark_on("2.6.0", (2.0, 1.8, 2.2), True),
    benchmark_on("2.9.1", (1.1, 0.9, 1.3), None),
    benchmark_on("2.8.0", (1.0, 1.0, 1.0), None, measured=False),
]


def test_a_claim_has_its_status_on_each_release_oldest_first():
    (history,) = claim_histories(PLANTED)
    assert [(point.release, point.status) for point in history.points] == [
        ("2.6.0", "reproduced"),
        ("2.8.0", "not runnable here"),
        ("2.9.1", "inconclusive"),
        ("2.10.0", "not reproduced"),
    ]
    assert (history.id, history.bound) == ("T7", ">1")


def test_a_plot_shows_each_interval_at_its_place_and_in_the_colour_of_its_status():
    (history,) = claim_histories(PLANTED)
    svg = ET.fromstring(claim_svg(history))
    name = "{http://www.w3.org/2000/svg}"
    intervals = [line for line in svg.iter(f"{name}line") if line.get("stroke-width") == "2"]
    assert [line.get("stroke") for line in intervals] == ["#2a7d4f", "#8a6d00", "#b3261e"]
    across = [float(line.get("x1")) for line in intervals]
    assert across == sorted(across)
    # On a logarithmic axis an interval is as long as the logarithm of its ends' ratio.
    lengths = [float(line.get("y1")) - float(line.get("y2")) for line in intervals]
    scales = [
        length / math.log(high / low)
        for length, (low, high) in zip(lengths, [(1.8, 2.2), (0.9, 1.3), (0.45, 0.55)], strict=True)
    ]
    assert scales == pytest.approx([scales[0]] * 3, rel=0.02)
    (bound,) = [line for line in svg.iter(f"{name}line") if line.get("stroke-dasharray")]
    label = next(text for text in svg.iter(f"{name}text") if text.text == "1×")
    assert float(bound.get("y1")) == pytest.approx(float(label.get("y")) - 4)
    titles = [title.text for title in svg.iter(f"{name}title")]
    assert any(title.startswith("torch 2.8.0") and title.endswith("not runnable here") for title in titles)


def test_another_bound_is_another_line():
    (strict,) = claim_histories([benchmark_on("2.6.0", (2.0, 1.8, 2.2), True, claim="L1", expected=">=1.5")])
    (plain,) = claim_histories([benchmark_on("2.6.0", (2.0, 1.8, 2.2), True)])
    dashed = [re.search(r'y1="([\d.]+)"[^>]*stroke-dasharray', claim_svg(history))[1] for history in (strict, plain)]
    assert float(dashed[0]) < float(dashed[1])


def test_the_command_writes_a_page_and_a_plot_for_each_claim(tmp_path, capsys):
    for place, speedups in enumerate(PLANTED[:3]):
        directory = tmp_path / "results" / f"image{place}" / "sm_90"
        directory.mkdir(parents=True)
        write_speedups(directory / "speedups-nvidia-h200.json", speedups)
    with pytest.raises(SystemExit) as ended:
        main(["report", str(tmp_path / "results"), "--quiet", "--claim-plots", str(tmp_path / "plots")])
    assert not ended.value.code
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == ["T7.svg", "index.md"]
    page = (tmp_path / "plots" / "index.md").read_text()
    assert "![T7](T7.svg)" in page
    # `report` computes ratios and claims again, from the samples: all three releases have those of the row.
    assert [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| 2.")] == [
        "2.6.0",
        "2.9.1",
        "2.10.0",
    ]


def test_results_without_a_claim_are_bad_input(tmp_path, capsys):
    directory = tmp_path / "image" / "cpu"
    directory.mkdir(parents=True)
    write_speedups(directory / "speedups-cpu.json", replace(ON_FILE, rows=(replace(CLAIMED, claims=()),)))
    with pytest.raises(SystemExit) as ended:
        main(["report", str(tmp_path), "--quiet", "--claim-plots", str(tmp_path / "plots")])
    assert ended.value.code == 2
    assert "--claim-plots" in capsys.readouterr().err
