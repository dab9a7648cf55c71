"""Model files: what is written is read, what is damaged or foreign is refused in a line."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from learned_models import random_model
from learned_problems import two_streams

from nova_core.strategies import place
from nova_research.costream.learned import model as models
from nova_research.costream.learned.features import FEATURES, HOST, KINDS
from nova_research.costream.learned.graph import graph_of
from nova_research.costream.learned.model import ModelError, Scale, load_model, rows_of, write_model
from nova_research.costream.learned.network import CLASSES, METRICS, REGRESSIONS


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("model") / "model.npz"
    write_model(random_model(hidden=8), path)
    return path.read_bytes()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    model = random_model(hidden=8, layers=2)
    for half, tolerance in ((False, 0.0), (True, 1e-3)):
        write_model(model, tmp_path / "model.npz", half=half)
        again = load_model(tmp_path / "model.npz")
        assert (again.hidden, again.layers, again.kinds) == (8, 2, model.kinds)
        for mine, theirs in zip(model.members, again.members, strict=True):
            for name, one in mine.items():
                assert theirs[name] == pytest.approx(one, rel=tolerance, abs=tolerance)
    graph = graph_of(place(two_streams(), "sink"))
    one, other = model.predict([graph]), again.predict([graph])
    for metric in METRICS:
        assert one.value(metric) == pytest.approx(other.value(metric), rel=0.05, abs=1e-2)


def test_three_of_the_usual_size_are_small(tmp_path: Path) -> None:
    write_model(random_model(hidden=64), tmp_path / "model.npz")
    assert (tmp_path / "model.npz").stat().st_size < 2e6


def test_predictions_are_means_of_members_and_their_votes() -> None:
    found = random_model(members=3).predict([graph_of(place(two_streams(), "sink"))])
    (row,) = rows_of(found, ["q"])
    for metric in REGRESSIONS:
        assert row[metric]["low"] <= row[metric]["value"] <= row[metric]["high"]
        assert row[metric]["low"] >= 0
    for metric in CLASSES:
        votes = (found.members[metric][:, 0] > 0.5).sum()
        assert row[metric]["holds"] == (votes >= 2)
        assert 0 <= row[metric]["low"] <= row[metric]["probability"] <= row[metric]["high"] <= 1


def test_the_model_that_comes_with_nova_is_small_and_knows_all_operators() -> None:
    assert models.SHIPPED.stat().st_size <= 2 * 2**20
    model = load_model()
    assert len(model.members) == 3
    assert set(model.kinds) == set(KINDS)
    facts = dict(model.facts or {})
    assert facts["stages"] == ["rack"] and facts["begin"]["stages"] == ["simulator"]


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nowhere\.npz: cannot be read"):
        load_model(tmp_path / "nowhere.npz")


def rewritten(content: bytes, change: Callable[[dict[str, bytes]], None]) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, one in members.items():
            archive.writestr(name, one)
    return out.getvalue()


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def with_header(**fields: Any) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        array = np.load(io.BytesIO(members["header.npy"]))
        header = json.loads(array.tobytes()) | fields
        members["header.npy"] = npy(np.frombuffer(json.dumps(header).encode(), np.uint8))

    return change


def claims_much(members: dict[str, bytes]) -> None:
    """A shape of 8 TB on a few bytes."""
    out = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (2_000_000_000_000,)}
    np.lib.format.write_array_header_1_0(out, header)
    members["host.0.bias.npy"] = out.getvalue() + b"abcd"


def bomb(members: dict[str, bytes]) -> None:
    members["host.0.bias.npy"] = bytes(100 * 2**20)


def put(name: str, value: Any) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        members[name] = npy(value)

    return change


def pickled(members: dict[str, bytes]) -> None:
    out = io.BytesIO()
    header = {"descr": "|O", "fortran_order": False, "shape": (1,)}
    np.lib.format.write_array_header_1_0(out, header)
    members["header.npy"] = out.getvalue() + pickle.dumps(print)


HOSTILE: dict[str, tuple[Callable[[dict[str, bytes]], None], str]] = {
    "another version": (with_header(nova_model=9), "nova_model is 9; this version of Nova reads 3"),
    "a field unheard of": (with_header(layer=2), "header: 'layer' is no field of a model"),
    "other features": (with_header(features={}), "made for other features or metrics"),
    "too wide": (with_header(hidden=10**9), "hidden is 1000000000; expected 1 to 1024"),
    "no number": (with_header(layers="x"), "layers is 'x'"),
    "other shapes": (with_header(hidden=9), "damaged: encode.host.0.weight is float16"),
    "no kinds": (with_header(kinds=3), "damaged or no model"),
    "a missing array": (lambda members: members.pop("host.0.bias.npy") and None, "damaged"),
    "claims much": (claims_much, "damaged: host.0.bias is float32"),
    "a bomb": (bomb, "damaged: larger than a model when unpacked"),
    "not finite": (put("host.0.bias.npy", np.full((3, 8), np.nan, np.float32)), "holds NaN"),
    "no range": (put("least.host.npy", np.full(len(HOST), 2e30, np.float32)), "above the greatest"),
    "no spread": (put("spread.host.npy", np.zeros(len(HOST), np.float32)), "not above 0"),
    "pickled": (pickled, "damaged or no model"),
}


@pytest.mark.parametrize("how", sorted(HOSTILE))
def test_hostile_files_are_refused(content: bytes, tmp_path: Path, how: str) -> None:
    change, message = HOSTILE[how]
    path = tmp_path / "model.npz"
    path.write_bytes(rewritten(content, change))
    with pytest.raises(ModelError) as refused:
        load_model(path)
    assert message in str(refused.value)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_bytes_are_refused_or_read(
    content: bytes, tmp_path: Path, data: st.DataObject
) -> None:
    """Nothing else: the checksums of the archive find most of it."""
    spoiled = bytearray(content[: data.draw(st.integers(0, len(content)))])
    for _ in range(data.draw(st.integers(0, 3))):
        if spoiled:
            at = data.draw(st.integers(0, len(spoiled) - 1))
            spoiled[at] = data.draw(st.integers(0, 255))
    path = tmp_path / "model.npz"
    path.write_bytes(bytes(spoiled))
    try:
        load_model(path)
    except ModelError as error:
        assert "\n" not in str(error)


def test_features_beyond_the_trained_range_count_as_its_end_and_are_named() -> None:
    more = [1.0] * (len(HOST) - 4)
    rows = np.array([[50.0, 1000.0, 1.0, 10.0, *more], [100.0, 2000.0, 3.0, 100.0, *more]])
    scale = Scale.of({"host": rows})
    np.testing.assert_array_equal(
        scale.of_hosts(np.array([10.0, 1500.0, 9.0, 50.0, *more])),
        scale.of_hosts(np.array([50.0, 1500.0, 3.0, 50.0, *more])),
    )
    assert scale.beyond("host", rows) == []
    assert scale.beyond("host", np.array([[60.0, 1500.0, 9.0, 50.0, *more]])) == ["latency"]
    assert scale.beyond("sink", np.full((1, len(FEATURES["sink"])), 1e9)) == []  # nothing known


def test_more_operators_on_a_host_than_trained_with_are_named() -> None:
    graph = graph_of(place(two_streams(), "sink"))
    many = int(np.bincount(graph.host).max())
    assert replace(random_model(), crowd=many).doubt(graph) == ""
    doubt = replace(random_model(), crowd=many - 1).doubt(graph)
    assert doubt == f"has been trained with up to {many - 1} operators on a host, not with {many}"


def test_costream_crowds_no_host_more_than_its_model_has_seen(tmp_path: Path) -> None:
    problem = two_streams()
    for crowd in (3, 2):
        write_model(replace(random_model(), crowd=crowd), tmp_path / "model.npz")
        plan = place(problem, "costream", model=str(tmp_path / "model.npz"), candidates=300)
        bodies = np.bincount(plan.instances.node, minlength=len(problem.nodes))
        pinned = np.bincount([0, 1, int(problem.sinks[0])], minlength=len(problem.nodes))
        assert (bodies + pinned)[bodies > 0].max() <= crowd


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_devices_are_no_models(device: str) -> None:
    with pytest.raises(ModelError, match=f"{device}: cannot be read: no file; pipes and devices"):
        load_model(device)
