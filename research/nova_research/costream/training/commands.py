"""``nova learn``: training and evaluation of the learned cost model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nova_core import console, paths
from nova_core.commands import shared
from nova_core.errors import NovaError
from nova_core.numbers import SEED, NumberRange, at_least

if TYPE_CHECKING:
    from nova_research.costream.training.dataset import Dataset

traces_argument = click.argument("traces", type=paths.INPUT, nargs=-1, required=True)
measured_option = click.option(
    "--measured", is_flag=True, help="Use measured selectivities where traces have them."
)

# Options of the training, as `nova_research.costream.training.train.Settings` has them.
settings_options = shared.options(
    click.option("--hidden", type=click.IntRange(4, 1024), default=64, show_default=True),
    click.option("--layers", type=click.IntRange(1, 4), default=1, show_default=True),
    click.option("--members", type=click.IntRange(1, 32), default=3, show_default=True),
    click.option("--epochs", type=at_least(1), default=200, show_default=True),
    click.option("--patience", type=at_least(1), default=20, show_default=True),
    click.option("--batch", type=at_least(1), default=128, show_default=True),
    click.option(
        "--rate",
        type=NumberRange(min=0, min_open=True),
        default=3e-3,
        show_default=True,
        help="Initial learning rate; the second stage begins with a tenth of it.",
    ),
    click.option(
        "--decay",
        type=NumberRange(min=0),
        default=0.4,
        show_default=True,
        help="Weight decay (AdamW); the second stage takes a twentieth of it.",
    ),
    click.option("--split", type=SEED, default=0, show_default=True, help="Seed of the split."),
    shared.seed_option("Of the initial parameters and the order of traces."),
)

begin_option = click.option(
    "--begin",
    type=paths.INPUT,
    metavar="MODEL",
    help="Train this model further, at a tenth of the rate and a twentieth of the decay. It "
    "decides --hidden, --layers and --members.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def learn() -> None:
    """Train the learned cost model on traces, and evaluate it."""


@learn.command(short_help="Train an ensemble on traces.")
@traces_argument
@shared.output_option("Where the model goes: .npz.", required=True)
@click.option(
    "--stage",
    "stages",
    multiple=True,
    type=click.Choice(["simulator", "rack"]),
    help="Origin of the traces to learn from; may be repeated [default: simulator, then rack].",
)
@begin_option
@click.option("--work", type=paths.OUTPUT, help="Directory of checkpoints, to resume from.")
@settings_options
@click.option(
    "--share",
    type=NumberRange(0.001, 1),
    default=1.0,
    show_default=True,
    help="Share of the training queries to use.",
)
@measured_option
def train(
    traces: tuple[Path, ...],
    output: Path,
    stages: tuple[str, ...],
    begin: Path | None,
    work: Path | None,
    measured: bool,
    **settings: Any,
) -> None:
    """Train on TRACES, files of Parquet or directories of them.

    80 % of all queries are for training, 10 % decide when to stop, 10 % are for `nova learn
    evaluate`. Training uses simulated traces first, then those of the rack.
    """
    from nova_research.costream.learned.model import load_model, write_model
    from nova_research.costream.training.train import STAGES, Settings
    from nova_research.costream.training.train import train as run

    dataset = _read(traces, measured)
    with console.progress("training") as progress:
        model = run(
            dataset,
            Settings(**settings),
            begin=None if begin is None else load_model(begin),
            stages=stages or STAGES,
            work=work,
            say=progress.step,
        )
    write_model(model, output)
    console.say(f"model {model.digest} written to {output}")


@learn.command(short_help="Train for several splits, and predict queries not seen.")
@traces_argument
@begin_option
@click.option(
    "--splits",
    type=click.IntRange(1, 10),
    default=4,
    show_default=True,
    help="Each keeps a tenth of the queries for tests.",
)
@click.option(
    "--share",
    "shares",
    type=NumberRange(0.001, 1),
    multiple=True,
    default=[1.0],
    show_default=True,
    help="Share of the training queries to use; may be repeated, for a learning curve.",
)
@settings_options
@click.option("--baselines", is_flag=True, help="Evaluate gradient-boosted trees, too (LightGBM).")
@measured_option
@shared.output_option("Where the learning curve goes: .png or .svg.")
@shared.json_option
def validate(
    traces: tuple[Path, ...],
    begin: Path | None,
    splits: int,
    shares: tuple[float, ...],
    baselines: bool,
    measured: bool,
    output: Path | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Train on TRACES, once for each split, and predict the queries that the split keeps for tests.

    So every query is predicted by a model that has not seen it. A model that has seen TRACES must
    not be given with --begin.
    """
    from nova_core.plotting import checked_suffix, save_figure
    from nova_research.costream.learned.model import load_model
    from nova_research.costream.training import validate as validation
    from nova_research.costream.training.evaluate import report
    from nova_research.costream.training.train import Settings

    if output is not None:
        checked_suffix(output)
    dataset = _read(traces, measured)
    with console.progress("training") as progress:
        result = validation.validate(
            dataset,
            Settings(**settings),
            begin=None if begin is None else load_model(begin),
            splits=splits,
            shares=sorted(set(shares)),
            baselines=baselines,
            say=progress.step,
        )
    rows = report(result.values, result.tests)
    if output is not None:
        scores = {row["predictor"]: row["scores"] for row in rows if row["by"] == "all"}
        save_figure(lambda: validation.draw_curve(scores, result.traces), output)
    if as_json:
        answer = {"traces": len(result.tests), "trained_with": dict(result.traces), "rows": rows}
        console.print_json(answer)
        return
    console.show(*_tables(rows))


