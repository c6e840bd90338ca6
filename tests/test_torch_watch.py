"""What torch tells about a capture, on this release and on others."""

import importlib.util
import json
import logging
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from recapture.torch_api.compat import release, reset_dynamo
from recapture.torch_api.trace import hear_trace
from recapture.torch_api.watch import CaptureLog, compile_seconds, watch_dynamo

CAPTURES = Path(__file__).parent / "resources" / "captures.py"
OTHER_PYTHONS = [python for python in os.environ.get("RECAPTURE_OTHER_PYTHONS", "").split(os.pathsep) if python]

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def captures():
    spec = importlib.util.spec_from_file_location("captures_here", CAPTURES)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def check(captured):
    """Counts that hold on every release from 2.1 on."""
    version = release(captured.pop("version"))
    counts = {
        name: (counted["graphs"], counted["breaks"]) for name, counted in captured.items() if name != "user error"
    }
    assert counts == {
        "straight": (1, 0),
        "f1 positive": (1, 1),  # explain() says none on any release: it follows one path
        "f1 both": (2, 1),  # the side that returns its argument has nothing to compute
        "bar": (3, 1),
        "loop": (0, 1),
        "print": (0, 1),
        "item": (2, 1),
        "sizes": (2, 0),
        "fullgraph": (0, 0),
    }
    known = version >= (2, 6)
    assert [counted["recompiles"] for counted in captured.values()] == [
        (1 if name == "sizes" else 0) if known else None for name in captured
    ]
    for name, word in {
        "f1 positive": "jump",
        "f1 both": "jump",
        "bar": "jump",
        "loop": "",
        "print": "",
        "item": "item",
    }.items():
        (reason,) = captured[name]["reasons"]
        assert word in reason
        if name in ("f1 both", "bar", "item"):
            assert "captures.py:" in reason
    errors = {name: counted["error"] for name, counted in captured.items() if counted["error"]}
    (kind, capture, memory) = errors.pop("fullgraph")
    assert kind in ("Unsupported", "UserError")
    assert (capture, memory) == (True, False)
    assert errors == {"user error": ["TorchRuntimeError", False, False]}  # the user's own: no failure to capture


def test_graphs_breaks_and_recompiles_of_this_release(captures):
    check(captures.main())


@pytest.mark.skipif(not OTHER_PYTHONS, reason="RECAPTURE_OTHER_PYTHONS names no interpreters with other releases")
@pytest.mark.parametrize("python", OTHER_PYTHONS)
def test_graphs_breaks_and_recompiles_of_other_releases(python):
    root = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run([python, CAPTURES], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout))


def test_a_case_that_switches_logging_off_is_watched_all_the_same(captures):
    logging.disable(logging.CRITICAL)
    try:
        watched = captures.watched(captures.f1, (torch.ones(3), torch.ones(3)))
    finally:
        logging.disable(logging.NOTSET)
    assert watched["breaks"] == 1


def test_watching_leaves_the_log_as_it_was(captures):
    log = logging.getLogger("torch.__trace")
    before = (log.level, log.propagate, log.disabled, list(log.handlers), log.isEnabledFor(logging.CRITICAL))
    captures.watched(captures.straight, (torch.ones(3),))
    with pytest.raises(KeyError), watch_dynamo():
        raise KeyError
    after = (log.level, log.propagate, log.disabled, list(log.handlers), log.isEnabledFor(logging.CRITICAL))
    assert after == before
    assert "isEnabledFor" not in vars(log)


@pytest.mark.skipif(release(torch.__version__) < (2, 6), reason="no such events")
def test_only_the_artifacts_that_are_asked_for_are_made_and_another_listener_still_hears_everything():
    from torch._logging._internal import trace_log, trace_structured

    def events(artifacts, before=()):
        heard, payloads_made = [], []

        def payload(name):
            payloads_made.append(name)
            return name

        for handler in before:
            trace_log.addHandler(handler)
        with hear_trace(lambda name, _about, payload: heard.append((name, payload)), artifacts):
            for name in ("recompile_reasons", "another"):
                trace_structured("artifact", lambda name=name: {"name": name}, payload_fn=partial(payload, name))
            trace_structured("dynamo_output_graph", payload_fn=partial(payload, "graph"))
        for handler in before:
            trace_log.removeHandler(handler)
        return heard, payloads_made

    handlers = list(trace_log.handlers)
    trace_log.handlers.clear()  # torch's own, which removes itself at the first event
    try:
        assert events(("recompile_reasons",)) == ([("recompile_reasons", "recompile_reasons")], ["recompile_reasons"])
        everything = ["recompile_reasons", "another", "graph"]
        assert events(None)[1] == everything
        assert events(("recompile_reasons",), [logging.NullHandler()])[1] == everything
        assert type(trace_log.handlers) is list
        assert trace_log.handlers == []
    finally:
        trace_log.handlers = handlers


def test_a_log_of_nothing_is_all_zeros_and_an_unknown_one_unknown():
    with watch_dynamo() as log:
        pass
    assert (log.graphs, log.graph_breaks, log.recompiles) == (0, 0, 0)
    unknown = CaptureLog(breaks_known=False)
    assert (unknown.graphs, unknown.graph_breaks, unknown.recompiles) == (None, None, None)


def test_one_place_met_twice_is_one_break():
    log = CaptureLog(break_reasons=["a at 1", "b at 2", "a at 1"], recompile_reasons=["x", "x"])
    assert (log.graph_breaks, log.recompiles) == (2, 2)


@pytest.mark.skipif(release() < (2, 6), reason="does not tell how long its stages took")
def test_the_seconds_of_compiling_are_reported_by_stage_and_once():
    reset_dynamo()
    compile_seconds()
    started = time.perf_counter()
    torch.compile(lambda x: x.sin() + x.cos(), backend="aot_eager")(torch.ones(3))
    took = time.perf_counter() - started
    seconds = compile_seconds()
    assert seconds.keys() <= {"Dynamo", "AOTAutograd"}
    assert 0.002 < sum(seconds.values()) <= took + 0.001
    assert compile_seconds() is None


def test_no_second_of_compiling_is_in_two_stages(monkeypatch):
    forward = SimpleNamespace(
        dynamo_cumulative_compile_time_us=100e6,
        aot_autograd_cumulative_compile_time_us=90e6,
        inductor_cumulative_compile_time_us=70e6,
        triton_compile_time_us=40e6,
        compile_time_autotune_time_us=25e6,
        backward_cumulative_compile_time_us=None,
    )
    backward = SimpleNamespace(
        inductor_cumulative_compile_time_us=8e6,
        backward_cumulative_compile_time_us=10e6,
        runtime_triton_autotune_time_us=3e6,
    )
    recorded = SimpleNamespace(runtime_cudagraphify_time_us=500)
    import torch._dynamo.utils

    monkeypatch.setattr(torch._dynamo.utils, "get_compilation_metrics", lambda: [forward, backward, recorded])
    seconds = compile_seconds()
    assert seconds == {"Dynamo": 10, "AOTAutograd": 22, "Inductor": 13, "kernels": 40, "autotuning": 28}
    assert sum(seconds.values()) == 100 + 10 + 3


def test_a_release_that_times_no_stages_is_unknown(monkeypatch):
    import torch._dynamo.utils

    monkeypatch.setattr(torch._dynamo.utils, "get_compilation_metrics", lambda: [SimpleNamespace(compile_time=3)])
    assert compile_seconds() is None
