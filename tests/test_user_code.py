"""What a script cannot carry of the user's code: files that were read, and compiled modules."""

from importlib.machinery import EXTENSION_SUFFIXES
from types import ModuleType

from recapture.tools.explain.script.user_code import LoadedCode


def test_a_file_that_is_read_is_named_but_not_what_a_library_downloaded(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "hub"))
    (tmp_path / "hub").mkdir()
    for name in ("weights.bin", "hub/downloaded.bin", "unread.bin"):
        (tmp_path / name).write_bytes(b"1")
    with LoadedCode() as loaded:
        (tmp_path / "weights.bin").read_bytes()
        (tmp_path / "hub" / "downloaded.bin").read_bytes()
        (tmp_path / "written.bin").write_bytes(b"2")
    (tmp_path / "unread.bin").read_bytes()
    assert [path.name for path in loaded.opened] == ["weights.bin"]


def test_a_compiled_module_of_the_user_is_named(tmp_path):
    loaded = LoadedCode()
    for name, file in {"fast": f"fast{EXTENSION_SUFFIXES[0]}", "helper": "helper.py"}.items():
        loaded.modules[name] = ModuleType(name)
        loaded.modules[name].__file__ = str(tmp_path / file)
    loaded.modules["without_file"] = ModuleType("without_file")
    assert [path.name for path in loaded.extensions()] == [f"fast{EXTENSION_SUFFIXES[0]}"]
