"""docs/report.schema.json says just what report.json holds."""

import json

from chainer_profile.report.writers.json_report import schema
from tests import ROOT

SCHEMA = ROOT / "docs" / "report.schema.json"


def schema_text():
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def test_the_schema_is_that_of_the_code_and_has_meanings_in_plain_words():
    assert SCHEMA.read_text() == schema_text()
    for name, part in schema()["$defs"].items():
        for key, value in part["properties"].items():
            meaning = value.get("description")
            assert meaning, f"{name}.{key}"
            assert "`" not in meaning, f"{name}.{key}"
            assert "\n" not in meaning, f"{name}.{key}"
    # The rules of all keys are in its description.
    told = schema()["description"]
    rules = ("seconds", "_nbytes", "no NaN", "ignore keys", "ASCII", "line of its own")
    assert [rule for rule in rules if rule not in told] == []


if __name__ == "__main__":
    SCHEMA.write_text(schema_text())