@learn.command(short_help="Evaluate a model on traces of queries it has not seen.")
@click.argument("model", type=paths.INPUT)
@traces_argument
@click.option(
    "--all", "everything", is_flag=True, help="Use all queries, not only those for tests."
)
@click.option("--baselines", is_flag=True, help="Evaluate gradient-boosted trees, too (LightGBM).")
@measured_option
@shared.json_option
def evaluate(
    model: Path,
    traces: tuple[Path, ...],
    everything: bool,
    baselines: bool,
    measured: bool,
    as_json: bool,
) -> None:
    """Predict TRACES with MODEL: q-errors and accuracies, by structure and by window.

    Noise is the difference between repeated runs of one plan.
    """
    from nova_research.costream.learned.model import load_model
    from nova_research.costream.training.dataset import rows_for
    from nova_research.costream.training.evaluate import predicted, report

    if baselines:
        from nova_research.costream.training.baselines import VECTORS
    loaded = load_model(model)
    split = int((loaded.facts or {}).get("settings", {}).get("split", 0))
    dataset = _read(traces, measured)
    test = dataset if everything else dataset.take(rows_for(dataset, "test", split))
    if not len(test):
        raise NovaError("TRACES: none is of a query kept for tests; --all takes all")
    predictors = {"model": predicted(loaded, test)}
    if baselines:
        for vector in VECTORS:
            predictors[vector] = _values(vector, dataset, test, split)
    rows = report(predictors, test)
    if as_json:
        console.print_json({"model": loaded.digest, "traces": len(test), "rows": rows})
        return
    console.show(*_tables(rows))


@learn.command(short_help="Fit the simulator to traces of a rack.")
@traces_argument
@shared.output_option("Where the constants go: .json.", required=True)
@click.option(
    "--most",
    type=at_least(1),
    default=300,
    show_default=True,
    help="Most traces to fit to, of queries that models are trained with; others are held out.",
)
@click.option(
    "--evaluations",
    type=click.IntRange(1, 1_000_000),
    default=600,
    show_default=True,
    help="Approximate number of sets of constants to try.",
)
@shared.seed_option("Of the split of queries.")
@shared.json_option
def fit(
    traces: tuple[Path, ...],
    output: Path,
    most: int,
    evaluations: int,
    seed: int,
    as_json: bool,
) -> None:
    """Fit what work costs in the simulator to TRACES, and compare with those held out.

    A trace takes about a millisecond per set of constants. The file has the constants and their
    scores.
    """
    from nova_research.costream.simulator import fit as fitting

    with shared.working(), console.progress("fitting the simulator") as progress:
        samples = fitting.read_samples(traces)
        fitted = fitting.fit(
            samples,
            most=most,
            evaluations=evaluations,
            seed=seed,
            progress=progress,
        )
    fitting.write_fit(fitted, output, seed=seed)
    if as_json:
        console.print_json(
            {"constants": fitted.constants._asdict(), "scores": fitted.scores, "loss": fitted.loss}
        )
        return
    console.show(fitting.summary_table(fitted))
    console.say(f"constants written to {output}")


def _read(traces: tuple[Path, ...], measured: bool) -> Dataset:
    from nova_research.costream.training.dataset import read_dataset

    with shared.working(), console.progress("reading traces") as progress:
        return read_dataset(traces, measured=measured, progress=progress)


def _values(vector: str, dataset: Dataset, test: Dataset, split: int) -> dict[str, Any]:
    """Values of a baseline, trained origin by origin, for the rows of the test data."""
    import numpy as np

    from nova_research.costream.learned.network import METRICS
    from nova_research.costream.training.baselines import Trees
    from nova_research.costream.training.dataset import rows_for

    values = {metric: np.full(len(test), np.nan) for metric in METRICS}
    for origin in np.unique(test.origin).tolist():
        parts = []
        for part in ("train", "validation"):
            rows = rows_for(dataset, part, split) & (dataset.origin == origin)
            if not rows.any():
                raise NovaError(f"no traces of origin {origin} to train baselines with")
            parts.append(dataset.take(rows))
        mine = np.flatnonzero(test.origin == origin)
        for metric, one in Trees.trained(vector, *parts).values(test.take(mine)).items():
            values[metric][mine] = one
    return values


def _tables(rows: list[dict[str, Any]]) -> list[Any]:
    from nova_research.costream.learned.network import METRICS
    from nova_research.costream.training.evaluate import score_text

    tables = []
    for origin in dict.fromkeys(row["origin"] for row in rows):
        cells = []
        for row in rows:
            if row["origin"] == origin:
                scores = row["scores"]
                name = f"{row['group']}: {row['predictor']}"
                traces = f"{scores['success']['count']:,}"
                texts = (score_text(scores[metric]) for metric in METRICS)
                cells.append((name, row["by"], traces, *texts))
        title = f"Origin {origin}: q-error Q50/Q95, or accuracy on balanced data"
        headings = ["group", "by", ">traces", *(f">{metric}" for metric in METRICS)]
        tables.append(console.table(title, headings, cells))
    return tables
