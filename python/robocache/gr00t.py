"""GR00T (Isaac-GR00T N1.x): its dataset class, and a Loader that delivers the inputs of its model.

    from robocache.gr00t import ShardedSingleStepDataset  # in gr00t/data/dataset/factory.py

Configurations are GR00T's own objects, or dicts with the same fields. GR00T need not be installed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from . import _modality, loader
from ._errors import Misuse, Unsupported
from ._modality import SETTINGS, ModalityParts, config_field, config_word
from .mapdataset import MapDataset
from .mix import Mix
from .options import Images, Order, Windows

__all__ = ["Loader", "ShardedSingleStepDataset"]


class ShardedSingleStepDataset:
    """GR00T's class of the same name: shards of single steps, which a processor completes.

    Shards, steps and values equal GR00T's. Only the frames of a shard are decoded. With negative
    delta_indices, rows before the episode are its first row; GR00T takes rows from its end.

    Args:
        dataset_path: A path or URI of a dataset with meta/modality.json, of any LeRobot version.
        embodiment_tag: GR00T's EmbodimentTag, or its text.
        modality_configs: {modality: ModalityConfig}.
        video_backend: Ignored, as video_backend_kwargs.
        shard_size: The mean number of steps of a shard.
        episode_sampling_rate: The part of an episode's steps that goes into one shard.
        seed: The seed of the shards.
        allow_padding: Ignored: rows outside the episode always repeat its ends.

    Raises:
        Misuse: modality.json does not name a part.
        Unsupported: The language key is "sub_task".

    Example:
        ds = robocache.gr00t.ShardedSingleStepDataset(path, tag, configs)
        ds.set_processor(processor)
        steps = ds.get_shard(0)
    """

    def __init__(
        self,
        dataset_path: Any,
        embodiment_tag: Any,
        modality_configs: Mapping[str, Any],
        video_backend: str = "torchcodec",
        video_backend_kwargs: Mapping[str, Any] | None = None,
        shard_size: int = 1024,
        episode_sampling_rate: float = 0.1,
        seed: int = 42,
        allow_padding: bool = False,
    ) -> None:
        self.dataset_path = dataset_path
        self.embodiment_tag = embodiment_tag
        self.modality_configs = modality_configs
        self.shard_size = shard_size
        self.episode_sampling_rate = episode_sampling_rate
        self.seed = seed
        self.processor: Any = None
        self._schema = schema = ModalityParts(dataset_path, modality_configs, SETTINGS)
        self.action_horizon: int = schema.horizon
        # {(modality, group): (key of the stream, columns)}.
        self._columns = {("video", n): (k, slice(None)) for n, k in schema.cameras.items()}
        for kind in ("state", "action"):
            for name in schema.names.get(kind, ()):
                p = schema.part(kind, name)
                self._columns[kind, name] = (p["original_key"], slice(p["start"], p["end"]))
        # The rows of each stream that any modality reads, relative to the sample.
        rows: dict[str, set[int]] = {}
        for (kind, _), (key, _) in self._columns.items():
            rows.setdefault(key, set()).update(schema.rows[kind])
        self._rows = {k: sorted(v) for k, v in rows.items()}
        self._samples = MapDataset(
            schema.dataset,
            split="all",
            keys=[*self._rows, schema.language],
            windows=Windows(rows=self._rows),
            images=Images(layout="hwc"),
        )
        lengths = np.asarray(schema.dataset.episodes["lengths"])
        self._starts = np.cumsum(lengths) - lengths
        self.shard_dataset()

    def shard_dataset(self) -> None:
        """Divides the steps into shards of similar length. The result depends only on the seed.

        The steps of each episode are shuffled and cut into pieces. Each piece goes to the shortest
        shard.
        """
        rng = np.random.default_rng(self.seed)
        pieces: list[tuple[int, np.ndarray]] = []  # (position of the episode, its steps).
        for e in rng.permutation(len(self._schema.usable)).tolist():
            steps = np.arange(int(self._schema.usable[e]))
            rng.shuffle(steps)
            n = int(1 / self.episode_sampling_rate)
            pieces += [(e, steps[i::n]) for i in range(min(n, len(steps)))]
        if not pieces:
            where = {"dataset": self.dataset_path}
            raise Misuse(f"no episode has {self.action_horizon} rows for an action", where)
        count = min(-(-sum(len(steps) for _, steps in pieces) // self.shard_size), len(pieces))
        self.sharded_episodes: list[list[tuple[int, np.ndarray]]] = [[] for _ in range(count)]
        self.shard_lengths: np.ndarray = np.zeros(count, dtype=int)
        for e, steps in pieces:
            shortest = int(np.argmin(self.shard_lengths))
            self.sharded_episodes[shortest].append((e, steps))
            self.shard_lengths[shortest] += len(steps)

    def __len__(self) -> int:
        return len(self.shard_lengths)

    def set_processor(self, processor: Any) -> None:
        """Sets the function that turns the messages of a step into model inputs."""
        self.processor = processor

    def get_shard_length(self, idx: int) -> int:
        """Returns the number of steps of a shard."""
        return int(self.shard_lengths[idx])

    def get_shard(self, idx: int) -> list[Any]:
        """Returns the processed steps of a shard."""
        out: list[Any] = []
        for e, steps in self.sharded_episodes[idx]:
            for block in np.array_split(steps, -(-len(steps) // 64)):
                out += [self._process(step) for step in self.read_steps(e, block)]
        return out

    def _process(self, step: Any) -> Any:
        """Returns the model inputs of a step. Raises Misuse if no processor is set."""
        if self.processor is None:
            raise Misuse("no processor is set", hint="Call set_processor first.")
        return self.processor([{"type": "episode_step", "content": step}])

    def read_steps(self, episode: int, steps: Iterable[int]) -> list[Any]:
        """Returns steps of an episode before processing: GR00T's VLAStepData if it is installed."""
        try:
            from gr00t.data.types import VLAStepData as Step
        except ImportError:
            Step = SimpleNamespace  # noqa: N806
        first_row, text = int(self._starts[episode]), None
        if self._schema.language == "task":
            # GR00T also chooses one of the tasks of the episode at random.
            text = random.choice(self._schema.dataset[episode].tasks or [""])
        tasks = self._schema.dataset.tasks
        out = []
        for item in self._samples.__getitems__([first_row + int(s) for s in steps]):
            groups: dict[str, dict[str, Any]] = {"video": {}, "state": {}, "action": {}}
            for (kind, name), (key, columns) in self._columns.items():
                # The item has the rows of all modalities that read the stream.
                own_rows = [self._rows[key].index(d) for d in self._schema.rows[kind]]
                v = np.asarray(item[key])[own_rows]
                if kind == "video":
                    groups[kind][name] = list(v)
                else:
                    v = v.reshape(len(own_rows), -1)[:, columns]
                    groups[kind][name] = v.astype(np.float32)
            if self._schema.language != "task":
                text = tasks[int(np.asarray(item[self._schema.language]).item())]
            out.append(
                Step(
                    images=groups["video"],
                    states=groups["state"],
                    actions=groups["action"],
                    masks=None,
                    text=text,
                    embodiment=self.embodiment_tag,
                )
            )
        return out

    def get_dataset_statistics(self) -> dict[str, Any]:
        """Returns {modality: {group: {statistic: list}}}; relative actions need their file."""
        return {
            m: {g: {s: v.tolist() for s, v in one.items()} for g, one in groups.items()}
            for m, groups in self._schema.statistics().items()
            if groups
        }


