"""Topologies as other programs write them, read as latencies of links and of all pairs.

GraphML (as in the Internet Topology Zoo), node-link JSON (networkx), the JSON of simulators (YAFS:
``entity`` and ``link``), and lists of edges (``a b ms`` on each line).
"""

from __future__ import annotations

import json
import warnings
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nova_core.errors import ProblemError, ProblemWarning
from nova_core.io.safe_files import read_bytes
from nova_core.model.problem import PairLatencies

# Attributes of links that are their one-way latency in ms, the first that there is.
DELAYS = ("delay", "latency", "ms", "linkdelay", "weight", "pr")
# Of light in fibre, km per ms; links are longer than the way as the crow flies.
FIBRE_KM_PER_MS, DETOUR = 200.0, 1.5
EARTH_KM = 6371.0
# Of latencies that are written, behind the point.
DIGITS = 6
MOST_BYTES = 256 * 2**20
# All their pairs are a table of twelve million rows.
MOST_NODES = 5000


@dataclass(frozen=True, eq=False)
class Topology:
    """Nodes and links.

    Attributes:
        ids: names of the nodes.
        links: of which each has a latency.
        from_places: links whose latency is worked out from the places of their ends.
        unknown: links without a latency.
    """

    ids: list[str]
    links: PairLatencies
    from_places: int
    unknown: int


@dataclass
class _Graph:
    """What a file says: attributes by node, and links with theirs."""

    nodes: dict[str, Mapping[str, Any]]
    links: Sequence[tuple[str, str, Mapping[str, Any]]]


def read_topology(path: Path, delay: str | None = None) -> Topology:
    """Read a topology.

    Args:
        path: the file.
        delay: attribute of links that is their one-way latency, ms; None looks for one of `DELAYS`,
            and else works it out from latitudes and longitudes.

    Raises:
        ProblemError: for a file of another kind, or without any latency, naming what is missing.
    """
    content = read_bytes(path, ProblemError, MOST_BYTES)
    graph = _read(path, content)
    if not graph.links:
        raise ProblemError(f"{path}: no links; a topology has links between nodes")
    names = _names(graph)
    index = {node: number for number, node in enumerate(names)}
    attributes = sorted({key for _, _, values in graph.links for key in values})
    if delay is not None and delay not in attributes:
        known = ", ".join(attributes) or "none"
        raise ProblemError(f"{path}: links have no attribute {delay!r}; there are {known}")
    by_lower = {key.lower(): key for key in attributes}
    chosen = delay or next((by_lower[name] for name in DELAYS if name in by_lower), None)
    source, target, latency = [], [], []
    from_places = unknown = 0
    for a, b, values in graph.links:
        ms = _number(values.get(chosen)) if chosen is not None else None
        if ms is not None and ms < 0:
            raise ProblemError(
                f"{path}: link {a} to {b}: {chosen} is {ms:g}; 0 or more is expected"
            )
        if ms is None and delay is None:
            ms = _by_places(graph.nodes[a], graph.nodes[b])
            from_places += ms is not None
        if ms is None:
            unknown += 1
        elif a != b:
            source.append(index[a])
            target.append(index[b])
            latency.append(ms)
    if not latency:
        raise ProblemError(
            f"{path}: no link has a latency: neither {', '.join(DELAYS)} nor latitudes and "
            f"longitudes of its ends; links have {', '.join(attributes) or 'no attributes'}; name "
            "one with --delay"
        )
    links = PairLatencies(np.array(source, int), np.array(target, int), np.array(latency, float))
    return Topology(list(names.values()), links, from_places, unknown)


