"""Runs the data loaders of training repositories, or RoboCache in their place.

bench/cases.yaml has the cases. A runner returns an endless iterator over the sizes of batches, and
the number of batches to measure: an epoch, or SOME if each sample costs the same. The client's
packages are on PYTHONPATH. What a client needs the
network for is left out in all runners of a case: tokenizers.
"""

import atexit, itertools, json, logging, os, shutil, sys, tempfile, time, types

from . import common
import numpy as np

a = common.job()
RUNNERS = {}
SOME = 10


def runner(case, *names):
    """Registers a function that opens the data and returns (iterator, batches to measure)."""
    return lambda f: RUNNERS.update({(case, n): f for n in names})


def endless(loader, size):
    """Yields the sizes of the batches of a loader, epoch after epoch."""
    while True:
        for batch in loader:
            yield size(batch)


# openpi: one camera, delta actions, quantiles, 224×224 with borders, padded to 32.


class RobotInputs:
    """The transform of a robot, which each user of openpi writes."""

    def __call__(self, d):
        image = np.asarray(d["cam_high"])
        if image.dtype.kind == "f":
            image = (255 * image).astype(np.uint8)
        image = image.transpose(1, 2, 0) if image.shape[0] == 3 else image
        yes = {"base_0_rgb": np.True_}
        numbers = {k: np.asarray(d[k]) for k in ("state", "actions")}
        return {**numbers, "image": {"base_0_rgb": image}, "image_mask": yes}


def openpi_config(repo_id):
    """Returns the part of a TrainConfig that the data loader reads."""
    import openpi.training.config as training
    import openpi.transforms as transforms

    data = training.DataConfig(
        repo_id=repo_id,
        norm_stats=openpi_statistics(transforms.NormStats),
        repack_transforms=transforms.Group(
            inputs=[
                transforms.RepackTransform(
                    {
                        "cam_high": "observation.images.cam_high",
                        "state": "observation.state",
                        "actions": "action",
                    }
                )
            ]
        ),
        data_transforms=transforms.Group(
            inputs=[
                RobotInputs(),
                transforms.DeltaActions(transforms.make_bool_mask(14, -12)),
            ]
        ),
        model_transforms=transforms.Group(
            inputs=[transforms.ResizeImages(224, 224), transforms.PadStatesAndActions(32)]
        ),
        use_quantile_norm=True,
        action_sequence_keys=("action",),
        prompt_from_task=True,
    )
    return types.SimpleNamespace(
        data=types.SimpleNamespace(create=lambda *_: data),
        assets_dirs=None,
        model=types.SimpleNamespace(action_horizon=50, action_dim=32),
        batch_size=a.batch_size,
        seed=a.seed,
        num_workers=a.workers,
    )


def openpi_statistics(kind):
    """Returns made-up statistics; the values do not matter for the time."""
    n = 26
    each = dict(mean=np.zeros(n), std=np.ones(n), q01=-np.ones(n), q99=np.ones(n))
    return {key: kind(**each) for key in ("state", "actions")}


@runner("openpi", "robocache", "robocache-pool")
def openpi_adapter():
    os.environ.update(JAX_PLATFORMS="cpu")
    import robocache.openpi

    config = robocache.openpi.read_config(openpi_config(a.uri))
    shuffle = a.shuffle or "global"
    loader = robocache.openpi.DataLoader(config, shuffle=shuffle, threads=a.workers)
    return (len(b["state"]) for b in loader), len(loader)


@runner("openpi", "openpi", "robocache-item")
def openpi_loader():
    os.environ.update(JAX_PLATFORMS="cpu", HF_LEROBOT_HOME=os.path.dirname(a.uri))
    import openpi.training.data_loader as data_loader

    repo_id = os.path.basename(a.uri)
    if a.runner == "robocache-item":
        import robocache.openpi

        data_loader.lerobot_dataset, repo_id = robocache.openpi, a.uri
    config = openpi_config(repo_id)
    data = config.data.create()
    dataset = data_loader.create_torch_dataset(data, 50, config.model)
    dataset = data_loader.transform_dataset(dataset, data)
    loader = data_loader.TorchDataLoader(
        dataset, a.batch_size, shuffle=True, num_workers=a.workers, seed=a.seed
    )
    return (len(b["state"]) for b in loader), SOME


