"""`.ci/bare`: what a command finds there, and that nothing it leaves behind goes unnoticed."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.processes import finished, is_alive

ROOT = Path(__file__).parents[1]
INHERITED = {
    "PATH": os.environ["PATH"],
    "EVOMAL_DATA": "/the/data",
    "PIP_TIMEOUT": "7",
    "SSL_CERT_FILE": "/certificates",
    "https_proxy": "http://proxy",
}
NOT_INHERITED = {"PYTHONPATH": "/elsewhere", "RAY_TMPDIR": "/elsewhere", "OMP_NUM_THREADS": "1", "LANG": "C"}

pytestmark = pytest.mark.skipif(
    shutil.which("git") is None
    or subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True).returncode != 0,
    reason="a clone is needed",
)


@pytest.fixture
def bare(tmp_path):
    """Runs a command there; its exit code, what it printed, and what was said."""
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()

    def run(command, **more):
        environment = {**INHERITED, **NOT_INHERITED, "HOME": tmp_path / "home", "TMPDIR": tmp_path / "tmp", **more}
        done = finished(["bash", ROOT / ".ci" / "bare", command], 300, env={k: str(v) for k, v in environment.items()})
        assert list((tmp_path / "tmp").glob("evomal-*")) == []  # it leaves nothing itself
        return done.returncode, done.stdout, done.stderr.replace(UNCOMMITTED, "")

    return run


UNCOMMITTED = "bare: there are changes that are not committed, which are not tested\n"


def test_nothing_is_inherited_but_what_is_named(bare, tmp_path):
    (tmp_path / "home" / ".config" / "pip").mkdir(parents=True)
    (tmp_path / "home" / ".config" / "pip" / "pip.conf").write_text("[global]\ntimeout = 5\n")
    code, out, err = bare("env; pwd; ls -A $HOME $TMPDIR $XDG_CACHE_HOME")
    assert (code, err) == (0, "")
    *lines, place = [line for line in out.splitlines() if line and not line.endswith(":")]
    found = dict(line.partition("=")[::2] for line in lines)
    for name in ("PWD", "OLDPWD", "SHLVL", "_"):  # the shell's own
        found.pop(name, None)
    top = Path(place).parent
    assert found == {
        **INHERITED, "PIP_CONFIG_FILE": str(tmp_path / "home" / ".config" / "pip" / "pip.conf"), "HOME": f"{top}/home",
        "TMPDIR": f"{top}/tmp", "XDG_CACHE_HOME": f"{top}/cache", "PIP_CACHE_DIR": f"{top}/cache/pip",
    }  # fmt: skip
    assert Path(place).name == "clone"


def test_the_place_is_a_clone_of_what_is_committed(bare):
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    assert bare("git rev-parse HEAD && git status --porcelain") == (0, head, "")


def test_a_command_that_fails_is_told_with_its_code(bare):
    assert bare("exit 7") == (7, "", "bare: 'exit 7' failed with exit code 7\n")


def test_pip_s_own_file_may_be_anywhere(bare, tmp_path):
    code, out, _ = bare("echo $PIP_CONFIG_FILE", PIP_CONFIG_FILE=tmp_path / "mine.conf")
    assert (code, out) == (0, f"{tmp_path / 'mine.conf'}\n")


def test_what_is_left_in_the_real_folders_is_noticed(bare, tmp_path):
    (tmp_path / "home" / ".cache" / "numba").mkdir(parents=True)
    names = ("home/.cache/matplotlib", "home/.ray", "home/.triton", "tmp/pytest-of-me", "tmp/torchinductor_me")
    left = [tmp_path / name for name in names]
    sentences = "".join(f"bare: {path} was left behind\n" for path in left)
    assert bare(f"mkdir {' '.join(map(str, left))}") == (1, "", sentences)


def test_what_others_leave_there_is_their_own(bare, tmp_path):
    (tmp_path / "tmp" / "ray" / "session").mkdir(parents=True)
    log = tmp_path / "tmp" / "ray" / "session" / "log"
    assert bare(f"touch {tmp_path}/tmp/notes {log}; mkdir {tmp_path}/tmp/ray-0") == (0, "", "")
    left = f"bare: {tmp_path}/tmp/ray was left behind\n"
    assert bare(f"sleep 0.1; echo $TMPDIR > {log}; echo $HOME/x >> {log}") == (1, "", left)


def test_folders_of_clusters_are_noticed(bare):
    code, _, err = bare("mkdir $TMPDIR/ray-0 $TMPDIR/pytest-of-me")
    assert code == 1
    assert err.startswith("bare: /")
    assert err.endswith("/tmp/ray-0 was left behind\n")
    assert err.count("\n") == 1


@pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="there is no /proc")
def test_a_process_that_is_left_is_noticed_and_ended(bare):
    code, out, err = bare("setsid sleep 1000 > /dev/null 2>&1 & echo $!")
    assert code == 1
    assert err == f"bare: process {out.strip()} was left behind: sleep 1000 \n"
    deadline = time.monotonic() + 30
    while is_alive(int(out)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(int(out))
