"""A replacement for torch.cuda that defers all work until a caller waits for it."""

from __future__ import annotations


class Stream:
    """A queue of work that runs in order when a caller waits for it."""

    def __init__(self, device: object = None) -> None:
        self.work: list = []
        self.cuda_stream = 0

    def run(self, n: int | None = None) -> None:
        n = len(self.work) if n is None else n
        for f in self.work[:n]:
            f()
        del self.work[:n]

    def wait_event(self, event: Event) -> None:
        self.work.append(event.waiter())

    def synchronize(self) -> None:
        self.run()


class Caller(Stream):
    """The stream of a test. It waits at once, because tests read their tensors immediately."""

    def wait_event(self, event: Event) -> None:
        event.synchronize()


class Event:
    """A device event.

    Recording the event again moves it to the later position. Waiters that were queued before still
    wait for the earlier position.
    """

    def __init__(self, blocking: bool = False) -> None:
        self.places: list[Place] = []

    def record(self, stream: Stream) -> None:
        self.places = [Place(stream)]

    def query(self) -> bool:
        return all(p.done for p in self.places)

    def waiter(self):  # type: ignore[no-untyped-def]
        return lambda places=self.places: [p.reach() for p in places]

    def synchronize(self) -> None:
        self.waiter()()


class Place:
    """A position in the work queue of a stream."""

    def __init__(self, stream: Stream) -> None:
        self.done, self.stream = False, stream
        stream.work.append(lambda: setattr(self, "done", True))

    def reach(self) -> None:
        while not self.done:
            self.stream.run(1)
