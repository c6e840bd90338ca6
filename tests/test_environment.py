"""Which image an installation is, what is recorded of it, and how that is read again."""

from __future__ import annotations

import getpass
import os
import platform
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from packaging.requirements import Requirement

from recapture.base.errors import UsageError
from recapture.base.toml_file import read_toml
from recapture.machine.describe import capability_of, installed_packages, suite_commit, variables
from recapture.machine.doctor import Check
from recapture.machine.environment import (
    ENVIRONMENT,
    OWN_PACKAGES,
    CpuInfo,
    Environment,
    SuiteEntry,
    TorchInfo,
    differences,
    only_volatile_differ,
    read_environment,
    write_environment,
)
from recapture.machine.image_match import PinnedImage, image_for, pinned_images
from recapture.machine.pins import normalise

REPOSITORY = Path(__file__).resolve().parents[1]
DESCRIBE = """
import sys, msgspec
from recapture.machine.describe import describe
sys.stdout.buffer.write(b"ENV" + msgspec.json.encode(describe(sys.argv[1])))
"""


def environment(**changes) -> Environment:
    default = Environment(
        image="bare-torch2.11.0-cu130",
        image_digest="bare",
        lock_hash=None,
        lock_mismatches=["numpy 2.5.2, locked 2.4.3"],
        capability="cpu",
        device="cpu",
        packages={"numpy": "2.5.2"},
        python="3.11.9",
        platform="Linux 6.1 x86_64",
        libc="glibc 2.36",
        torch=TorchInfo(version="2.11.0+cu130", cuda="13.0", cudnn="9.19.0", git_version="70d99e9", arch_list=[]),
        gpu=None,
        cpu=CpuInfo(model="a CPU", cores=2, threads=2, governor=None, memory=1),
        flags={"cudnn.allow_tf32": True},
        compilers={"c++": "g++ 12.2.0"},
        suite_commit=None,
    )
    return msgspec.structs.replace(default, **changes)


# --- which image an installation is

LOCKED = {"torch": "2.11.0", "numpy": "2.4.3", "scipy": "1.17.1", "click": "8.5.0"}
IMAGE = PinnedImage("torch2.11.0-cu130", "3.11", "2.11.0", "sha256:1", LOCKED)


def test_every_locked_package_at_its_version_is_the_image():
    assert image_for(LOCKED, "3.11.9", [IMAGE], cuda="13.0") == ("torch2.11.0-cu130", "sha256:1", [])


def test_packages_beside_the_locked_ones_are_allowed():
    assert image_for(LOCKED | {"pytest": "9.0"}, "3.11.9", [IMAGE], cuda="13.0").image == "torch2.11.0-cu130"


@pytest.mark.parametrize(
    ("packages", "python", "mismatch"),
    [
        (LOCKED | {"numpy": "2.5.2"}, "3.11.9", "numpy 2.5.2, locked 2.4.3"),
        ({k: v for k, v in LOCKED.items() if k != "scipy"}, "3.11.9", "scipy not installed, locked 1.17.1"),
        (LOCKED, "3.12.1", "Python 3.12.1, locked 3.11"),
        (LOCKED | {"torch": "2.11.0+cu130"}, "3.11.9", "torch 2.11.0+cu130, locked 2.11.0"),
    ],
)
def test_one_difference_is_enough_to_be_bare(packages, python, mismatch):
    match = image_for(packages, python, [IMAGE], cuda="13.0")
    assert match == ("bare-torch2.11.0-cu130", None, ["nearest image: torch2.11.0-cu130", mismatch])


def test_a_torch_that_no_image_pins_is_bare_and_a_cpu_build_says_cpu():
    match = image_for({"torch": "2.11.1"}, "3.11.9", [IMAGE], cuda=None)
    assert match == ("bare-torch2.11.1-cpu", None, ["no image pins torch 2.11.1"])


def test_the_nearest_of_several_images_is_named_with_few_of_its_many_differences():
    far = PinnedImage("far", "3.11", "2.11.0", "sha256:2", LOCKED | {f"p{number}": "1" for number in range(20)})
    assert (
        image_for(LOCKED | {"numpy": "1"}, "3.11.9", [far, IMAGE], cuda="13.0")
        .mismatches[0]
        .endswith("torch2.11.0-cu130")
    )
    mismatches = image_for(LOCKED, "3.11.9", [far], cuda="13.0").mismatches
    assert len(mismatches) == 10
    assert mismatches[-1] == "and 12 more"


