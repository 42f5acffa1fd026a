"""A step captured once as a CUDA graph and then replayed.

Launching the kernels of a small network's step takes the host a millisecond, running them a fraction of that.
"""

import contextlib
import gc
import time
import warnings
from collections.abc import Callable, Iterator, Sequence

import torch

from evomal.engine.device_memory import is_out_of_memory

_SECONDS_BETWEEN_COLLECTIONS = 10.0
_collected = -_SECONDS_BETWEEN_COLLECTIONS  # when all garbage was last collected for a capture
_EAGER_STEPS = 3  # lazy initialisation (cuBLAS handles, momentum buffers, autotuning) must be over before a capture


class GraphedStep:
    """A function of no arguments, called many times: eagerly at first, then captured and replayed.

    The function reads and writes tensors that keep their memory. Its Python code runs once, at capture, so a decision
    made there holds until `forget`. A function that cannot be captured, for instance because it waits for the device,
    runs eagerly, and `refusal` says why. With `raises_memory_errors`, a lack of memory at the capture is raised: the
    caller can do with less. On a CPU the function is called every time.
    """

    def __init__(
        self,
        function: Callable[[], None],
        *,
        device: torch.device,
        generators: Sequence[torch.Generator] = (),
        enabled: bool = True,
        raises_memory_errors: bool = False,
    ) -> None:
        self._function = function
        self._device = device
        self._generators = generators
        self._raises_memory_errors = raises_memory_errors
        self._eager_left = _EAGER_STEPS
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stream: torch.cuda.Stream | None = None
        if enabled and device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.refusal = "" if self._stream is not None else "not asked for, or no CUDA device"

    @property
    def captured(self) -> bool:
        """Whether the next call replays a graph."""
        return self._graph is not None

    def forget(self) -> None:
        """Capture again at the next call, because something decided in Python has changed."""
        self._graph = None

    def __call__(self) -> None:
        if self._graph is not None:
            self._graph.replay()
        elif self._stream is None or self.refusal:
            self._function()
        elif self._eager_left > 0:
            self._eager_left -= 1
            self._call_on_stream(self._stream)
        else:
            self._capture(self._stream)

    def _call_on_stream(self, stream: torch.cuda.Stream) -> None:
        # Autograd remembers the stream of the forward pass, so first steps run on the stream of the capture.
        outside = torch.cuda.current_stream(self._device)
        stream.wait_stream(outside)
        with torch.cuda.stream(stream), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            before = torch.cuda.get_sync_debug_mode()
            torch.cuda.set_sync_debug_mode("warn")
            try:
                self._function()
            finally:
                torch.cuda.set_sync_debug_mode(before)
                outside.wait_stream(stream)  # also after an error, as the memory may be used for something else
        # Only the last eager step is typical of later ones; a wait in it would make the capture fail.
        waits = [str(item.message) for item in caught if "synchronizing CUDA operation" in str(item.message)]
        if waits and self._eager_left == 0:
            self._fall_back(f"the step waits for the device: {waits[0]}")

    def _capture(self, stream: torch.cuda.Stream) -> None:
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        outside = torch.cuda.current_stream(self._device)
        try:
            with (
                _collection_disabled(),
                torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"),
            ):
                self._function()
        except RuntimeError as error:
            torch.cuda.set_stream(outside)  # a failed capture does not restore it
            if self._raises_memory_errors and is_out_of_memory(error):
                raise
            self._fall_back(f"the step cannot be captured: {error}")
            self._function()
            return
        self._graph = graph
        graph.replay()

    def _fall_back(self, reason: str) -> None:
        self.refusal = reason
        warnings.warn(f"CUDA graphs are not used, which is several times slower: {reason}", stacklevel=2)


@contextlib.contextmanager
def _collection_disabled() -> Iterator[None]:
    """Without garbage collection: if it freed another graph, the capture would fail."""
    global _collected
    enabled = gc.isenabled()
    # A full collection takes some tenths of a second, and a search captures several steps one after the other.
    recent = time.monotonic() - _collected < _SECONDS_BETWEEN_COLLECTIONS
    gc.collect(1 if recent else 2)
    _collected = _collected if recent else time.monotonic()
    torch.cuda.empty_cache()  # a graph has memory of its own, so what the first steps used would lie idle
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
