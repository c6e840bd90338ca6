"""The figures of the site: bars of outcomes, and speedups with their intervals."""

from __future__ import annotations

import msgspec
import pytest
from planted_data import pages_of, planted

from recapture.tools.site.charts import counts_by_release, interval_plot, recorded_throughout, release_plots, stacked
from recapture.tools.site.pages import site_files


def test_shares_of_a_bar_fill_it_and_an_interval_holds_its_point():
    rows = counts_by_release(planted(), ["PwE-", "PPp."])
    assert [row.total for row in rows] == [2, 2, 2]
    assert rows[1].by_tone == {"right": 1, "broken": 0, "failing": 0, "wrong": 1}
    for bar in stacked(rows):
        assert sum(part.height for part in bar) == pytest.approx(1)
        assert min(part.top for part in bar) == pytest.approx(0)
    (interval,) = interval_plot(planted().speeds).intervals
    assert 0 < interval.low < interval.point < interval.high < 1


def test_only_cases_of_every_recorded_release_are_counted():
    assert recorded_throughout(["PwE.", "PPp.", ".P..", "-P-."]) == ["PwE.", "PPp.", "-P-."]
    assert recorded_throughout([".P", ".w"]) == [".P", ".w"]
    assert recorded_throughout([]) == []


@pytest.mark.parametrize(
    ("figures", "ticks"),
    [
        ((1.4, 1.3, 1.5), ["0.8×", "0.9×", "1×", "1.1×", "1.2×", "1.3×", "1.4×", "1.5×"]),
        ((3.0, 0.4, 4.0), ["0.5×", "0.7×", "1×", "1.5×", "2×", "3×"]),
        ((8.0, 0.2, 12.0), ["0.2×", "0.5×", "1×", "2×", "5×", "10×"]),
    ],
    ids=["close to eager", "some times as fast", "far from it"],
)
def test_an_axis_has_several_ticks_at_any_scale(figures, ticks):
    (speed,) = planted().speeds
    plot = interval_plot([msgspec.structs.replace(speed, speedup=figures)])
    assert [label for _, label in plot.ticks] == ticks
    assert all(0 <= place <= 1 for place, _ in plot.ticks)


def test_a_configuration_on_several_releases_has_a_plot_and_one_on_a_single_release_has_none():
    (speed,) = planted().speeds
    assert release_plots([speed]) == []
    earlier = msgspec.structs.replace(speed, release="2.10.0", speedup=(1.0, 0.9, 1.1))
    elsewhere = msgspec.structs.replace(speed, hardware="another CPU")
    (plot,) = release_plots([earlier, speed, elsewhere])
    assert [point.speed.release for point in plot.points] == ["2.10.0", "2.11.0"]
    slow, fast = plot.points
    assert slow.across < fast.across
    assert 1 > slow.low > slow.point > slow.high > 0  # from the top
    assert fast.point < slow.point
    pages = pages_of(dict(site_files(planted(speeds=(earlier, speed)))))
    assert pages["speed/net.html"].count('<circle class="point') == 4
