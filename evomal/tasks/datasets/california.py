"""California housing: Pace and Barry, "Sparse spatial autoregressions", 1997; the StatLib file."""

from pathlib import Path

import numpy as np

from evomal.errors import InputError
from evomal.tasks.datasets.raw import TableData
from evomal.tasks.datasets.reading import check_rows, read_lines, read_numbers

FILE = "cal_housing.data"
ROWS = 20640
# scikit-learn's features, in its order, so that results can be compared with those made from its copy.
FEATURES = ("MedInc", "HouseAge", "AveRooms", "AveBedrms", "Population", "AveOccup", "Latitude", "Longitude")
_FILE_COLUMNS = 9


def read_california(folder: Path, rows: int = ROWS) -> TableData:
    """Averages a household instead of the file's totals a block; the price in units of 100 000 dollars."""
    path = folder / FILE
    lines = read_lines(path)
    check_rows(path, len(lines), rows)
    table = read_numbers(path, lines, _FILE_COLUMNS)
    longitude, latitude, age, rooms, bedrooms, population, households, income, value = table.T
    if (households <= 0).any():
        line = int(np.argmax(households <= 0))
        raise InputError(f"{path}: line {line + 1} must count at least one household, but has {households[line]:g}")
    columns = (
        income,
        age,
        rooms / households,
        bedrooms / households,
        population,
        population / households,
        latitude,
        longitude,
    )
    return TableData(
        name="california",
        features=np.stack(columns, axis=1),
        targets=value / 100_000.0,
        feature_names=FEATURES,
        target_name="MedHouseVal",
    )
