"""Contract describes the observations that a policy was trained on."""

from __future__ import annotations

import json
import os
from typing import Any

from . import _checks, _engine
from ._errors import Misuse, NotFound
from ._feature import Feature, Features, text_table
from ._results import Finding
from .dataset import Dataset, as_dataset

__all__ = ["Contract"]


class Contract:
    """Everything that turns the messages of a robot into an observation, and nothing about files.

    Loader.contract() makes it. Save it with the checkpoint and pass it to robocache.Live. A
    Contract needs neither the dataset nor torch. Equal contracts have equal bytes.

    Args:
        text: The JSON of a contract.

    Raises:
        Malformed: The text is no contract, or its numbers were changed.
        Unsupported: A newer version of RoboCache wrote it, or one whose observations differ.

    Example:
        robocache.Loader("recording.mcap", hz=30, align="causal").contract().save("contract.json")
        contract = robocache.Contract.load("contract.json")
        print(contract)
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise Misuse(
                f"expected the JSON of a contract as text, found {type(text).__name__}",
                hint="Contract.load(path) reads a file",
            )
        answer = _engine.call_engine("robocache_contract_parse", {"contract": text})
        self._text: str = answer["contract"]
        self._content: dict[str, Any] = json.loads(self._text)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Contract:
        """Reads a contract from a file.

        Args:
            path: The path of the file.

        Returns:
            The Contract.

        Raises:
            NotFound: The file does not exist or cannot be read.
            Malformed: The file holds no contract, or its numbers were changed.
            Unsupported: A newer version of RoboCache wrote it, or one whose observations differ.
        """
        name = _checks.path_text(path)
        try:
            with open(name, encoding="utf-8", errors="replace") as f:
                text = f.read()
        except OSError as e:
            raise NotFound(f"the contract cannot be read: {e}", {"file": name}) from e
        return cls(text)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the contract to a file, which appears complete or not at all.

        Args:
            path: The path of the file, such as "policy.contract.json". A file there is replaced.
        """
        name = _checks.path_text(path)
        part = f"{name}.{os.getpid()}.part"
        try:
            with open(part, "w", encoding="utf-8") as f:
                f.write(self._text)
            os.replace(part, name)
        finally:
            if os.path.exists(part):
                os.remove(part)

    def to_json(self) -> str:
        """Returns the JSON of the contract, as save() writes it."""
        return self._text

    def check(self, source: str | os.PathLike[str] | Dataset) -> list[Finding]:
        """Lists what prevents a recording from giving these observations.

        Args:
            source: A path or URI, or an open Dataset.

        Returns:
            The findings. The list is empty if the recording fits.

        Raises:
            NotFound: The recording does not exist.
            Unsupported: RoboCache cannot read the recording.
        """
        ds = as_dataset(source, {})
        try:
            found = ds._handle.call("robocache_contract_check", {"contract": self._text})
        finally:
            if ds is not source:
                ds.close()
        return [Finding(f) for f in found]

    @property
    def keys(self) -> list[str]:
        """The keys of an observation, in their order."""
        return list(self.outputs)

    @property
    def outputs(self) -> Features:
        """The values of an observation by key: dtype, shape (-1: varies), and unit."""
        return Features((d["key"], Feature.of(d)) for d in self._content["outputs"])

    @property
    def streams(self) -> Features:
        """The streams to push by key: dtype and shape of a value, and size of images."""
        return Features((d["key"], Feature.of(d)) for d in self._content["streams"])

    @property
    def rate_hz(self) -> float:
        """The rate of the ticks in Hz."""
        return _checks.parse_rate(self._content["options"]["align"]["hz"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Contract) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> Any:
        return Contract, (self._text,)

    def __repr__(self) -> str:
        align = self._content["options"]["align"]

        def seconds_text(name: str, key: str) -> str:
            """Returns a duration of align for a stream in seconds, or "" if it is not set."""
            v = align.get(name, "")
            v = v.get(key, v.get("*", "")) if isinstance(v, dict) else v
            return f"{int(v.removesuffix('ns')) / 1e9:g} s" if v and v != "0ns" else ""

        rows = [["key", "source", "mode", "delay", "max_age", "dtype", "shape"]]
        streams = {d["key"]: d for d in self._content["streams"]}
        for d in self._content["outputs"]:
            key = d["key"]
            message = streams.get(key, {}).get("message") or {}
            mode = align.get("modes", {}).get(key, "")
            rows.append(
                [
                    key,
                    message.get("topic", "") + message.get("field", ""),
                    mode,
                    seconds_text("delay", key) if mode else "",
                    seconds_text("max_age", key) if mode else "",
                    d["dtype"],
                    str(d["shape"]),
                ]
            )
        robot = self._content.get("robot_type")
        head = f"Contract at {self.rate_hz:g} Hz" + (f" of {robot}" if robot else "")
        return f"{head}\n{text_table(rows)}"
