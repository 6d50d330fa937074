"""The templates of the pages."""

from pathlib import Path

import jinja2


def environment() -> jinja2.Environment:
    """The templates beside this file: what is put into them is escaped, and a name that is missing raises."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
