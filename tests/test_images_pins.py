"""The pins as data: the images, reading their locks, and the GPUs that they run on."""

import hashlib

import pytest

from recapture.base.errors import UsageError
from recapture.machine.pins import (
    can_run_on,
    docker_directory,
    find_image,
    load_images,
    load_pins,
    lock_hash,
    lock_path,
    normalise,
    parse_capability,
    read_lock,
)

RELEASES = [
    "2.0.0",
    "2.0.1",
    "2.1.0",
    "2.1.1",
    "2.1.2",
    "2.2.0",
    "2.2.1",
    "2.2.2",
    "2.3.0",
    "2.3.1",
    "2.4.0",
    "2.4.1",
    "2.5.0",
    "2.5.1",
    "2.6.0",
    "2.7.0",
    "2.7.1",
    "2.8.0",
    "2.9.0",
    "2.9.1",
    "2.10.0",
    "2.11.0",
    "2.12.0",
    "2.12.1",
    "2.13.0",
    "2.14.0",
    "2.14.1",
    "2.15.0",
]
TABLE = """
[tools]
cutoff = 2026-11-01
platform = "x86_64-manylinux_2_28"
"""


def test_every_release_has_one_image_from_its_time_oldest_first():
    assert [image.torch for image in load_images().values() if image.drifted_from is None] == RELEASES


def test_an_image_is_named_after_its_torch_and_cuda():
    for name, image in load_images().items():
        twin = "-drifted" if image.drifted_from else ""
        assert name == image.name == f"torch{image.torch}-cu{image.cuda.replace('.', '')}{twin}"


def test_a_drifted_twin_differs_from_its_image_in_numpy_or_scipy_and_in_nothing_else_under_test():
    images = load_images()
    twins = [image for image in images.values() if image.drifted_from]
    assert {image.torch for image in twins} >= {"2.1.2", "2.2.2", "2.6.0", "2.9.1"}
    for twin in twins:
        of_its_time = images[twin.drifted_from]
        differing = {name for name, version in twin.pinned.items() if of_its_time.pinned[name] != version}
        assert differing == {"numpy", "scipy"}
        assert (twin.base, twin.capabilities, twin.cutoff) == (
            of_its_time.base,
            of_its_time.capabilities,
            of_its_time.cutoff,
        )


def test_images_from_a_releases_time_avoid_pairs_known_to_break():
    for image in load_images().values():
        if image.drifted_from:
            continue
        torch = tuple(map(int, image.torch.split(".")))
        numpy, scipy = (tuple(map(int, getattr(image, name).split(".")[:2])) for name in ("numpy", "scipy"))
        setuptools = int(image.setuptools.split(".")[0])
        assert torch >= (2, 3) or numpy < (2, 0)
        assert torch >= (2, 10) or scipy < (1, 15)
        assert torch >= (2, 2) or setuptools < 70
        assert image.python == ("3.10" if torch < (2, 1) else "3.11")


def test_every_base_is_pinned_by_digest_and_has_the_python_of_its_image():
    for image in load_images().values():
        name, _, digest = image.base.partition("@")
        assert digest.startswith("sha256:")
        assert len(digest) == 71
        assert name.startswith(f"python:{image.python}.")


@pytest.mark.parametrize(
    ("name", "capability", "runs"),
    [
        ("torch2.0.1-cu117", "7.0", True),
        ("torch2.0.1-cu117", "9.0", False),  # its wheel ends at 8.6, and there is no PTX to fall back to
        ("torch2.0.1-cu117", "8.9", True),  # machine code for 8.6 runs on a later minor
        ("torch2.1.2-cu121", "sm_90", True),
        ("torch2.10.0-cu128", "7.0", True),
        ("torch2.11.0-cu130", "7.0", False),
        ("torch2.11.0-cu130", "7.5", True),
        ("torch2.15.0-cu132", "sm_120", True),
        ("torch2.7.1-cu126", "10.0", False),
    ],
)
def test_an_image_runs_on_the_majors_it_was_compiled_for(name, capability, runs):
    assert (can_run_on(find_image(name), capability) is None) is runs


def test_the_reason_names_the_capability_and_what_would_do():
    reason = can_run_on(find_image("torch2.11.0-cu130"), "7.0")
    assert "7.0" in reason
    assert "7.5-7.x" in reason


def test_a_driver_too_old_for_the_cuda_inside_is_a_reason():
    image = find_image("torch2.11.0-cu130")
    assert can_run_on(image, "9.0", driver=580) is None
    assert "580" in can_run_on(image, "9.0", driver=550)


@pytest.mark.parametrize(("text", "parsed"), [("7.0", (7, 0)), ("sm_90", (9, 0)), ("120", (12, 0)), ("sm_90a", (9, 0))])
def test_capabilities_are_read_as_they_are_commonly_written(text, parsed):
    assert parse_capability(text) == parsed


@pytest.mark.parametrize("text", ["", "V100", "7", "7.x", "seven"])
def test_what_is_no_capability_is_refused_by_name(text):
    with pytest.raises(UsageError, match="not a GPU capability"):
        parse_capability(text)


def test_an_unknown_image_is_refused_with_the_nearest_name():
    with pytest.raises(UsageError, match=r"did you mean 'torch2\.6\.0-cu124'"):
        find_image("torch2.60-cu124")


def test_names_are_compared_as_indexes_do():
    assert normalise("Typing_Extensions") == normalise("typing.extensions") == "typing-extensions"


def test_a_lock_is_read_as_normalised_names_and_versions(tmp_path):
    lock = tmp_path / "lock.txt"
    lock.write_text(
        "# torch==9.9\nTyping_Extensions==4.1 \\\n    --hash=sha256:aa\ntomli==2.0.1 ; python_version < '3.11' \\\n"
        "    --hash=sha256:bb\nrequests[socks]==2.0\n",
        encoding="utf-8",
    )
    assert read_lock(lock) == {"typing-extensions": "4.1", "tomli": "2.0.1", "requests": "2.0"}


def test_a_locks_hash_is_that_of_its_bytes():
    path = lock_path("torch2.6.0-cu124")
    assert lock_hash(path) == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    assert path.parent.parent == docker_directory()


def test_a_misspelt_field_is_refused_with_its_place(tmp_path):
    path = tmp_path / "images.toml"
    path.write_text(TABLE + '[images."torch1"]\npyton = "3.11"\n', encoding="utf-8")
    with pytest.raises(UsageError, match=r"images\.toml: .*pyton"):
        load_pins(path)


def test_what_is_not_toml_is_refused_with_the_line(tmp_path):
    path = tmp_path / "images.toml"
    path.write_text("[tools\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"images\.toml: .*line 1"):
        load_pins(path)


def test_pins_that_cannot_be_read_are_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="cannot read the images' pins"):
        load_pins(tmp_path / "none.toml")
