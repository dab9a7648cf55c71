"""What people get wrong in their first files and commands, and the line that they read then."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from nova_core import console
from nova_core.cli import cli
from nova_core.errors import ProblemError, ProblemWarning
from nova_core.io.files import read_problem
from nova_core.io.latencies import read_latency, symmetrized

NODES = """nova: 1
nodes:
  - {id: a, capacity: 10}
  - {id: b, capacity: 10}
sources:
  - {id: l, node: a, stream: L, rate: 1}
  - {id: r, node: a, stream: R, rate: 1}
query: {operators: [{id: j, left: L, right: R, sink: b}]}
"""
DOCUMENTS = {
    "a tab": (
        NODES.replace("  - {id: b", "\t- {id: b"),
        "line 4, column 1: a tab indents it; YAML is indented by spaces",
    ),
    "a colon": (
        NODES.replace("nodes:", "nodes"),
        "line 2, column 1: 'nodes': a colon is missing behind the name of a field",
    ),
    "no version": (
        NODES.replace("nova: 1\n", ""),
        "field 'nova' is missing; a line 'nova: 1', the format's version, is expected",
    ),
    "pairs for a matrix": (
        NODES + "latency: {file: pairs.csv}\n",
        "rows of pairs (from, to, ms), where a matrix is expected: a row of node names, then a row "
        "of ms per node; `nova topology embed` takes rows of pairs, and a problem has them as "
        "latency.pairs, or as tables.latency_pairs with from, to, ms",
    ),
}


@pytest.mark.parametrize(("text", "said"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_first_document(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "p.yaml").write_text(text)
    (tmp_path / "pairs.csv").write_text("from,to,ms\na,b,3\n")
    with pytest.raises(ProblemError) as told:
        read_problem(tmp_path / "p.yaml")
    assert str(told.value).partition(": ")[2] == said


def test_row_names_of_pandas_are_no_column(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text(",a,b\na,0,3\nb,5,0\n")
    ids, values = read_latency(tmp_path / "l.csv")
    assert ids == ["a", "b"]
    assert values.tolist() == [[0, 3], [5, 0]]


COMMANDS = {
    ("plann", "x.yaml"): "did you mean 'plan'?",
    ("topology", "embd", "x.csv"): "Did you mean 'embed'?",
    ("plan", "x.yaml", "--stratgy", "nova"): "Did you mean '--strategy'?",
    ("plan", "{problem}", "--strategy", "novva"): "did you mean 'nova'?",
    ("plan", "{problem}", "--set", "sigmma=1"): "sigma",
    ("compare", "{problem}", "snk"): "did you mean 'sink'?",
    (
        "topology",
        "embed",
        "{problem}",
        "-o",
        "y.csv",
        "--method",
        "slver",
    ): "did you mean 'solver'?",
    ("engines", "install", "flnk"): "did you mean 'flink'?",
    ("reproduce", "fig66"): "did you mean 'fig6'?",
    ("schema", "problm"): "did you mean 'problem'?",
}


@pytest.mark.parametrize(("words", "said"), COMMANDS.items(), ids=lambda x: " ".join(x))
def test_a_name_that_is_nearly_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text(NODES.replace("}", ", position: [1, 2]}", 2))
    done = CliRunner().invoke(cli, [word.format(problem="p.yaml") for word in words])
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


def test_a_warning_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    with console.warnings_as_lines():
        for _ in range(3):
            warnings.warn("p.yaml: told once, for a test", ProblemWarning, stacklevel=1)
    assert capsys.readouterr().err.count("told once, for a test") == 1


@pytest.mark.parametrize(("off", "told"), [(1e-4, False), (1e-9, False), (0.01, True), (5.0, True)])
def test_rounding_is_no_difference_of_directions(off: float, told: bool) -> None:
    latency = np.array([[0, 10.0], [10.0 + off, 0]])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        both = symmetrized(latency, ["a", "b"], "l.csv")
    assert bool(caught) == told
    assert both == pytest.approx(np.array([[0, 10 + off / 2], [10 + off / 2, 0]]))