def all_pairs(topology: Topology, path: Path) -> PairLatencies:
    """Latencies of all pairs that a way leads between: along the fastest one, ms.

    Raises:
        ProblemError: for too many nodes.

    Warns:
        ProblemWarning: naming how many nodes no way leads to.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import shortest_path

    n = len(topology.ids)
    if n > MOST_NODES:
        raise ProblemError(
            f"{path}: {n:,} nodes; all pairs of {MOST_NODES:,} at most are worked out (--links "
            "writes links alone)"
        )
    links = topology.links
    low, high = np.minimum(links.source, links.target), np.maximum(links.source, links.target)
    # Of several links between two nodes, the fastest counts; scipy takes 0 for no link.
    order = np.lexsort((links.latency, high, low))
    first = np.ones(len(order), bool)
    first[1:] = (np.diff(low[order]) != 0) | (np.diff(high[order]) != 0)
    kept = order[first]
    weight = np.maximum(links.latency[kept], np.finfo(float).tiny)
    ways = shortest_path(
        coo_array((weight, (low[kept], high[kept])), (n, n)).tocsr(), directed=False
    )
    a, b = np.nonzero(np.triu(np.isfinite(ways), 1))
    lost = n - len(np.unique(np.concatenate([a, b])))
    if lost:
        text = f"{path}: {lost} of {n} nodes have no link with a latency, and are left out"
        warnings.warn(text, ProblemWarning, stacklevel=2)
    return PairLatencies(a, b, ways[a, b].round(DIGITS))


# --- files ----------------------------------------------------------------------------------------


def _read(path: Path, content: bytes) -> _Graph:
    start = content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start == b"<":
        return _graphml(path, content)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProblemError(f"{path}: byte {error.start} is not UTF-8; a topology is text") from None
    return _json(path, text) if start in (b"{", b"[") else _edges(path, text)


def _graphml(path: Path, content: bytes) -> _Graph:
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise ProblemError(f"{path}: declares entities, which are not read; GraphML has none")
    try:
        root = ET.fromstring(content)
    except ET.ParseError as error:
        raise ProblemError(f"{path}: not XML: {error}") from None
    keys = {
        key.get("id"): key.get("attr.name") or key.get("id") or ""
        for key in root.iter()
        if _tag(key) == "key"
    }
    nodes: dict[str, Mapping[str, Any]] = {}
    links = []
    for element in root.iter():
        if _tag(element) not in ("node", "edge"):
            continue
        values = {keys.get(d.get("key"), ""): d.text for d in element if _tag(d) == "data"}
        if _tag(element) == "node":
            nodes[element.get("id") or ""] = values
        else:
            links.append((element.get("source") or "", element.get("target") or "", values))
    return _checked(path, nodes, links)


def _tag(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def _json(path: Path, text: str) -> _Graph:
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProblemError(f"{path}: not JSON: {error}") from None
    for nodes_at, links_at, ends in (
        ("nodes", "links", ("source", "target")),
        ("nodes", "edges", ("source", "target")),
        ("entity", "link", ("s", "d")),
    ):
        if isinstance(raw, dict) and nodes_at in raw and links_at in raw:
            nodes = {str(row["id"]): row for row in _rows(path, raw, nodes_at, ("id",))}
            rows = _rows(path, raw, links_at, ends)
            links = [(str(row[ends[0]]), str(row[ends[1]]), row) for row in rows]
            return _checked(path, nodes, links)
    raise ProblemError(
        f"{path}: expected an object with nodes and links (or edges), as networkx writes it, or "
        "with entity and link"
    )


def _rows(path: Path, raw: dict[str, Any], name: str, needed: tuple[str, ...]) -> list[Any]:
    rows = raw[name]
    if not isinstance(rows, list):
        raise ProblemError(f"{path}: {name}: a list is expected")
    for number, row in enumerate(rows):
        missing = [key for key in needed if not isinstance(row, dict) or key not in row]
        if missing:
            raise ProblemError(f"{path}: {name}[{number}]: field {missing[0]!r} is missing")
    return rows


def _edges(path: Path, text: str) -> _Graph:
    nodes: dict[str, Mapping[str, Any]] = {}
    links = []
    header: list[str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        words = line.replace(",", " ").split()
        if not words or words[0].startswith("#"):
            continue
        if header is None:
            header = words if len(words) > 2 and _number(words[2]) is None else []
            if header:
                continue
        if len(words) < 3:
            raise ProblemError(
                f"{path}:{number}: {line.strip()!r:.60}: two nodes and the latency of their link, "
                "ms, are expected"
            )
        names = header[2:] if header else ["delay"]
        links.append((words[0], words[1], dict(zip(names, words[2:], strict=False))))
        nodes |= {word: nodes.get(word, {}) for word in words[:2]}
    return _checked(path, nodes, links)


def _checked(
    path: Path,
    nodes: dict[str, Mapping[str, Any]],
    links: Sequence[tuple[str, str, Mapping[str, Any]]],
) -> _Graph:
    for a, b, _ in links:
        for end in (a, b):
            if end not in nodes:
                raise ProblemError(f"{path}: link {a} to {b}: there is no node {end!r}")
    return _Graph(nodes, links)


# --- values ---------------------------------------------------------------------------------------


def _names(graph: _Graph) -> dict[str, str]:
    """Names of nodes by their ids: their labels where these tell them apart."""
    labels = {node: _label(values) for node, values in graph.nodes.items()}
    told = Counter(labels.values())
    clear = {label for label, count in told.items() if label and count == 1} - set(graph.nodes)
    return {node: label if label in clear else node for node, label in labels.items()}


def _label(values: Mapping[str, Any]) -> str:
    text = str(values.get("label") or values.get("name") or "").strip()
    return "" if text == "None" else text


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if np.isfinite(number) else None


def _by_places(a: Mapping[str, Any], b: Mapping[str, Any]) -> float | None:
    """One-way latency of a fibre between two places, ms; None where one is not known."""
    places = [*_place(a), *_place(b)]
    if None in places:
        return None
    lat_a, lon_a, lat_b, lon_b = np.radians(np.array(places, float))
    half = (
        np.sin((lat_b - lat_a) / 2) ** 2
        + np.cos(lat_a) * np.cos(lat_b) * np.sin((lon_b - lon_a) / 2) ** 2
    )
    km = 2 * EARTH_KM * np.arcsin(np.sqrt(min(half, 1.0)))
    return float(DETOUR * km / FIBRE_KM_PER_MS)


def _place(values: Mapping[str, Any]) -> Iterator[float | None]:
    lower = {key.lower(): value for key, value in values.items()}
    for names, most in ((("latitude", "lat"), 90.0), (("longitude", "lon", "lng"), 180.0)):
        found = next((_number(lower[name]) for name in names if name in lower), None)
        yield found if found is not None and abs(found) <= most else None
