"""The launcher `./nova`: with a stand-in for Python where its ways to fail are tried out, and once
for real in a fresh clone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path

import pytest
from needs import need_namespaces

ROOT = Path(__file__).resolve().parents[2]
TOOLS = [
    *("bash", "sh", "cat", "chmod", "cksum", "cp", "dirname", "env", "flock", "mkdir", "mv"),
    *("readlink", "rm", "sed", "sleep", "tail", "touch"),
]

# Behaves as python3 as far as the launcher uses it, by what FAKE_* say, and notes every call.
FAKE_PYTHON = r"""#!/bin/sh
[ "$1" != -P ] || shift # it takes no modules from the current directory
echo "$*" >>"$FAKE_LOG"
case "$1 $2" in
    "-c "*platform*) echo "${FAKE_VERSION:-3.12.1}" ;;
    "-c import annoy") [ -e "$FAKE_LOG.annoy" ] ;;
    "-c "*ensurepip*) [ -z "${FAKE_NO_VENV:-}" ] ;;
    "-c "*"import pip"*) [ -e "${0%/*}/pip" ] ;;
    "-c "*version_info*) [ -z "${FAKE_OLD:-}" ] ;;
    "-m venv")
        mkdir -p "$3/bin"
        cp "$0" "$3/bin/python"
        echo "version = ${FAKE_VERSION:-3.12.1}" >"$3/pyvenv.cfg"
        [ -z "${FAKE_VENV_FAILS:-}" ] || { echo "disk full"; exit 1; }
        touch "$3/bin/pip"
        ;;
    "-m pip")
        sleep "${FAKE_PIP_SLEEP:-0}"
        case "$*:${FAKE_PIP_FAILS:-}" in
            *:all | *annoy]*:annoy) echo "no such wheel"; exit 1 ;;
            *annoy]*) touch "$FAKE_LOG.annoy" ;;
        esac
        cat >"${0%/*}/nova" <<'NOVA'
#!/bin/sh
[ "$1" != setup ] || { echo "nova $*" >>"$FAKE_LOG"; exit "${FAKE_SETUP:-0}"; }
printf "[%s]" "$PWD" "$@"
NOVA
        chmod +x "${0%/*}/nova"
        ;;
    "-m ${FAKE_CHECK_FAILS:-none}") exit 3 ;;
    "-m pytest")
        case "$*" in
            *"-m e2e --durations"*) exit "${FAKE_FIRST:-0}" ;;
            *--last-failed*) exit "${FAKE_AGAIN:-0}" ;;
        esac
        ;;
