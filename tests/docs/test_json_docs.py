"""docs/json.md and docs/report.schema.json say just what report.json holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from chainer_profile.report.writers.json_report import VERSION, schema
from tests import ROOT

DOCS = ROOT / "docs"
PAGE, SCHEMA = DOCS / "json.md", DOCS / "report.schema.json"

HEAD = """# report.json

This file is made from the code (`python -m tests.docs.test_json_docs`), and a test holds it.

`--format json` writes the result of a run for scripts, and `--json` prints it in place of the
tables. [report.schema.json](report.schema.json) is its JSON Schema (draft 2020-12), of which this
page has the words; the version here is VERSION.

- Times are seconds, sizes bytes, shares fractions from 0 to 1. The end of a key says so: `_s`,
  `_ns` (nanoseconds), `_nbytes`. Numbers have all their digits.
- What is not known is `null`. There is no NaN and no infinity.
- All keys are always there. Later versions may add some, so pass over keys that you do not know.
  `version` is raised when a key changes its meaning or goes.
- Names are as they are in the network, without the apostrophes and escapes of `layers.csv`. The
  text is ASCII: other characters are written as `\\u` and their code.
- Every layer, link, group and finding is a line of its own, so `grep` works too.

With [jq](https://jqlang.org):

    jq .totals.clean.median_s report.json
    jq -r '.layers[] | select(.hot) | [.label, .path, .mean_s] | @tsv' report.json
    jq '[.layers[] | select(.phase == "backward") | .mean_s] | add' report.json

In Python:

```python
import json
import pandas as pd

report = json.load(open("report.json"))
layers = pd.DataFrame(report["layers"])
```
"""


def kinds(part: dict[str, Any]) -> str:
    """A type in words: ``number or null``."""
    if "enum" in part:
        values = sorted(part["enum"], key=lambda value: value is None)
        return " or ".join("null" if value is None else f"`{value}`" for value in values)
    names = part["type"] if isinstance(part["type"], list) else [part["type"]]
    items = part.get("items", {})
    if "array" in names and "properties" not in items:
        of = "lists of integers" if items["type"] == "array" else f"{items['type']}s"
        names = [f"list of {of}" if name == "array" else name for name in names]
    words = {"array": "list of objects", "string": "text", "boolean": "true or false"}
    return " or ".join(words.get(name, name).replace("strings", "texts") for name in names)


def whole(part: Any, parts: dict[str, Any]) -> Any:
    """A schema with what it refers to in its place, and ``null`` among the types."""
    if isinstance(part, list):
        return [whole(item, parts) for item in part]
    if not isinstance(part, dict):
        return part
    part = {key: whole(value, parts) for key, value in part.items() if key != "$defs"}
    if "$ref" in part:
        part = whole(parts[part.pop("$ref").rpartition("/")[2]], parts) | part
    if "anyOf" in part:
        found, null = part.pop("anyOf")
        assert null == {"type": "null"}
        part = found | part | {"type": [found["type"], "null"]}
    return part


def inner(part: dict[str, Any]) -> dict[str, Any]:
    """The object that there are keys of: the part itself, its items, or its values."""
    found: Any = part.get("items") or part.get("additionalProperties") or part
    return dict(found)


def objects(name: str, part: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """All objects with keys, from outside to inside, by their paths."""
    yield name, part
    for key, value in part["properties"].items():
        of = inner(value)
        if "properties" in of:
            several = "[]" if "items" in value else ".*" if "additionalProperties" in value else ""
            yield from objects(f"{name}.{key}{several}".lstrip("."), of)


def section(names: list[str], part: dict[str, Any]) -> str:
    lines = [f"## {f'`{names[0]}`' if names[0] else 'The whole'}", ""]
    if others := ", ".join(f"`{name}`" for name in names[1:]):
        lines += [f"The same keys are in {others}.", ""]
    lines += ["| key | is | meaning |", "| --- | --- | --- |"]
    for key, value in part["properties"].items():
        meaning = value["description"].replace("|", "\\|")
        lines.append(f"| `{key}` | {kinds(value)} | {meaning} |")
    return "\n".join(lines)


def page() -> str:
    # Said once, where several objects have the same keys.
    named: dict[str, tuple[list[str], dict[str, Any]]] = {}
    for name, part in objects("", whole(schema(), schema()["$defs"])):
        named.setdefault(json.dumps(part["properties"]), ([], part))[0].append(name)
    sections = [section(names, part) for names, part in named.values()]
    return "\n\n".join([HEAD.replace("VERSION", str(VERSION)).strip(), *sections]) + "\n"


def schema_text() -> str:
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def test_the_page_is_that_of_the_code() -> None:
    assert PAGE.read_text() == page()


def test_the_schema_is_that_of_the_code() -> None:
    assert SCHEMA.read_text() == schema_text()


def test_every_key_has_a_meaning_in_plain_words() -> None:
    for name, part in objects("", whole(schema(), schema()["$defs"])):
        for key, value in part["properties"].items():
            meaning = value.get("description")
            assert meaning, f"{name}.{key}"
            assert "`" not in meaning, f"{name}.{key}"
            assert "\n" not in meaning, f"{name}.{key}"


@pytest.mark.parametrize("key", ["settings", "layers", "totals", "device"])
def test_the_page_names_what_there_is(key: str) -> None:
    assert f"| `{key}` |" in page()


if __name__ == "__main__":
    PAGE.write_text(page())
    SCHEMA.write_text(schema_text())
