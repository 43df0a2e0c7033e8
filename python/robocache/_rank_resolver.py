"""Finds the rank and the world size of a Loader when the Loader is first used."""

from __future__ import annotations

import os
import sys
from typing import Any

from . import _checks
from ._errors import Misuse


class RankResolver:
    """The rank and the world size of one Loader.

    Explicit arguments take precedence. Otherwise the values come from the process group of
    torch.distributed, else from RANK and WORLD_SIZE in the environment, else there is one process.
    The values may change until fix is called. A later change raises Misuse.
    """

    def __init__(self, rank: Any, world_size: Any) -> None:
        self.rank = None if rank is None else _checks.check_integer("rank", rank)
        self.world_size = (
            None if world_size is None else _checks.check_integer("world_size", world_size)
        )
        self.fixed: tuple[int, int] | None = None
        self.current()

    @property
    def is_explicit(self) -> bool:
        """Whether the caller chose the rank or the world size."""
        return self.rank is not None or self.world_size is not None

    def current(self) -> tuple[int, int]:
        """Returns (rank, world size), either fixed or as they are at this moment."""
        return self.fixed or self._resolve_rank()

    def fix(self) -> tuple[int, int]:
        """Returns (rank, world size) and fixes them. Raises Misuse if they have changed since."""
        if self.fixed is None:
            self.fixed = self._resolve_rank()
        elif not self.is_explicit:
            found, by = _rank_from_process()
            if found is not None and found != self.fixed:
                rank, world = self.fixed
                raise Misuse(
                    f"this Loader was used as rank {rank} of {world}, "
                    f"and {by} says rank {found[0]} of {found[1]}",
                    hint="use the Loader (len, iter, state_dict) only after init_process_group, "
                    "make a new one, or pass rank= and world_size=",
                )
        return self.fixed

    def _resolve_rank(self) -> tuple[int, int]:
        """Returns (rank, world size) from the arguments, torch.distributed or the environment."""
        r, w = self.rank, self.world_size
        if r is None and w is None:
            r, w = _rank_from_process()[0] or (0, 1)
        else:
            found = _rank_from_group() or _rank_from_environment()
            if r is None:
                if found is not None and found[1] == w:
                    r = found[0]
                elif w == 1:
                    r = 0
            elif w is None:
                if found is not None:
                    w = found[1]
                elif r == 0:
                    w = 1
        if r is None or w is None:
            raise Misuse(
                f"world_size={w} without rank=" if r is None else f"rank={r} without world_size=",
                hint="give both",
            )
        if not 0 <= r < w:
            raise Misuse(f"rank {r} of a world of {w}: expected 0 to world_size - 1")
        return r, w

    def __getstate__(self) -> dict[str, Any]:
        # A worker process of this rank has no process group, and must not fall back to rank 0 of 1.
        # If neither a group nor an environment exists, the unpickling process finds its own rank.
        known = (
            self.is_explicit
            or _rank_from_group() is not None
            or _rank_from_environment() is not None
        )
        return {
            "rank": self.rank,
            "world_size": self.world_size,
            "fixed": self.current() if known else None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def _rank_from_environment() -> tuple[int, int] | None:
    """Returns RANK and WORLD_SIZE of the environment, or None unless both are set."""
    rank, world = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if not rank or not world:
        return None
    try:
        return int(rank), int(world)
    except ValueError:
        raise Misuse(f"RANK={rank!r} and WORLD_SIZE={world!r}: expected integers") from None


def _rank_from_group() -> tuple[int, int] | None:
    """Returns (rank, world size) in torch.distributed's default group, or None without a group."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return dist.get_rank(), dist.get_world_size()


def _rank_from_process() -> tuple[tuple[int, int] | None, str]:
    """Returns the rank and world size of this process, and the name of their source.

    Raises Misuse if torch.distributed and the environment differ.
    """
    group, env = _rank_from_group(), _rank_from_environment()
    if group is not None and env is not None and env != group:
        raise Misuse(
            f"torch.distributed says rank {group[0]} of {group[1]}, "
            f"the environment {env[0]} of {env[1]}",
            hint="give rank= and world_size=",
        )
    return (
        (group, "torch.distributed")
        if group is not None
        else (env, "the environment (RANK, WORLD_SIZE)")
    )
