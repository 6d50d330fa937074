"""Results of Nsight Compute, whatever their form: a report (.ncu-rep) or the CSV that `ncu` prints.

Every launch was profiled alone, several times over, so the file does not tell what ran beside what.
"""

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from meddpm.config import UserError
from meddpm.profiling.readers.demangle import demangle
from meddpm.profiling.trace import Kernel, Trace
from meddpm.words import one_line, printable

EXPORT = "`ncu --import REPORT --csv --page raw`"
SERIALISED = "serialised launches: Nsight Compute runs them one by one, often several times each, so none overlap"

# How long a launch took, in ns; the first that a file has. One launch has one duration, so that all say the same.
DURATIONS = ("gpu__time_duration.sum", "gpu__time_duration.max", "gpu__time_duration.avg")
GRID = ("launch__grid_dim_x", "launch__grid_dim_y", "launch__grid_dim_z")
BLOCK = ("launch__block_dim_x", "launch__block_dim_y", "launch__block_dim_z")
SIZES = ("launch__grid_size", "launch__block_size")
DEVICE = "device__attribute_display_name"
# All that the kernel table needs.
NEEDED = frozenset({*DURATIONS, *GRID, *BLOCK, *SIZES})

REPORTS = (".ncu-rep", ".nsight-cuprof-report")
REPORT_START = b"NVR\0"