# GR00T N1.7: two cameras with the transform of training, 16 actions, relative arms, percentiles,
# padded to 40 × 132. The image processor of its backbone is left out.

GR00T_GROUPS = {"left_arm": (0, 7), "right_arm": (7, 14), "hands": (14, 26)}
GR00T_CAMERAS = ("cam_high", "cam_high_flip")
GR00T_TAG = "new_embodiment"


def temporary_folder():
    """Returns a folder that is removed when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="robocache-clients-")
    atexit.register(folder.cleanup)
    return folder.name


def empty_packages(*names):
    """Makes packages whose initialisers import models. The data loaders do not need them."""
    for name in names:
        folders = [os.path.join(f, *name.split(".")) for f in sys.path]
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [f for f in folders if os.path.isdir(f)]


def gr00t_set():
    """Writes the dataset as LeRobot v2.1 with modality.json, and returns (folder, configurations)."""
    import robocache
    from gr00t.data.types import ModalityConfig

    path = os.path.join(temporary_folder(), "g1")
    robocache.convert(a.uri, path, version="v2.1", progress=False)
    groups = {n: {"start": lo, "end": hi} for n, (lo, hi) in GR00T_GROUPS.items()}
    cameras = {n: {"original_key": "observation.images." + n} for n in GR00T_CAMERAS}
    with open(os.path.join(path, "meta", "modality.json"), "w") as f:
        json.dump({"state": groups, "action": groups, "video": cameras}, f)
    kinds = dict(type="NON_EEF", format="DEFAULT")
    actions = [dict(rep="RELATIVE" if "arm" in n else "ABSOLUTE", **kinds) for n in groups]
    return path, {
        "video": ModalityConfig([0], list(cameras)),
        "state": ModalityConfig([0], list(groups)),
        "action": ModalityConfig([*range(16)], list(groups), action_configs=actions),
        "language": ModalityConfig([0], ["task"]),
    }


@runner("gr00t", "gr00t", "robocache-item")
def gr00t_loader():
    os.environ.update(NO_ALBUMENTATIONS_UPDATE="1")
    empty_packages("gr00t.model", "gr00t.model.gr00t_n1d7")
    import gr00t.data.dataset.sharded_mixture_dataset as mixture
    import gr00t.data.dataset.sharded_single_step_dataset as steps
    import gr00t.model.gr00t_n1d7.processing_gr00t_n1d7 as processing
    from gr00t.configs.data.embodiment_configs import MODALITY_CONFIGS
    from gr00t.data import stats
    from gr00t.data.embodiment_tags import EmbodimentTag

    class Backbone:
        """Stands for the tokenizer and the image processor, which are on the network."""

        tokenizer = types.SimpleNamespace()

        def apply_chat_template(self, conversation, **_):
            return conversation[0]["content"][-1]["text"]

        def __call__(self, **_):
            return {}

    path, configs = gr00t_set()
    tag = EmbodimentTag(GR00T_TAG)
    MODALITY_CONFIGS[GR00T_TAG] = configs
    processing.build_processor = lambda *_: Backbone()
    mixture.print = steps.print = stats.print = lambda *_: None
    stats.generate_stats(path)
    stats.generate_rel_stats(path, tag)
    processor = processing.Gr00tN1d7Processor(
        modality_configs={GR00T_TAG: configs},
        use_percentiles=True,
        image_crop_size=[230, 230],
        image_target_size=[256, 256],
        shortest_image_edge=None,
        crop_fraction=None,
        max_state_dim=132,
        max_action_dim=132,
        max_action_horizon=40,
        use_albumentations=True,
        use_relative_action=True,
        state_dropout_prob=0.2,
    )
    cls = steps.ShardedSingleStepDataset
    if a.runner == "robocache-item":
        import robocache.gr00t

        cls = robocache.gr00t.ShardedSingleStepDataset
    dataset = cls(path, tag, configs)
    mix = mixture.ShardedMixtureDataset([dataset], [1.0], processor, seed=a.seed)
    loader = common.torch_loader(mix, a, collate_fn=processor.collator, prefetch_factor=2)
    # The window has as many samples as the epoch: the shards of workers begin at its ends.
    size = lambda b: len(b["inputs"]["state"])
    return endless(loader, size), int(dataset.shard_lengths.sum()) // a.batch_size


@runner("gr00t", "robocache")
def gr00t_adapter():
    import robocache.gr00t

    path, configs = gr00t_set()
    loader = robocache.gr00t.Loader(
        path,
        embodiment_tag=GR00T_TAG,
        modality_configs=configs,
        batch_size=a.batch_size,
        shuffle="pool",
        seed=a.seed,
        drop_last=True,
        threads=a.workers,
    )
    return endless(loader, lambda b: len(b["state"])), len(loader)


# Statistics of 10^6 windows of 50 actions of 14 columns, all relative to the state. The data is
# made here.


def million_windows():
    """Returns the states and actions of 1,000 episodes of 1,000 rows."""
    rng = np.random.default_rng(0)
    walk = rng.normal(0, 0.02, (1000, 1000, 14)).cumsum(1)
    action = walk + rng.normal(0, 0.05, walk.shape)
    return walk.astype(np.float32), action.astype(np.float32)


def write_replay_buffer(path, state, action):
    """Writes episodes as a replay buffer of diffusion_policy: Zarr v2 without compression."""
    ends = np.arange(1, len(state) + 1) * state.shape[1]
    arrays = {"data/state": state, "data/action": action, "meta/episode_ends": ends}
    for folder in ("", "data", "meta"):
        os.makedirs(os.path.join(path, folder), exist_ok=True)
        with open(os.path.join(path, folder, ".zgroup"), "w") as f:
            json.dump({"zarr_format": 2}, f)
    for name, x in arrays.items():
        x = x.reshape(-1, *x.shape[2:])
        meta = dict(zarr_format=2, shape=x.shape, chunks=x.shape, dtype=x.dtype.str, order="C")
        os.makedirs(os.path.join(path, name))
        with open(os.path.join(path, name, ".zarray"), "w") as f:
            json.dump({**meta, "compressor": None, "filters": None, "fill_value": 0}, f)
        x.tofile(os.path.join(path, name, ".".join("0" * x.ndim)))


@runner("norm_stats", "robocache", "robocache-histogram")
def norm_stats_adapter():
    import robocache.openpi

    path = os.path.join(temporary_folder(), "million.zarr")
    write_replay_buffer(path, *million_windows())
    config = robocache.openpi.Config(repo_id=path, images={}, delta_mask=[True] * 14)

    def passes():
        while True:
            robocache.openpi.norm_stats(config, exact=a.runner == "robocache")
            yield 10**6

    return passes(), 1


@runner("norm_stats", "openpi")
def norm_stats_loop():
    import openpi.shared.normalize as normalize

    state, action = million_windows()
    at = np.minimum(np.arange(1000)[:, None] + np.arange(50), 999)
    stats = {k: normalize.RunningStats() for k in ("state", "actions")}

    def batches():
        for episode, rows in itertools.cycle(zip(state, action)):
            windows = rows[at] - episode[:, None]
            for first in range(0, 992, 32):
                stats["state"].update(episode[first : first + 32])
                stats["actions"].update(windows[first : first + 32].reshape(-1, 14))
                yield 32

    return batches(), SOME


# diffusion_policy: windows of 16 steps with an image, from a replay buffer in RAM.


def from_ram(loader):
    """Returns the batches of a loader after ten epochs, which start workers and fill buffers."""
    batches = endless(loader, lambda b: len(b["action"]))
    for _ in range(10 * len(loader)):
        next(batches)
    return batches, len(loader)


@runner("diffusion_policy", "diffusion_policy")
def diffusion_policy():
    from diffusion_policy.dataset.pusht_image_dataset import PushTImageDataset

    dataset = PushTImageDataset(a.uri, horizon=16, pad_before=1, pad_after=7, seed=42)
    return from_ram(common.torch_loader(dataset, a, shuffle=True))


@runner("diffusion_policy", "robocache", "robocache-item")
def diffusion_policy_adapter():
    import robocache.diffusion_policy as ours

    dataset = ours.ImageDataset(a.uri, horizon=16, pad_before=1, pad_after=7, seed=42)
    if a.runner == "robocache-item":
        loader = common.torch_loader(dataset, a, shuffle=True)
    else:
        loader = ours.Loader(
            dataset, batch_size=a.batch_size, shuffle=True, cache="ram", threads=a.workers
        )
    return from_ram(loader)


# OpenVLA: Bridge with its own settings: single steps, normalized by quantiles, 224×224 by lanczos3,
# and goals, whose images it does not use.


@runner("openvla", "openvla", "openvla-no-goals")
def openvla():
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
    # The initialisers of these packages import models, which the data loader does not need.
    for name in ("prismatic", "prismatic.vla", "prismatic.vla.datasets"):
        folders = [os.path.join(f, *name.split(".")) for f in sys.path]
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [f for f in folders if os.path.isdir(f)]
    sys.modules["prismatic.overwatch"] = types.SimpleNamespace(
        initialize_overwatch=logging.getLogger
    )
    from prismatic.vla.datasets.rlds.dataset import make_interleaved_dataset
    from prismatic.vla.datasets.rlds.oxe.transforms import bridge_orig_dataset_transform
    from prismatic.vla.datasets.rlds.utils.data_utils import NormalizationType

    # The client writes its statistics into the folder of the dataset.
    folder = tempfile.TemporaryDirectory(prefix="openvla-")
    atexit.register(folder.cleanup)
    shutil.copytree(a.uri, folder.name, dirs_exist_ok=True, copy_function=shutil.copyfile)
    kwargs = dict(
        name="bridge_dataset",
        data_dir=folder.name,
        standardize_fn=bridge_orig_dataset_transform,
        image_obs_keys={"primary": "image_0"},
        language_key="language_instruction",
        action_proprio_normalization_type=NormalizationType.BOUNDS_Q99,
        absolute_action_mask=[False] * 6 + [True],
        action_normalization_mask=[True] * 6 + [False],
    )
    dataset, _, _ = make_interleaved_dataset(
        [kwargs],
        train=True,
        shuffle_buffer_size=1000,
        traj_transform_kwargs=dict(
            window_size=1,
            future_action_window_size=0,
            skip_unlabeled=True,
            goal_relabeling_strategy="uniform" if a.runner == "openvla" else None,
        ),
        frame_transform_kwargs=dict(resize_size=(224, 224), num_parallel_calls=a.workers),
        batch_size=a.batch_size,
        traj_transform_threads=1,
        traj_read_threads=1,
    )
    return (len(b["action"]) for b in dataset.as_numpy_iterator()), 1000 // a.batch_size


def bridge_rows(trajectory):
    """Standardizes an episode of Bridge: first and last step left out, differences of states."""
    state, action = trajectory["observation"]["state"][1:], trajectory["action"][1:]
    return {
        "observation": {"image_0": trajectory["observation"]["image_0"][1:-1]},
        "action": np.concatenate([state[1:, :6] - state[:-1, :6], action[:-1, 6:] > 0.5], 1),
        "language_instruction": trajectory["language_instruction"][1:-1],
    }


@runner("openvla", "robocache", "robocache-no-goals")
def openvla_adapter():
    import robocache.rlds_training

    kwargs = dict(
        name="bridge_dataset",
        data_dir=a.uri,
        standardize_fn=bridge_rows,
        image_obs_keys={"primary": "image_0"},
        language_key="language_instruction",
        action_proprio_normalization_type="bounds_q99",
        absolute_action_mask=[False] * 6 + [True],
        action_normalization_mask=[True] * 6 + [False],
    )
    data, _, _ = robocache.rlds_training.make_interleaved_dataset(
        [kwargs],
        train=True,
        traj_transform_kwargs=dict(
            skip_unlabeled=True,
            goal_relabeling_strategy="uniform" if a.runner == "robocache" else None,
        ),
        frame_transform_kwargs=dict(resize_size=(224, 224)),
        batch_size=a.batch_size,
        threads=a.workers,
    )
    return (len(b["action"]) for b in data), 1000 // a.batch_size


def main(_):
    batches, count = RUNNERS[a.case, a.runner]()
    common.imported()
    began = time.perf_counter()
    for _ in range(count):
        next(batches)
    # Whole epochs, which take about the seconds of the job.
    epochs = max(1, round((a.seconds or 0) / max(time.perf_counter() - began, 1e-6)))
    print("#open", flush=True)
    began = time.perf_counter()
    samples = sum(next(batches) for _ in range(epochs * count))
    seconds = time.perf_counter() - began
    print("#measured", flush=True)
    out = dict(samples=samples, epochs=epochs, seconds=seconds, versions=common.versions())
    print(json.dumps(out), flush=True)


if __name__ == "__main__":
    common.run(main)
