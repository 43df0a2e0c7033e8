"""The parts of a GR00T dataset that a modality configuration selects, and their statistics."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import loader
from ._errors import Misuse, Unsupported
from .dataset import Dataset, as_dataset
from .options import Order
from .vectors import Part, Vector

# The embodiment ids of N1.7.
EMBODIMENT_IDS = {
    0: "simpler_env_google",
    1: "simpler_env_widowx",
    2: "libero_sim",
    10: "new_embodiment robocasa_panda_omron robocasa_gr1_tabletop",
    11: "unitree_g1_sonic",
    24: "oxe_droid_relative_eef_relative_joint",
    25: "real_g1_relative_eef_relative_joints unitree_g1_full_body_with_waist_height_nav_cmd",
    26: "real_r1_pro_sharpa_relative_eef real_r1_pro_sharpa_relative_eef_human "
    "real_r1_pro_sharpa_relative_eef_maxinsights real_r1_pro_sharpa_relative_eef_mecka",
    27: "xdof_relative_eef_relative_joint xdof_relative_eef_relative_joint_subtask",
}

# The fields of a model configuration that Loader uses, with their defaults. These are the values of
# GR00T's fine-tuning of N1.7.
SETTINGS = {
    "use_percentiles": True,
    "clip_outliers": True,
    "use_relative_action": True,
    "apply_sincos_state_encoding": False,
    "formalize_language": True,
    "max_state_dim": 132,
    "max_action_dim": 132,
    "action_horizon": 40,
    "state_dropout_prob": 0.2,
    "exclude_state": False,
    "image_crop_size": (230, 230),
    "image_target_size": (256, 256),
    "shortest_image_edge": None,
    "crop_fraction": None,
    "random_rotation_angle": None,
    "color_jitter_params": None,
}
_STATISTICS = ("min", "max", "mean", "std", "q01", "q99")


def config_field(config: Any, name: str, default: Any = None) -> Any:
    """Returns a field of a configuration, which is an object or a dict."""
    v = config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
    return default if v is None else v


def config_word(v: Any) -> str:
    """Returns the text of an enum's member or of a text, in lower case."""
    return str(getattr(v, "value", v)).lower()


def _quantile(rows: np.ndarray, q: float) -> np.ndarray:
    """Returns a quantile of float32 rows over axis 0.

    It is interpolated with the rounding of NumPy 1.26, which GR00T pins.
    """
    position = q * (len(rows) - 1)
    low = int(position)
    high = min(low + 1, len(rows) - 1)
    part = np.partition(rows, (low, high), axis=0)
    step = (part[high] - part[low]).astype(np.float64)
    fraction = position - low
    if fraction < 0.5:
        return part[low] + step * fraction
    return part[high] - step * (1 - fraction)


def measure_rows(rows: np.ndarray) -> dict[str, np.ndarray]:
    """Returns GR00T's statistics of float32 rows over axis 0."""
    ends = {"q01": _quantile(rows, 0.01), "q99": _quantile(rows, 0.99)}
    values = {"min": rows.min(0), "max": rows.max(0), "mean": rows.mean(0), "std": rows.std(0)}
    return {k: np.asarray(v, np.float64) for k, v in (values | ends).items()}


def pool_statistics(each: Sequence[Any], weights: Sequence[float]) -> Any:
    """Returns the statistics of several datasets together, as GR00T pools them.

    Args:
        each: {modality: {group: {statistic: values}}} of each dataset. The function calls itself
            for the inner dicts.
        weights: The share of each dataset.
    """
    if "mean" not in each[0]:
        return {k: pool_statistics([s[k] for s in each], weights) for k in each[0]}
    values = {k: np.stack([np.asarray(s[k], np.float64) for s in each]) for k in _STATISTICS}
    share = np.asarray(weights) / np.sum(weights)
    mean = sum(w * m for w, m in zip(share, values["mean"], strict=True))
    mean_square = sum(
        w * (d**2 + m**2) for w, d, m in zip(share, values["std"], values["mean"], strict=True)
    )
    return {
        **{k: values[k].min(0) for k in ("min", "q01")},
        **{k: values[k].max(0) for k in ("max", "q99")},
        "mean": mean,
        "std": np.sqrt(np.maximum(mean_square - mean**2, 0)),
    }


