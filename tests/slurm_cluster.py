"""A Slurm cluster of a few nodes on this machine, from Debian's packages, without services and without /etc."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

SYSTEM = "/usr/sbin:/sbin"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")

# No cgroups and no task binding, which a container may lack. A node that does not answer is given up after 5 seconds.
CONFIGURATION = """\
ClusterName=planted
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
SlurmdTimeout=5
KillWait=60
InactiveLimit=0
ReturnToService=1
GresTypes=gpu
"""


def installed() -> bool:
    """Whether the programs of Slurm are there; `.ci/slurm` installs them."""
    path = os.pathsep.join([os.environ["PATH"], SYSTEM])
    return all(shutil.which(name, path=path) for name in PROGRAMS)


class Cluster:
    """Two nodes with four processors each; ``gpu`` has one A100, as far as Slurm knows."""

    nodes = ("cpu", "gpu")

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # short: the path of a socket has at most 107 characters
        for name in ("log", "run", "state", "munge", *(f"spool/{node}" for node in self.nodes)):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "munge").chmod(0o755)
        self.folder.chmod(0o755)
        self.variables = {
            **os.environ,
            "PATH": os.pathsep.join([os.environ["PATH"], SYSTEM]),
            "SLURM_CONF": str(self.folder / "slurm.conf"),
        }
        self._configure()
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        munge = self.folder / "munge"
        self._call(
            "munged",
            f"--key-file={key}",
            f"--socket={munge / 'socket'}",
            f"--pid-file={self.folder / 'run' / 'munged.pid'}",
            f"--log-file={self.folder / 'log' / 'munged.log'}",
            f"--seed-file={munge / 'seed'}",
        )
        self._call("slurmctld", "-i")
        for node in self.nodes:
            self._call("slurmd", "-N", node)
        self.until(lambda: len(self("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").split()) == len(self.nodes))

    def _configure(self) -> None:
        host, ports = socket.gethostname().partition(".")[0], _free_ports(1 + len(self.nodes))
        lines = [CONFIGURATION.format(host=host, port=ports[0], user=getpass.getuser(), folder=self.folder)]
        for node, port in zip(self.nodes, ports[1:], strict=True):
            gres = " Gres=gpu:a100:1 Feature=a100" if node == "gpu" else ""
            lines.append(
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 State=UNKNOWN{gres}\n"
            )
        lines.append(f"PartitionName=all Nodes={','.join(self.nodes)} Default=YES MaxTime=120 State=UP\n")
        (self.folder / "slurm.conf").write_text("".join(lines), encoding="utf-8")
        # Slurm counts no GPU without a file; any character device will do.
        gres = "AutoDetect=off\nNodeName=gpu Name=gpu Type=a100 File=/dev/null\n"
        (self.folder / "gres.conf").write_text(gres, encoding="utf-8")

    def __call__(self, *words: str) -> str:
        """Run a command of Slurm and return what it prints."""
        return self._call(*words).stdout

    def _call(self, *words: str) -> subprocess.CompletedProcess[str]:
        program = shutil.which(words[0], path=self.variables["PATH"]) or words[0]
        log = self.folder / "log" / "commands.log"
        with log.open("a+", encoding="utf-8") as err:  # a daemon would keep a pipe open
            begin = err.tell()
            done = subprocess.run(
                [program, *words[1:]],
                env=self.variables,
                stdout=subprocess.PIPE if words[0][0] == "s" and words[0] not in ("slurmd", "slurmctld") else err,
                stderr=err,
                text=True,
                check=False,
                timeout=60,
            )
            err.seek(begin)
            assert done.returncode == 0, (words, err.read())
        return done

    def until(self, true, seconds: float = 300.0) -> None:
        """Wait until something is true."""
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, self("squeue", "-t", "all", "-r") + self("sinfo", "-N", "-l")
            time.sleep(0.1)

    def jobs(self, *states: str) -> dict[int, str]:
        """The job of each index of arrays, such as ``7_3``, that is in one of these states."""
        listed = self("squeue", "-h", "-r", *(("-t", ",".join(states)) if states else ()), "-o", "%K %F_%K")
        return {int(index): job for index, job in (line.split() for line in listed.splitlines())}

    def nodes_of(self) -> dict[int, str]:
        """The node that each running index of arrays is on."""
        listed = self("squeue", "-h", "-r", "-t", "running", "-o", "%K %N")
        return {int(index): node for index, node in (line.split() for line in listed.splitlines())}

    def hurry(self) -> None:
        """Let requeued jobs start now, not in two minutes."""
        for line in self("squeue", "-h", "-r", "-t", "pending", "-o", "%F_%K %r").splitlines():
            job, reason = line.split(None, 1)
            if reason == "BeginTime":
                subprocess.run(
                    ["scontrol", "update", f"jobid={job}", "StartTime=now"], env=self.variables, check=False, timeout=60
                )

    def processes(self, index: int) -> list[int]:
        """The processes of a task of an array."""
        process_ids = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                variables = (process / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if f"SLURM_CONF={self.variables['SLURM_CONF']}".encode() in variables and (
                f"SLURM_ARRAY_TASK_ID={index}".encode() in variables
            ):
                process_ids.append(int(process.name))
        return process_ids

    def stop(self) -> None:
        """End every job and daemon, and remove the folder."""
        subprocess.run(
            ["scancel", "--signal=KILL", "-u", getpass.getuser()], env=self.variables, check=False, timeout=60
        )
        subprocess.run(["scancel", "-u", getpass.getuser()], env=self.variables, check=False, timeout=60)
        for name in (*self.nodes, "slurmctld", "munged"):
            pid = self.folder / "run" / f"{name}.pid"
            if pid.is_file():
                _end(int(pid.read_text()))
        for process in Path("/proc").glob("[0-9]*"):  # what jobs left behind
            try:
                variables = (process / "environ").read_bytes().split(b"\0")
                if (
                    f"SLURM_CONF={self.variables['SLURM_CONF']}".encode() in variables
                    and int(process.name) != os.getpid()
                ):
                    os.kill(int(process.name), signal.SIGKILL)
            except OSError:
                continue
        shutil.rmtree(self.folder, ignore_errors=True)


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
        for _ in range(100):
            os.kill(pid, 0)
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    try:
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]
    finally:
        for listener in sockets:
            listener.close()
