"""Names of kernels for a table: short ones, and families, in which kernels meet whatever they compute in."""

import re
from functools import lru_cache

from meddpm.profiling.readers.demangle import demangle
from meddpm.profiling.taxonomy import ANONYMOUS, DESCRIPTOR

# Functions so named say nothing without the namespace or class around them.
NAMELESS = {"kernel", "Kernel", "run", "operator"}
BRACKETS = {"<": ">", "(": ")", "[": "]", "{": "}"}
# What may follow the parameters of a function.
BEHIND = re.compile(r"$|::| const\b| ?\[")
# What one of PyTorch's or CUTLASS' general kernels does stands among its template arguments; what only wraps it does
# not tell.
TELLING = re.compile(
    r"\b(?!(?:[AB]?Unary|Binary)Functor\b|(?:gpu|opmath)\w*_kernel_impl|ReduceOp\b)"
    r"(\w+Functor\w*|\w+_functor|\w+_kernel(?:_cuda|_impl)?|\w+KernelImpl\w*|\w+Ops?|cutlass[^\W_]*+_\w*\d\w*)\b"
)

# Pieces of a name, between underscores, that say in what numbers, in which tiles and for which chip it computes.
VARYING = re.compile(
    r"""
      (?: tf32 | b?f16 | f32 | f64 | fp\d+ | f8 | [isu](?:8|32) | e\d+m\d+ | half | float | double | bfloat16 )+
    | sm\d+[a-z]? | volta | turing | ampere | ada | hopper | blackwell | maxwell | pascal | gfx\w+
    | \d+(?:x\d+)*x? | [a-z]+\d+(?:x\d+)+[a-z]* | stages?\d* | [a-z]\d+ | align[a-z]?\d+ | ldg\d+ | f2f
    | ffma | tensorop | simt | [hi]mma | indexed | large | medium | small | sliced\w*
    | nc?[dhw]{2,3}c?(?:kc?[trs]{2,3}c?)? | [nt]{1,3}
    """,
    re.VERBOSE | re.IGNORECASE,
)
# The letters and digits before what a library multiplies: sgemm, h884gemm, s16816fprop, scudnn.
MULTIPLIED = re.compile(
    r"(?:tf32|b?f16|f32|[sdhciz])*(?:[shdiz]?\d+(?:x\d+)*)?(gemm|cudnn|fprop|dgrad|wgrad)", re.IGNORECASE
)
# cuDNN's kernels end with how they are run. No piece is looked through twice: a name may be of any length.
EXECUTED = re.compile(r"_execute_(?:(?!_execute_|kernel)\w)*+kernel(?:__5x)?")
# cuBLAS and rocBLAS name nothing but types, tiles and layouts.
PRODUCTS = re.compile(r"(nvjet|Cijk)_\w+")


@lru_cache(maxsize=65536)
def short(name: str) -> str:
    """The name of a C++ function without return type, namespaces, template arguments and parameters.

    Of a general kernel what it does follows, as in "elementwise_kernel: CUDAFunctor_add". Another name (of an operator,
    a copy, a Triton kernel) stays as it is.
    """
    text = DESCRIPTOR.sub("", ANONYMOUS.sub("", demangle(name.strip())))
    function, arguments, behind = _parts(text)
    if not function or not BEHIND.match(behind):
        return name
    *outer, own = function.rpartition(" ")[2].split("::")
    if own in NAMELESS and outer:
        own = f"{outer[-1]}::{own}"
    telling = TELLING.search(arguments)
    if not own:
        return name
    return f"{own}: {telling[1]}" if telling and telling[1] != own else own


def function(name: str) -> str:
    """The name of the function alone, by which Nsight Compute picks kernels: Kernel of cutlass::Kernel<...>(...)."""
    return short(name).partition(": ")[0].rpartition("::")[2]


@lru_cache(maxsize=65536)
def family(name: str) -> str:
    """The short name without types, tile sizes, layouts and chips: an fp32 and a TF32 kernel of cuDNN have one."""
    own = short(name)
    if " " in own.replace(": ", "") or (own == name and "::" in own):
        return own
    return ": ".join(_without_varying(part) for part in own.split(": "))


def _without_varying(name: str) -> str:
    product = PRODUCTS.fullmatch(name)
    if product:
        return product[1]
    kept = []
    for piece in EXECUTED.sub("", name).split("_"):
        multiplied = MULTIPLIED.fullmatch(piece)
        if multiplied:
            kept.append(multiplied[1])
        elif not VARYING.fullmatch(piece):
            kept.append(piece)
    return "_".join(kept) or name


def _parts(text: str) -> tuple[str, str, str]:
    """A function with its namespaces and return type, its own template arguments, and what is behind its parameters.

    The function is empty where the text is none.
    """
    outside: list[str] = []
    arguments = ""
    closing: list[str] = []
    begin = 0
    for place, letter in enumerate(text):
        if letter in BRACKETS:
            if not closing:
                # "Memcpy HtoD (Device -> Device)" is no function.
                if letter in "(<" and (not outside or outside[-1] == " "):
                    return "", "", ""
                begin = place
            closing.append(BRACKETS[letter])
        elif not closing:
            outside.append(letter)
        elif letter == closing[-1]:
            closing.pop()
            if not closing and text[begin] == "<":
                arguments = text[begin : place + 1]
            if not closing and text[begin] == "(":
                return "".join(outside), arguments, text[place + 1 :]
    # Some profilers cut names.
    if closing and text[begin] in "<(":
        return "".join(outside), arguments or text[begin:], ""
    return ("".join(outside), arguments, "") if arguments else ("", "", "")
