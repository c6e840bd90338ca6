"""Stopping torch's compilers after a stage and changing their settings, whoever calls them."""

import pytest

torch = pytest.importorskip("torch")

from recapture.torch_api.stages import DECOMPOSED, EXPORTED, backends, has_setting, redirected  # noqa: E402

INDUCTOR = "torch._inductor.config"


@pytest.fixture
def called(monkeypatch):
    """The arguments of each call of what stands for `torch.compile`, and a process whose settings are restored."""
    from torch._inductor import config

    calls = []
    monkeypatch.setattr(torch, "compile", lambda *args, **kwargs: calls.append((args, kwargs)))
    with config.patch({"cpp.simdlen": config.cpp.simdlen, "max_fusion_size": config.max_fusion_size}):
        yield calls


def test_the_backends_of_the_prefixes_exist_on_this_release():
    assert {"eager", "aot_eager", "aot_eager_decomp_partition", "inductor"} <= backends()


@pytest.mark.parametrize(
    ("name", "value", "usable"),
    [
        ("cpp.simdlen", 1, True),
        ("max_fusion_size", 1, True),
        ("pattern_matcher", True, False),  # the default already
        ("no_such_setting", 1, False),
        ("cpp.no_such_setting", 1, False),
        ("no.such", 1, False),
    ],
)
def test_a_switch_is_usable_if_the_release_has_it_with_another_default(name, value, usable):
    assert has_setting(INDUCTOR, name, value) is usable


def test_a_module_that_does_not_exist_has_no_setting():
    assert not has_setting("torch.no_such.config", "x", 1)


def test_another_backend_drops_the_mode_and_keeps_what_dynamo_reads(called):
    with redirected("aot_eager", {}, {}, {}):
        torch.compile("f", mode="max-autotune", fullgraph=True)
    assert called == [(("f",), {"mode": None, "options": None, "fullgraph": True, "backend": "aot_eager"})]


def test_a_setting_is_changed_when_the_compiler_is_called_and_stays(called):
    from torch._inductor import config

    before = config.max_fusion_size
    with redirected(None, {INDUCTOR: {"cpp.simdlen": 1, "max_fusion_size": 1}}, {"dynamic": True}, {}):
        assert config.max_fusion_size == before
        config.cpp.simdlen = 8  # what a compiler sets itself gives way
        torch.compile("f", dynamic=False)
    assert (config.cpp.simdlen, config.max_fusion_size) == (1, 1)
    assert called == [(("f",), {"dynamic": True})]


def test_a_mode_does_not_override_a_switch(called):
    with redirected(None, {INDUCTOR: {"max_fusion_size": 1}}, {}, {}):
        torch.compile("f", mode="max-autotune")
        torch.compile("f", options={"max_fusion_size": 8, "size_asserts": False})
    (_, first), (_, second) = called
    assert first["mode"] is None
    assert first["options"]["max_autotune"] is True
    assert second["options"] == {"size_asserts": False}


def test_after_the_block_the_compilers_are_as_before(called):
    before = (torch.compile, torch.export.export, torch._inductor.aoti_compile_and_package)
    with redirected(EXPORTED, {}, {}, {}):
        assert torch.compile is not before[0]
    assert (torch.compile, torch.export.export, torch._inductor.aoti_compile_and_package) == before


class Program:
    def run_decompositions(self, table):
        assert torch.ops.aten.silu.default in table
        return Decomposed()

    def module(self):
        return "exported"


class Decomposed:
    def module(self):
        return "decomposed"


@pytest.mark.parametrize(("backend", "result"), [(EXPORTED, "exported"), (DECOMPOSED, "decomposed")])
def test_aotinductor_stops_before_it_compiles(backend, result, called):
    with redirected(backend, {}, {}, {}):
        package = torch._inductor.aoti_compile_and_package(Program())
        assert torch._inductor.aoti_load_package(package) == result
