"""RoboCache on a Ray cluster.

run() runs the shards of a manifest as tasks. read() returns a dataset as Ray Data. Both need the
package ray, and read() needs ray[data].
"""

from __future__ import annotations

import errno
import heapq
import json
import logging
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from . import _checks
from ._errors import (
    Error,
    Internal,
    Malformed,
    Misuse,
    NotFound,
    ResourceLimit,
    Temporary,
    Unsupported,
)
from ._results import Result

__all__ = ["run", "read", "Run"]

# The exceptions of exit codes that a retry cannot change.
_FINAL_CODES = {2: Misuse, 10: NotFound, 11: Malformed, 12: Unsupported, 42: Error, 70: Internal}
_CLASSES = {**_FINAL_CODES, 13: ResourceLimit, 75: Temporary}
# The exceptions of RoboCache by the names of Ray's. The other exceptions of Ray mean that a worker,
# its node or the connection died, and become Temporary.
_RAY = dict.fromkeys(
    ("OutOfMemoryError", "OutOfDiskError", "ObjectStoreFullError"), ResourceLimit
) | dict.fromkeys(
    (
        "TaskUnschedulableError",
        "RuntimeEnvSetupError",
        "AuthenticationError",
        "UnserializableException",
    ),
    Misuse,
)
_JOIN_SECONDS = 60  # The seconds to wait for the answer of a cluster.
# The longest pause in seconds before the first retry. It doubles with each retry, up to a minute.
_PAUSE_SECONDS = 1.0


class Run(Result):
    """The result of run().

    Attributes:
        total: The number of shards of the manifest.
        done: The number of shards with a receipt.
        failed: The number of shards that were given up, with partial=True.
        findings: The number of shards of this run in which episodes were skipped.
        retries: The number of retries.
        codes: The number of failed tries by exit code. "signal": the process was killed. "lost":
            the worker or its node died.
        committed: Whether the job was committed.
        commit: The report of the commit, with the findings of the whole job.
        exit_code: The exit code of the commit: 3 if a finding is a warning or an error, or if
            episodes were left out.
    """

    total: int
    done: int
    failed: int
    findings: int
    retries: int
    codes: dict[str, int]
    committed: bool
    commit: Result
    exit_code: int


def _import_ray(what: str = "ray") -> Any:
    """Imports a module of Ray. Raises Unsupported if it is not installed."""
    try:
        import importlib

        return importlib.import_module(what)
    except ImportError as e:
        raise Unsupported(f"{what} is not installed: {e}", hint='pip install "ray[data]"') from None


def _connect_cluster(address: str | None = None) -> Any:
    """Connects to a cluster and returns the module ray.

    The cluster is the one at the address or RAY_ADDRESS, else a new one on this machine. If no
    cluster answers, Ray itself waits for minutes and may end the process, so the connection is
    tested first and has a deadline.
    """
    ray = _import_ray()
    if ray.is_initialized():
        return ray
    cluster = address or os.environ.get("RAY_ADDRESS", "")
    outcome: list[BaseException | None] = []  # Empty until Ray answers.

    def connect() -> None:
        """Connects. Adds the exception to `outcome`, or None after success."""
        try:
            ray.init(address=address, logging_level=logging.WARNING)
            outcome.append(None)
        except BaseException as e:
            outcome.append(e)

    try:
        host, _, port = cluster.removeprefix("ray://").rpartition(":")
        if port.isdigit():
            socket.create_connection((host.strip("[]"), int(port)), 10).close()
        connecting = threading.Thread(target=connect, daemon=True)
        connecting.start()
        connecting.join(_JOIN_SECONDS if cluster else None)
        e = outcome[0] if outcome else TimeoutError(f"no answer within {_JOIN_SECONDS} s")
        if e is not None:
            raise e
    except (OSError, RuntimeError, SystemExit) as e:
        raise Temporary(
            f"no Ray cluster at {cluster or 'this machine'}: {e}",
            hint="ray start --head, or another --address",
        ) from e
    except ValueError as e:
        raise Misuse(f"--address: {e}") from e
    return ray