esac
"""


class Checkout:
    """A copy of the launcher in a directory of its own, with only stand-ins on PATH."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "a check out"
        self.bin = directory / "bin"
        self.log = directory / "log"
        self.root.mkdir(parents=True)
        self.bin.mkdir()
        shutil.copy(ROOT / "nova", self.root)
        (self.root / "research").mkdir()
        for project in (self.root, self.root / "research"):
            (project / "pyproject.toml").write_text("[project]\n")
        (self.root / "constraints.txt").write_text("x==1\n")
        for tool in TOOLS:
            place = shutil.which(tool)
            assert place is not None, tool
            (self.bin / tool).symlink_to(place)
        self.add_python("python3")

    def add_python(self, name: str) -> None:
        path = self.bin / name
        path.write_text(FAKE_PYTHON)
        path.chmod(0o755)

    def environment(self, **extra: str) -> dict[str, str]:
        return {"PATH": str(self.bin), "FAKE_LOG": str(self.log), **extra}

    def run(
        self,
        *arguments: str,
        cwd: Path | None = None,
        script: Path | None = None,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        self.log.unlink(missing_ok=True)
        return subprocess.run(
            [script or self.root / "nova", *arguments],
            cwd=cwd or self.root,
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def count(self, beginning: str) -> int:
        return sum(call.startswith(beginning) for call in self.calls)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def error_of(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("nova: error: ")
    return last


def test_first_run_sets_up_and_hands_over(checkout: Checkout, tmp_path: Path) -> None:
    done = checkout.run("plan", "two words", "", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"[{tmp_path}][plan][two words][]"
    assert len(done.stderr.splitlines()) == 3
    assert "making .venv with Python 3.12.1" in done.stderr
    assert checkout.count("-m venv") == checkout.count("-m pip") == 1


def test_later_runs_start_no_python(checkout: Checkout) -> None:
    checkout.run()
    done = checkout.run("x")
    assert (done.returncode, done.stderr) == (0, "")
    assert checkout.calls == []


@pytest.mark.parametrize("name", ["pyproject.toml", "research/pyproject.toml", "constraints.txt"])
def test_a_changed_file_installs_again_into_the_same_environment(
    checkout: Checkout, name: str
) -> None:
    checkout.run()
    (checkout.root / name).write_text("[project]\nname = 'x'\n")
    assert checkout.run().returncode == 0
    assert (checkout.count("-m venv"), checkout.count("-m pip")) == (0, 1)
    checkout.run()
    assert checkout.calls == []


def test_another_python_in_the_environment_installs_again(checkout: Checkout) -> None:
    checkout.run()
    (checkout.root / ".venv" / "pyvenv.cfg").write_text("version = 3.13.0\n")
    checkout.run()
    assert checkout.count("-m pip") == 1


def test_a_chosen_python_replaces_another(checkout: Checkout) -> None:
    checkout.run()
    checkout.add_python("other")
    assert checkout.run(NOVA_PYTHON="other").returncode == 0
    assert checkout.count("-m venv") == 1
    checkout.run(NOVA_PYTHON="other")
    assert checkout.calls == []


def test_through_symlinks(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "link to root").symlink_to(checkout.root)
    (tmp_path / "tools").mkdir()
    link = tmp_path / "tools" / "nova"
    link.symlink_to(Path("..") / "link to root" / "nova")
    done = checkout.run("x", script=link, cwd=tmp_path)
    assert done.stdout == f"[{tmp_path}][x]"
    assert (checkout.root / ".venv").is_dir()
    checkout.run("x")
    assert checkout.calls == []


def test_a_moved_checkout_is_set_up_anew(checkout: Checkout) -> None:
    checkout.run()
    checkout.root = checkout.root.rename(checkout.root.with_name("moved"))
    assert checkout.run("x").returncode == 0
    assert checkout.count("-m venv") == 1


# --- what can go wrong ---------------------------------------------------------------------------


def test_no_python(checkout: Checkout) -> None:
    (checkout.bin / "python3").unlink()
    error = error_of(checkout.run())
    assert "no Python 3.11 or newer found" in error
    assert "python3.11" in error and "NOVA_PYTHON" in error
    assert not (checkout.root / ".venv").exists()


def test_python_too_old(checkout: Checkout) -> None:
    error = error_of(checkout.run(FAKE_VERSION="3.9.2", FAKE_OLD="1"))
    assert "python3 is 3.9.2" in error


def test_a_shim_without_python_is_passed_over(checkout: Checkout) -> None:
    (checkout.bin / "python3").write_text("#!/bin/sh\necho not installed >&2\nexit 127\n")
    checkout.add_python("python3.12")
    done = checkout.run()
    assert done.returncode == 0
    assert "not installed" not in done.stderr


def test_python_without_venv(checkout: Checkout) -> None:
    error = error_of(checkout.run(FAKE_NO_VENV="1"))
    assert "apt-get install python3-venv" in error
    assert not (checkout.root / ".venv").exists()


def test_chosen_python_missing(checkout: Checkout) -> None:
    error = error_of(checkout.run(NOVA_PYTHON="/no/python"))
    assert "NOVA_PYTHON is '/no/python', which does not run" in error


def test_venv_failing_leaves_nothing_to_believe_in(checkout: Checkout) -> None:
    assert "disk full" in error_of(checkout.run(FAKE_VENV_FAILS="1"))
    assert checkout.run("x").returncode == 0
    assert checkout.count("-m venv") == 1


def test_pip_failing_shows_why_and_the_next_run_goes_on(checkout: Checkout) -> None:
    done = checkout.run(FAKE_PIP_FAILS="all")
    assert "Run again to go on" in error_of(done)
    assert "no such wheel" in done.stderr
    done = checkout.run("x")
    assert done.returncode == 0 and done.stdout.endswith("[x]")
    assert (checkout.count("-m venv"), checkout.count("-m pip")) == (0, 1)


def test_two_runs_at_once_install_once(checkout: Checkout) -> None:
    running = [
        subprocess.Popen(
            [checkout.root / "nova", name],
            env=checkout.environment(FAKE_PIP_SLEEP="2"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    ]
    outputs = [process.communicate(timeout=60) for process in running]
    assert [process.returncode for process in running] == [0, 0], outputs
    assert [out[-3:] for out, _ in outputs] == ["[a]", "[b]"]
    assert sum("waiting for another set-up" in err for _, err in outputs) == 1
    assert (checkout.count("-m venv"), checkout.count("-m pip")) == (1, 1)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_set_up_is_resumed(checkout: Checkout, end: signal.Signals) -> None:
    process = subprocess.Popen(
        [checkout.root / "nova"],
        env=checkout.environment(FAKE_PIP_SLEEP="1"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 30
    while not checkout.count("-m pip") and time.monotonic() < deadline:
        time.sleep(0.01)
    # What Ctrl-C does: everything in the foreground gets the signal.
    os.killpg(process.pid, end)
    _, said = process.communicate()
    assert process.returncode == -end
    assert ("set-up interrupted; run again to go on" in said) == (end == signal.SIGINT)
    done = checkout.run("x")
    assert done.returncode == 0 and done.stdout.endswith("[x]")
    assert (checkout.count("-m venv"), checkout.count("-m pip")) == (0, 1)


# --- ./nova test ---------------------------------------------------------------------------------

CHECKS = ["-m ruff check .", "-m ruff format --check .", "-m mypy"]


def test_test_runs_every_check(checkout: Checkout) -> None:
    done = checkout.run("test")
    assert done.returncode == 0, done.stderr
    ran = [call for call in checkout.calls if call.startswith("-m") and "pip" not in call]
    assert [*ran[1:4], ran[-1]] == [*CHECKS, "-m pytest -n 2 -m e2e --durations=25"]
    assert "-m pytest -n 3 --cov --cov-report= -m not e2e --durations=25" in ran
    assert done.stderr.splitlines()[-1].startswith("nova: test: ruff check: ok; ruff format: ok;")
    # What was installed to test serves to run.
    checkout.run("x")
    assert checkout.calls == []


def test_test_fails_when_one_check_fails_and_runs_the_rest(checkout: Checkout) -> None:
    done = checkout.run("test", FAKE_CHECK_FAILS="mypy")
    assert done.returncode == 1
    assert "mypy: FAILED; kernels: ok; pytest: ok;" in done.stderr
    assert checkout.calls[-1] == "-m pytest -n 2 -m e2e --durations=25"


AGAIN = "-m pytest -m e2e --last-failed --last-failed-no-failures=none"


@pytest.mark.parametrize(
    ("again", "code", "told"),
    [
        ("0", 0, "pytest e2e (NOT ALL AT ONCE: see what failed first): ok"),
        ("1", 1, "pytest e2e: FAILED"),
    ],
)
def test_end_to_end_tests_that_fail_are_run_once_more(
    checkout: Checkout, again: str, code: int, told: str
) -> None:
    done = checkout.run("test", FAKE_FIRST="1", FAKE_AGAIN=again)
    assert done.returncode == code
    assert told in done.stderr
    assert checkout.calls[-1] == AGAIN


def test_end_to_end_tests_that_cannot_run_are_not_run_again(checkout: Checkout) -> None:
    done = checkout.run("test", FAKE_FIRST="4")
    assert done.returncode == 1
    assert "pytest e2e: FAILED" in done.stderr
    assert AGAIN not in checkout.calls


def test_kernels_are_compiled_beside_the_linters(checkout: Checkout) -> None:
    assert checkout.run("test").returncode == 0
    (compiled,) = (i for i, call in enumerate(checkout.calls) if "compile_kernels" in call)
    tests = checkout.calls.index("-m pytest -n 3 --cov --cov-report= -m not e2e --durations=25")
    assert compiled < tests


def test_test_passes_arguments_to_pytest_alone(checkout: Checkout) -> None:
    done = checkout.run("test", "-k", "a b", FAKE_CHECK_FAILS="pytest")
    assert done.returncode == 3
    assert checkout.calls[-1] == "-m pytest -k a b"
    assert not any("ruff" in call for call in checkout.calls)


def test_test_without_annoy_says_so(checkout: Checkout) -> None:
    done = checkout.run("test", FAKE_PIP_FAILS="annoy")
    assert done.returncode == 0
    assert "annoy could not be installed" in done.stderr
    assert "-m pytest -n 2 -m e2e --durations=25" in checkout.calls


def test_test_needs_annoy_in_continuous_integration(checkout: Checkout) -> None:
    done = checkout.run("test", FAKE_PIP_FAILS="annoy", CI="true")
    assert "annoy could not be installed" in error_of(done)
    assert checkout.count("-m coverage") == checkout.count("-m pytest") == 0


@pytest.mark.parametrize("yes", [(), ("--yes",)])
def test_what_the_machine_lacks_is_installed_before_any_check(
    checkout: Checkout, yes: tuple[str, ...]
) -> None:
    assert checkout.run("test", *yes).returncode == 0
    setup = checkout.calls.index(" ".join(["nova setup test", *yes]))
    assert setup < min(i for i, call in enumerate(checkout.calls) if "annoy" in call)
    assert checkout.calls[-1] == "-m pytest -n 2 -m e2e --durations=25"


def test_single_tests_install_nothing_else(checkout: Checkout) -> None:
    assert checkout.run("test", "-k", "x").returncode == 0
    assert checkout.count("nova setup") == 0


def test_checks_do_not_begin_where_the_machine_cannot_be_set_up(checkout: Checkout) -> None:
    assert checkout.run("test", "--yes", FAKE_SETUP="2").returncode == 2
    assert checkout.count("-m pytest") == 0


def read_only(checkout: Checkout) -> None:
    """From here on nobody can write to the checkout, not even root."""
    need_namespaces()
    script = checkout.root.with_name("read-only")
    script.write_text(
        '#!/bin/sh\nexec unshare --mount sh -c \'mount --bind "$0" "$0" && '
        f'mount -o remount,bind,ro "$0" && exec "$0/nova" "$@"\' "{checkout.root}" "$@"\n'
    )
    script.chmod(0o755)
    for tool in ("unshare", "mount"):
        place = shutil.which(tool)
        assert place is not None, tool
        (checkout.bin / tool).symlink_to(place)


def test_a_read_only_checkout_is_one_clear_line(checkout: Checkout) -> None:
    read_only(checkout)
    script = checkout.root.with_name("read-only")
    for arguments in (["demo"], ["test"]):
        done = checkout.run(*arguments, script=script)
        assert "cannot be written to" in error_of(done)
        assert len(done.stderr.splitlines()) == 1
    # Once it is set up, it needs no more to be written for the main job.
    assert checkout.run("demo").returncode == 0
    assert checkout.run("demo", script=script).stdout.endswith("[demo]")
    assert checkout.run("test").returncode == 0
    assert "cannot be written to" in error_of(checkout.run("test", script=script))


# --- .ci/run -------------------------------------------------------------------------------------


def test_git_ignores_what_the_demo_and_experiments_write() -> None:
    for name in ("nova-demo/report.html", "runs/demo/run.json"):
        done = subprocess.run(["git", "check-ignore", "-q", name], cwd=ROOT)
        assert done.returncode == 0, name


def test_ci_is_the_test_command_of_the_readme_and_nothing_else(checkout: Checkout) -> None:
    assert "\n./nova test\n" in (ROOT / "README.md").read_text()
    (checkout.root / ".ci").mkdir()
    script = checkout.root / ".ci" / "run"
    shutil.copy(ROOT / ".ci" / "run", script)
    (checkout.root / "nova").write_text('#!/bin/sh\necho "$*"\nexit 7\n')
    done = checkout.run(script=script, cwd=checkout.root.parent)
    assert (done.returncode, done.stdout) == (7, "test --yes\n"), done.stderr
    commands = [line for line in script.read_text().splitlines() if not line.startswith("#")]
    assert len(commands) == 1


# --- for real ------------------------------------------------------------------------------------


def test_what_commands_write_by_default_is_not_committed() -> None:
    written = ["nova-demo/report.html", "runs/2026-01-01/run.json", "fuzz-failures/1/command"]
    for path in [*written, "tests/nova-demo/x", "README.md"]:
        done = subprocess.run(["git", "check-ignore", "-q", path], cwd=ROOT, check=False)
        assert done.returncode == (0 if path in written else 1), path


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh clone of the last commit."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no git checkout to clone")
    path = tmp_path_factory.mktemp("clone") / "a fresh clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, path], check=True)
    return path


@pytest.mark.e2e
def test_fresh_clone_in_an_empty_environment(clone: Path, tmp_path: Path) -> None:
    cache = subprocess.run(
        [sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=True
    )
    # What is the same each time, the downloads, is fetched once.
    environment = {
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
        "PIP_CACHE_DIR": cache.stdout.strip(),
        # To compile all that is installed takes longer than to install it.
        "PIP_NO_COMPILE": "1",
    }

    def nova(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [clone / "nova", *arguments],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    first = nova("--version")
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("nova, version ")
    again = nova("--version")
    assert (again.stdout, again.stderr) == (first.stdout, "")
    tour = nova("tour")
    assert tour.returncode == 0, tour.stderr
    assert tour.stdout
    assert (tmp_path / "nova-tour.png").stat().st_size > 1000


@pytest.mark.e2e
def test_wheels_hold_every_package_and_its_data(clone: Path, tmp_path: Path) -> None:
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path),
            *(clone, clone / "research"),
        ],
        check=True,
    )
    (wheel,) = tmp_path.glob("nova_placement-*.whl")
    (research,) = tmp_path.glob("nova_research-*.whl")
    product, papers = (set(zipfile.ZipFile(one).namelist()) for one in (wheel, research))
    assert not [name for name in product if name.startswith("nova_research") or "/tests/" in name]
    assert not [name for name in papers if "/tests/" in name or "/traces/" in name]
    costream = "nova_research/costream"
    assert {
        f"{costream}/learned/models/costream.npz",
        f"{costream}/simulator/simulator.json",
    } <= papers
    assert [name for name in papers if name.endswith("licenses/LICENSE")]
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python, place = venv / "bin" / "python", {"base": str(venv), "platbase": str(venv)}
    install = ["--python", python, "install", "--quiet", "--no-compile", "--no-deps"]
    install += [wheel, research]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True)
    # What it depends on is here already; the checkout is not among it, as files that are named
    # within a directory so added are not followed.
    others = Path(sysconfig.get_path("purelib", "venv", place)) / "others.pth"
    others.write_text(sysconfig.get_path("purelib") + "\n")
    code = """
import nova_core, nova_engines, nova_flink, nova_harness, nova_kafka, nova_nebulastream
import nova_spark, nova_storm
import nova_research, nova_testbed, nova_workloads, sys
from importlib.resources import files
core = files("nova_core")
print(core.is_relative_to(sys.prefix) and (core / "py.typed").is_file())
print(len([f for f in (core / "io" / "examples").iterdir() if f.name.endswith(".yaml")]))
"""
    told = subprocess.run(
        [python, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    typed, examples = told.stdout.split()
    assert typed == "True"
    assert int(examples) == len(list((clone / "nova_core/io/examples").glob("*.yaml"))) > 0
    version = subprocess.run(
        [venv / "bin" / "nova", "--version"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert version.stdout.startswith("nova, version ")
