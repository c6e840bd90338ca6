"""The work of a matrix as data, and in the forms of engines: each is checked by its linter, and by rules it lacks."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import REPOSITORY
from planted_images import PlantedImages
from planted_shards import PlantedShards

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.command.main import _run
from recapture.run.attempts import attempts_of, is_published
from recapture.tools.fleet import slurm as slurm_module
from recapture.tools.fleet.engines import RETRIES
from recapture.tools.fleet.slurm import QueuedTask, SlurmOptions, SlurmRun, sbatch_commands
from recapture.tools.fleet.work import MatrixWork, WorkTask, attempts_at, prepare, task_is_published

EXAMPLES = REPOSITORY / "examples" / "fleet"


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
    path = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


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
        (["plan", "-k", "nothing_has_this_name"], "nothing to plan: no case matches the selection"),
        (["plan", "control_flow::gone"], "nothing to plan: no case matches the selection"),
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
        (["plan", "--partition", "gpu\ncommand"], "--partition 'gpu\\ncommand': a partition's name has no white space"),
        (["plan", "--format", "slurm", "--folder", "x", "--sbatch", "--account=a\n--wrap=b"], "write one option"),
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
    commands = []

    def record(_self, *words):
        commands.append(words)
        return 0

    monkeypatch.setattr(Interpreter, "recapture", record)
    assert _run(["matrix", "--image", "a,b", "--keep", "1", "--results", str(tmp_path / "r"), "types"]) == 0
    assert commands == [("run", "--resume", "--results", str(tmp_path / "r"), "types")] * 2


def matrix_of(capsys, *arguments):
    return json.loads(printed(capsys, *arguments, "--format", "github"))


def linted(tmp_path, text):
    """What the linter says about a workflow, in a checkout with runners that have the label of a GPU."""
    file = tmp_path / ".github" / "workflows" / "matrix.yml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return subprocess.run([program("actionlint"), file], capture_output=True, text=True, check=False)


def test_the_workflow_passes_its_linter_which_sees_planted_mistakes(tmp_path):
    text = (EXAMPLES / "matrix.yml").read_text()
    done = linted(tmp_path, text)
    assert (done.returncode, done.stdout) == (0, "")
    for right, wrong in (
        ("needs.plan.outputs.matrix", "needs.plans.outputs.matrix"),
        ("steps.plan.outputs.matrix", "steps.planned.outputs.matrix"),
        ("timeout-minutes: 10", "timeout-minute: 10"),
        ("fromJSON(", "fromJSN("),
    ):
        assert right in text
        assert linted(tmp_path, text.replace(right, wrong)).returncode == 1, wrong


def test_the_workflow_uses_what_the_plan_prints_and_no_value_is_part_of_a_script(yaml, capsys):
    workflow = yaml.safe_load((EXAMPLES / "matrix.yml").read_text())
    shard = workflow["jobs"]["shard"]
    entries = matrix_of(capsys, *IMAGES, *("--shards", 2, "--device", "cuda", "--gpu", "h100", "-k", "not loop"))[
        "include"
    ]
    assert len(entries) == 4
    assert all(entry["runner"] == ["self-hosted", "linux", "h100"] for entry in entries)
    assert all(entry["arguments"] == ["-k", "not loop"] for entry in entries)
    assert all(entry["minutes"] < entry["job_minutes"] for entry in entries), "so that what there is gets uploaded"
    named = set(re.findall(r"matrix\.(\w+)", json.dumps(shard)))
    assert named == set(entries[0]), "the file uses each value, and no other"
    assert shard["strategy"]["fail-fast"] is False
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert all("${{" not in step["run"] for step in steps if "run" in step), "values reach the shell as variables"
    assert all(len(step["uses"].split("@")[1]) == 40 for step in steps if "uses" in step), "actions are pinned"
    assert workflow["jobs"]["merge"]["if"] == "${{ !cancelled() }}"


@pytest.mark.parametrize(
    ("modes", "status", "attempts"),
    [(["0"], 0, []), (["3", "3", "0"], 0, [3, 3]), (["3"] * 4, 3, [3] * 3), (["usage"], 2, [2])],
)
def test_a_job_of_the_workflow_runs_its_shard_again_where_the_machine_is_unfit(
    yaml, planted, monkeypatch, capsys, modes, status, attempts
):
    """The step's own script runs, with the real protocol and a planted run."""
    workflow = yaml.safe_load((EXAMPLES / "matrix.yml").read_text())
    (script,) = (step["run"] for step in workflow["jobs"]["shard"]["steps"] if step.get("name") == "Run the shard")
    planted.images.use(monkeypatch)
    entry = matrix_of(capsys, "--image", "a", "--shards", 2, "-k", "one or two")["include"][1]
    (planted.root / ".venv" / "bin").mkdir(parents=True)
    planted.command.rename(planted.root / ".venv" / "bin" / "recapture")
    planted.modes(*modes)
    results = planted.root / "results"
    values = {name.upper(): entry[name] for name in ("image", "via", "device", "shard")}
    variables = {**planted.variables, **values, "ARGUMENTS": json.dumps(entry["arguments"]), "RESULTS": str(results)}
    done = subprocess.run(["bash", "-ec", script], env=variables, cwd=planted.root, check=False)
    assert done.returncode == status
    name = "a.cpu.2-of-2"
    assert is_published(results, name) == (status == 0)
    assert [attempt.status for attempt in attempts_of(results, name)] == attempts
    assert planted.arguments_of_runs()[0][-2:] == ["-k", "one or two"]


