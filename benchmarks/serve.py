"""The live page: how long pages take for many runs and large ones, and what remains of clients that come and go.

`python benchmarks/serve.py` prints page times for 1,000 runs and for a run of 100,000 candidates, and memory and
descriptors of the server before and after many reconnects. `serve_load.py` measures a search that is followed.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from evomal.methods.candidates import Candidate, State
from evomal.runs import RunStore

_ROUNDS, _TABS = 20, 100  # of reconnects, and clients in each
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
GENOMES = ("abs(sub(f, y))", "square(sub(f, y))", "add(abs(sub(f, y)), square(sub(f, y)))", "abs(mul(f, sub(f, y)))")
SETTINGS = {
    "seed": 0, "method": "evomal", "device": "cpu", "population_mode": "stacked", "chunk": None, "threads": 1,
    "precision": "float32", "versions": {"evomal": "0.2", "torch": "2", "numpy": "2", "python": "3"},
    "settings": {"population": 5}, "budgets": {"generations": 2000},
    "task": {"0": {"name": "diabetes", "dataset": "diabetes", "model": "linear", "metric": "mse"}},
}  # fmt: skip


def write_run(folder: Path, candidates: int, per_generation: int, seed: int) -> None:
    """A record of candidates that were trained."""
    rng = random.Random(seed)
    first = Candidate(genome=GENOMES[0], origin="initial", state=State.EVALUATED, fitness=1.0, sentence="trained")
    with RunStore.create(folder, SETTINGS) as store:
        for generation in range(candidates // per_generation):
            parents = (rng.randrange(per_generation),) if generation else ()
            chunk = [
                dataclasses.replace(
                    first, generation=generation, index=index, genome=rng.choice(GENOMES), parents=parents,
                    fitness=0.5 + rng.random() / (1 + generation), seconds={"evaluate": 0.1},
                )
                for index in range(per_generation)
            ]  # fmt: skip
            store.write_chunk(generation, chunk)


@contextlib.contextmanager
def running(*command: str) -> Iterator[tuple[int, str, int]]:
    """A server that says where it listens, as a process of Python: its id, host and port."""
    started = subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    with started as process:
        try:
            assert process.stderr is not None
            found = re.search(r"http://([\d.]+):(\d+)/", process.stderr.readline())
            assert found is not None
            yield process.pid, found[1], int(found[2])
        finally:
            process.terminate()


def server(top: Path) -> contextlib.AbstractContextManager[tuple[int, str, int]]:
    """The server of the runs below a folder."""
    return running("-m", "evomal", "serve", str(top), "--port", "0")


async def get(host: str, port: int, path: str) -> tuple[float, int, bytes]:
    """Seconds, status and body of one request on a connection of its own."""
    begin = time.perf_counter()
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\n\r\n".encode())
        content = await reader.read()
    finally:
        writer.close()
    head, _, body = content.partition(b"\r\n\r\n")
    return time.perf_counter() - begin, int(head.split()[1]), body


async def follow(host: str, port: int) -> None:
    """One client that follows everything for ever, and fetches the list after each event, as its script does."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET /events?of=* HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n".encode())
    try:
        while line := await reader.readline():
            if line.startswith(b"data:"):
                await get(host, port, "/")
    finally:
        writer.close()


def state_of(process: int) -> tuple[int, float]:
    """Descriptors and resident megabytes of a process (Linux)."""
    resident = int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return len(os.listdir(f"/proc/{process}/fd")), resident


def wait_until_read(host: str, port: int) -> float:
    """Seconds until every record has been read."""
    begin = time.perf_counter()
    while re.search(b"being read|no runs yet", asyncio.run(get(host, port, "/"))[2]):
        time.sleep(0.2)
    return time.perf_counter() - begin


def page_times(top: Path, paths: list[str], what: str) -> None:
    """Print how long pages take: the first time, when they are made, and again."""
    with server(top) as (_, host, port):
        read = wait_until_read(host, port)
        time.sleep(3)
        body = asyncio.run(get(host, port, "/"))[2].decode()
        key = re.search(r"/runs/[0-9a-f]+", body)
        assert key is not None
        print(f"{what}: read in {read:.1f} s")
        for path in paths:
            place = path.replace("RUN", key[0])
            first, again = (asyncio.run(get(host, port, place)) for _ in range(2))
            size = f"{len(first[2]) / 1e3:.0f} kB, status {first[1]}"
            print(f"  {path:<26} {1e3 * first[0]:6.0f} ms, again {1e3 * again[0]:4.0f} ms, {size}")


def search(folder: Path, generations: int) -> list[str]:
    """The command of a search with short generations."""
    changes = {"generations": generations, "training_steps": 100, "filter_steps": 50, "meta_steps": 20, "threads": 1}
    words = [word for name, value in changes.items() for word in ("--set", f"{name}={value}")]
    where = ["--model", "mlp:hidden=32", "--preset", "paper", "--device", "cpu", "--out", str(folder)]
    return [sys.executable, "-m", "evomal", "search", "diabetes", *words, *where]


def measured_reconnects(process: int, host: str, port: int) -> None:
    """Print descriptors and memory of the server before and after many clients came and went."""

    async def once() -> None:
        tasks = [asyncio.create_task(follow(host, port)) for _ in range(_TABS)]
        await asyncio.sleep(0.5)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def settled() -> tuple[int, float]:
        time.sleep(2)
        return state_of(process)

    asyncio.run(once())
    before = settled()
    for _ in range(_ROUNDS):
        asyncio.run(once())
    after = settled()
    memory = f"{before[1]:.0f} to {after[1]:.0f} MB"
    print(f"{_ROUNDS * _TABS} reconnects: descriptors {before[0]} to {after[0]}, memory {memory}")


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--candidates", type=int, default=100_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        for number in range(given.runs):
            write_run(top / "many" / f"{number // 50}" / f"run-{number}", 40, 10, number)
        page_times(top / "many", ["/", "/?page=5", "/?text=run-77"], f"{given.runs} runs")
        write_run(top / "large" / "run", given.candidates, 100, 0)
        pages = ["RUN", "RUN/candidates", "RUN/candidates?page=1000", "RUN/candidates/900/7"]
        page_times(top / "large", ["/", *pages], f"a run of {given.candidates} candidates")
        with server(top / "large") as (process, host, port):
            wait_until_read(host, port)
            measured_reconnects(process, host, port)


if __name__ == "__main__":
    main()
