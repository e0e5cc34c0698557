"""The help of `run` and `compare` lists every setting once, in sections."""

import pytest
from click.testing import CliRunner

from aquila.cli import main
from aquila.cli.option_sections import SECTIONS
from aquila.sim.setting import setting_parameters


def test_every_setting_is_in_one_section():
    names = [name for section in SECTIONS.values() for name in section]
    assert sorted(names) == sorted(setting_parameters())


@pytest.mark.parametrize("command", ["run", "compare"])
def test_help_has_all_options_and_sections(command):
    text = CliRunner().invoke(main, [command, "--help"]).output
    for name in setting_parameters():
        option = f"  --{name.replace('_', '-')} "
        assert text.count(option) == 1, option
    lines = text.splitlines()
    titles = [line.removesuffix(":") for line in lines if line.endswith(":") and line[0] != " "]
    assert titles == ["Options", *SECTIONS]
    assert text.index("--method") < text.index("--data ")