def test_each_lock_is_recognised_and_distinguished_from_its_drifted_twin():
    images = pinned_images(torch="2.9.1")
    assert {image.name for image in images} >= {"torch2.9.1-cu128", "torch2.9.1-cu128-drifted"}
    for image in images:
        installed = {**image.packages, "recapture": "1.0"}
        assert image_for(installed, image.python, images, cuda="12.8") == (image.name, image.lock_hash, [])


def test_installed_packages_are_sorted_and_normalised():
    installed = installed_packages()
    assert list(installed) == sorted(installed)
    assert "typing-extensions" in installed
    assert installed["msgspec"] == msgspec.__version__


def test_what_setuptools_carries_inside_itself_is_not_installed():
    """In a process of its own: importing setuptools puts its vendored packages on the path."""
    program = """
import importlib.metadata, sys
from recapture.machine.describe import installed_packages
before = installed_packages()
import setuptools
vendored = [entry for entry in sys.path if entry.endswith("_vendor")]
assert bool(vendored) == (int(setuptools.__version__.split(".")[0]) >= 71), vendored
assert not vendored or any(d.name == "autocommand" for d in importlib.metadata.distributions())
assert installed_packages() == before, set(installed_packages()) ^ set(before)
assert {"setuptools", "torch", "numpy"} <= set(before)
"""
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr


def test_a_folder_of_packages_below_another_that_is_no_package_is_installed(tmp_path, monkeypatch):
    for folder, name in (("plain/site", "beside"), ("package/_vendor", "carried")):
        info = tmp_path / folder / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path / folder)
    (tmp_path / "package" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    installed = installed_packages()
    assert installed["beside"] == "1.0"
    assert "carried" not in installed


# --- the file


def test_an_environment_reads_back_as_written_by_its_file_or_directory(tmp_path):
    original = environment(suites=[SuiteEntry("basic", 6)], worker="fork", planned=96, recorded=96, selection=["basic"])
    write_environment(tmp_path / ENVIRONMENT, original)
    assert read_environment(tmp_path / ENVIRONMENT) == original
    assert read_environment(tmp_path) == original
    assert (tmp_path / ENVIRONMENT).read_bytes().endswith(b"}\n")


def test_absolute_paths_do_not_reach_the_file(tmp_path):
    check = Check(
        name="python-headers",
        status="fault",
        found="no Python.h in /home/ann/py3.11/include",
        mend="see /opt/x, C/C++",
        affects="codegen",
    )
    suite = SuiteEntry("mine", 0, "No module named 'x' (/home/ann/mine.py)")
    write_environment(
        tmp_path / ENVIRONMENT,
        environment(doctor=[check], suites=[suite], selection=["/home/ann/mine.py", "-k", "a/b"]),
    )
    read = read_environment(tmp_path)
    assert read.doctor[0].found == "no Python.h in <path>"
    assert read.doctor[0].mend == "see <path>, C/C++"
    assert read.suites[0].error == "No module named 'x' (<path>)"
    assert read.selection == ["<path>", "-k", "a/b"]


def test_what_a_suite_or_a_check_says_is_written_without_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", "correct horse")
    original = msgspec.structs.replace(
        environment(),
        suites=[SuiteEntry("bad", 0, "raised RuntimeError on import: correct horse password=hunter22")],
        doctor=[
            Check(
                name="compiler",
                status="warning",
                found="CXX is 'g++ -DPASSWORD=hunter22'",
                mend="correct horse",
                affects="codegen",
            )
        ],
    )
    write_environment(tmp_path / ENVIRONMENT, original)
    text = (tmp_path / ENVIRONMENT).read_text()
    assert "raised RuntimeError on import: … password=…" in text
    assert "hunter22" not in text
    assert "correct horse" not in text


def test_bytes_that_are_no_utf8_are_refused_by_name(tmp_path):
    path = tmp_path / ENVIRONMENT
    write_environment(path, environment())
    path.write_bytes(path.read_bytes().replace(b'"image": "', b'"image": "\xe9', 1))
    with pytest.raises(UsageError, match=rf"{ENVIRONMENT}: not UTF-8: "):
        read_environment(path)


def test_what_recapture_alone_needs_is_no_difference_between_installations():
    before = environment(packages={"numpy": "2.5.2", "rich": "13.0"})
    now = environment(packages={"numpy": "2.5.2", "rich": "15.0", "packaging": "26.3", "recapture": "0.1.0"})
    assert differences(before, now) == ""


def test_packages_that_run_tests_are_no_difference_between_installations():
    before = environment(packages={"numpy": "2.5.2", "pytest": "9.1.1", "pluggy": "1.6.0"})
    now = environment(packages={"numpy": "2.5.2", "pytest": "9.2.0", "pluggy": "1.7.0", "iniconfig": "2.3.1"})
    assert differences(before, now) == ""


def test_the_packages_that_recapture_alone_needs_are_its_requirements_and_theirs():
    pyproject = read_toml(REPOSITORY / "pyproject.toml")
    images = read_toml(REPOSITORY / "docker" / "images.toml")
    own = {normalise(Requirement(requirement).name) for requirement in pyproject["project"]["dependencies"]}
    of_rich = {"markdown-it-py", "mdurl", "pygments"}
    assert own - set(images["tools"]["with_torch"]) | of_rich | {"recapture", "uv"} == OWN_PACKAGES


def test_installations_differ_by_python_torch_and_packages():
    now = environment(packages={"a": "1", "b": "1", "d": "1"})
    assert differences(now, now) == ""
    before = msgspec.structs.replace(now, python="3.0", packages={"a": "1", "b": "2", "c": "1", "e": "1"})
    assert differences(before, now) == "python, b 2, now 1, c 1, now absent and 2 more"


def test_python_counts_by_its_minor_version():
    """A newcomer has the Python of a distribution: the results that are committed must not be moved away for it."""
    before = environment(python="3.11.7")
    assert differences(before, environment(python="3.11.2")) == ""
    assert differences(before, environment(python="3.12.0")) == "python"
    assert differences(before, environment(python="3.1.1")) == "python"


def test_this_project_itself_is_no_part_of_an_installation():
    assert differences(environment(packages={"a": "1"}), environment(packages={"a": "1", "recapture": "0.1.0"})) == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "environment schema 2 is not understood by this version, which reads 1"),
        ({"surprise": 1}, "unknown field `surprise`"),
        ({"planned": "many"}, r"\$.planned"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(tmp_path, change, message):
    path = tmp_path / ENVIRONMENT
    path.write_bytes(msgspec.json.encode(msgspec.to_builtins(environment()) | change))
    with pytest.raises(UsageError, match=message) as raised:
        read_environment(tmp_path)
    assert str(path) in str(raised.value)


def test_an_absent_file_and_one_that_is_no_json_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read .*No such file"):
        read_environment(tmp_path)
    (tmp_path / ENVIRONMENT).write_text("[]")
    with pytest.raises(UsageError, match="not a JSON environment"):
        read_environment(tmp_path)


# --- describing this process


@pytest.fixture(scope="module")
def described() -> Environment:
    env = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "TORCHINDUCTOR_CACHE_DIR": "/tmp/someone",
        "OMP_NUM_THREADS": "1",
    }
    env |= {"TORCH_ACCESS_TOKEN": "hidden", "CUDA_VISIBLE_DEVICES": "GPU-8f2a1c3d-1111-2222-3333-444455556666"}
    env["RECAPTURE_IMAGE_DIGEST"] = "sha256:abc"
    done = subprocess.run(
        [sys.executable, "-c", DESCRIBE, "cpu"], capture_output=True, env=env, timeout=300, check=True
    )
    return msgspec.json.decode(done.stdout.partition(b"ENV")[2], type=Environment)


