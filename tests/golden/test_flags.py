"""All flags of the original release exist with the same types and defaults."""

import importlib
import re

import pytest

from albert_tf.cli.app import help_text
from tests.command_flags import flags_of
from tests.golden.reference import DATA, read_json

RECORDED = read_json(DATA / "programs" / "flags.json")
RECORDED |= dict.fromkeys(("run_squad_v1", "run_squad_v2"), RECORDED["run_squad"])
TYPES = {type(None): "string", str: "string", bool: "bool", int: "int", float: "float"}


@pytest.mark.parametrize("name", RECORDED)
def test_types_and_defaults_equal_the_original(name):
    with flags_of(name) as values:
        text = help_text(importlib.import_module(f"albert_tf.cli.{name}").__doc__)
        for flag, default in RECORDED[name].items():
            kind = "string enum" if flag == "optimizer" else TYPES[type(default)]
            assert values[flag].flag_type() == kind, flag
            assert values[flag].default == default, flag
            assert values[flag].help, flag
        if "optimizer" in RECORDED[name]:
            assert values["optimizer"].parser.enum_values == ["adamw", "lamb"]
    listed = re.findall(r"^  --(?:\[no\])?(\w+)", text, re.MULTILINE)
    assert set(RECORDED[name]) <= set(listed)
    assert "verbosity" not in listed  # flags of other modules are only in --helpfull
