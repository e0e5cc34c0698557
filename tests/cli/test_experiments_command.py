"""`aquila experiments` lists the experiment files of a folder."""

from pathlib import Path

from helpers.command_line import error_line, invoke

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def test_every_experiment_file_is_listed(monkeypatch):
    monkeypatch.chdir(EXPERIMENTS.parent)
    result = invoke("experiments")
    assert result.exit_code == 0
    for path in EXPERIMENTS.rglob("*.toml"):
        assert str(path.relative_to(EXPERIMENTS.parent)) in result.output
    assert "resnet18" in result.output


def test_folder_without_experiments_is_an_error(tmp_path):
    assert error_line("experiments", str(tmp_path)) == (
        f"Error: {tmp_path} contains no experiment files (*.toml)"
    )


def test_invalid_experiment_file_is_named(tmp_path):
    (tmp_path / "bad.toml").write_text("[setting]\nmodle = 'mlp'\n")
    assert f"{tmp_path / 'bad.toml'}" in error_line("experiments", str(tmp_path))
