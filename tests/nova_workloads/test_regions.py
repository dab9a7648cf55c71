"""Region files and Spark options that cannot be used, without Spark."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from nova_core.errors import NovaError
from nova_workloads.sensor_archive.pipeline import Preparation
from nova_workloads.sensor_archive.regions import Grid, read_regions
from nova_workloads.spark import SparkOptions, default_memory, spark_session

SQUARE = [[11, 48], [12, 48], [12, 49], [11, 48]]


def feature(shape: Any, **properties: Any) -> dict[str, Any]:
    return {"type": "Feature", "properties": properties, "geometry": shape}


def polygon(*rings: Any) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": list(rings)}


def collection(*features: Any) -> str:
    return json.dumps({"type": "FeatureCollection", "features": list(features)})


def test_polygons(tmp_path: Path) -> None:
    path = tmp_path / "regions.geojson"
    many = {"type": "MultiPolygon", "coordinates": [[SQUARE], [SQUARE]]}
    path.write_text(collection(feature(polygon(SQUARE), name="a"), feature(many, name=7)))
    regions = read_regions(path)
    assert regions.names == ("a", "7")
    assert regions.sides.shape == (12, 4)
    assert regions.region == (0,) * 4 + (1,) * 8
    assert regions.describe()["regions"] == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "no readable GeoJSON"),
        ('{"type": "FeatureCollection", "features": [' + "[" * 200_000, "GeoJSON"),
        ("[" * 200_000, "GeoJSON"),
        ('{"type": "Feature"}', "a GeoJSON FeatureCollection is expected"),
        ('{"type": "FeatureCollection", "features": 9}', r"expected: .*\$\.features"),
        ('{"type": "FeatureCollection", "features": [7]}', r"expected: .*\$\.features\[0\]"),
        (collection(), "no features; at least one region is needed"),
        (collection(feature(polygon(SQUARE), id=1)), "no property 'name'; there are: id"),
        (
            collection(*[feature(polygon(SQUARE), name="a")] * 2),
            r"features\[1\]: the name 'a' is there twice",
        ),
        (collection(feature({"type": "Point"}, name="a")), "a Point; a Polygon or MultiPolygon"),
        (collection(feature(None, name="a")), "a None; a Polygon or MultiPolygon is expected"),
        (collection(feature(polygon(SQUARE[:2]), name="a")), "a ring needs four positions"),
        (collection(feature(polygon([["x", 1]] * 4), name="a")), "a ring needs four positions"),
        (collection(feature(polygon([[1, 91]] * 4), name="a")), "beyond 180 degrees east or 90"),
    ],
)
def test_files_without_regions(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "regions.geojson"
    path.write_text(text)
    with pytest.raises(NovaError, match=message):
        read_regions(path)


def test_settings_that_cannot_be() -> None:
    with pytest.raises(NovaError, match="grid of 0 degrees: expected more than 0, at most 90"):
        Grid(0)
    with pytest.raises(NovaError, match="rate window of 7000 s: expected a divisor of a day"):
        Preparation(window=7000)
    with pytest.raises(NovaError, match="join distance -1 km: expected 0 or more"):
        Preparation(max_distance=-1)
    with pytest.raises(NovaError, match=r"--spark-conf 'cores=2': expected spark.NAME=VALUE"):
        SparkOptions.parsed("local", None, ["cores=2"], None)
    options = SparkOptions.parsed("yarn", "2g", ["spark.a=b=c"], None)
    assert options.settings == (("spark.a", "b=c"),)
    assert 1024 <= int(default_memory().removesuffix("m")) <= 4096


def test_without_spark_or_java(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "")
        patch.delenv("JAVA_HOME", raising=False)
        with pytest.raises(NovaError, match="Spark needs Java 17"), spark_session(SparkOptions()):
            pass
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyspark.errors", None)
        message = r"needs the module pyspark; pip install 'nova-placement\[spark\]'"
        with pytest.raises(NovaError, match=message), spark_session(SparkOptions()):
            pass