class Loader(loader.Loader):
    """A robocache.Loader whose batches are the inputs of GR00T's model, before tokenization.

    A batch has "state" (B, T, max_state_dim) and "action" (B, action_horizon, max_action_dim),
    float32; "action_mask", bool; "images.<view>" (B, T, 3, H, W), uint8; "text", a list;
    "embodiment_id" (B,), int64; and "dataset_index" (B,), the position of the sample's dataset.

    Args:
        paths: The datasets: one, or a list. Each needs meta/modality.json.
        embodiment_tag: The tag, or one per dataset.
        modality_configs: {modality: ModalityConfig}, or {tag: {modality: ModalityConfig}}.
        mix_ratio: The weight of the datasets of a tag, or {tag: weight}. Default 1.
        config: GR00T's model configuration, or a dict with its fields: use_percentiles,
            clip_outliers, use_relative_action, max_state_dim, image_crop_size and so on. Fields
            that it lacks have the values of fine-tuning N1.7. Default None.
        training: Whether images and states are augmented. False: the evaluation's transform.
        statistics: {tag: {modality: {group: {statistic: values}}}}, such as statistics.json of a
            checkpoint. Default None: those of the datasets, pooled per tag as GR00T does.
        embodiment_ids: {tag: id}, in addition to those of N1.7.
        options: Arguments of robocache.Loader, such as batch_size=, seed= and device=.

    Raises:
        Misuse: modality.json does not name a part, or a tag has no id or configuration.

    Example:
        loader = robocache.gr00t.Loader(path, embodiment_tag="new_embodiment",
                                        modality_configs=configs, batch_size=32)
        for batch in loader:
            train(batch["state"], batch["action"], batch["action_mask"])
    """

    def __init__(
        self,
        paths: Any,
        *,
        embodiment_tag: Any,
        modality_configs: Mapping[str, Any],
        mix_ratio: float | Mapping[str, float] = 1.0,
        config: Any = None,
        training: bool = True,
        statistics: Mapping[str, Any] | None = None,
        embodiment_ids: Mapping[str, int] | None = None,
        **options: Any,
    ) -> None:
        sources = [*paths] if isinstance(paths, (list, tuple)) else [paths]
        tags = embodiment_tag if isinstance(embodiment_tag, (list, tuple)) else [embodiment_tag]
        tags = [config_word(t) for t in tags] * (len(sources) if len(tags) == 1 else 1)
        if len(tags) != len(sources):
            raise Misuse(f"{len(tags)} embodiment tags for {len(sources)} datasets")
        ids = {t: i for i, names in _modality.EMBODIMENT_IDS.items() for t in names.split()}
        ids |= dict(embodiment_ids or {})
        if unknown := set(tags) - set(ids):
            hint = "Pass embodiment_ids={tag: id}."
            raise Misuse(f"no id of the embodiment {min(unknown)!r}", hint=hint)
        settings = {k: config_field(config or {}, k, v) for k, v in SETTINGS.items()}
        parts = [
            ModalityParts(path, modality_configs.get(tag, modality_configs), settings)
            for path, tag in zip(sources, tags, strict=True)
        ]
        if len({p.horizon for p in parts}) > 1:
            raise Unsupported("embodiments whose actions span different numbers of rows")
        weights = _modality.dataset_weights(parts, tags, mix_ratio)
        self.model_statistics: dict[str, Any] = dict(statistics or {})
        for tag in set(tags) - set(self.model_statistics):
            own = [i for i, t in enumerate(tags) if t == tag]
            self.model_statistics[tag] = _modality.pool_statistics(
                [parts[i].statistics() for i in own], [weights[i] for i in own]
            )
        rows = {f"images.{v}": p.rows["video"] for p in parts for v in p.cameras}
        super().__init__(
            [
                Mix(
                    p.dataset,
                    weight=weight if len(parts) > 1 else None,
                    split="all",
                    keys=[*(f"images.{v}" for v in p.cameras), p.text_key, "episode_index"],
                    rename={k: f"images.{v}" for v, k in p.cameras.items()}
                    | ({p.language: p.text_key} if p.language != p.text_key else {}),
                    vectors=p.vectors(self.model_statistics[tag], training),
                )
                for p, tag, weight in zip(parts, tags, weights, strict=True)
            ],
            windows=Windows(rows=rows),
            images=Images(transform=_modality.image_steps(settings, training)),
            order=replace(
                options.pop("order", None) or Order(), drop_n_last_frames=parts[0].horizon - 1
            ),
            **options,
        )
        self._embodiments = [ids[t] for t in tags]
        self._text_key = parts[0].text_key
        self._texts = [p.texts(settings["formalize_language"]) for p in parts]
        self._delivered = ["state", "action", "action_mask", *rows, "episode_index"]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(self._complete, super().__iter__())

    def _complete(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the model's inputs of a batch."""
        out = {k: batch[k] for k in self._delivered}
        index = batch.get("dataset_index", batch["episode_index"] * 0)  # One dataset: zeros.
        tasks = batch[self._text_key]  # Texts, or the numbers of tasks.
        tasks = tasks if isinstance(tasks, list) else tasks.reshape(-1).tolist()
        pairs = zip(index.tolist(), tasks, strict=True)
        out["text"] = [self._texts[source](task) for source, task in pairs]
        out["dataset_index"], out["embodiment_id"] = index, index * 0
        for source, number in enumerate(self._embodiments):
            out["embodiment_id"][index == source] = number
        return out
