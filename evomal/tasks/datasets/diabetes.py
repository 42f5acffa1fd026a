"""Diabetes: Efron, Hastie, Johnstone and Tibshirani, "Least Angle Regression", 2004; ships with scikit-learn."""

from pathlib import Path

import numpy as np

from evomal.tasks.datasets.raw import TableData

ROWS = 442
FEATURES = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")


def read_diabetes(folder: Path) -> TableData:
    """The measurements as taken; scikit-learn's scaled version was scaled with the rows that will be tested on."""
    # Imported here: scikit-learn takes a second, which those who only want a loss should not wait for.
    from sklearn.datasets import load_diabetes

    features, targets = load_diabetes(return_X_y=True, scaled=False)
    return TableData(
        name="diabetes",
        features=np.ascontiguousarray(features, dtype=np.float64),
        targets=np.ascontiguousarray(targets, dtype=np.float64),
        feature_names=FEATURES,
        target_name="progression",
    )
