"""A real SLURM of one machine (cluster/start.sh), and a copy of the checkout in which Snakemake runs on it.

Without SLURM, without the rights of root or beside another cluster the tests skip and say why. They change nodes and
daemons, so they run in one process, one after the other.
"""

import contextlib
import dataclasses
import fcntl
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.workflow.conftest import Checkout

HERE = Path(__file__).parent
SCRIPTS = HERE / "cluster"
CONFIGURATION = Path("/etc/slurm/slurm.conf")
LOCK = Path(tempfile.gettempdir()) / "slurm-ci.lock"
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "scontrol")
NODES = ("gpu-v100-01", "gpu-a100-01", "gpu-h100-01", "cpu-01")
LIVE = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED"}
WELL = {"idle", "mixed", "allocated"}
# Seconds between two looks of Snakemake at its jobs.
POLL_S = "0.5"


def until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Wait until `condition` holds; fail, naming `what` was waited for, after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.2)


def signal_job(log: str, number: signal.Signals) -> None:
    """Send a signal to the process that writes a log, which its first line names: SIGSTOP makes a job hang."""
    os.kill(int(re.search(r"started on \S+, process (\d+)", log)[1]), number)


def end_processes(folder: Path) -> None:
    """kill -9 what works in `folder`: of a job whose node was set DOWN SLURM without cgroups forgets some processes."""
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if os.readlink(entry) == str(folder):
                os.kill(int(entry.parent.name), signal.SIGKILL)


def forget_logs(study: "SlurmCheckout") -> None:
    """Remove the logs of earlier jobs, so that those of the next ones can be waited for."""
    for path in (study.root / "results/logs").rglob("*.log"):
        path.unlink()


@dataclasses.dataclass(frozen=True)
class SlurmJob:
    """A job as SLURM has it on record.

    `cell` is the comment: the rule and its wildcards, joined by underscores; `asked` the GPU, `memory` is in MB;
    `alone`: no other job may run on its node.
    """

    id: str
    state: str
    reason: str
    cell: str
    partition: str
    nodes: str
    folder: str
    submitted: str
    asked: str
    memory: int
    alone: bool

    @property
    def lives(self) -> bool:
        """Whether it waits or runs."""
        return self.state in LIVE


class Cluster:
    """The cluster of start.sh: its jobs and nodes."""

    def ask(self, *words: str, timeout: float = 30) -> str:
        """Run a command of SLURM; what it printed."""
        result = subprocess.run(words, capture_output=True, text=True, timeout=timeout)
        assert result.returncode == 0, f"{words}: {result.stdout}{result.stderr}"
        return result.stdout

    def jobs(self, folder: Path | None = None) -> list[SlurmJob]:
        """The jobs that were ever submitted, from `folder` alone if it is given, in their order."""
        text = self.ask("scontrol", "show", "job", "-o", "-d")
        found = []
        for line in text.splitlines():
            fields = dict(re.findall(r"(?:^| )([A-Z][\w:/]*)=(.*?)(?= [A-Z][\w:/]*=|\s*$)", line))
            if "JobId" not in fields:
                continue  # there are none
            job = SlurmJob(
                id=fields["JobId"],
                state=fields["JobState"],
                reason=fields["Reason"],
                cell=fields.get("Comment", "").removeprefix("rule_").replace("_wildcards_", " ").strip(),
                partition=fields["Partition"],
                nodes=fields.get("NodeList", ""),
                folder=fields["WorkDir"],
                submitted=fields["SubmitTime"],
                asked=" ".join(fields.get(key, "") for key in ("TresPerJob", "TresPerNode")).strip(),
                memory=int(fields["MinMemoryNode"].removesuffix("M")) if "MinMemoryNode" in fields else 0,
                alone=fields["OverSubscribe"] == "NO",
            )
            if folder is None or job.folder == str(folder):
                found.append(job)
        return found

    def live(self, folder: Path | None = None) -> list[SlurmJob]:
        """Those that wait or run."""
        return [job for job in self.jobs(folder) if job.lives]

    def cancel(self, job: SlurmJob) -> None:
        """scancel."""
        self.ask("scancel", job.id)

    def node(self, name: str, state: str) -> None:
        """Set a node DOWN (its jobs fail) or DRAIN (it takes no others)."""
        self.ask("scontrol", "update", f"nodename={name}", f"state={state}", "reason=a test")

    def node_states(self) -> dict[str, str]:
        """Node to its state, as idle or down."""
        return dict(line.split() for line in self.ask("sinfo", "-h", "-N", "-o", "%N %T").splitlines())

    def mend_nodes(self) -> None:
        """Bring all nodes back, those that did not come back by themselves."""
        for name, state in self.node_states().items():
            if state not in WELL:
                # It may have come back just now.
                subprocess.run(["scontrol", "update", f"nodename={name}", "state=RESUME"], timeout=30)
        until(lambda: set(self.node_states().values()) <= WELL, 60, "nodes that take jobs")

    def up(self) -> bool:
        """Whether the controller answers."""
        return subprocess.run(["scontrol", "ping"], capture_output=True, timeout=30).returncode == 0

    def stop_controller(self) -> None:
        """End slurmctld; the nodes and what runs on them go on."""
        (line,) = re.findall(r"^SlurmctldPidFile=(.*)$", CONFIGURATION.read_text(), re.MULTILINE)
        pid = int(Path(line).read_text())
        os.kill(pid, signal.SIGTERM)
        until(lambda: not Path(f"/proc/{pid}").exists(), 20, "the end of slurmctld")

    def start_controller(self) -> None:
        """Start slurmctld again, with the jobs that it knew."""
        subprocess.run(["slurmctld"], check=True, timeout=20)
        until(self.up, 20, "slurmctld")

    @contextlib.contextmanager
    def forgetful(self) -> Iterator[None]:
        """In the block the controller forgets what has ended after some seconds."""
        before = CONFIGURATION.read_text()
        try:
            CONFIGURATION.write_text(re.sub("MinJobAge=.*", "MinJobAge=5", before))
            self.ask("scontrol", "reconfigure")
            yield
        finally:
            CONFIGURATION.write_text(before)
            self.ask("scontrol", "reconfigure")

    def tidy(self, folder: Path) -> None:
        """End all jobs of `folder`, and bring nodes and controller back."""
        if not self.up():
            self.start_controller()
        left = [job.id for job in self.live(folder)]
        if left:
            self.ask("scancel", *left)
        until(lambda: not self.live(folder), 60, "the end of the jobs")
        end_processes(folder)
        self.mend_nodes()


