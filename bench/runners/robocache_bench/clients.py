"""Runs the data loaders of training repositories, or RoboCache in their place.

bench/cases.yaml has the cases. A runner returns an endless iterator over the sizes of batches, and
the number of batches to measure: an epoch, or SOME if each sample costs the same. The client's
packages are on PYTHONPATH. What a client needs the
network for is left out in all runners of a case: tokenizers.
"""

import atexit, json, logging, os, shutil, sys, tempfile, time, types

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