def test_two_hundred_and_fifty_six_jobs_are_accepted_and_one_more_is_not(capsys):
    assert len(matrix_of(capsys, "--image", "torch2.6.0-cu124", "--shards", 256)["include"]) == 256
    assert _run(["plan", "--image", "torch2.6.0-cu124", "--format", "github", "--shards", "257"]) == 2
    assert "257 jobs, and GitHub takes 256" in capsys.readouterr().err


def merged(document, patch):
    """A document with a strategic merge patch: lists of named members are merged by name, and null removes."""
    if isinstance(document, dict) and isinstance(patch, dict):
        combined = {**document, **{key: merged(document.get(key), value) for key, value in patch.items()}}
        return {key: value for key, value in combined.items() if value is not None}
    if isinstance(patch, list) and patch and isinstance(patch[0], dict) and "name" in patch[0]:
        before = {member["name"]: member for member in document or []}
        return list({**before, **{item["name"]: merged(before.get(item["name"]), item) for item in patch}}.values())
    return patch


@pytest.fixture
def jobs(yaml, tmp_path, capsys):
    """The example file, and what becomes of it with each patch: two images on a CPU and on two types of GPU."""
    cases = tmp_path / "$(b).py"
    cases.touch()
    example = yaml.safe_load((EXAMPLES / "job.yaml").read_text())
    common = ("--image", "torch2.6.0-cu124,torch2.11.0-cu130", "--shards", 3, "--inside", "docker")
    documents = [example]
    for device in (("--device", "cuda", "--gpu", "a100,h100"), ()):
        words = (*common, *device, "--registry", "registry.example/", "--format", "kubernetes", cases, "-k", "a or b")
        documents += [merged(example, json.loads(line)) for line in printed(capsys, *words).splitlines()]
    return documents


def test_kubernetes_accepts_the_job_and_the_patched_jobs(jobs, tmp_path):
    assert len(jobs) == 1 + 4 + 2
    file = tmp_path / "jobs.yaml"
    validate = program("kubernetes-validate")
    for text in ((EXAMPLES / "job.yaml").read_text(), "---\n".join(f"{json.dumps(job)}\n" for job in jobs)):
        file.write_text(text)
        done = subprocess.run([validate, "--strict", file], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    file.write_text((EXAMPLES / "job.yaml").read_text().replace("completions: 8", "completion: 8"))
    assert subprocess.run([validate, "--strict", file], capture_output=True, check=False).returncode != 0


def test_the_rules_of_jobs_that_no_schema_has(jobs):
    names = set()
    for job in jobs:
        spec, pod = job["spec"], job["spec"]["template"]["spec"]
        name = job["metadata"]["name"]
        names.add(name)
        assert len(f"{name}-{spec['completions'] - 1}-xxxxx") <= 63
        assert not set(name) - set("abcdefghijklmnopqrstuvwxyz0123456789-")
        assert spec["completionMode"] == "Indexed"
        assert pod["restartPolicy"] == "Never"
        assert spec["podReplacementPolicy"] == "Failed"
        assert spec["backoffLimitPerIndex"] == RETRIES
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
        assert {
            mount["name"] for job_container in pod["containers"] for mount in job_container["volumeMounts"]
        } == volumes
        (container,) = pod["containers"]
        assert container["image"].startswith("registry.example/recapture:torch")
        environment = {variable["name"]: variable["value"] for variable in container["env"]}
        assert int(environment["SHARDS"]) == spec["completions"] == spec["parallelism"]
        on_gpu = "cuda" in container["args"]
        assert on_gpu == ("nodeSelector" in pod) == ("nvidia.com/gpu" in container["resources"]["limits"])
        assert container["resources"]["limits"]["memory"] == "32Gi"
    assert len(names) == len(jobs)


def test_the_command_of_a_job_publishes_its_shard(jobs, planted):
    """The kubelet's expansion is done here; the shell, the protocol and the planted run are real."""
    pod = jobs[1]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][:4] == ["--device", "cuda", "-k", "a or b"]
    assert container["args"][4].endswith("/$$(b).py")
    words = [word.replace("$$", "$") for word in (*container["command"], "--device", "cpu", *container["args"][2:])]
    words = [word.replace("/results/", f"{planted.root}/results/") for word in words]
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    planted.modes("3", "0", "0")
    variables = {**planted.variables, **environment, "JOB_COMPLETION_INDEX": "1"}
    statuses = [subprocess.run(words, env=variables, check=False).returncode for _ in range(3)]
    assert statuses == [3, 0, 0]
    requested = [[*line[-3:-1], Path(line[-1]).name] for line in planted.arguments_of_runs()]
    assert requested == [["-k", "a or b", "$(b).py"]] * 2, "the third finds the shard published"
    folder = planted.root / "results" / "a100"
    name = "a.cpu.2-of-3"
    assert is_published(folder, name)
    assert [attempt.status for attempt in attempts_of(folder, name)] == [3]


