"""Requirements files of a user's code: read, compared with an image's lock, and what uv says about them."""

from __future__ import annotations

import pytest

from recapture.base.errors import UsageError
from recapture.images.requirements import Requirements, _conflict, check_against, without_locked
from recapture.machine.pins import find_image, find_release

IMAGE = "torch2.6.0-cu124"


def written(folder, text, name="requirements.txt"):
    path = folder / name
    path.write_text(text)
    return Requirements.read([path])


def test_comments_options_and_named_files_are_read(tmp_path):
    (tmp_path / "more.txt").write_text("timm>=1.0\n")
    found = written(
        tmp_path, "# a comment\neinops>=0.7  # why\n--index-url https://example.org/simple\n-r more.txt\n-e ./local\n"
    )
    assert [str(one) for _, one in found.named()] == ["einops>=0.7", "timm>=1.0"]


def test_a_file_that_names_itself_is_read_once(tmp_path):
    assert [str(one) for _, one in written(tmp_path, "-r requirements.txt\neinops\n").named()] == ["einops"]


def test_the_contents_decide_the_layer_and_not_the_name_of_the_file(tmp_path):
    lock = tmp_path / "lock.txt"
    lock.write_text("torch==2.6.0\n")
    one, two = written(tmp_path, "einops\n", "a.txt"), written(tmp_path, "# said\neinops\n", "b.txt")
    other = written(tmp_path, "einops>0.5\n", "c.txt")
    assert one.digest(lock) == two.digest(lock) != other.digest(lock)
    before = one.digest(lock)
    lock.write_text("torch==2.7.0\n")
    assert one.digest(lock) != before


def test_a_requirement_that_excludes_the_pinned_version_is_named_with_it(tmp_path):
    found = written(tmp_path, "einops\nnumpy<1.20\n")
    with pytest.raises(UsageError) as caught:
        check_against(find_image(IMAGE), found)
    numpy = find_image(IMAGE).numpy
    assert str(caught.value) == f"requirements.txt asks for numpy<1.20, and {IMAGE} pins numpy=={numpy}"


@pytest.mark.parametrize("text", ["numpy>=1.20\n", 'numpy<1.20; python_version < "3.8"\n', "einops\n", "Torch>=2.0\n"])
def test_requirements_that_fit_are_accepted(tmp_path, text):
    check_against(find_image(IMAGE), written(tmp_path, text))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"not a requirement!\n", "is no requirement"),
        (b"\xff\xfe", "not a text file"),
        (b"a\n" * 600_000, "1200000 bytes, more than the"),
    ],
)
def test_a_file_that_is_no_list_of_requirements_is_one_line(tmp_path, content, complaint):
    path = tmp_path / "requirements.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=complaint) as caught:
        Requirements.read([path])
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="No such file"):
        Requirements.read([tmp_path / "absent.txt"])


def test_what_uv_says_about_a_dependency_names_both_sides():
    said = (
        "uv failed: × No solution found when resolving dependencies: ╰─▶ Because torchaudio==2.5.0 depends on "
        "torch==2.5.0 and you require torch==2.6.0, we can conclude that your requirements are unsatisfiable."
    )
    found = _conflict(said, {"torch": "2.6.0"}, find_image(IMAGE))
    assert found == f"torchaudio==2.5.0 depends on torch==2.5.0, and {IMAGE} pins torch==2.6.0"
    assert _conflict("uv failed: Permission denied", {"torch": "2.6.0"}, find_image(IMAGE)) == ""
    other = _conflict("No solution found: ╰─▶ Because there is no version of x", {}, find_image(IMAGE))
    assert other == "Because there is no version of x"


def test_packages_of_the_image_are_not_installed_again():
    resolved = "einops==0.8.1\nnumpy==2.1.2\ntimm @ https://example.org/timm.whl\ntorch==2.6.0\n-e ./local\n"
    assert without_locked(resolved, find_image(IMAGE)).splitlines() == [
        "einops==0.8.1",
        "timm @ https://example.org/timm.whl",
        "-e ./local",
    ]


def test_a_release_is_found_by_its_number_or_its_beginning():
    assert find_release("2.6.0").name == IMAGE
    assert find_release("2.6").name == IMAGE
    assert find_release("torch2.6.0-cu124-drifted").name == "torch2.6.0-cu124-drifted"
    for text in ("2.6.9", "2", ""):
        if text != "2":
            with pytest.raises(UsageError, match=r"no image has torch '.*; there are 2\.0\.1, "):
                find_release(text)
    assert find_release("2").torch.startswith("2.15")
