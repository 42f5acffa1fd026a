"""A listener that ends a search in the middle."""


class StoppedError(Exception):
    pass


class StoppingListener:
    """Raises StoppedError in a phase of a search: rivals, generations or final."""

    def __init__(self, phase):
        self._last, self._phase = phase, None

    def __getattr__(self, name):
        return lambda *arguments, **named: None

    def on_phase(self, name, steps):
        self._phase = name

    def on_rivals(self, scores):
        self._phase = "generations"

    def on_steps(self, name, steps):
        if self._phase == self._last:
            raise StoppedError