@pytest.fixture
def planted(tmp_path):
    """A command whose runs end as a test wants."""
    return PlantedShards(tmp_path)


class Script:
    """The shipped script of an array, run without Slurm as the printed command line would."""

    def __init__(self, planted, monkeypatch) -> None:
        self.planted = planted
        self.folder = planted.root / "work"
        self.requeued = planted.root / "requeued"
        scontrol = planted.root / "bin" / "scontrol"
        scontrol.write_text(f"#!/bin/sh\necho $@ >> {self.requeued}\n")
        scontrol.chmod(0o755)
        interpreter = type("Here", (), {"command": lambda _self, *words: [str(planted.command), *words[1:]]})
        monkeypatch.setattr(slurm_module.Interpreter, "here", interpreter)
        self.work = work(2)
        prepare(self.folder, self.work)
        ((words, indices),) = sbatch_commands(self.folder, self.work, SlurmOptions())
        assert indices == [0, 1]
        assert "--array=0-1" in words
        self.words = words[words.index(str(EXAMPLES / "shard.sbatch")) :]

    def start(self, mode, *, index=0, restarts=0, job=7):
        self.planted.modes(mode)
        variables = {
            **self.planted.variables,
            "SLURM_ARRAY_TASK_ID": str(index),
            "SLURM_ARRAY_JOB_ID": str(job),
            "SLURM_RESTART_COUNT": str(restarts),
            "SLURMD_NODENAME": "node1",
        }
        return subprocess.Popen(["bash", *self.words], env=variables, stderr=subprocess.PIPE, text=True)

    def run(self, mode, **options):
        with self.start(mode, **options) as process:
            _, self.err = process.communicate(timeout=60)
        return process.returncode

    def again(self):
        return self.requeued.read_text().splitlines() if self.requeued.exists() else []

    def attempts(self, index=0):
        return list(map(str, attempts_at(self.folder, self.work.tasks[index])))

    def published(self, index=0):
        return task_is_published(self.folder, self.work.tasks[index])


def work(shards):
    tasks = [
        WorkTask(name=f"a.cpu.{n}-of-{shards}", image="a", device="cpu", gpu=None, shard=n, shards=shards, seconds=None)
        for n in range(1, shards + 1)
    ]
    return MatrixWork(device="cpu", via="venv", arguments=["-k", "a or b"], images=[], tasks=tasks)


@pytest.fixture
def script(planted, monkeypatch):
    return Script(planted, monkeypatch)