class ModalityParts:
    """The streams and columns of a dataset that an embodiment's configuration selects.

    Attributes:
        configs: {modality: its configuration}, as GR00T's modality_configs.
        settings: The settings of the model, with the names of SETTINGS.
        rows: {modality: rows relative to the sample}.
        names: {modality: names of its groups}.
        parts: The content of meta/modality.json.
        horizon: The number of rows from the first to the last action of a sample.
        usable: The number of samples of each episode.
        cameras: {name of the view: key of the stream}.
        language: "task", or the key of the stream with the numbers of the tasks.
        text_key: The key of the task in a batch.
    """

    def __init__(self, source: Any, configs: Mapping[str, Any], settings: Mapping[str, Any]):
        self.dataset: Dataset = as_dataset(source, {})
        self.configs = configs
        self.settings = settings
        self.rows = {
            m: [int(d) for d in config_field(c, "delta_indices")] for m, c in configs.items()
        }
        self.names = {m: list(config_field(c, "modality_keys")) for m, c in configs.items()}
        self.parts = self.dataset.modality
        if not self.parts:
            where = {"dataset": self.dataset.uri}
            raise Misuse("the dataset has no meta/modality.json", where, "Add the file.")
        steps = self.rows["action"]
        self.horizon: int = max(steps) - min(steps) + 1
        lengths = np.asarray(self.dataset.episodes["lengths"])
        self.usable = np.maximum(0, lengths - self.horizon + 1)
        self.cameras = self._find_cameras()
        self.language = self.names.get("language", ["task"])[0]
        if self.language == "sub_task":
            raise Unsupported("the language key sub_task", {"dataset": self.dataset.uri})
        if self.language != "task":
            annotation = self.language.removeprefix("annotation.")
            self.language = self.part("annotation", annotation)["original_key"]
        self.text_key = "task" if self.language == "task" else "language"

    def part(self, kind: str, name: str) -> dict[str, Any]:
        """Returns a part of modality.json."""
        known = self.parts.get(kind, {})
        if name not in known:
            hint = f"It names {', '.join(known) or 'none'}."
            where = {"dataset": self.dataset.uri}
            raise Misuse(f"modality.json names no {kind} {name!r}", where, hint)
        return known[name]

    def _find_cameras(self) -> dict[str, str]:
        """Returns {name of the view: key of its stream}.

        If a name is not in modality.json and the numbers of views are equal, views correspond by
        their order.
        """
        names, known = self.names.get("video", []), self.parts.get("video", {})
        if any(n not in known for n in names) and len(names) == len(known):
            return dict(zip(names, (p["original_key"] for p in known.values()), strict=True))
        return {n: self.part("video", n)["original_key"] for n in names}

    def texts(self, formalize: bool) -> Callable[[Any], str]:
        """Returns the function from a task, or its number, to the text for the model.

        Args:
            formalize: Whether texts become lower case without punctuation.
        """

        def formalized(text: str) -> str:
            """Returns a text in the form for the model."""
            return re.sub(r"[^\w\s]", "", text.lower()) if formalize else text

        if self.text_key == "task":
            return formalized
        return {n: formalized(t) for n, t in self.dataset.tasks.items()}.__getitem__

    def relative(self, name: str) -> dict[str, Any]:
        """Returns the options of a Part that make an action relative; none if it is absolute."""
        actions = config_field(self.configs["action"], "action_configs")
        if not actions or not self.settings["use_relative_action"]:
            return {}
        action = actions[self.names["action"].index(name)]
        if config_word(config_field(action, "rep")) != "relative":
            return {}
        state = self.part("state", config_field(action, "state_key", name))
        out = {
            "relative": "difference",
            "reference": (state["original_key"], state["start"]),
            "reference_row": self.rows["state"][-1],
        }
        if config_word(config_field(action, "type")) == "eef":
            # The form of the rotation: the format without the position, such as "xyz+rot6d".
            pose_format = config_word(config_field(action, "format")).replace("_", "+")
            form = pose_format.removeprefix("xyz+")
            if form not in ("rot6d", "rotvec"):
                raise Unsupported(f"relative poses of the format {form!r}")
            out |= {"relative": "pose", "rotation": (form, form)}
        return out

    def statistics(self) -> dict[str, dict[str, dict[str, np.ndarray]]]:
        """Returns {modality: {group: {statistic: values}}}.

        The statistics come from the dataset's files. Those that the files lack are computed.
        """
        out: dict[str, Any] = {"state": {}, "action": {}, "relative_action": {}}
        rows: dict[str, dict[str, np.ndarray]] = {}  # The statistics of all columns by stream.
        for kind in ("state", "action"):
            for name in self.names[kind]:
                p = self.part(kind, name)
                key, columns = p["original_key"], slice(p["start"], p["end"])
                if key not in rows:
                    rows[key] = self._stream_statistics(key)
                out[kind][name] = {s: v[columns] for s, v in rows[key].items()}
        wanted = [n for n in self.names["action"] if self.relative(n)]
        path = Path(str(self.dataset.uri)) / "meta/relative_stats.json"
        stored = json.loads(path.read_text()) if wanted and path.exists() else {}
        for name in wanted:
            values = stored.get(name) or self._measure_relative(name)
            out["relative_action"][name] = {s: np.asarray(values[s]) for s in _STATISTICS}
        return out

    def _stream_statistics(self, key: str) -> dict[str, np.ndarray]:
        """Returns the stored statistics of a stream, or computes them if one is missing."""
        stored = self.dataset.stats.get(key, {})
        if all(s in stored for s in _STATISTICS):
            return {s: stored[s] for s in _STATISTICS}
        rows = [e.streams[key].values.astype(np.float32) for e in self.dataset]
        return measure_rows(np.concatenate(rows))

    def _measure_relative(self, name: str) -> dict[str, np.ndarray]:
        """Returns the statistics of a relative action over all samples, each (T, D)."""
        p = self.part("action", name)
        part = Part(p["original_key"], p["start"], p["end"], **self.relative(name))
        chunks = loader.Loader(
            self.dataset,
            batch_size=256,
            split="all",
            shuffle=False,
            keys=["episode_index"],
            vectors={"chunk": Vector(parts=[part], rows=self.rows["action"])},
            order=Order(drop_n_last_frames=self.horizon - 1),
        )
        return measure_rows(np.concatenate([np.asarray(b["chunk"]) for b in chunks]))

    def vectors(self, statistics: Mapping[str, Any], training: bool) -> dict[str, Vector]:
        """Returns the vectors of the model's state and action."""
        s = self.settings
        dropout = s["state_dropout_prob"] if training else 0.0
        if s["exclude_state"] or config_field(self.configs["state"], "exclude_state"):
            dropout = 1.0
        return {
            "state": Vector(
                parts=[self._part("state", n, statistics) for n in self.names["state"]],
                rows=self.rows["state"],
                width=s["max_state_dim"],
                dropout=dropout,
            ),
            "action": Vector(
                parts=[self._part("action", n, statistics) for n in self.names["action"]],
                rows=self.rows["action"],
                length=s["action_horizon"],
                width=s["max_action_dim"],
                mask="action_mask",
            ),
        }

    def _part(self, kind: str, name: str, statistics: Mapping[str, Any]) -> Part:
        """Returns the part of a group, normalized in the precision of GR00T."""
        s, config, p = self.settings, self.configs[kind], self.part(kind, name)
        relative = self.relative(name) if kind == "action" else {}
        values = statistics["relative_action" if relative else kind][name]
        low, high = ("q01", "q99") if s["use_percentiles"] and not relative else ("min", "max")
        norm: dict[str, Any] = {"mode": "min_max", "isclose": True, "clip": s["clip_outliers"]}
        norm |= {"low": values[low], "high": values[high]}
        norm["precision"] = "float64" if relative else "mixed"
        sin_cos = kind == "state" and s["apply_sincos_state_encoding"]
        if sin_cos and name in config_field(config, "sin_cos_embedding_keys", ()):
            norm = {"mode": "sin_cos"}
        elif name in config_field(config, "mean_std_embedding_keys", ()):
            norm = {"mode": "mean_std", "mean": values["mean"], "std": values["std"]}
            norm |= {"constant": "keep", "clip": kind == "action" and s["clip_outliers"]}
        given: dict[str, Any] = {"name": name, "norm": norm, "precision": "mixed"}
        return Part(p["original_key"], p["start"], p["end"], **given, **relative)