PREFIXES = {"n": -9, "u": -6, "µ": -6, "μ": -6, "m": -3, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
SECONDS = {"s", "sec", "second", "seconds"}
# Only these have prefixes: "SM" is no mega-something.
COUNTED = {
    *(
        "access",
        "bit",
        "block",
        "branch",
        "branches",
        "byte",
        "bytes",
        "cycle",
        "cycles",
        "event",
        "flop",
        "hz",
        "inst",
    ),
    *(
        "instruction",
        "op",
        "packet",
        "pixel",
        "register",
        "request",
        "sector",
        "sectors",
        "thread",
        "warp",
        "wavefront",
    ),
}
# Links inside the messages of rules: @url:WORDS:TARGET@, @section:ID:WORDS@, @sass:ADDRESS:WORDS@ and
# @source:FILE:LINE:WORDS@.
URL = re.compile(r"@url:([^:@]*):([^@]*)@")
LINK = re.compile(r"@(?:section:[^:@]*|sass:[^:@]*|source:[^@]*?:\d+):([^@]*)@")


@dataclass(frozen=True)
class Rule:
    """What Nsight Compute advises about a launch.

    `kind` is "OPT" (could be faster), "WRN" or "INF". `speedup_pct` is the estimate of what the advice saves, 0 to 100,
    None where there is none; `scope` is "global" where it is of the kernel's time, "local" where it is of the part that
    the rule looks at, "" where the file does not say.
    """

    name: str
    kind: str
    message: str
    scope: str = ""
    speedup_pct: float | None = None


@dataclass(frozen=True)
class Launch:
    """One profiled launch.

    `number` is its ID in the file. `kernel` is the C++ name, `launch` "(x,y,z)x(x,y,z)", grid and block, None where the
    file does not say; `device` the name of the GPU, `range` the innermost NVTX push/pop range around the launch.
    `metrics` are in base units (ns, byte, byte/s, hz, %), which `units` names; a metric that is not there was not
    measured or is no number.
    """

    number: int
    kernel: str
    launch: str | None
    device: str | None
    range: str | None
    metrics: dict[str, float]
    units: dict[str, str] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()


def read_launches(path: Path | str) -> list[Launch]:
    """The launches of a file, in its order: a report, or the CSV pages "raw" and "details"; all may be gzipped.

    Raises UserError where the file holds none.
    """
    return list(_launches(Path(path), None, []))


def read(path: Path | str) -> Trace:
    """The kernel table of a file, from `gpu__time_duration.sum`. A launch without it counts with no time.

    Raises UserError where the file holds no launch.
    """
    found: dict[tuple[str, str | None], list[float]] = {}
    devices: dict[str, None] = {}
    notes = [SERIALISED]
    count, untimed, negative = 0, 0, 0
    for launch in _launches(Path(path), NEEDED, notes):
        time = duration_ms(launch)
        count += 1
        untimed += time is None
        if time is not None and time < 0:
            negative, time = negative + 1, None
        sums = found.setdefault((launch.kernel, launch.launch), [0, 0.0])
        sums[0] += 1
        sums[1] += time or 0.0
        if launch.device:
            devices[launch.device] = None
    if untimed:
        which = f"{untimed} of {count} launches {'has' if untimed == 1 else 'have'} no"
        which = f"no launch has {DURATIONS[0]}: they" if untimed == count else f"{which} {DURATIONS[0]} and"
        verb = "counts" if untimed == 1 < count else "count"
        notes.append(f"{which} {verb} as 0 ms; profile with --metrics {DURATIONS[0]}")
    if negative:
        words = "launch has" if negative == 1 else "launches have"
        notes.append(f"{negative} {words} a negative duration, taken as 0 ms: the counters cannot be trusted")
    if len(devices) > 1:
        notes.append("launches of several kinds of GPU: " + ", ".join(devices))
    kernels = [Kernel(name, shape, int(calls), time) for (name, shape), (calls, time) in found.items()]
    kernels.sort(key=lambda kernel: -kernel.time_ms)
    return Trace("ncu", tuple(kernels), True, device=next(iter(devices), None), notes=tuple(notes))


def duration_ms(launch: Launch) -> float | None:
    """How long a launch took; None where the file does not say."""
    return next((launch.metrics[name] / 1e6 for name in DURATIONS if name in launch.metrics), None)


def _launches(path: Path, wanted: frozenset[str] | None, notes: list[str]) -> Iterator[Launch]:
    """The launches of a file with the metrics that are `wanted` (None: all); words for the reader go to `notes`."""
    # Both readers build on this module.
    from meddpm.profiling.readers import ncu_csv, ncu_report_file

    with reading(path), opened(path) as stream:
        head = stream.read(4096)
    if not head:
        raise UserError(f"{path}: the file is empty; profile again")
    name = path.name.lower().removesuffix(".gz")
    if head.startswith(REPORT_START) or name.endswith(REPORTS):
        return ncu_report_file.launches(path, wanted)
    if head.startswith(b"SQLite format 3\0"):
        raise UserError(f"{path}: an SQLite database, not of Nsight Compute; export its report with {EXPORT}")
    if b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UserError(
            f"{path}: neither a report of Nsight Compute nor text; name a .ncu-rep, or export with {EXPORT}"
        )
    return ncu_csv.launches(path, wanted, notes)


def is_packed(path: Path) -> bool:
    """Whether a file is gzipped, whatever its name."""
    with open(path, "rb") as stream:
        return stream.read(2) == b"\x1f\x8b"


def opened(path: Path) -> BinaryIO:
    """The bytes of a file, gzipped or not."""
    return gzip.open(path, "rb") if is_packed(path) else open(path, "rb")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What goes wrong while a file is read, as UserError."""
    try:
        yield
    except EOFError:
        raise UserError(f"{path}: the file is truncated; copy it again or profile again") from None
    except (zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: the file cannot be unpacked ({error}); copy it again or profile again") from None
    except OSError as error:
        raise UserError(
            f"{path}: the file cannot be read: {error.strerror or error}; check its name and rights"
        ) from None


@lru_cache(maxsize=65536)
def kernel_name(name: str) -> str:
    """A kernel's name as Kineto has it, where it is mangled, and always one printable line."""
    return printable(" ".join(demangle(name.strip()).split()))


def launch_text(grid: Iterable[float | None], block: Iterable[float | None]) -> str | None:
    """Grid and block as "(x,y,z)x(x,y,z)"; None where a size is missing or there is no block, as for a whole range."""
    sizes = [*grid, *block]
    if len(sizes) != 6 or not all(sizes):
        return None
    words = [str(int(size)) for size in sizes if size]
    return f"({','.join(words[:3])})x({','.join(words[3:])})"


@lru_cache(maxsize=4096)
def base_unit(unit: str) -> tuple[str, int]:
    """The base unit, and the power of ten that a number in `unit` takes: "Gbyte/second" is ("byte/s", 9).

    As Nsight Compute's own base units: times are in ns, but a rate is a number per second.
    """
    words, power = [], 0
    for place, word in enumerate(unit.split("/")):
        word = word.strip()
        prefix, rest = (PREFIXES.get(word[:1]), word[1:])
        rest = {"B": "byte", "Hz": "hz"}.get(rest, rest)
        if prefix is not None and prefix < 0 and rest in SECONDS:
            exponent, base = prefix, "s"
        elif word in SECONDS:
            exponent, base = 0, "s"
        elif prefix is not None and prefix > 0 and rest in COUNTED:
            exponent, base = prefix, rest
        else:
            exponent, base = 0, {"B": "byte", "Hz": "hz"}.get(word, word)
        if base == "s" and place == 0:
            exponent, base = exponent + 9, "ns"
        power += exponent if place == 0 else -exponent
        words.append(base)
    return "/".join(words), power


def rule(name: str, kind: str, message: str, scope: str, speedup: float | None) -> Rule | None:
    """A rule as it may stand in a table; None where it says nothing, or failed, which is no advice."""
    kind = kind.strip().upper()
    message = printable(" ".join(LINK.sub(r"\1", URL.sub(r"\1 (\2)", message)).split()))
    if kind not in ("OPT", "WRN", "INF") or not message:
        return None
    if speedup is not None:
        speedup = min(speedup, 100.0) if speedup >= 0 else None
    scope = scope.strip().lower()
    return Rule(one_line(name), kind, message, scope if scope in ("global", "local") else "", speedup)