def test_this_process_is_described(described):
    assert described.python == platform.python_version()
    assert described.capability == described.device == "cpu"
    assert described.packages == installed_packages()
    assert described.torch.version.partition("+")[0] == described.packages["torch"].partition("+")[0]
    assert described.torch.git_version
    assert described.gpu is None
    assert described.cpu.cores == len(os.sched_getaffinity(0))
    assert described.cpu.threads == 1
    flags = Path("/proc/cpuinfo").read_text().upper().replace("AVX512F", "AVX512").split()
    assert described.cpu.instructions in (*flags, "DEFAULT")
    assert described.image.removeprefix("bare-").startswith(f"torch{described.packages['torch'].partition('+')[0]}-c")
    assert described.image.startswith("bare-") == (described.lock_hash is None) == bool(described.lock_mismatches)
    assert described.image_digest == "sha256:abc"


def test_the_defaults_that_change_figures_are_recorded(described):
    assert described.flags["float32_matmul_precision"] == "highest"
    assert described.flags["cudnn.allow_tf32"] is True  # on by default on every version
    assert described.flags["cuda.matmul.allow_tf32"] is False
    assert described.flags["num_threads"] == 1


def test_variables_are_recorded_without_paths_serial_numbers_or_secrets(described):
    assert described.flags["env OMP_NUM_THREADS"] == "1"
    assert described.flags["env TORCHINDUCTOR_CACHE_DIR"] == "<path>"
    assert described.flags["env CUDA_VISIBLE_DEVICES"] == "<GPU>"
    assert not any("TOKEN" in name for name in described.flags)


