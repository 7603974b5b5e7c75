"""Results as tables of pandas, an extra that is imported only when one is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import UsageError


def data_frame(columns: Mapping[str, Sequence[Any]]) -> Any:
    """Return columns of equal length as a pandas.DataFrame.

    Raises:
        UsageError: F108, pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise UsageError("F108", "a table of results needs the package pandas", help="pip install pandas") from None
    return pandas.DataFrame(dict(columns))
