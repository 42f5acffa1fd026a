"""Boston housing: Harrison and Rubinfeld, "Hedonic prices and the demand for clean air", 1978."""

import csv
from pathlib import Path

from evomal.errors import InputError
from evomal.tasks.datasets.raw import TableData
from evomal.tasks.datasets.reading import check_rows, read_lines, read_numbers

FILE = "boston_house_prices.csv"
ROWS = 506
FEATURES = ("CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE", "DIS", "RAD", "TAX", "PTRATIO", "B", "LSTAT")
TARGET = "MEDV"
_COLUMNS = (*FEATURES, TARGET)


def read_boston(folder: Path, rows: int = ROWS) -> TableData:
    """The file scikit-learn once shipped: a line of counts, a line of names, then the rows with the price last."""
    path = folder / FILE
    lines = read_lines(path)
    counts = lines[0].split(",")[:2] if lines else []
    if counts != [str(rows), str(len(FEATURES))]:
        raise InputError(f"{path}: must begin with the counts {rows},{len(FEATURES)}, but begins with {lines[:1]}")
    names = tuple(next(csv.reader(lines[1:2]), ()))
    if names != _COLUMNS:
        raise InputError(f"{path}: the second line must name the columns {','.join(_COLUMNS)}, but is {lines[1:2]}")
    check_rows(path, len(lines) - 2, rows)
    table = read_numbers(path, lines[2:], len(_COLUMNS), first_line=3)
    return TableData(
        name="boston",
        features=table[:, :-1].copy(),
        targets=table[:, -1].copy(),
        feature_names=FEATURES,
        target_name=TARGET,
    )
