"""What it costs a search that its page is followed: processor and wall time, beside the same traffic without evomal.

`python benchmarks/serve_load.py` runs one search again and again, in turns: alone; while clients follow a server that
only sends bytes, as many and as often as the live page does; and while they follow `evomal serve`. The second shows
what the clients and the network of this machine cost by themselves; the third divided by the second is what evomal
adds. Clients run in a process of the lowest priority, as they would be on other machines.

Wall times mean something on a machine that does nothing else; processor times also on others. Needs Linux.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from serve import ENVIRONMENT, get, running, search, server

from evomal.server.library import key_of

ARMS = ("alone", "bytes", "followed")
ANSWER = 6_000  # bytes of a compressed page of a run
HEAD = "HTTP/1.1 200 OK\r\ncontent-type: {}\r\n{}\r\n\r\n"


@dataclass(frozen=True)
class Cost:
    """One search."""

    wall: float
    search: float
    """Processor seconds."""
    server: float = 0.0
    clients: float = 0.0
    requests: int = 0
    median: float = 0.0
    late: float = 0.0
    """Seconds within which 99 % of the answers came."""


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, path: str) -> None:
    """One request on a connection that stays open."""
    writer.write(f"GET {path} HTTP/1.1\r\nhost: {host}\r\naccept-encoding: gzip\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    found = re.search(rb"content-length: (\d+)", head)
    assert found is not None
    await reader.readexactly(int(found[1]))


async def client(host: str, port: int, path: str, gap: float, delay: float, times: list[float]) -> None:
    """One who follows: asks again after each event, as the script of the page does, and besides at a fixed pace."""
    lock = asyncio.Lock()
    kept = await asyncio.open_connection(host, port)
    events, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET /events?of={path.split('/')[-1]} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())

    async def timed() -> None:
        begin = time.perf_counter()
        async with lock:
            await ask(*kept, host, path)
        times.append(time.perf_counter() - begin)

    async def paced() -> None:
        await asyncio.sleep(delay)
        begin, count = time.perf_counter(), 0
        while True:
            await timed()
            count += 1
            await asyncio.sleep(max(0.0, begin + count * gap - time.perf_counter()))

    async def following() -> None:
        while line := await events.readline():
            if line.startswith(b"data:"):
                await timed()

    await asyncio.gather(paced(), following())


async def clients(host: str, port: int, path: str, count: int, rate: int) -> None:
    """All clients, until the standard input ends; prints what they saw and what they took."""
    os.nice(19)
    times: list[float] = []
    every = [
        asyncio.create_task(client(host, port, path, count / rate, number / rate, times)) for number in range(count)
    ]
    await asyncio.to_thread(sys.stdin.read)
    for task in every:
        task.cancel()
    failed = [found for found in await asyncio.gather(*every, return_exceptions=True) if isinstance(found, Exception)]
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"times": times, "seconds": used.ru_utime + used.ru_stime, "failed": len(failed)}))


async def send_bytes() -> None:
    """A server that sends the bytes of a page to whoever asks, and an event each second."""
    body = bytes(ANSWER)
    page = HEAD.format("text/html", f"content-length: {ANSWER}").encode() + body

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while request := await reader.readuntil(b"\r\n\r\n"):
                if request.startswith(b"GET /events"):
                    writer.write(HEAD.format("text/event-stream", "cache-control: no-store").encode())
                    while True:
                        writer.write(b"data: 1\n\n")
                        await writer.drain()
                        await asyncio.sleep(1)
                writer.write(page)
                await writer.drain()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    print(f"serving bytes at http://{host}:{port}/", file=sys.stderr, flush=True)
    await listening.serve_forever()


def processor_seconds(process: int) -> float:
    """What a running process has taken so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(arm: str, top: Path, number: int, given: argparse.Namespace) -> Cost:
    """One search, followed or not."""
    folder = top / f"{arm}-{number}"
    with contextlib.ExitStack() as stack:
        if arm != "alone":
            process, host, port = stack.enter_context(
                server(top) if arm == "followed" else running(__file__, "--be", "bytes")
            )
            if arm == "followed":
                time.sleep(given.warm)  # until it has imported what the first page needs
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": ENVIRONMENT}
        begun = subprocess.Popen(search(folder, given.generations), **quiet)  # type: ignore[call-overload]
        while not (folder / "run.sqlite").exists() and begun.poll() is None:
            time.sleep(0.05)
        begin = time.perf_counter()
        if arm == "alone":
            _, _, used = os.wait4(begun.pid, 0)
            return Cost(time.perf_counter() - begin, used.ru_utime + used.ru_stime)
        path = f"/runs/{key_of(folder, top)}"
        while arm == "followed" and asyncio.run(get(host, port, path))[1] != 200:
            time.sleep(0.1)
        before = processor_seconds(process)
        words = ["--be", "clients", host, str(port), path]
        words += ["--clients", str(given.clients), "--rate", str(given.rate)]
        asking = subprocess.Popen([sys.executable, __file__, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        _, _, used = os.wait4(begun.pid, 0)
        wall, taken = time.perf_counter() - begin, processor_seconds(process) - before
        found = json.loads(asking.communicate()[0])
        assert not found["failed"], found["failed"]
        times = sorted(found["times"])
        return Cost(
            wall, used.ru_utime + used.ru_stime, taken, found["seconds"], len(times), statistics.median(times),
            times[int(0.99 * len(times))],
        )  # fmt: skip


def main() -> None:
    """Run all arms in turns and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generations", type=int, default=300, help="of the search")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rate", type=int, default=200, help="requests per second, besides one per client and event")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=float, default=10.0, help="seconds for the server to begin")
    parser.add_argument("--be", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.be:
        kind, *rest = given.be
        asyncio.run(
            send_bytes() if kind == "bytes" else clients(rest[0], int(rest[1]), rest[2], given.clients, given.rate)
        )
        return
    costs: dict[str, list[Cost]] = {arm: [] for arm in ARMS}
    with tempfile.TemporaryDirectory() as name:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": ENVIRONMENT}
        subprocess.run(search(Path(name) / "first", 1), check=True, **quiet)  # type: ignore[call-overload]  # compiles
        for number in range(given.rounds):
            for arm in ARMS[number % 3 :] + ARMS[: number % 3]:  # so that a drift of the machine is no arm's
                costs[arm].append(cost := measured(arm, Path(name), number, given))
                rest = "" if not cost.requests else (
                    f"; server {cost.server:.1f} s, {1e3 * cost.server / cost.requests:.2f} ms per request; clients "
                    f"{cost.clients:.1f} s; {cost.requests} requests, {cost.requests / cost.wall:.0f} a second, median "
                    f"{1e3 * cost.median:.1f} ms, 99 % within {1e3 * cost.late:.0f} ms"
                )  # fmt: skip
                print(
                    f"{arm:<9} search {cost.wall:.1f} s on the clock, {cost.search:.1f} s of the processor{rest}",
                    flush=True,
                )
    for what in ("wall", "search"):
        one, two, three = (statistics.median(getattr(cost, what) for cost in costs[arm]) for arm in ARMS)
        label = "on the clock" if what == "wall" else "of the processor"
        print(f"{label}: followed / alone {three / one:.3f}, bytes / alone {two / one:.3f}, ", end="")
        print(f"followed / bytes {three / two:.3f}")


if __name__ == "__main__":
    main()
