"""Cases that remove the directories in which a run works, and neighbours that need them."""

import os
import shutil
import time
from pathlib import Path

import torch

from recapture import case


def ones():
    return (torch.ones(3),)


def scratch():
    """The directory of this task: HOME/TASKS/SCRATCH."""
    return Path(os.environ["TMPDIR"]).parent


def erase(folder):
    shutil.rmtree(folder, ignore_errors=True)
    time.sleep(600)  # whatever ends this process, it is not the case


@case(example=ones)
def neighbour(x):
    """Takes its time."""
    time.sleep(2)
    return x + 1


@case(example=ones)
def removes_its_scratch_directory(x):
    """Removes the directory where its own result belongs, and returns."""
    shutil.rmtree(scratch())
    return x + 1


@case(example=ones)
def removes_the_tasks(x):
    """Removes the directories of all tasks."""
    erase(scratch().parent)


@case(example=ones)
def removes_the_home(x):
    """Removes all that the run keeps in its temporary directory."""
    erase(scratch().parent.parent)


@case(example=ones)
def removes_the_caches(x):
    """Removes the compile caches, and returns."""
    shutil.rmtree(scratch().parent.parent / "cache", ignore_errors=True)
    return x + 1


@case(example=ones)
def removes_the_directory_for_temporary_files(x):
    """Removes all that lies beside the home as well, and the directory itself."""
    erase(scratch().parent.parent.parent)


def move(folder):
    """Move a directory out of the home, as another process might find it: with a new name beside the home."""
    away = scratch().parent.parent.with_name(f"moved-{os.getpid()}")
    folder.rename(away)


@case(example=ones)
def moves_its_scratch_directory(x):
    """Moves the directory where its own result belongs, and returns."""
    move(scratch())
    return x + 1


@case(example=ones)
def moves_the_tasks(x):
    """Moves the directories of all tasks."""
    move(scratch().parent)
    time.sleep(600)


@case(example=ones)
def puts_a_link_in_place_of_the_home(x):
    """Moves the home away, and links to somebody's directory instead, where the same names exist."""
    home, tasks = scratch().parent.parent, scratch().parent
    precious = home.parent.with_name("precious")
    for folder in ("cache", "tmp", tasks.name, f"{tasks.name}/{scratch().name}"):
        (precious / folder).mkdir(parents=True, exist_ok=True)
        (precious / folder / "file").write_text("precious")
    (precious / "owner").write_text("precious")
    move(home)
    home.symlink_to(precious)
    time.sleep(600)
