"""Open a connection: an embedded lake by default, or the user's own session and catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headrace.api.connection import Headrace
from headrace.catalog import Catalog, sqlite_url
from headrace.config import Settings, load_settings
from headrace.errors import HeadraceError
from headrace.runtime.lake import Lake
from headrace.runtime.session import check_session, embedded_session
from headrace.sql.dialect import check_parser


def connect(
    warehouse: str | Path | None = None,
    *,
    spark: SparkSession | None = None,
    catalog_url: str | None = None,
    **settings: Any,
) -> Headrace:
    """Connect to the stream tables of a warehouse folder, or of the user's own Spark session.

    Other keywords are settings of docs/CONFIGURATION.md.
    """
    check_parser()
    given = {"warehouse": str(warehouse) if warehouse is not None else None, "catalog_url": catalog_url}
    known = load_settings(**{key: value for key, value in given.items() if value is not None}, **settings)
    if spark is not None:
        return _on_user_session(spark, known)
    return _on_embedded_lake(known)


def _on_user_session(spark: SparkSession, settings: Settings) -> Headrace:
    check_session(spark)
    if settings.catalog_url is None:
        raise HeadraceError(
            "catalog_url_missing",
            "A connection on your own Spark session needs to know where its catalog is.",
            hint="Pass catalog_url='postgresql://…' or catalog_url='sqlite:///path/catalog.sqlite'.",
        )
    return Headrace(spark, Catalog.open(settings.catalog_url), settings, lake=None)


def _on_embedded_lake(settings: Settings) -> Headrace:
    warehouse = _prepare_folder(settings)
    url = settings.catalog_url or sqlite_url(settings.catalog_file)
    catalog = Catalog.open(url)
    try:
        spark = embedded_session(settings, warehouse)
        return Headrace(spark, catalog, settings, Lake(spark, warehouse, catalog))
    except BaseException:
        catalog.close()
        raise


def _prepare_folder(settings: Settings) -> Path:
    warehouse, service = settings.warehouse_folder, settings.catalog_file.parent
    try:
        service.mkdir(parents=True, exist_ok=True)
        probe = service / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise HeadraceError(
            "warehouse_not_writable",
            f"The warehouse folder {warehouse} cannot be written: {error.strerror}.",
            hint="Choose another folder with warehouse=…, or give this user the right to write there.",
        ) from error
    return warehouse
