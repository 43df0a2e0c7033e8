"""Finds the rank and the world size of a Loader when the Loader is first used."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from . import _checks
from ._errors import Misuse


class RankResolver:
    """The rank and the world size of one Loader.

    Explicit arguments take precedence. Otherwise the values come from the process group of
    torch.distributed, else from RANK and WORLD_SIZE in the environment, else from jax.distributed,
    else there is one process.
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
                    f"and {by} says rank {found.rank} of {found.world_size}",
                    hint="use the Loader (len, iter, state_dict) only after init_process_group, "
                    "make a new one, or pass rank= and world_size=",
                )
        return self.fixed

    def assign(self, rank: int, world_size: int, by: str) -> None:
        """Sets (rank, world size) as `by` requires. Raises Misuse if others were chosen before."""
        found = (rank, world_size)
        if (self.fixed or self.is_explicit) and self.current() != found:
            now = self.current()
            raise Misuse(
                f"this Loader serves rank {now[0]} of {now[1]}, "
                f"and {by} requires rank {rank} of {world_size}",
                hint="make the Loader without rank= and world_size=",
            )
        self.rank, self.world_size = found

    def _resolve_rank(self) -> tuple[int, int]:
        """Returns (rank, world size) from the arguments or from the process."""
        rank, world = self.rank, self.world_size
        if rank is None and world is None:
            found, _ = _rank_from_process()
            rank, world = found or (0, 1)
        elif rank is None or world is None:
            rank, world = self._complete_rank()
        if rank is None or world is None:
            raise Misuse(
                f"world_size={world} without rank="
                if rank is None
                else f"rank={rank} without world_size=",
                hint="give both",
            )
        if not 0 <= rank < world:
            raise Misuse(f"rank {rank} of a world of {world}: expected 0 to world_size - 1")
        return rank, world

    def _complete_rank(self) -> tuple[int | None, int | None]:
        """Returns (rank, world size), of which one was given. The other one may remain None."""
        rank, world = self.rank, self.world_size
        found = _rank_from_group() or _rank_from_environment() or _rank_from_jax()
        if rank is None:
            if found is not None and found.world_size == world:
                rank = found.rank
            elif world == 1:
                rank = 0
        elif found is not None:
            world = found.world_size
        elif rank == 0:
            world = 1
        return rank, world

    def __getstate__(self) -> dict[str, Any]:
        # A worker process of this rank has no process group, and must not fall back to rank 0 of 1.
        # If neither a group nor an environment exists, the unpickling process finds its own rank.
        known = (
            self.is_explicit
            or _rank_from_group() is not None
            or _rank_from_environment() is not None
            or _rank_from_jax() is not None
        )
        return {
            "rank": self.rank,
            "world_size": self.world_size,
            "fixed": self.current() if known else None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class Rank(NamedTuple):
    """The number of a process and how many there are."""

    rank: int
    world_size: int


def _rank_from_environment() -> Rank | None:
    """Returns RANK and WORLD_SIZE of the environment, or None unless both are set."""
    rank = os.environ.get("RANK")
    world = os.environ.get("WORLD_SIZE")
    if not rank or not world:
        return None
    try:
        return Rank(int(rank), int(world))
    except ValueError:
        raise Misuse(f"RANK={rank!r} and WORLD_SIZE={world!r}: expected integers") from None


def _rank_from_group() -> Rank | None:
    """Returns the rank in torch.distributed's default group, or None without a group."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return Rank(dist.get_rank(), dist.get_world_size())


def _rank_from_jax() -> Rank | None:
    """Returns the index of this process in JAX, or None unless jax.distributed is initialized."""
    distributed = getattr(sys.modules.get("jax"), "distributed", None)
    # Versions of JAX without is_initialized count as not initialized: bool() is False.
    if distributed is None or not getattr(distributed, "is_initialized", bool)():
        return None
    jax = sys.modules["jax"]
    return Rank(jax.process_index(), jax.process_count())


def _rank_from_process() -> tuple[Rank | None, str]:
    """Returns the rank of this process, and the name of its source.

    Raises Misuse if torch.distributed and the environment differ.
    """
    group = _rank_from_group()
    env = _rank_from_environment()
    if group is not None and env is not None and env != group:
        raise Misuse(
            f"torch.distributed says rank {group.rank} of {group.world_size}, "
            f"the environment {env.rank} of {env.world_size}",
            hint="give rank= and world_size=",
        )
    if group is not None:
        return group, "torch.distributed"
    if env is not None:
        return env, "the environment (RANK, WORLD_SIZE)"
    return _rank_from_jax(), "jax.distributed"
