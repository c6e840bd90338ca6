"""The work of a matrix as data, and in the forms of engines: each is checked by its linter, and by rules it lacks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import REPOSITORY
from planted_images import PlantedImages

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.command.main import _run
from recapture.tools.fleet import commands
from recapture.tools.fleet.folder import attempts_of, prepare, published
from recapture.tools.fleet.slurm import QueuedTask, SlurmRun
from recapture.tools.fleet.slurm_script import SlurmOptions, array_scripts
from recapture.tools.fleet.work import MatrixWork, WorkTask
from recapture.tools.fleet.yaml_text import to_yaml


@pytest.fixture
def yaml():
    """PyYAML, which only these tests need."""
    return pytest.importorskip("yaml")


IMAGES = ("--image", "torch2.6.0-cu124,torch2.15.0-cu132")


def printed(capsys, *arguments):
    assert _run(["plan", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def program(name):
    """A linter beside this Python, or a skip."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def test_a_plan_has_a_task_for_each_image_gpu_and_part(capsys):
    options = ("--shards", 3, "--device", "cuda", "--gpu", "v100,h100", "control_flow", "-k", "not loop")
    work = json.loads(printed(capsys, *IMAGES, *options, "--json"))
    assert work == json.loads(printed(capsys, *IMAGES, *options, "--format", "json"))
    assert work["arguments"] == ["-k", "not loop", "control_flow"]
    names = [task["name"] for task in work["tasks"]]
    assert len(set(names)) == len(names) == 3 * (2 * 2 - len(work["left_out"]))
    assert any(line.startswith("torch2.15.0-cu132 on v100: ") for line in work["left_out"])
    assert "torch2.6.0-cu124.h100.3-of-3" in names


