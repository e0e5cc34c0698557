"""`aquila deploy` as users see it."""

import subprocess
import sys

import pytest

from aquila.runtime.install_hint import install_hint
from helpers.command_line import error_line, invoke, output

BLOCKED = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("cryptography", "flwr", "h11", "httpx"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from aquila.cli import main
main(sys.argv[1:])
"""


def without_extra(*arguments) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BLOCKED, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def require_extra() -> None:
    pytest.importorskip("cryptography", reason="not installed: pip install -e '.[flower]'")


@pytest.mark.parametrize("command", ["init", "renew", "rekey", "upgrade", "proxy"])
def test_help_needs_no_extra(command):
    assert without_extra("deploy", command, "--help").returncode == 0


def test_missing_extra_gives_one_sentence(tmp_path):
    done = without_extra("deploy", "init", tmp_path / "fed", "--devices", "2")
    assert done.returncode == 1
    assert done.stderr == (
        f"Error: aquila deploy needs packages that are not installed: {install_hint('flower')}\n"
    )
    assert not (tmp_path / "fed").exists()


def test_init_prints_the_next_commands(tmp_path):
    require_extra()
    folder = tmp_path / "fed"
    text = output("deploy", "init", str(folder), "--devices", "2", "--host", "FL.example.org")
    assert "Certificate for fl.example.org, 127.0.0.1, localhost, valid until 20" in text
    steps = [line.split()[0] for line in text.splitlines() if line.startswith("  ")]
    assert steps == [
        f"{folder}/server/start.sh", f"{folder}/server/register.sh", f"{folder}/device-0/start.sh",
    ]  # fmt: skip
    assert "arning" not in text


def test_insecure_prints_a_warning(tmp_path):
    require_extra()
    result = invoke("deploy", "init", str(tmp_path / "fed"), "--devices", "1", "--insecure")
    assert result.exit_code == 0
    assert "Warning: insecure: no encryption, and devices are not authenticated" in result.stderr
    assert "register" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--devices", "0"], "devices must be from 1 to 10000, not 0"),
        (["--devices", "2", "--host", "a b"], "'a b' is not a valid host"),
        (["--devices", "2", "--port", "70000"], "port must be from 1 to 55533, not 70000"),
    ],
)
def test_invalid_arguments_write_nothing(tmp_path, arguments, message):
    assert message in error_line("deploy", "init", str(tmp_path / "fed"), *arguments)
    assert not (tmp_path / "fed").exists()


def test_folder_in_use_is_not_overwritten(tmp_path):
    require_extra()
    (tmp_path / "notes").write_text("mine")
    message = error_line("deploy", "init", str(tmp_path), "--devices", "1")
    assert "is not empty" in message
    assert "notes" in error_line("deploy", "init", str(tmp_path), "--devices", "1", "--overwrite")
    assert (tmp_path / "notes").read_text() == "mine"


def test_renew_and_rekey(tmp_path):
    require_extra()
    folder = str(tmp_path / "fed")
    output("deploy", "init", folder, "--devices", "1")
    assert "Certificate valid until 20" in output("deploy", "renew", folder)
    assert f"Wrote a new key to {folder}/device-0" in output("deploy", "rekey", folder, "0")
    assert f"Wrote a new device to {folder}/device-1" in output("deploy", "rekey", folder, "1")
    assert "register.sh keys/device-1.pub" in output("deploy", "rekey", folder, "1")
    assert "not 9" in error_line("deploy", "rekey", folder, "9")


def test_renew_needs_a_federation(tmp_path):
    require_extra()
    assert "holds no federation" in error_line("deploy", "renew", str(tmp_path / "none"))


def test_the_proxy_needs_certificates():
    message = error_line(
        "deploy", "proxy", "--listen", "127.0.0.1", "--port", "1", "--superlink", "127.0.0.1:2"
    )
    assert "needs --ssl-ca-certfile, --ssl-certfile, --ssl-keyfile and --keys" in message
