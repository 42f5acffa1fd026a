"""Who takes how much of the work, what is tried again, what is given up."""

from evomal.methods import Failure
from evomal.runs.executors.backlog import Backlog


def taken(backlog, share):
    pieces = []
    while backlog:
        pieces.append(backlog.take(share).rows)
    return pieces


def test_pieces_begin_large_and_end_single():
    assert [len(rows) for rows in taken(Backlog(25, unit=1, retries=2), 0.5)] == [6, 4, 3, 3, 2, 1, 1, 1, 1, 1, 1, 1]


def test_every_row_is_handed_out_once_and_in_order():
    pieces = taken(Backlog(25, unit=1, retries=2), 0.25)
    assert [row for rows in pieces for row in rows] == list(range(25))


def test_a_faster_worker_takes_more():
    backlog = Backlog(100, unit=1, retries=2)
    assert len(backlog.take(0.8).rows) == 40
    assert len(backlog.take(0.2).rows) == 6


def test_units_are_cut_where_one_engine_would_cut_them_whoever_takes_how_much():
    for share in (1.0, 0.5, 0.1):
        pieces = taken(Backlog(10, unit=4, retries=2), share)
        assert [row for rows in pieces for row in rows] == list(range(10))
        assert {rows[0] for rows in pieces} <= {0, 4, 8}


def test_whom_a_worker_took_along_is_tried_alone_before_it_is_given_up():
    backlog = Backlog(4, unit=1, retries=0)
    assert backlog.lose(backlog.take(1.0), "its worker died") == {}
    assert backlog.lose(backlog.take(1.0), "its worker died") == {0: Failure("its worker died (2 times)")}
    assert [backlog.take(1.0).rows for _ in range(3)] == [[1], [2], [3]]


def test_nothing_is_to_be_done_for_nobody():
    assert not Backlog(0, unit=1, retries=2)
    assert not Backlog(0, unit=0, retries=2)


def test_what_was_lost_comes_back_alone_and_first():
    backlog = Backlog(6, unit=1, retries=1)
    first = backlog.take(1.0)
    assert first.rows == [0, 1, 2]
    assert backlog.lose(first, "its worker died") == {}
    assert [backlog.take(1.0).rows for _ in range(4)] == [[0], [1], [2], [3]]


def test_a_row_is_given_up_after_as_many_retries_as_allowed():
    backlog = Backlog(1, unit=1, retries=2)
    for _ in range(2):
        assert backlog.lose(backlog.take(1.0), "its worker died") == {}
    assert backlog.lose(backlog.take(1.0), "its worker died") == {0: Failure("its worker died (3 times)")}
    assert not backlog


def test_without_retries_the_first_loss_is_the_last():
    backlog = Backlog(1, unit=1, retries=0)
    assert backlog.lose(backlog.take(1.0), "it took longer than 5 s") == {0: Failure("it took longer than 5 s (once)")}


def test_rows_that_belong_together_are_retried_together_and_cut_only_when_given_up():
    backlog = Backlog(3, unit=3, retries=1)
    backlog.lose(backlog.take(1.0), "its worker died")
    together = backlog.take(1.0)
    assert together.rows == [0, 1, 2]
    assert backlog.lose(together, "its worker died") == {}
    alone = [backlog.take(1.0) for _ in range(3)]
    assert [piece.rows for piece in alone] == [[0], [1], [2]]
    assert backlog.lose(alone[1], "its worker died") == {1: Failure("its worker died (2 times)")}
    assert not backlog
