"""From positions to regions: cells of a grid, or the polygons of a GeoJSON file."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from nova_core.errors import NovaError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from nova_core.model.problem import Floats


@dataclass(frozen=True)
class Grid:
    """Cells of equal size in degrees, named by their south-western corner, as ``48.00_11.50``.

    Attributes:
        degrees: size of a cell, more than 0 and at most 90.
    """

    degrees: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.degrees <= 90:
            raise NovaError(f"grid of {self.degrees:g} degrees: expected more than 0, at most 90")

    def describe(self) -> dict[str, Any]:
        """What a manifest says of the regions."""
        return {"grid_degrees": self.degrees}

    def assign(self, spark: SparkSession, homes: DataFrame) -> DataFrame:
        """Homes (``home_lat``, ``home_lon``, …) with their ``region``."""
        from pyspark.sql import functions as F  # noqa: N812 (its usual name)

        def corner(axis: str) -> Column:
            return F.floor(F.col(axis) / self.degrees) * self.degrees

        name = F.format_string("%.2f_%.2f", corner("home_lat"), corner("home_lon"))
        return homes.withColumn("region", F.when(F.col("home_lat").isNotNull(), name))


@dataclass(frozen=True)
class Polygons:
    """Regions as rings of corners.

    A position is inside when a ray from it crosses an odd number of sides; rings within rings are
    holes.

    Attributes:
        names: of the regions; where they overlap, the first one counts.
        region: (s,) index of the region each side belongs to.
        sides: (s, 4) longitude and latitude of both ends.
        source: the file.
    """

    names: tuple[str, ...]
    region: tuple[int, ...]
    sides: Floats
    source: str

    def describe(self) -> dict[str, Any]:
        """What a manifest says of the regions."""
        digest = hashlib.blake2b(digest_size=8)
        digest.update(json.dumps([self.names, self.region]).encode())
        digest.update(self.sides.tobytes())
        return {"regions": len(self.names), "digest": digest.hexdigest()}

    def assign(self, spark: SparkSession, homes: DataFrame) -> DataFrame:
        """Homes (``sensor``, ``home_lat``, ``home_lon``, …) with their ``region``, or null."""
        import numpy as np
        import pyarrow as pa
        from pyspark.sql import functions as F  # noqa: N812 (its usual name)

        lon, lat, to_lon, to_lat = self.sides.T
        table: Any = pa.table
        sides = spark.createDataFrame(
            table(
                {
                    "order": np.array(self.region),
                    "south": np.minimum(lat, to_lat),
                    "north": np.maximum(lat, to_lat),
                    "lat": lat,
                    "lon": lon,
                    "slope": (to_lon - lon) / np.where(to_lat == lat, 1.0, to_lat - lat),
                }
            )
        )
        # Of the sides beside a position, a ray to the east crosses those it meets further east.
        position = (F.col("home_lat"), F.col("home_lon"))
        crossed = (
            (F.col("south") <= position[0])
            & (position[0] < F.col("north"))
            & (position[1] < F.col("lon") + (position[0] - F.col("lat")) * F.col("slope"))
        )
        inside = (
            homes.join(F.broadcast(sides), crossed)
            .groupBy("sensor", "order")
            .count()
            .where("count % 2 = 1")
            .groupBy("sensor")
            .agg(F.min("order").alias("order"))
        )
        names = spark.createDataFrame(
            table({"order": np.arange(len(self.names)), "region": np.array(self.names, object)})
        )
        regions = inside.join(F.broadcast(names), "order").select("sensor", "region")
        return homes.join(regions, "sensor", "left")


Regions = Grid | Polygons


class _Geometry(msgspec.Struct):
    type: str
    coordinates: list[Any] = []


class _Feature(msgspec.Struct):
    properties: dict[str, Any] | None = None
    geometry: _Geometry | None = None


class _Collection(msgspec.Struct):
    """The parts of a GeoJSON file that are read."""

    type: Literal["FeatureCollection"]
    features: list[_Feature] = []


def read_regions(path: Path, name_property: str = "name") -> Polygons:
    """Regions of a GeoJSON file: its polygons and multipolygons.

    Args:
        path: a FeatureCollection.
        name_property: the property of a feature that names it.

    Raises:
        NovaError: naming the file and the feature.
    """
    import numpy as np

    try:
        document = msgspec.json.decode(path.read_bytes(), type=_Collection)
    except msgspec.ValidationError as error:
        raise NovaError(f"{path}: a GeoJSON FeatureCollection is expected: {error}") from None
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise NovaError(f"{path}: no readable GeoJSON: {reason}") from None
    names: list[str] = []
    region: list[int] = []
    sides: list[Floats] = []
    for index, feature in enumerate(document.features):
        place = f"{path}: features[{index}]"
        properties = feature.properties or {}
        if name_property not in properties:
            known = ", ".join(sorted(properties)) or "none"
            raise NovaError(f"{place}: no property {name_property!r}; there are: {known}")
        name = str(properties[name_property])
        if name in names:
            raise NovaError(f"{place}: the name {name!r} is there twice; names must differ")
        geometry = feature.geometry
        if geometry is None or geometry.type not in ("Polygon", "MultiPolygon"):
            kind = geometry.type if geometry else None
            raise NovaError(f"{place}: a {kind}; a Polygon or MultiPolygon is expected")
        names.append(name)
        several = geometry.type == "MultiPolygon"
        for polygon in geometry.coordinates if several else [geometry.coordinates]:
            # A polygon that is no list fails as a ring below.
            for ring in polygon if isinstance(polygon, list) else [polygon]:
                try:
                    corners = np.array([corner[:2] for corner in ring], np.float64)
                except (TypeError, ValueError):
                    corners = np.empty((0, 2))
                if corners.ndim != 2 or len(corners) < 4 or not np.isfinite(corners).all():
                    raise NovaError(f"{place}: a ring needs four positions [lon, lat] or more")
                if (np.abs(corners) > (180, 90)).any():
                    raise NovaError(f"{place}: a position beyond 180 degrees east or 90 north")
                closed = np.vstack([corners, corners[:1]])
                sides.append(np.hstack([closed[:-1], closed[1:]]))
                region.extend([len(names) - 1] * len(corners))
    if not names:
        raise NovaError(f"{path}: no features; at least one region is needed")
    return Polygons(tuple(names), tuple(region), np.vstack(sides), str(path))