@pytest.mark.parametrize(
    ("name", "value", "recorded"),
    [
        ("TORCH_PASSWD", "hunter2", None),
        ("PYTORCH_AUTH", "hunter2", None),
        ("TORCHINDUCTOR_secret", "hunter2", None),
        ("TORCH_HUB_LOGIN", "hunter2", "<set>"),
        ("TORCHINDUCTOR_NEW_SWITCH", "1", "1"),
        ("TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS", "ATEN,TRITON", "ATEN,TRITON"),
        ("TORCHINDUCTOR_AUTOGRAD_CACHE", "0", "0"),
        ("TRITON_PTXAS_PATH", "/usr/local/bin/ptxas", "<path>"),
    ],
)
@pytest.mark.hostile
def test_only_variables_that_are_known_to_be_public_keep_their_value(monkeypatch, name, value, recorded):
    monkeypatch.setenv(name, value)
    assert variables(r"TORCH|PYTORCH_|TRITON_").get(f"env {name}") == recorded


@pytest.mark.hostile
def test_nothing_private_is_recorded(described):
    text = msgspec.json.encode(described).decode()
    assert socket.gethostname() not in text
    assert str(Path.home()) not in text
    user = getpass.getuser()
    assert user == "root" or user not in text  # "root" may stand inside any word
    assert '"/' not in text


def test_the_capability_without_a_gpu_is_cpu():
    assert capability_of("cpu") == "cpu"
    program = "from recapture.machine.describe import capability_of; print(capability_of('cuda'))"
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=env, timeout=300, check=True
    )
    assert done.stdout.strip() == "cpu"


# --- the suites' revision


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.delenv("RECAPTURE_REVISION", raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    suites = tmp_path / "checkout" / "suites"
    suites.mkdir(parents=True)
    (suites / "basic.py").write_text("x = 1\n")
    return suites


def git(directory: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(directory), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_revision_says_when_a_suite_is_changed_but_not_when_results_are_written(checkout):
    assert suite_commit(checkout) is None
    git(checkout.parent, "init", "-q")
    git(checkout.parent, "add", ".")
    git(checkout.parent, "commit", "-qm", "first")
    revision = git(checkout.parent, "rev-parse", "HEAD")
    assert suite_commit(checkout) == revision
    (checkout.parent / "results").mkdir()
    (checkout.parent / "results" / "new").touch()
    assert suite_commit(checkout) == revision
    (checkout / "basic.py").write_text("x = 2\n")
    assert suite_commit(checkout) == f"{revision}-dirty"


def test_an_image_reports_its_revision(checkout, monkeypatch):
    monkeypatch.setenv("RECAPTURE_REVISION", "0123abc")
    assert suite_commit(checkout) == "0123abc"


def test_a_directory_that_is_not_there_has_no_revision(checkout):
    assert suite_commit(checkout / "absent") is None


# --- what keeps a file from being written again


@pytest.mark.parametrize(
    "changes",
    [
        {"cpu": CpuInfo(model="another CPU", cores=64, threads=8, governor=None, memory=2)},
        {"packages": {"numpy": "2.5.2", "recapture": "0.1.0"}},
        {"platform": "Linux 5.10 x86_64"},
        {"suite_commit": "abc-dirty"},
        {"doctor": [Check(name="free-space", status="warning", found="2.9 GB free", mend="make room", affects="all")]},
        {"suites": [SuiteEntry("one", 0, "no file /tmp/b/one.py")]},
    ],
)
def test_volatile_facts_do_not_count(changes):
    before = environment(
        doctor=[Check(name="free-space", status="warning", found="3.0 GB free", mend="make room", affects="all")],
        suites=[SuiteEntry("one", 0, "no file /tmp/a/one.py")],
    )
    assert only_volatile_differ(before, msgspec.structs.replace(before, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"packages": {"numpy": "2.5.3"}},
        {"python": "3.12.1"},
        {"lock_hash": "sha256:0"},
        {"planned": 3},
        {"selection": ["one"]},
        {"suites": [SuiteEntry("one", 3)]},
        {"doctor": [Check(name="free-space", status="fault", found="0 GB free", mend="make room", affects="all")]},
    ],
)
def test_other_facts_count(changes):
    before = environment()
    assert not only_volatile_differ(before, msgspec.structs.replace(before, **changes))
