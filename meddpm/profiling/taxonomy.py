"""The kernel taxonomy: what a kernel does, how and in which precision, told from its name alone.

The rules are data, in taxonomy.yaml beside this file.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

OTHER = "other"
CONVOLUTION = "convolution "
# Names of one function for which the compiler wrote out hundreds of types: what tells is in front.
LONGEST = 2000

# As c++filt, Nsight Compute and GCC write it.
ANONYMOUS = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\{anonymous\}::|`anonymous-namespace'::")
# One piece of a mangled name (Itanium C++ ABI) that must not be read letter by letter: an identifier's length, a
# literal, a reference to an earlier piece, a 16-bit type.
MANGLED = re.compile(r"(?P<length>\d+)|L[a-z](?P<literal>n?\w*?)E|[ST][0-9A-Z]*_|S[abdiost]|DF16_|DF16b|.")
# What ROCm puts after the name of a kernel.
DESCRIPTOR = re.compile(r"( \[clone)? ?\.kd\]?$")
TYPES = {"f": " float", "d": " double", "DF16_": " _Float16", "DF16b": " __bf16", "I": "<"}
# What Inductor names after the operators that it fused, and the number at the end. The first "fused_" is
# it: a try from each later one would take long.
FUSED = re.compile(r"^(?>(?:triton_\w*?|.*?cpp_)fused_)(?P<operators>\w+?)(?:_\d[\dcde]*)*$")


class Kind(NamedTuple):
    """What a name tells: see classify()."""

    category: str
    precision: str | None
    detail: str | None


@dataclass(frozen=True)
class Category:
    """One category: its name, what belongs to it, and whether its kernels compute (only those have a precision)."""

    name: str
    description: str
    arithmetic: bool


# How to seek a pattern in a name, and what it tells.
Patterns = tuple[tuple[Callable[[str], re.Match[str] | None], str | None], ...]


@dataclass(frozen=True)
class Taxonomy:
    """Categories in the order of the file, the ordered rules, and the pattern of an operator in a fused name."""

    categories: dict[str, Category]
    rules: Patterns
    precisions: Patterns
    algorithms: Patterns
    operator: re.Pattern[str]


@cache
def taxonomy() -> Taxonomy:
    """Read taxonomy.yaml. Raises ValueError where a rule names a category that the file does not list."""
    path = Path(__file__).with_name("taxonomy.yaml")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    categories = {entry["name"]: Category(**entry) for entry in content["categories"]}
    for rule in content["rules"]:
        if rule["category"] not in categories:
            raise ValueError(f"{path.name}: the rule {rule['pattern']!r} has the unknown category {rule['category']!r}")

    def patterns(key: str, what: str) -> Patterns:
        return tuple((_seeker(entry["pattern"]), entry[what]) for entry in content[key])

    # The longest name first; a single word is an operator of its own.
    names = "|".join(sorted(map(re.escape, content["operators"]), key=len, reverse=True))
    return Taxonomy(
        categories,
        patterns("rules", "category"),
        patterns("precisions", "precision"),
        patterns("algorithms", "algorithm"),
        re.compile(rf"(?:^|_)((?:{names}|_?[^_]+)(?:_backward(?:_data|_input|_weight)?)?)(?=_|$)"),
    )


def categories() -> tuple[str, ...]:
    """The names of all categories, in the order in which tables and figures show them; "other" is the last."""
    return tuple(taxonomy().categories)


@cache
def classify(name: str) -> Kind:
    """Category, precision and detail of the kernel or operator called `name`, mangled or not, whole or cut short.

    The category is "other" where no rule knows the name. The precision is "fp32", "tf32", "bf16", "fp16", "fp8",
    "fp4", "int8" or "fp64": that of the multiplications where the name tells it (cuDNN, cuBLAS, CUTLASS), else the
    narrowest floating-point type among the template arguments. It is None where the name does not tell, or nothing is
    computed. The detail is the algorithm of a convolution ("implicit GEMM", "explicit GEMM", "direct", "Winograd",
    "FFT"), or the operators that a compiler fused ("native_group_norm, silu"); else None.
    """
    known = taxonomy()
    text = plain(name)
    category = _first(known.rules, text) or OTHER
    precision = _first(known.precisions, text) if known.categories[category].arithmetic else None
    detail = _operators(text)
    if detail is None and category.startswith(CONVOLUTION):
        detail = _first(known.algorithms, text)
    return Kind(category, precision, detail)


def plain(name: str) -> str:
    """The name as the rules read it: lower case, spelled out where it is mangled, without anonymous namespaces."""
    name = DESCRIPTOR.sub("", name.strip()[:LONGEST])
    if name.startswith("_Z"):
        name = _spelled_out(name)
    return ANONYMOUS.sub("", name).lower()


def _seeker(pattern: str) -> Callable[[str], re.Match[str] | None]:
    # The letter first and the look behind it second: so the search jumps from letter to letter.
    compiled = re.compile(re.sub(r"~(\w)", r"\1(?<![a-z]\1)", pattern))
    return compiled.match if pattern.startswith("^") else compiled.search


def _first(patterns: Patterns, text: str) -> str | None:
    for found, what in patterns:
        if found(text):
            return what
    return None


def _operators(text: str) -> str | None:
    """The operators in a name that Inductor made of them, as "convolution, silu"; None where it has none."""
    fused = FUSED.search(text)
    if fused is None:
        return None
    found = taxonomy().operator.findall(fused["operators"])
    return ", ".join(dict.fromkeys(operator for operator in found if not operator.strip("_").isdigit())) or None


def _spelled_out(name: str) -> str:
    """Identifiers, numbers and floating-point types of a mangled name, nearly as c++filt writes them.

    Not the grammar: enough that one rule reads a name in either form.
    """
    pieces: list[str] = []
    position, nested = 2, False
    while position < len(name):
        piece = MANGLED.match(name, position)
        if piece is None:
            break
        position = piece.end()
        if piece["length"]:
            end = position + int(piece["length"])
            identifier = name[position:end]
            position = end
            if identifier.startswith("_GLOBAL__N"):
                continue
            pieces.append(f"::{identifier}" if nested else f" {identifier}")
            nested = True
            continue
        nested = False
        if piece["literal"]:
            pieces.append(f" {piece['literal']},")
        elif piece[0] in TYPES:
            pieces.append(TYPES[piece[0]])
    return "".join(pieces).strip()