def test_a_plan_of_everything_has_every_image_and_what_earlier_runs_took(capsys):
    work = json.loads(printed(capsys, "--json"))
    assert len(work["images"]) == len(work["tasks"]) > 16
    known = [image for image in work["images"] if image["cells"]]
    assert known
    assert all(image["seconds"] > 0 for image in known)
    assert all(task["seconds"] > 0 for task in work["tasks"]), "an image that never ran counts as the mean"
    text = printed(capsys)
    assert f"{len(work['images'])} images, {len(work['tasks'])} tasks" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "--image", "torch2.6"], "no image 'torch2.6'"),
        (["plan", "--shards", "0"], "--shards"),
        (["plan", "--gpu", "h100"], "--gpu is for --device cuda"),
        (["plan", "--device", "cuda"], "needs the type of GPU"),
        (["plan", "--device", "cuda", "--gpu", "h1000"], "unknown type of GPU 'h1000'"),
        (["plan", "--device", "cuda", "--gpu", "v100", "--image", "torch2.15.0-cu132"], "no image runs on v100"),
        (["plan", "--format", "slurm"], "needs a --folder"),
        (["plan", "--folder", "x"], "needs a --folder"),
        (["plan", "--format", "slurm", "--folder", "a b"], "Slurm would misread this path"),
        (["plan", "--format", "slurm", "--folder", "x", "--sbatch", "--wrap=rm -rf"], "write one option"),
        (["plan", "--format", "kubernetes"], "choose --inside docker"),
        (["plan", "--format", "github", "--shards", "20"], "GitHub takes 256"),
        (["plan", "--shard", "1/2"], "--shards says how many"),
        (["plan", "--compiler", "fxx"], "unknown compiler 'fxx'"),
        (["plan", "no_such_suite"], "no_such_suite"),
        (["plan", "-k", "${{ x }}", "--format", "github"], ""),
        (["matrix", "--via", "slurm"], "needs a --folder"),
        (["matrix", "--shards", "2"], "--shards is for --via slurm"),
        (["matrix", "--partition", "x"], "--partition is for --via slurm"),
        (["matrix", "--shard", "1/2"], "--shard is for `recapture run`"),
    ],
)
def test_bad_input_is_one_line_and_makes_nothing(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert _run(arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_matrix_without_slurm_runs_every_image_and_resumes(tmp_path, monkeypatch, capsys):
    from recapture.images import environments
    from recapture.images.interpreter import Interpreter

    planted = PlantedImages(tmp_path)
    planted.use(monkeypatch)
    monkeypatch.setattr(environments, "EXPECTED_BYTES", 1 << 20)
    found = []

    def record(_self, *words):
        found.append(words)
        return 0

    monkeypatch.setattr(Interpreter, "recapture", record)
    assert _run(["matrix", "--image", "a,b", "--keep", "1", "--results", str(tmp_path / "r"), "types"]) == 0
    assert found == [("run", "--resume", "--results", str(tmp_path / "r"), "types")] * 2


def test_a_workflow_says_what_the_matrix_needs_and_passes_the_linter(yaml, tmp_path, capsys):
    text = printed(capsys, *IMAGES, *("--shards", 2, "--device", "cuda", "--gpu", "h100", "--format", "github"))
    workflow = yaml.safe_load(text.replace("\non:", '\n"on":'))
    shard = workflow["jobs"]["shard"]
    assert shard["strategy"]["fail-fast"] is False
    include = shard["strategy"]["matrix"]["include"]
    assert len(include) == 4
    assert all(job["runner"] == ["self-hosted", "linux", "h100"] for job in include)
    (step,) = (step for step in shard["steps"] if step.get("name") == "Run the shard")
    assert step["timeout-minutes"] < shard["timeout-minutes"], "so that what there is gets uploaded"
    assert "${{" not in step["run"], "values reach the shell as variables"
    assert all(
        "@" not in one["uses"] or len(one["uses"].split("@")[1]) == 40 for one in shard["steps"] if "uses" in one
    )
    assert workflow["jobs"]["merge"]["if"] == "${{ !cancelled() }}"
    file = tmp_path / ".github" / "workflows" / "matrix.yml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    (tmp_path / ".github" / "actionlint.yaml").write_text("self-hosted-runner:\n  labels: [h100]\n")
    config = ["-config-file", str(tmp_path / ".github" / "actionlint.yaml")]
    done = subprocess.run([program("actionlint"), *config, file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    file.write_text(text.replace("matrix.shards", "matrix.shardz"))
    done = subprocess.run([program("actionlint"), *config, file], capture_output=True, text=True, check=False)
    assert done.returncode == 1, "the linter sees a planted mistake"


def test_two_hundred_and_fifty_six_jobs_are_accepted_and_one_more_is_not(capsys):
    one = ("--image", "torch2.6.0-cu124", "--format", "github")
    assert printed(capsys, *one, "--shards", 256).count("- task: ") == 256
    assert _run(["plan", *one, "--shards", "257"]) == 2
    assert "257 jobs, and GitHub takes 256" in capsys.readouterr().err


@pytest.fixture
def jobs(yaml, capsys):
    text = printed(
        capsys,
        *("--image", "torch2.6.0-cu124,torch2.11.0-cu130", "--shards", 3, "--device", "cuda", "--gpu", "a100,h100"),
        *("--inside", "docker", "--registry", "registry.example/", "--format", "kubernetes", "-k", "a or b"),
    )
    return text, list(yaml.safe_load_all(text))


def test_kubernetes_accepts_the_jobs(jobs, tmp_path):
    text, documents = jobs
    assert len(documents) == 4
    file = tmp_path / "jobs.yaml"
    file.write_text(text)
    validate = program("kubernetes-validate")
    done = subprocess.run([validate, "--strict", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    file.write_text(text.replace("completions: 3", "completion: 3"))
    assert subprocess.run([validate, "--strict", file], capture_output=True, check=False).returncode != 0


def test_the_rules_of_jobs_that_no_schema_has(jobs):
    names = set()
    for job in jobs[1]:
        spec, pod = job["spec"], job["spec"]["template"]["spec"]
        name = job["metadata"]["name"]
        names.add(name)
        assert len(f"{name}-{spec['completions'] - 1}-xxxxx") <= 63
        assert not set(name) - set("abcdefghijklmnopqrstuvwxyz0123456789-")
        assert spec["completionMode"] == "Indexed"
        assert pod["restartPolicy"] == "Never"
        assert spec["podReplacementPolicy"] == "Failed"
        assert spec["backoffLimitPerIndex"] == 2
        assert 0 < spec["maxFailedIndexes"] <= spec["completions"]
        rules = spec["podFailurePolicy"]["rules"]
        assert 0 < len(rules) <= 20
        containers = {container["name"] for container in pod["containers"]}
        for rule in rules:
            assert ("onExitCodes" in rule) != ("onPodConditions" in rule)
            codes = rule.get("onExitCodes")
            if codes:
                assert codes["containerName"] in containers
                assert codes["values"] == sorted(set(codes["values"]))
                assert codes["operator"] != "In" or 0 not in codes["values"]
                assert 1 not in codes["values"], "what compilers did fails no shard"
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for one in pod["containers"] for mount in one["volumeMounts"]} == volumes
        assert pod["containers"][0]["image"].startswith("registry.example/recapture:torch")
    assert len(names) == len(jobs[1])


def test_the_program_of_a_job_publishes_by_one_rename(jobs, tmp_path):
    program = jobs[1][0]["spec"]["template"]["spec"]["containers"][0]["command"][2].replace("$$", "$")
    assert "$((JOB_COMPLETION_INDEX + 1))" in program
    assert "-k 'a or b'" in program
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "recapture"
    tool.write_text(FAKE)
    tool.chmod(0o755)
    program = program.replace("/results/", f"{tmp_path}/results/")
    variables = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "JOB_COMPLETION_INDEX": "1", "NODE": "n"}
    statuses = []
    for pod, mode in (("p0", "3"), ("p1", "0"), ("p2", "0")):
        words = ["sh", "-c", program]
        statuses.append(subprocess.run(words, env={**variables, "POD": pod, "MODE": mode}, check=False).returncode)
    assert statuses == [3, 0, 0]
    (shard,) = (tmp_path / "results" / "shards").iterdir()
    assert shard.name == "torch2.6.0-cu124.a100.2-of-3"
    assert sorted(path.name for path in (tmp_path / "results" / "attempts").iterdir()) == [f"{shard.name}.p0"]


def test_yaml_is_read_back_as_it_was(yaml):
    data = {
        "a": [1, True, "yes", "a: b", {"x": {}, "y": []}, ["p", "q" * 70]],
        "b": "one\ntwo\n",
        "c/d.e": None,
        "n": "12",
    }
    assert yaml.safe_load(to_yaml(data)) == data


FAKE = """#!/bin/sh
# recapture run …: records, and ends as $MODE wants.
while [ $# -gt 1 ]; do [ "$1" = --results ] && results=$2; shift; done
mkdir -p "$results/i/cpu"
case $MODE in
    hang) trap 'exit 143' TERM; touch "$results/i/cpu/conformance.partial.jsonl"; touch "$BEGUN"; while :; do sleep 0.05; done ;;
    partial) touch "$results/i/cpu/conformance.partial.jsonl"; exit 2 ;;
    usage) exit 2 ;;
    kill) kill -KILL $$ ;;
    race) echo mine > "$results/i/cpu/conformance.jsonl"; cp -r "$results" "$SHARD" ;;
    *) echo rows > "$results/i/cpu/conformance.jsonl"; exit "$MODE" ;;
esac
"""


class Script:
    """The script of an array, run without Slurm."""

    def __init__(self, folder: Path, monkeypatch) -> None:
        self.folder = folder / "work"
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name, text in (
            ("recapture", FAKE),
            ("scontrol", f"#!/bin/sh\necho $@ >> {folder}/requeued\n"),
        ):
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        self.requeued = folder / "requeued"
        here = type("Here", (), {"command": lambda _self, *words: [str(self.bin / "recapture"), *words]})
        monkeypatch.setattr(commands.Interpreter, "here", here)
        self.work = work(2)
        prepare(self.folder, self.work)
        text, indices = array_scripts(self.folder, self.work, SlurmOptions())["array.sbatch"]
        assert indices == [0, 1]
        self.script = self.folder / "array.sbatch"
        self.script.write_text(text)
        self.begun = folder / "begun"

    def start(self, mode, *, index=0, restarts=0, job=7):
        variables = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "MODE": mode,
            "BEGUN": str(self.begun),
            "SHARD": str(self.folder / "shards" / self.work.tasks[index].name),
            "SLURM_ARRAY_TASK_ID": str(index),
            "SLURM_ARRAY_JOB_ID": str(job),
            "SLURM_RESTART_COUNT": str(restarts),
            "SLURMD_NODENAME": "node1",
        }
        return subprocess.Popen(["bash", str(self.script)], env=variables, stderr=subprocess.PIPE, text=True)

    def run(self, mode, **options):
        with self.start(mode, **options) as process:
            _, self.err = process.communicate(timeout=60)
        return process.returncode

    def again(self):
        return self.requeued.read_text().splitlines() if self.requeued.exists() else []

    def attempts(self, index=0):
        return list(map(str, attempts_of(self.folder, self.work.tasks[index])))


def work(shards):
    tasks = [
        WorkTask(name=f"i.cpu.{n}-of-{shards}", image="i", device="cpu", gpu=None, shard=n, shards=shards, seconds=None)
        for n in range(1, shards + 1)
    ]
    return MatrixWork(device="cpu", via="venv", arguments=["-k", "a b"], images=[], tasks=tasks)


@pytest.fixture
def script(tmp_path, monkeypatch):
    return Script(tmp_path, monkeypatch)


@pytest.mark.parametrize("mode", ["0", "1", "2"])
def test_an_attempt_with_all_its_records_is_published_whatever_the_compilers_did(script, mode):
    assert script.run(mode) == 0
    assert published(script.folder, script.work.tasks[0])
    assert not published(script.folder, script.work.tasks[1])
    assert (script.attempts(), script.again()) == ([], [])
    assert script.run("3") == 0, "a shard that is there is not run again"
    assert script.attempts() == []


@pytest.mark.parametrize("mode", ["partial", "usage"])
def test_bad_input_is_neither_published_nor_tried_again(script, mode):
    assert script.run(mode, index=1) == 2
    assert script.attempts(1) == ["7_1.0 ended with exit status 2 on node1 after 0 cells"]
    assert script.again() == []


@pytest.mark.parametrize(("mode", "status"), [("3", 3), ("75", 75), ("kill", 137)])
def test_what_the_machine_broke_is_tried_again_twice(script, mode, status):
    for restarts in (0, 1, 2):
        assert script.run(mode, restarts=restarts) == status
    assert script.again() == ["requeue 7_0"] * 2
    assert script.run("0", restarts=3) == 3
    assert "given up after 3 attempts" in script.err
    assert len(script.attempts()) == 3


def test_an_attempt_that_is_told_to_end_closes_its_run_and_is_not_tried_again(script):
    with script.start("hang") as process:
        while not script.begun.exists():
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 143
    assert script.again() == []
    assert script.attempts() == ["7_0.0 ended with exit status 143 on node1 after 0 cells"]


def test_of_two_attempts_at_once_the_first_wins(script):
    assert script.run("race") == 0
    assert "another attempt was first" in script.err
    assert len(script.attempts()) == 1
    assert published(script.folder, script.work.tasks[0])


class FakeSlurm:
    """A controller whose jobs end at once, as planned."""

    def __init__(self, run, ends):
        self.run, self.ends, self.submitted, self.active, self.away = run, ends, [], {}, 0
        self.clock = 0.0
        self.said = []

    def submit(self, _scripts, wanted):
        self.submitted.append(list(wanted))
        self.run.submissions.update(wanted)
        for index in wanted:
            end = self.ends[index].pop(0)
            task = self.run.work.tasks[index].name
            attempt = self.run.folder / "attempts" / f"{task}.{len(self.submitted)}_{index}.0"
            if end == "published":
                (self.run.folder / "shards" / task).mkdir()
            elif end is not None:
                attempt.mkdir()
                if end == 143:
                    (attempt / "told").touch()
                if end != "silent":
                    (attempt / "attempt.json").write_text(
                        json.dumps({"schema": 1, "task": task, "status": end, "node": "n"})
                    )

    def jobs(self):
        if self.away:
            self.away -= 1
            raise EnvironmentUnfitError("squeue failed: nobody answers")
        return dict(self.active)


@pytest.fixture
def slurm(script, monkeypatch):
    said = []

    def make(*ends):
        run = SlurmRun(script.folder, script.work, SlurmOptions(), said.append)
        fake = FakeSlurm(run, list(map(list, ends)))
        run.sleep = lambda seconds: setattr(fake, "clock", fake.clock + seconds)
        run.clock = lambda: fake.clock
        monkeypatch.setattr(run, "_submit", fake.submit)
        monkeypatch.setattr(run, "_jobs", fake.jobs)
        fake.said = said
        return run, fake

    return make


@pytest.mark.parametrize(
    ("ends", "submitted"),
    [
        ((["published"], ["published"]), [[0, 1]]),
        ((["silent", 3, "published"], ["published"]), [[0, 1], [0], [0]]),
        ((["silent"] * 5, ["published"]), [[0, 1], [0], [0]]),
        (([143], ["published"]), [[0, 1]]),
        (([2], [None]), [[0, 1]]),
        (([137, 1], [75, "published"]), [[0, 1], [0, 1]]),
    ],
)
def test_a_submitter_submits_again_what_a_machine_broke_and_nothing_else(slurm, ends, submitted):
    run, fake = slurm(*ends)
    run.run()
    assert fake.submitted == submitted


def test_a_submitter_that_starts_again_finds_its_jobs(slurm):
    run, fake = slurm(["published"], ["published"])
    fake.active = {0: QueuedTask("5_0", "RUNNING", ""), 1: QueuedTask("5_1", "PENDING", "Priority")}

    def end(seconds):
        fake.clock += seconds
        if fake.clock > 5:
            fake.active = {}
            for task in run.work.tasks:
                (run.folder / "shards" / task.name).mkdir(exist_ok=True)

    run.sleep = end
    run.run()
    assert fake.submitted == []
    assert "0 of 2 shards done, 1 running, 1 waiting" in fake.said


def test_a_controller_that_is_away_is_waited_for_but_not_for_ever(slurm):
    run, fake = slurm(["published"], [3, "published"])
    real = run.sleep
    fake.away = 0

    def sleep(seconds):
        real(seconds)
        if fake.clock < 3:
            fake.away = 2

    run.sleep = sleep
    run.run()
    assert fake.submitted == [[0, 1], [1]]
    assert any("waiting for it" in line for line in fake.said)
    run, fake = slurm(["published"], ["published"])
    fake.away = 1
    with pytest.raises(EnvironmentUnfitError, match="nobody answers"):
        run.run()


def test_a_folder_of_other_work_is_refused_and_of_the_same_work_is_used_again(script):
    assert prepare(script.folder, script.work) is False
    with pytest.raises(UsageError, match="has other work"):
        prepare(script.folder, work(3))
    (script.folder / "plan.json").write_text("{}")
    with pytest.raises(UsageError, match=r"plan\.json: "):
        prepare(script.folder, script.work)


def test_without_slurm_the_status_is_that_of_an_unfit_machine(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    arguments = ["--image", "torch2.6.0-cu124", "--folder", str(tmp_path / "work"), "types"]
    assert _run(["matrix", "--via", "slurm", *arguments]) == 3
    assert capsys.readouterr().err.splitlines()[-1].startswith("recapture: squeue is not on PATH")


def test_merging_a_folder_names_the_shards_that_are_not_there(script, capsys):
    script.run("3")
    shutil.copytree(REPOSITORY / "results" / "torch2.6.0-cu124", script.folder / "shards" / "i.cpu.2-of-2" / "x")
    assert _run(["merge", str(script.folder), "--results", str(script.folder / "m")]) == 2
    err = capsys.readouterr().err
    assert "missing: shard i.cpu.1-of-2: 7_0.0 ended with exit status 3 on node1 after 0 cells" in err
