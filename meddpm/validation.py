"""config.yaml against its schema: one line a fault, with the key, the value and what would be right.

Floor 0. jsonschema finds the faults; its own messages print the whole schema, so they are worded here.
"""

import difflib
import itertools
import json
import math
from collections.abc import Iterator
from typing import Any

import jsonschema
import yaml

from meddpm.config import ConfigError, repository_root

SHOWN_AT_MOST = 10
# Values of a configuration at most: a few lines of YAML whose aliases name each other may stand for billions.
MOST_VALUES = 100_000
TOO_MANY = (
    f"it has more than {MOST_VALUES:,} values, counting those that an alias (*name) stands for each time; write it "
    "without aliases of aliases"
)


def _is_integer(_: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(_: Any, value: Any) -> bool:
    return _is_integer(_, value) or (isinstance(value, float) and math.isfinite(value))


# JSON Schema takes 2.0 for an integer, which indexes nothing, and Python's NaN and infinity for numbers.
StrictValidator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"integer": _is_integer, "number": _is_number}
    ),
)


def closest(name: str, known: list[str]) -> str:
    """The wording for a name that is not known: the nearest known one if there is one, then all of them."""
    near = difflib.get_close_matches(name, known, n=3)
    # brats2020 is as near to brats2021 as to brats2023.
    likeness = [difflib.SequenceMatcher(None, each, name).ratio() for each in near]
    best = sorted(each for each, ratio in zip(near, likeness, strict=True) if ratio == max(likeness))
    meant = f"did you mean {' or '.join(best)}? " if best else ""
    return f"{meant}Known: {', '.join(known)}"


def read_yaml(text: str) -> Any:
    """What a text in YAML holds. Raises yaml.YAMLError as yaml does, ConfigError where it is over `MOST_VALUES`."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        # Before anything is made of it: a merge key (<<) copies what an alias names.
        if _values(node, {}) > MOST_VALUES:
            raise ConfigError(TOO_MANY)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _values(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a node stands for, itself among them; `known` are those of nodes counted before."""
    if id(node) not in known:
        parts = node.value if isinstance(node, yaml.CollectionNode) else []
        parts = [part for pair in parts for part in pair] if isinstance(node, yaml.MappingNode) else parts
        # What contains itself has no end.
        known[id(node)] = MOST_VALUES
        known[id(node)] = 1 + sum(_values(part, known) for part in parts)
    return known[id(node)]


def with_text_keys(value: Any) -> Any:
    """`value` with every key of every mapping as text: YAML reads 1 as a number, JSON has texts alone.

    Raises ConfigError where it has more than `MOST_VALUES` values.
    """
    return _with_text_keys(value, itertools.count(1))


def _with_text_keys(value: Any, values: Iterator[int]) -> Any:
    if next(values) > MOST_VALUES:
        raise ConfigError(TOO_MANY)
    if isinstance(value, dict):
        return {str(key): _with_text_keys(item, values) for key, item in value.items()}
    return [_with_text_keys(item, values) for item in value] if isinstance(value, list) else value


def validate(config: dict[str, Any], source: str = "config.yaml") -> dict[str, Any]:
    """`config` with its keys as text. Raises ConfigError, one line a fault, where it does not fit the schema.

    The schema is schemas/config.schema.yaml.
    """
    try:
        config = with_text_keys(config)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    text = (repository_root() / "schemas" / "config.schema.yaml").read_text(encoding="utf-8")
    validator = StrictValidator(yaml.safe_load(text))
    faults = sorted({line for error in validator.iter_errors(config) for line in _lines(error)})
    if faults:
        more = [f"... and {len(faults) - SHOWN_AT_MOST} more"] if len(faults) > SHOWN_AT_MOST else []
        raise ConfigError("\n".join(f"{source}: {line}" for line in faults[:SHOWN_AT_MOST] + more))
    return config


def _lines(error: jsonschema.ValidationError) -> list[str]:
    where = ".".join(str(part) for part in error.absolute_path)
    at = f"{where}: " if where else ""
    value, wanted = error.instance, error.validator_value
    shown = f"{at}{_short(value)}"
    match error.validator:
        case "additionalProperties":
            known = sorted(error.schema.get("properties", {}))
            unknown = sorted(str(key) for key in value if key not in known)
            prefix = f"{where}." if where else ""
            return [f"{prefix}{key}: unknown key; {closest(key, known)}" for key in unknown]
        case "required":
            missing = [key for key in wanted if key not in value]
            return [f"{at}the key {key} is missing" for key in missing]
        case "enum":
            return [f"{shown} is not allowed; {closest(str(value), [str(item) for item in wanted])}"]
        case "type":
            types = [wanted] if isinstance(wanted, str) else wanted
            right = " or ".join(_TYPES[name] for name in types)
            return [f"{shown} is of the wrong type; right would be {right}{_as_yaml_reads_it(value, types)}"]
        case "minimum":
            return [f"{shown} is too small; right would be {wanted} or more"]
        case "exclusiveMinimum":
            return [f"{shown} is too small; right would be more than {wanted}"]
        case "maximum":
            return [f"{shown} is too large; right would be {wanted} or less"]
        case "exclusiveMaximum":
            return [f"{shown} is too large; right would be less than {wanted}"]
        case "minItems" | "maxItems":
            bound = "at least" if error.validator == "minItems" else "at most"
            return [f"{shown} has {len(value)} entries; right would be {bound} {wanted}"]
        case "minProperties":
            return [f"{at}is empty; right would be at least one definition"]
        case "uniqueItems":
            return [f"{shown} names something twice; right would be each once"]
        case "maxLength":
            return [f"{shown} is too long; right would be at most {wanted} letters"]
        case "pattern":
            return [f"{at}{_short(value)} is not allowed; right would be {_PATTERNS.get(wanted, wanted)}"]
    return [f"{shown}: {error.message[:150]}"]


def _as_yaml_reads_it(value: Any, types: list[str]) -> str:
    """A hint for 1e-4, which YAML takes for a text: it wants a point."""
    if "number" not in types or not isinstance(value, str):
        return ""
    try:
        return f", written {float(value):.1e} with a point"
    except ValueError:
        return ""


_TYPES = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list, as [a, b]",
    "object": "a mapping, as key: value",
    "null": "null",
}
_PATTERNS = {
    r"^[A-Za-z0-9][A-Za-z0-9_.,+-]*\Z": "a partition as sinfo lists it",
    r"^[A-Za-z0-9_.]+\Z": "a type of GPU as sinfo lists it, as a100",
    r"^[A-Za-z0-9_]+(:[A-Za-z0-9_.]+)?(:1)?\Z": "one GPU, as gpu:1 or gpu:a100:1",
    r"^[1-9][0-9]*(M|G|T)\Z": "a number of MB, or as 64G",
    r"^[1-9][0-9]*(m|h|d)\Z": "a number of minutes, or as 12h or 2d",
    r"^[A-Za-z0-9][A-Za-z0-9_.-]*\Z": "letters, digits, _ . and -, a letter or digit first (it becomes a folder)",
    r"^[A-Z]{3}\Z": "three of L or R, P or A, I or S, as RAS",
    r"^[0-9]+\Z": "a label value, a whole number from 0 on",
}


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)  # null and true as YAML has them
    return text if len(text) <= 60 else text[:57] + "..."
