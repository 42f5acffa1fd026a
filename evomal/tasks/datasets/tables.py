"""The regression tables: Diabetes, Boston housing and California housing."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evomal.errors import InputError
from evomal.tasks.datasets.reading import check_rows, read_lines, read_numbers

BOSTON_FILE = "boston_house_prices.csv"
BOSTON_COLUMNS = (
    "CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE", "DIS", "RAD", "TAX", "PTRATIO", "B", "LSTAT", "MEDV",
)  # fmt: skip
CALIFORNIA_FILE = "cal_housing.data"
_CALIFORNIA_COLUMNS = 9
_CALIFORNIA_PRICE_UNIT = 100_000.0  # dollars


@dataclass(frozen=True, eq=False)
class TableData:
    """A regression table as its files hold it, neither split nor standardised."""

    features: NDArray[np.float64]  # samples × features
    targets: NDArray[np.float64]  # samples


def read_diabetes(folder: Path, rows: tuple[int, int]) -> TableData:
    """Read Diabetes (Efron et al., "Least Angle Regression", 2004), which ships with scikit-learn.

    The features are the raw measurements: scikit-learn's scaled version uses the statistics of all rows, also of those
    that will be tested on.
    """
    # Imported here: importing scikit-learn takes a second, which those who only want a loss should not wait for.
    from sklearn.datasets import load_diabetes

    features, targets = load_diabetes(return_X_y=True, scaled=False)
    return TableData(np.ascontiguousarray(features, dtype=np.float64), np.ascontiguousarray(targets, dtype=np.float64))


def read_boston(folder: Path, rows: tuple[int, int]) -> TableData:
    """Read Boston housing (Harrison and Rubinfeld, "Hedonic prices and the demand for clean air", 1978).

    The file is the one that scikit-learn once shipped: a line of counts, a line of names, then the rows with the price
    last.
    """
    path = folder / BOSTON_FILE
    lines = read_lines(path)
    expected_counts = [str(rows[0]), str(len(BOSTON_COLUMNS) - 1)]
    counts = lines[0].split(",")[:2] if lines else []
    if counts != expected_counts:
        raise InputError(f"{path}: must begin with the counts {','.join(expected_counts)}, but begins with {lines[:1]}")
    names = tuple(next(csv.reader(lines[1:2]), ()))
    if names != BOSTON_COLUMNS:
        columns = ",".join(BOSTON_COLUMNS)
        raise InputError(f"{path}: the second line must name the columns {columns}, but is {lines[1:2]}")
    check_rows(path, len(lines) - 2, rows[0])
    table = read_numbers(path, lines[2:], len(BOSTON_COLUMNS), first_line=3)
    return TableData(table[:, :-1].copy(), table[:, -1].copy())


def read_california(folder: Path, rows: tuple[int, int]) -> TableData:
    """Read California housing (Pace and Barry, "Sparse spatial autoregressions", 1997) from the StatLib file.

    The features are those of scikit-learn's copy, in its order, so that results can be compared: income, age, rooms
    and bedrooms per household, population, people per household, latitude, longitude. The target is the price in
    units of 100 000 dollars.
    """
    path = folder / CALIFORNIA_FILE
    lines = read_lines(path)
    check_rows(path, len(lines), rows[0])
    table = read_numbers(path, lines, _CALIFORNIA_COLUMNS)
    longitude, latitude, age, rooms, bedrooms, population, households, income, price = table.T
    if (households <= 0).any():
        line = int(np.argmax(households <= 0))
        raise InputError(f"{path}: line {line + 1} must count at least one household, but has {households[line]:g}")
    per_household = (rooms / households, bedrooms / households, population, population / households)
    features = np.stack((income, age, *per_household, latitude, longitude), axis=1)
    return TableData(features, price / _CALIFORNIA_PRICE_UNIT)
