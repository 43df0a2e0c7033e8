"""A stand-in for torch.cuda whose work runs late: when somebody waits for it."""

from __future__ import annotations


class Stream:
    """Work in order; it runs when somebody waits for it."""

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
    """Of a test, which reads what it is given at once."""

    def wait_event(self, event: Event) -> None:
        event.synchronize()


class Event:
    """As a device's: where it is recorded anew, it stands for the later place, and who waits already waits for the earlier."""

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
    """In the work of a stream."""

    def __init__(self, stream: Stream) -> None:
        self.done, self.stream = False, stream
        stream.work.append(lambda: setattr(self, "done", True))

    def reach(self) -> None:
        while not self.done:
            self.stream.run(1)
