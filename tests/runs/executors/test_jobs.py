"""How jobs are shared among workers, what is run again, and what is given up."""

from evomal.methods import Failure
from evomal.runs.executors.jobs import JobQueue, jobs_in


def taken(queue, workers):
    parts = []
    while queue:
        parts.append(jobs_in(queue.take(workers)))
    return parts


def test_parts_begin_large_and_end_single():
    assert [len(jobs) for jobs in taken(JobQueue(25, chunk=1, retries=2), 2)] == [6, 4, 3, 3, 2, 1, 1, 1, 1, 1, 1, 1]


def test_every_job_is_taken_once_and_in_order():
    assert [job for jobs in taken(JobQueue(25, chunk=1, retries=2), 4) for job in jobs] == list(range(25))


def test_chunks_are_never_cut():
    for workers in (1, 2, 10):
        parts = taken(JobQueue(10, chunk=4, retries=2), workers)
        assert [job for jobs in parts for job in jobs] == list(range(10))
        assert {jobs[0] for jobs in parts} <= {0, 4, 8}


def test_a_job_that_was_lost_with_others_runs_alone_before_it_is_given_up():
    queue = JobQueue(4, chunk=1, retries=0)
    assert queue.put_back(queue.take(1), "its worker died") == {}
    assert queue.put_back(queue.take(1), "its worker died") == {0: Failure("its worker died (2 times)")}
    assert [jobs_in(queue.take(1)) for _ in range(3)] == [[1], [2], [3]]


def test_a_queue_without_jobs_is_empty():
    assert not JobQueue(0, chunk=1, retries=2)
    assert not JobQueue(0, chunk=0, retries=2)


def test_lost_jobs_come_back_first_and_one_by_one():
    queue = JobQueue(6, chunk=1, retries=1)
    first = queue.take(1)
    assert jobs_in(first) == [0, 1, 2]
    assert queue.put_back(first, "its worker died") == {}
    assert [jobs_in(queue.take(1)) for _ in range(4)] == [[0], [1], [2], [3]]


def test_a_job_is_given_up_after_the_last_retry():
    queue = JobQueue(1, chunk=1, retries=2)
    for _ in range(2):
        assert queue.put_back(queue.take(1), "its worker died") == {}
    assert queue.put_back(queue.take(1), "its worker died") == {0: Failure("its worker died (3 times)")}
    assert not queue


def test_without_retries_the_first_loss_is_the_last():
    queue = JobQueue(1, chunk=1, retries=0)
    assert queue.put_back(queue.take(1), "it took longer than 5 s") == {0: Failure("it took longer than 5 s (once)")}


def test_a_chunk_is_retried_whole_and_cut_only_when_it_would_be_given_up():
    queue = JobQueue(3, chunk=3, retries=1)
    queue.put_back(queue.take(1), "its worker died")
    whole = queue.take(1)
    assert jobs_in(whole) == [0, 1, 2]
    assert queue.put_back(whole, "its worker died") == {}
    alone = [queue.take(1) for _ in range(3)]
    assert [jobs_in(chunks) for chunks in alone] == [[0], [1], [2]]
    assert queue.put_back(alone[1], "its worker died") == {1: Failure("its worker died (2 times)")}
    assert not queue