def dataset_weights(
    parts: Sequence[ModalityParts], tags: Sequence[str], ratio: float | Mapping[str, float]
) -> list[float]:
    """Returns the weight of each dataset.

    The datasets of a tag share the ratio of the tag, in proportion to their numbers of shards.

    Args:
        parts: The datasets.
        tags: The embodiment tag of each dataset.
        ratio: The ratio of each tag, or one number for all tags.
    """
    shards = [-(-int(p.usable.sum()) // 1024) for p in parts]  # Of 1024 samples, rounded up.
    total = {t: sum(n for n, own in zip(shards, tags, strict=True) if own == t) for t in tags}
    ratios = ratio if isinstance(ratio, Mapping) else dict.fromkeys(tags, ratio)
    if missing := set(tags) - set(ratios):
        raise Misuse(f"mix_ratio has no weight of the tag {min(missing)!r}")
    return [ratios[t] * n / total[t] for n, t in zip(shards, tags, strict=True)]


def image_steps(settings: Mapping[str, Any], training: bool) -> list[dict[str, Any]]:
    """Returns GR00T's transform of images, as steps of robocache.Images."""
    target = settings["image_target_size"][0]
    fraction = settings["crop_fraction"] or settings["image_crop_size"][0] / target
    scale = {"smallest_side": settings["shortest_image_edge"] or target}
    steps = [{"letterbox": True}, scale, {"center_crop": fraction}, scale]
    if training:
        steps[2] = {"random_crop": fraction}
        if settings["random_rotation_angle"]:
            steps.append({"rotation": settings["random_rotation_angle"]})
        if settings["color_jitter_params"]:
            steps.append({"color_jitter": dict(settings["color_jitter_params"])})
    return steps
