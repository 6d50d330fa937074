"""What a GPU is called: from the name that a cluster gives it to the one that its driver gives it."""

import re
from typing import NamedTuple

# As the drivers write them. Longer ones are found first: an l40s is no l40.
DATACENTER = (
    *("A2", "A10", "A10G", "A16", "A30", "A40", "A100", "A800", "A2000", "A4000", "A4500", "A5000", "A6000"),
    *("B100", "B200", "B300", "GB200", "GB300", "GH200", "H20", "H100", "H200", "H800", "K20", "K40", "K80"),
    *("L4", "L20", "L40", "L40S", "M40", "M60", "P4", "P40", "P100", "T4", "V100", "V100S"),
    *("MI50", "MI60", "MI100", "MI210", "MI250", "MI250X", "MI300A", "MI300X", "MI325X", "MI355X"),
)
WORKSTATION = re.compile(r"(rtx|gtx)?_?(pro)?_?(?<!\d)([1-9]0[5-9]0|[4-9]000)(?!\d)_?(ti)?_?(super)?_?(ada)?")
# Slices of a GPU that is shared: 3g.20gb.
SLICE = re.compile(r"(?<!\d)[1-7]g\.\d+gb")


class GpuName(NamedTuple):
    """`row`: how a row of `gpus` would be called; `pattern` matches the name that the driver gives."""

    row: str
    pattern: str


def known(text: str) -> GpuName | None:
    """The GPU that a type, feature or partition as nvidia_a100_80gb_pcie, rtx2080ti or gpu-v100 is; None: not known."""
    text = text.lower()
    found = _datacenter(text) or _workstation(text)
    piece = SLICE.search(text)
    if piece is None:
        return found
    whole, before = (found.row, f"{found.row}.*") if found else ("MIG", "")
    return GpuName(f"{whole}_{piece[0]}", f"{before}MIG {re.escape(piece[0])}")


def _datacenter(text: str) -> GpuName | None:
    words = [re.sub(r"^(nvidia|tesla|quadro|rtx)(?=.)", "", word) for word in re.split(r"[^a-z0-9]+", text)]
    for model in sorted(DATACENTER, key=len, reverse=True):
        # Sites add letters of their own, as a100l for the large one or v100sxm2, which is no v100s.
        ends = r"(?!\d)" if model[-1].isdigit() else r"(?![a-z0-9])"
        if any(re.match(model.lower() + ends, word) for word in words):
            return GpuName(model, _bounded(model))
    return None


def _bounded(model: str) -> str:
    """A pattern that does not match a longer name: A10 is in A100, and H200 in GH200."""
    before = any(other != model and other.endswith(model) for other in DATACENTER)
    # Not with V100 and MI250: sites call a V100S or MI250X so too.
    after = len(model) <= 3 and any(other != model and other.startswith(model) for other in DATACENTER)
    return (r"\b" if before else "") + model + (r"\b" if after else "")


def _workstation(text: str) -> GpuName | None:
    joined = re.sub(r"[^a-z0-9]+", "_", text)
    titan = re.search(r"titan_?(rtx|xp|x|v)(?![a-z])", joined)
    if titan:
        which = "Xp" if titan[1] == "xp" else titan[1].upper()
        return GpuName(f"TITAN_{which}", f"TITAN {which}")
    for found in WORKSTATION.finditer(joined):
        family, pro, number, *endings = found.groups()
        # A number alone is one of a GPU where it is as 2080; 4000 and 6000 may be anything.
        if family or not number.endswith("000"):
            written = {"ti": "Ti", "super": "SUPER", "ada": "Ada"}
            words = [family.upper() if family else "", "PRO" if pro else "", number]
            words += [written[ending] for ending in endings if ending]
            words = [word for word in words if word]
            return GpuName("".join(words), " ".join(words))
    return None
