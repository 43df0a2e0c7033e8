"""Writes rotations between two samples, as scipy's Slerp computes them.

Run: python rotations.py > rotations.json, with scipy 1.17.1.
"""

import json
import sys

import numpy as np
from scipy.spatial.transform import Rotation, Slerp

rng = np.random.default_rng(6)
cases = []


def read(form, v):
    """Returns the rotation of a rotation vector or of Euler angles."""
    return Rotation.from_rotvec(v) if form == "rotvec" else Rotation.from_euler(form, v)


def case(form, v0, v1, w):
    """Adds the blend of two rotations at weight w."""
    both = Rotation.concatenate([read(form, v0), read(form, v1)])
    got = Slerp([0.0, 1.0], both)([w])[0]
    # own is the result in scipy's form. It is None if scipy would write a sample in another form.
    own = None
    write = (lambda r: r.as_rotvec()) if form == "rotvec" else (lambda r: r.as_euler(form))
    if (
        all(np.abs(write(read(form, v)) - v).max() < 1e-9 for v in (v0, v1))
        and np.abs(np.subtract(v1, v0)).max() < 2.5
    ):
        own = [float(x) for x in write(got)]
    cases.append(
        {
            "form": form,
            "v0": list(map(float, v0)),
            "v1": list(map(float, v1)),
            "w": float(w),
            "matrix": got.as_matrix().reshape(-1).tolist(),
            "own": own,
        }
    )


forms = ["rotvec", "xyz", "XYZ", "zyx", "ZYX", "xzy", "YXZ", "zxz", "ZYZ", "yxy", "xzx"]
for form in forms:
    for _ in range(24):
        if form == "rotvec":
            v0 = rng.normal(size=3) * rng.choice([1e-9, 1e-3, 0.3, 1, 2])
        else:
            v0 = rng.uniform(-1.4, 1.4, 3) + (
                [0, 1.5, 0] if form[0].lower() == form[2].lower() else [0, 0, 0]
            )
        v1 = v0 + rng.normal(size=3) * rng.choice([1e-9, 1e-4, 0.1, 0.5])
        case(form, v0, v1, rng.choice([rng.uniform(), 0.5, 1e-6, 1 - 1e-6]))
    for v0, v1 in (
        ([0, 0, 0], [0, 0, 0]),
        ([0, 0, 0], [0.1, 0, 0]),
        ([3.1, 0, 0], [-3.1, 0, 0]),
        ([3.1, 0.02, 3.1], [-3.1, 0.02, -3.1]),
        ([5, 1, 0], [5.2, 1, 0.1]),
        ([0.3, np.pi / 2, 0.2], [0.3, np.pi / 2, 0.4]),
        ([0.3, -np.pi / 2, 0.2], [0.5, -np.pi / 2, 0.2]),
        ([0.3, np.pi, 0.2], [0.5, np.pi, 0.2]),
        ([0.3, 0, 0.2], [0.5, 0, 0.2]),
        ([2 * np.pi, 0, 0], [2 * np.pi, 0, 0]),
        ([12.5, 0.1, 0], [12.7, 0, 0]),
    ):
        for w in (0.25, 0.5, 0.875):
            case(form, v0, v1, w)
# Gimbal lock: the samples lie on both sides of a rotation at the lock or near it. Their angles are
# far from those in between, so the free angle must come from the rotation, not from the samples.
rng = np.random.default_rng(7)
for form in forms[1:]:
    proper = form[0].lower() == form[2].lower()
    for lock in (0.0, np.pi) if proper else (np.pi / 2, -np.pi / 2):
        for off in (0.0, 0.0, 0.0, 1e-9, 1e-6, 1e-4):
            side = -1 if proper and lock else 1
            mid = Rotation.from_euler(
                form, [rng.uniform(-2, 2), lock + off * side, rng.uniform(-2, 2)]
            )
            half = Rotation.from_rotvec(rng.uniform(0.2, 0.6, 3) * rng.choice([-1, 1], 3))
            case(form, (mid * half.inv()).as_euler(form), (mid * half).as_euler(form), 0.5)
sys.stdout.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
