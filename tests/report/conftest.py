"""Loss files for every test of cards."""

import pytest

from tests.report.cards import hostile_loss, saved_loss


@pytest.fixture
def loss_file(tmp_path):
    return saved_loss(tmp_path)


@pytest.fixture
def hostile_file(tmp_path):
    return hostile_loss(tmp_path)
