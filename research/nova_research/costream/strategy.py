"""Costream: the candidate that a learned cost model predicts to be best (ICDE 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from nova_core.model.plan import Plan
from nova_core.model.problem import Problem
from nova_core.strategies.base import WHOLE, Strategy, check_choice, check_range

Target = Literal["processing-latency", "e2e-latency", "throughput"]
_METRIC = {
    "processing-latency": "processing_latency_ms",
    "e2e-latency": "e2e_latency_ms",
    "throughput": "throughput",
}
# Candidates of all queries or pairs together; each gets its share, at least the paper's number.
MOST_CANDIDATES = 50_000
LEAST_CANDIDATES = 25


@dataclass(frozen=True)
class CostreamParameters:
    """Parameters of Costream.

    Attributes:
        target: what is to be best: ``processing-latency``, ``e2e-latency`` or ``throughput``.
        candidates: placements per query, or pair of a join, that are predicted; fewer where there
            are so many queries that all of them would be more than 50,000.
        model: file of the model; None takes the one that comes with Nova.
        seed: of the candidates.
    """

    target: Target = "processing-latency"
    candidates: int = 1000
    model: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("costream:", self, "target", get_args(Target))
        check_range("costream:", self, "candidates", 1, 1_000_000, WHOLE)


class Costream(Strategy):
    """Predict many placements, leave out those that fail or fall behind, take the best."""

    name = "costream"
    ignores = ("capacity", "minimum-capacity", "link")
    files = ("model",)
    Parameters = CostreamParameters
    parameters: CostreamParameters

    def place(self, problem: Problem) -> Plan:
        """Place query after query, or pair after pair, each beside those before it.

        A candidate counts if the majority of the ensemble expects results and no back-pressure;
        where none does, the one that is nearest to it is taken. Candidates that crowd a host more
        than the model has been trained with come last.

        Raises:
            ModelError: when there is no model, or the file does not hold one.
            InfeasibleError: when no node may host an operator.

        Warns:
            ProblemWarning: when the model has not been trained for what the problem has.
        """
        import warnings

        import numpy as np

        from nova_core.errors import ProblemWarning
        from nova_research.costream.learned.candidates import plan_of_nodes
        from nova_research.costream.learned.model import load_model
        from nova_research.costream.learned.search import Search, accepted, ranking

        p = self.parameters
        search = Search(problem, load_model(p.model))
        queries = search.queries()
        share = max(MOST_CANDIDATES // max(len(queries), 1), LEAST_CANDIDATES)
        random = np.random.default_rng(p.seed)
        predicted, doubtful, metric = 0, 0, _METRIC[p.target]
        for query in queries:
            candidates = search.candidates(query, min(p.candidates, share), random)
            predictions = search.predict(query, candidates)
            order = ranking(predictions, metric)
            # The first that the model has been trained for, if there is one.
            best = int(order[np.argmax(search.uncrowded(candidates)[order])])
            search.keep(query, candidates.nodes(best))
            predicted += len(candidates)
            doubtful += not accepted(predictions)[best]
        if doubt := search.doubt():
            text = f"{problem.name}: costream: the model {doubt}; its choices may be poor"
            warnings.warn(text, ProblemWarning, stacklevel=2)
        notes = {"candidates": predicted, "doubtful": doubtful, "model": search.model.digest}
        facts = {**self._facts(), "notes": notes}
        return plan_of_nodes(problem, search.enumerator.graph, search.nodes, self.name, **facts)