def _run_command(program: Sequence[str] | None, args: list[str]) -> tuple[int, str, str]:
    """Runs the command line on the node of the task.

    Returns the exit code, stdout, and the last message on stderr.
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen(
        [*(program or (sys.executable, "-m", "robocache")), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )
    try:
        out, err = process.communicate()
    except BaseException:
        # The task was canceled: the process gets time to leave a state that can be resumed.
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
        raise
    if err:
        sys.stderr.write(err)
    lines = err.strip().splitlines() or [""]
    last = next((line for line in reversed(lines) if line.startswith("robocache: ")), lines[-1])
    return process.returncode, out, last.removeprefix("robocache: ")


def _parse_shards(text: str) -> Iterator[int]:
    """Yields the numbers in text such as "0,3-5"."""
    for part in text.split(",") if text else ():
        a, _, b = part.partition("-")
        yield from range(int(a), int(b or a) + 1)


def _convert_exception(e: Exception, what: str, where: dict[str, Any]) -> Error:
    """Returns the exception of RoboCache for an exception of Ray."""
    cause = getattr(e, "cause", None)  # The exception that the task raised.
    text = f"{what}: {type(e).__name__}: {(str(cause or e).strip().splitlines() or [''])[0]}"
    if isinstance(cause, OSError) and cause.errno in (
        errno.ENOENT,
        errno.EACCES,
        errno.ENOTDIR,
        errno.ENOEXEC,
    ):
        return Misuse(text, where, "program= is a path on the workers' nodes")
    if isinstance(cause, OSError):
        # No memory for a process, too many processes, or too many open files.
        return ResourceLimit(text, where)
    if isinstance(cause, ImportError) or "failed to import" in str(e):
        return Unsupported(
            text,
            where,
            "install this package on the nodes, or give program=[path of robocache there]",
        )
    if cause is not None:
        return cause if isinstance(cause, Error) else Error(text, where)
    return next((_RAY[c.__name__] for c in type(e).__mro__ if c.__name__ in _RAY), Temporary)(
        text, where
    )


def _command_failure(verb: str, code: int, last: str, where: dict[str, Any]) -> Error:
    """Returns the exception for a failed command."""
    return _CLASSES.get(code, Temporary)(
        f"{verb} ended with exit code {code}: {last}", {**where, "exit_code": code}
    )


def run(
    manifest: Any,
    *,
    num_cpus: float = 1,
    num_gpus: float = 0,
    retries: int = 5,
    partial: bool = False,
    program: Sequence[str] | None = None,
    in_flight: int = 1000,
    resources: dict[str, float] | None = None,
) -> Run:
    """Runs the shards of a manifest that have no receipt, one Ray task each, and commits.

    Args:
        manifest: The path or URI of the manifest, as the workers see it.
        num_cpus: CPUs per shard. Default 1.
        num_gpus: GPUs per shard. Default 0.
        retries: Retries of a shard that ends with a temporary failure, or whose worker or node
            dies. Default 5.
        partial: Whether to commit the finished shards if others failed. Default False: the first
            shard that cannot succeed ends the run.
        program: The command for robocache on the workers. Default None: this package, with the
            worker's Python.
        in_flight: The most tasks that Ray holds at once. Default 1000.
        resources: Further Ray resources per shard. Default None.

    Returns:
        A Run.

    Raises:
        Error: A shard cannot succeed. The class is that of its exit code.
        Temporary: A worker, a node or the connection died.
        ResourceLimit: Memory or disk space is exhausted.
        Misuse: program or resources are invalid.
        Unsupported: ray or this package is not installed on the nodes.

    Example:
        robocache.ray.run("s3://bucket/job/manifest.json", num_cpus=4)
    """
    ray = _connect_cluster()
    manifest = _checks.path_text(manifest)
    if "://" not in manifest:
        manifest = os.path.abspath(manifest)
    call = ray.remote(_run_command)
    args = ["--manifest", manifest]
    where: dict[str, Any] = {"manifest": manifest}

    def run_verb(verb: str, *more: str) -> tuple[int, str]:
        """Runs a command of robocache as a Ray task. Returns its exit code and stdout.

        Raises the error of another exit code than 0 and 3. Exit code 3 means: done, with findings.
        """
        try:
            code, out, last = ray.get(
                call.options(name=f"robocache {verb}", num_cpus=1, max_retries=retries).remote(
                    program, [verb, *args, *more]
                )
            )
        except ray.exceptions.RayError as e:
            raise _convert_exception(e, verb, where) from e
        if code not in (0, 3):
            raise _command_failure(verb, code, last, where)
        return code, out

    try:
        status = json.loads(run_verb("status", "--json")[1])
    except ValueError as e:
        raise Misuse(f"program= gives no status: {e}", where) from None
    todo = list(_parse_shards(status.get("missing", "")))[::-1]  # The next shard is the last entry.
    result = Run(
        {
            "total": status["total"],
            "done": status["total"] - len(todo),
            "failed": 0,
            "findings": 0,
            "retries": 0,
            "codes": {},
            "committed": False,
        }
    )
    threads = ["--threads", str(max(int(num_cpus), 1))]
    needed = {"CPU": num_cpus, "GPU": num_gpus, **(resources or {})}
    if not any(
        all(n["Resources"].get(k, 0) >= v for k, v in needed.items())
        for n in ray.nodes()
        if n["Alive"]
    ):
        logging.getLogger("robocache").warning(
            "no node of the cluster has %s: the shards wait until one comes", needed
        )
    running: dict[Any, tuple[int, int]] = {}  # (shard, number of the try) by the task's reference.
    later: list[tuple[float, int, int]] = []  # A heap of retries: (time, shard, number of the try).
    try:
        while todo or running or later:
            # Start tasks: first the retries whose pause is over, then new shards.
            while len(running) < in_flight and (todo or later and later[0][0] <= time.monotonic()):
                if later and later[0][0] <= time.monotonic():
                    _, shard, tries = heapq.heappop(later)
                else:
                    shard = todo.pop()
                    tries = 1
                options = call.options(
                    name=f"robocache shard {shard}",
                    num_cpus=num_cpus,
                    num_gpus=num_gpus,
                    resources=resources,
                    max_retries=0,
                )
                command = ["run", *args, "--shard", str(shard), *threads]
                running[options.remote(program, command)] = shard, tries
            if not running:  # All remaining shards pause before a retry.
                time.sleep(max(later[0][0] - time.monotonic(), 0.01))
                continue
            # Count the tasks that have ended, and plan their retries.
            for ref in ray.wait(list(running), num_returns=1, timeout=1)[0]:
                shard, tries = running.pop(ref)
                try:
                    code, _, last = ray.get(ref)
                    failed = _command_failure("run", code, last, {**where, "shard": shard})
                except ray.exceptions.RayError as e:
                    code = None
                    failed = _convert_exception(e, "run", {**where, "shard": shard})
                if code in (0, 3):
                    result["done"] += 1
                    result["findings"] += code == 3
                    continue
                key = "lost" if code is None else "signal" if code < 0 else str(code)
                result["codes"][key] = result["codes"].get(key, 0) + 1
                if code is not None:
                    may_succeed = code not in _FINAL_CODES
                else:
                    may_succeed = isinstance(failed, (Temporary, ResourceLimit))
                if tries <= retries and may_succeed:
                    result["retries"] += 1
                    longest = min(_PAUSE_SECONDS * 2 ** (tries - 1), 60 * _PAUSE_SECONDS)
                    due = time.monotonic() + random.uniform(0, longest)
                    heapq.heappush(later, (due, shard, tries + 1))
                    continue
                if not partial:
                    raise failed
                result["failed"] += 1
                logging.getLogger("robocache").warning("shard %d is given up: %s", shard, failed)
    except BaseException as e:
        for ref in running:
            ray.cancel(ref, force=False)
        raise _convert_exception(e, "run", where) if isinstance(e, ray.exceptions.RayError) else e
    code, text = run_verb("commit", "--json", *(["--partial"] if partial else []))
    result["committed"] = True
    result["commit"] = Result(json.loads(text))
    result["exit_code"] = code
    return result


def _arrow_block(batch: dict[str, Any]) -> Any:
    """Returns a batch as an Arrow table of tensors.

    A ragged key has all values in one array, and <key>_lengths. Its column has one array per row.
    """
    from ray.data.block import BlockAccessor

    columns = {k: v if isinstance(v, list) else np.asarray(v) for k, v in batch.items()}
    ragged = {k.removesuffix("_lengths"): v for k, v in columns.items() if k.endswith("_lengths")}
    for key, lengths in ragged.items():
        for k in (key, key + "_times"):
            # A column with one entry per row and several axes is divided already.
            if k in columns and (len(columns[k]) != len(lengths) or columns[k].ndim == 1):
                parts = np.empty(len(lengths), object)
                parts[:] = np.split(columns[k], np.cumsum(lengths)[:-1])
                columns[k] = parts
    return BlockAccessor.batch_to_arrow_block(columns)


def _read_task(uri: Any, options: dict[str, Any], episodes: list[int]) -> Iterator[Any]:
    """Yields the batches of some episodes as Arrow tables."""
    from .loader import Loader

    with Loader(uri, episodes=episodes, **options) as loader:
        for batch in loader:
            yield _arrow_block(batch)


def read(
    uri: Any,
    *,
    batch_size: int = 64,
    override_num_blocks: int | None = None,
    concurrency: int | None = None,
    ray_remote_args: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Returns a dataset as ray.data.Dataset.

    A row is a sample of a Loader (windows, hz=, align=, normalize=, image_size= and so on), with
    tensors as Arrow tensors. Rows are in the order of the files, and a read task has whole
    episodes. Ray shuffles, repartitions and batches them. Ragged keys and windows of a span are
    arrays of different lengths, with their <key>_lengths.

    Args:
        uri: The source, as in Loader.
        batch_size: Rows per block. Default 64.
        override_num_blocks: The most read tasks. Default None: chosen by Ray.
        concurrency: The concurrent read tasks, as in ray.data.read_*. Default None.
        ray_remote_args: Arguments of the tasks, as in ray.data.read_*. Default None.
        options: Keywords of Loader, except those of the order, the ranks and the device.

    Returns:
        A ray.data.Dataset.

    Raises:
        Misuse: An option is invalid, or belongs to the order, the ranks or the device.
        Unsupported: ray[data] is not installed.

    Example:
        rows = robocache.ray.read("s3://bucket/dataset", image_size=(224, 224))
    """
    data = _import_ray("ray.data")
    from functools import partial

    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask

    from .loader import Loader

    # Options of the order, the ranks and the device, which Ray decides.
    taken = {
        "shuffle",
        "seed",
        "drop_last",
        "rank",
        "world_size",
        "device",
        "mixture",
        "follow",
    } & set(options)
    runtime, order = options.get("runtime"), options.get("order")
    if getattr(runtime, "metrics", None) is not None:
        taken.add("Runtime.metrics")
    if getattr(order, "on_bad_episode", None) is not None:
        taken.add("Order.on_bad_episode")
    if taken:
        raise Misuse(
            f"{sorted(taken)[0]} of robocache.ray.read",
            hint="rows come in the order of the files, on the host; "
            "shuffle and batch them with Ray Data",
        )
    if isinstance(uri, (list, tuple)):
        raise Misuse("a mixture", hint="read each, and union the datasets")
    uri = _checks.path_text(uri)
    _connect_cluster()
    fixed = {
        "shuffle": False,
        "rank": 0,
        "world_size": 1,
        "batch_size": batch_size,
        "threads": 1,
        "memory_budget": "1GiB",
        **options,
    }
    with Loader(uri, **fixed) as loader:
        rows = loader.num_samples
        size = sum(  # The bytes of a row, without texts.
            int(np.prod(f["shape"])) * np.dtype(f["dtype"]).itemsize
            for f in loader._open().open().info["fields"]
            if f["dtype"] in np.sctypeDict
        )
        # The number of samples per episode, in the order of the episodes. A step of 2^20 samples
        # bounds the memory.
        counts: dict[int, int] = {}
        for start in range(0, rows, 1 << 20):
            samples = np.arange(start, min(start + (1 << 20), rows))
            episodes, numbers = np.unique(loader.locate(samples).episode, return_counts=True)
            for episode, n in zip(episodes.tolist(), numbers.tolist(), strict=True):
                counts[episode] = counts.get(episode, 0) + n
    for name in ("episodes", "split"):
        fixed.pop(name, None)

    class RoboCacheDatasource(Datasource):
        """The rows of the loader, as Ray Data reads them."""

        def estimate_inmemory_data_size(self) -> int:
            """Returns the bytes of all rows."""
            return size * rows

        def get_read_tasks(
            self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
        ) -> list[Any]:
            """Returns the read tasks: whole episodes, divided into parts of similar size.

            An episode belongs to the part that contains its middle row.
            """
            lengths = np.array(list(counts.values()))
            middles = np.cumsum(list(counts.values())) - lengths / 2
            boundaries = np.linspace(0, rows, min(parallelism, len(counts)) + 1)[1:-1]
            parts = np.searchsorted(boundaries, middles, side="right")
            tasks = []
            for part in np.unique(parts):
                own = [e for e, p in zip(counts, parts, strict=True) if p == part]
                n = sum(counts[e] for e in own)
                meta = BlockMetadata(
                    num_rows=n, size_bytes=n * size, input_files=None, exec_stats=None
                )
                tasks.append(
                    ReadTask(
                        partial(_read_task, uri, fixed, own),
                        meta,
                        per_task_row_limit=per_task_row_limit,
                    )
                )
            return tasks

    return data.read_datasource(
        RoboCacheDatasource(),
        override_num_blocks=override_num_blocks,
        concurrency=concurrency,
        ray_remote_args=ray_remote_args,
    )


def main() -> None:
    """Runs `python -m robocache.ray MANIFEST`, which `robocache submit ray` starts.

    The exit codes are those of the command line.
    """
    import argparse

    p = argparse.ArgumentParser(
        prog="python -m robocache.ray",
        description="Runs the shards of a manifest on a Ray cluster, and commits.",
    )
    p.add_argument("manifest")
    p.add_argument(
        "--address", help="of the cluster (default: RAY_ADDRESS, else one of this machine)"
    )
    p.add_argument("--num-cpus", type=float, default=1)
    p.add_argument("--num-gpus", type=float, default=0)
    p.add_argument("--retries", type=int, default=5)
    p.add_argument("--partial", action="store_true")
    a = vars(p.parse_args())
    try:
        _connect_cluster(a.pop("address"))
        result = run(a.pop("manifest"), **a)
        print(json.dumps(result))
        sys.exit(result["exit_code"])
    except Error as e:
        print(f"robocache: {e}", file=sys.stderr)
        sys.exit(
            e.where.get("exit_code")
            or next((c for c, k in _CLASSES.items() if type(e) is k and c != 42), 1)
        )


if __name__ == "__main__":
    main()