def test_the_shell_accepts_the_script():
    subprocess.run(["bash", "-n", EXAMPLES / "shard.sbatch"], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", EXAMPLES / "shard.sbatch"], check=True)


def test_every_task_has_its_options_and_the_arguments_of_all(script):
    assert script.run("0", index=1) == 0
    folder = str(script.folder)
    (words,) = script.planted.arguments_of_runs()
    assert words == [
        *("run", "--durations", f"{folder}/durations.jsonl", "--via", "venv", "--image", "a", "--device", "cpu"),
        *("--shard", "2/2", "--publish", f"{folder}/cpu", "-k", "a or b"),
    ]
    assert script.run("0", index=2) == 2
    assert "no task 2" in script.err


@pytest.mark.parametrize("mode", ["0", "1", "2"])
def test_an_attempt_with_all_its_records_is_published_whatever_the_compilers_did(script, mode):
    assert script.run(mode) == 0
    assert script.published(0)
    assert not script.published(1)
    assert (script.attempts(), script.again()) == ([], [])
    assert script.run("3") == 0, "a shard that is there is not run again"
    assert script.attempts() == []


@pytest.mark.parametrize("mode", ["partial", "empty", "usage"])
def test_bad_input_is_neither_published_nor_tried_again(script, mode):
    assert script.run(mode, index=1) == 2
    cells = "1 cell" if mode == "partial" else "0 cells"
    assert script.attempts(1) == [f"attempt 1 ended with exit status 2 on node1 after {cells}"]
    assert script.again() == []


@pytest.mark.parametrize(("mode", "status"), [("3", 3), ("75", 75), ("kill", 137), ("short", 3)])
def test_what_the_machine_broke_is_tried_again_twice(script, mode, status):
    for restarts in (0, 1, 2):
        assert script.run(mode, restarts=restarts) == status
    assert script.again() == ["requeue 7_0"] * 2
    assert script.run("0", restarts=3) == 3
    assert "given up after 3 attempts" in script.err
    assert len(script.attempts()) == 3


def test_an_attempt_that_is_told_to_end_closes_its_run_and_is_not_tried_again(script):
    with script.start("hang") as process:
        while not script.planted.begun.exists():
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 143
    assert script.again() == []
    assert script.attempts() == ["attempt 1 ended with exit status 143 on node1 after 1 cell"]
    (attempt,) = attempts_at(script.folder, script.work.tasks[0])
    assert attempt.told


def test_of_two_attempts_at_once_the_first_wins(script):
    assert script.run("race") == 0
    assert "another attempt was published first" in script.err
    assert len(script.attempts()) == 1
    assert [path.name for path in (script.folder / "cpu" / "shards" / "a.cpu.1-of-2").iterdir()] == ["first"]


class FakeSlurm:
    """A controller whose jobs end at once, as planned."""

    def __init__(self, run, ends):
        self.run, self.ends, self.submitted, self.active, self.away = run, ends, [], {}, 0
        self.clock = 0.0
        self.said = []

    def submit(self, wanted):
        self.submitted.append(list(wanted))
        self.run.submissions.update(wanted)
        for index in wanted:
            end = self.ends[index].pop(0)
            task = self.run.work.tasks[index]
            folder, name = task.folder(self.run.folder), task.shard_name
            attempt = folder / "attempts" / f"{name}.{len(self.submitted)}"
            if end == "published":
                (folder / "shards" / name).mkdir(parents=True)
            elif end is not None:
                attempt.mkdir(parents=True)
                if end == 143:
                    (attempt / "told").touch()
                if end != "silent":
                    (attempt / "attempt.json").write_text(
                        json.dumps({"schema": 1, "task": name, "status": end, "node": "n"})
                    )

    def jobs(self):
        if self.away:
            self.away -= 1
            raise EnvironmentUnfitError("squeue failed: nobody answers")
        return dict(self.active)


@pytest.fixture
def slurm(script, monkeypatch):
    messages = []

    def make(*ends):
        run = SlurmRun(script.folder, script.work, SlurmOptions(), messages.append)
        fake = FakeSlurm(run, list(map(list, ends)))
        run.sleep = lambda seconds: setattr(fake, "clock", fake.clock + seconds)
        run.clock = lambda: fake.clock
        monkeypatch.setattr(run, "_submit", fake.submit)
        monkeypatch.setattr(run, "_jobs", fake.jobs)
        fake.said = messages
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
        (([0, "published"], ["published"]), [[0, 1], [0]]),
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
                (task.folder(run.folder) / "shards" / task.shard_name).mkdir(parents=True, exist_ok=True)

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
    shard = script.folder / "cpu" / "shards" / "a.cpu.2-of-2"
    shutil.copytree(REPOSITORY / "results" / "torch2.6.0-cu124", shard / "x")
    assert _run(["merge", str(script.folder), "--results", str(script.folder / "m")]) == 2
    err = capsys.readouterr().err
    assert "missing: shard a.cpu.1-of-2: attempt 1 ended with exit status 3 on node1 after 0 cells" in err