class Run:
    """Snakemake at work in a checkout, in a process group of its own."""

    def __init__(self, checkout: "SlurmCheckout", command: list[str], environment: dict[str, str]) -> None:
        self.output = checkout.root.with_name(f"{checkout.root.name} {time.monotonic_ns()}.txt")
        with open(self.output, "w", encoding="utf-8") as stream:
            self.process = subprocess.Popen(
                command,
                cwd=checkout.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # A shell starts what runs in its background deaf to Ctrl-C, and the tests may be there.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    @property
    def text(self) -> str:
        """What was printed so far."""
        return self.output.read_text(encoding="utf-8", errors="replace")

    def wait(self, seconds: float = 240) -> int:
        """The exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"Snakemake did not end within {seconds:.0f} s:\n{self.text}")

    def until(self, condition: Callable[[], object], what: str, seconds: float = 90) -> None:
        """Wait for `condition` while Snakemake runs."""
        until(lambda: condition() or self.process.poll() is not None, seconds, f"{what}:\n{self.text}")
        assert condition(), f"Snakemake ended before {what}:\n{self.text}"

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to Snakemake and its children, as a terminal does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """kill -9."""
        self.signal(signal.SIGKILL)
        self.process.wait(10)


class SlurmCheckout(Checkout):
    """A copy of the checkout in which Snakemake runs on the cluster."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        for part in ("slurm", "study.yaml"):
            source = HERE.parent.parent / part
            if source.is_dir():
                shutil.copytree(source, root / part, dirs_exist_ok=True)
            else:
                shutil.copy(source, root / part)
        for name in ("tiny.yaml", "site.yaml"):
            shutil.copy(HERE / name, root / name)
        self.runs: list[Run] = []
        # Those of the run that made it, kept before a test lets the controller forget them.
        self.jobs: list[SlurmJob] = []

    @classmethod
    def copy(cls, other: "SlurmCheckout", root: Path) -> "SlurmCheckout":
        """A copy of another one with all that it has made, times of the files included."""
        shutil.copytree(other.root, root, symlinks=True)
        return cls._at(root)

    @classmethod
    def clone(cls, other: "SlurmCheckout", root: Path) -> "SlurmCheckout":
        """A copy of what another one began with, as if it were checked out now."""
        made = shutil.ignore_patterns("results", ".snakemake", "__pycache__")
        shutil.copytree(other.root, root, symlinks=True, ignore=made, copy_function=shutil.copy)
        return cls._at(root)

    @classmethod
    def _at(cls, root: Path) -> "SlurmCheckout":
        made = cls.__new__(cls)
        made.root, made.python, made.runs, made.jobs = root, root / ".venv" / "bin" / "python", [], []
        return made

    def configure(self, file: str, **sections: dict[str, object]) -> None:
        """Lay keys over sections of a file of settings."""
        path = self.root / file
        settings = yaml.safe_load(path.read_text())
        for section, keys in sections.items():
            settings.setdefault(section, {}).update(keys)
        path.write_text(yaml.safe_dump(settings))

    def site(self) -> dict[str, dict[str, object]]:
        """What site.yaml holds."""
        return yaml.safe_load((self.root / "site.yaml").read_text())

    def command(self, *words: str) -> list[str]:
        """The command, targets and options of `words` in it."""
        return [
            *(str(self.python), "-m", "snakemake", *words, "--profile", "slurm"),
            *("--slurm-init-seconds-before-status-checks", "1", "--latency-wait", "10"),
            *("--configfile", "tiny.yaml", "site.yaml"),
        ]

    def environment(self) -> dict[str, str]:
        """That of the tests, with the short time between looks at the jobs."""
        return os.environ | {"PYTHONPATH": str(SCRIPTS), "SLURM_TEST_POLL_S": POLL_S}

    def start(self, *words: str) -> Run:
        """Start Snakemake."""
        self.runs.append(Run(self, self.command(*words), self.environment()))
        return self.runs[-1]

    def snakemake(self, *words: str, configfile: str = "") -> subprocess.CompletedProcess[str]:
        """Run Snakemake to its end."""
        run = self.start(*words)
        code = run.wait()
        return subprocess.CompletedProcess(run.process.args, code, run.text, "")

    def planned(self, *words: str, configfile: str = "") -> dict[str, int]:
        """Rules and numbers of jobs of a dry run; empty where nothing is to be done."""
        result = self.snakemake("-n", *words)
        assert result.returncode == 0, result.stdout
        assert "Job stats:" in result.stdout or "Nothing to be done" in result.stdout, result.stdout
        stats = re.findall(r"^([a-z_]+) +(\d+)$", result.stdout, re.MULTILINE)
        return {rule: int(count) for rule, count in stats if rule not in ("all", "total")}

    def log(self, *parts: str) -> str:
        """The log of a job, by its path below results/logs; "" where there is none yet."""
        path = self.root.joinpath("results/logs", *parts)
        return path.read_text(encoding="utf-8") if path.is_file() else ""


def why_not() -> str | None:
    """Why there can be no cluster of the tests here."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"no SLURM here ({', '.join(missing)}); apt-get install slurmctld slurmd slurm-client munge"
    if os.geteuid() != 0:
        return "a SLURM of the tests' own needs the rights of root"
    if CONFIGURATION.exists():
        if not re.search(r"^ClusterName=ci$", CONFIGURATION.read_text(), re.MULTILINE):
            return f"{CONFIGURATION} is of a cluster that is not the tests'"
        queue = subprocess.run(["squeue", "-h"], capture_output=True, text=True, timeout=60)
        if queue.stdout.strip():
            return "the cluster of the tests runs already and has jobs"
    return None


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The cluster, started for these tests and stopped after them."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    mine = open(LOCK, "a")  # noqa: SIM115
    try:
        fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pytest.fail(
            f"these tests run already on this machine ({LOCK} is locked), and there is one cluster; wait for them"
        )
    started = subprocess.run([SCRIPTS / "start.sh"], capture_output=True, text=True, timeout=120)
    assert started.returncode == 0, started.stdout + started.stderr
    try:
        yield Cluster()
    finally:
        subprocess.run([SCRIPTS / "stop.sh"], timeout=60)
        mine.close()


@pytest.fixture(scope="session")
def finished(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> SlurmCheckout:
    """The tiny study, run from beginning to end. Not to be changed."""
    checkout = SlurmCheckout(tmp_path_factory.mktemp("a path") / "with spaces")
    run = checkout.start()
    assert run.wait(900) == 0, run.text
    checkout.jobs = cluster.jobs(checkout.root)
    return checkout


@pytest.fixture
def study(cluster: Cluster, finished: SlurmCheckout, tmp_path: Path) -> Iterator[SlurmCheckout]:
    """A copy of the finished study for one test; what still runs after it is ended."""
    checkout = SlurmCheckout.copy(finished, tmp_path / "a study")
    try:
        yield checkout
    finally:
        for run in checkout.runs:
            run.kill()
        cluster.tidy(checkout.root)


FILLS = "fills the disk"


class SmallDisk:
    """A file system of little room over a folder."""

    def __init__(self) -> None:
        self.folder: Path | None = None

    def mount(self, folder: Path, leave_kb: int) -> None:
        """Lay one over `folder` that has a copy of it and so much room; `unmount` brings the old one back."""
        copy = folder.with_name(f"{folder.name} on a small disk")
        shutil.copytree(folder, copy)
        words = ["mount", "-t", "tmpfs", "tmpfs", str(folder)]
        result = subprocess.run(words, capture_output=True, text=True, timeout=20)
        if result.returncode != 0:
            pytest.skip(f"no file system can be mounted here ({result.stderr.strip()})")
        self.folder = folder
        shutil.copytree(copy, folder, dirs_exist_ok=True)
        room = os.statvfs(folder)
        size = (room.f_blocks - room.f_bfree) * room.f_frsize // 1024 + leave_kb
        subprocess.run(["mount", "-o", f"remount,size={size}k", str(folder)], check=True, timeout=20)

    def fill(self) -> None:
        """Leave no room."""
        with contextlib.suppress(OSError), open(self.folder / FILLS, "wb", buffering=0) as stream:
            while True:
                stream.write(bytes(4096))

    def make_room(self) -> None:
        """Take back what `fill` wrote."""
        (self.folder / FILLS).unlink()

    def unmount(self) -> None:
        """Take it away."""
        if self.folder:
            subprocess.run(["umount", str(self.folder)], check=True, timeout=20)
            self.folder = None


@pytest.fixture
def small_disk() -> Iterator[SmallDisk]:
    """A file system of little room, taken away after the test."""
    disk = SmallDisk()
    yield disk
    disk.unmount()
