"""Messages of the types that are decoded by hand, hard cases of each, by rosbags and NumPy; what they hold is beside them. One JSON line each:
{"case", "type", "data": [hex, ...], "want": {...}}.
"""
import io, json
import cv2
import numpy as np
from PIL import Image as PILImage
from rosbags.typesys import Stores, get_typestore

ts = get_typestore(Stores.ROS2_HUMBLE)
T = {n.split("/")[-1]: c for n, c in ts.types.items() if n.split("/")[0] in ("std_msgs", "sensor_msgs", "geometry_msgs", "tf2_msgs", "builtin_interfaces")}
FULL = {n.split("/")[-1]: n for n in ts.types if n.split("/")[0] in ("std_msgs", "sensor_msgs", "geometry_msgs", "tf2_msgs", "builtin_interfaces")}
rng = np.random.default_rng(5)
hexed = lambda a: np.ascontiguousarray(a).tobytes().hex()


def header(k=0, frame="base"):
    return T["Header"](stamp=T["Time"](sec=1700000000 + k, nanosec=k * 7), frame_id=frame)


def emit(case, typ, messages, want, big=False):
    data = [bytes(ts.serialize_cdr(m, FULL[typ], little_endian=not (big and k % 2))).hex() for k, m in enumerate(messages)]
    print(json.dumps({"case": case, "type": FULL[typ], "data": data, "want": want}))


def joints():
    names = ["a", "bb", "left_wrist_joint", "d"]
    full = rng.normal(size=(6, 4))
    JS = T["JointState"]
    none = np.zeros(0)
    perm = [2, 0, 3, 1]
    ms = [JS(header(0), names, full[0], none, full[0] * 2), JS(header(1), names, full[1], none, full[1] * 2),
          JS(header(2), [names[p] for p in perm], full[2][perm], none, full[2][perm] * 2),
          JS(header(3), names[:3], full[3][:3], none, full[3][:3]),                        # a joint is missing
          JS(header(4), names + ["extra"], np.append(full[4], 9.0), none, none),           # one more; no effort
          JS(header(5), names, full[5][:2], none, full[5] * 2)]                            # positions too few
    zero = np.zeros(4)
    emit("joints", "JointState", ms, {"names": names, ".position": hexed([full[0], full[1], full[2], zero, full[4], zero]), ".position.valid": [1, 1, 1, 0, 1, 0],
                                     ".effort": hexed([full[0] * 2, full[1] * 2, full[2] * 2, zero, zero, full[5] * 2]), ".effort.valid": [1, 1, 1, 0, 0, 1]}, big=True)


def arrays():
    A, L, D = T["Float32MultiArray"], T["MultiArrayLayout"], T["MultiArrayDimension"]
    x = rng.normal(size=(3, 2, 5)).astype("<f4")
    lay = L([D("r", 2, 10), D("c", 5, 5)], 0)
    emit("multiarray", "Float32MultiArray", [A(lay, v.ravel()) for v in x], {"shape": [2, 5], "values": hexed(x)}, big=True)
    emit("multiarray ragged", "Float32MultiArray", [A(L([], 0), v) for v in (x[0, 0], x[1, 0][:2], x[2, 0][:0])], {"shape": [-1], "values": hexed(np.concatenate([x[0, 0], x[1, 0][:2]])), "counts": [5, 2, 0]}, big=True)


def images():
    h, w = 6, 8
    cases = {"rgb8": (3, "u1"), "bgr8": (3, "u1"), "rgba8": (4, "u1"), "bgra8": (4, "u1"), "mono8": (1, "u1"), "mono16": (1, "u2"), "16UC1": (1, "u2"), "32FC1": (1, "f4"), "yuv422": (2, "u1"), "yuv422_yuy2": (2, "u1")}
    for enc, (c, dt) in cases.items():
        for pad, bigpix in ((0, 0), (5, 0), (0, 1)):
            px = rng.integers(0, 256, (h, w, c)).astype("u1") if dt == "u1" else (rng.normal(size=(h, w, c)) * 1000).astype("<" + dt)
            row = px.astype(px.dtype.newbyteorder(">" if bigpix else "<")).view("u1").reshape(h, -1)
            data = np.concatenate([row, np.full((h, pad), 77, "u1")], axis=1)
            m = T["Image"](header(), h, w, enc, bigpix, data.shape[1], data.ravel())
            if enc == "yuv422":
                ref = cv2.cvtColor(px, cv2.COLOR_YUV2RGB_UYVY)
            elif enc == "yuv422_yuy2":
                ref = cv2.cvtColor(px, cv2.COLOR_YUV2RGB_YUY2)
            elif c >= 3:
                ref = px[..., :3][..., ::-1] if enc.startswith("bgr") else px[..., :3]
            else:
                ref = px
            emit(f"image {enc} {pad} {bigpix}", "Image", [m], {"height": h, "width": w, "channels": ref.shape[2], "dtype": str(ref.dtype), "pixels": hexed(ref)})


def compressed():
    C = T["CompressedImage"]
    px = rng.integers(0, 256, (5, 7, 3)).astype("u1")
    for kind, fmt in (("JPEG", "png"), ("PNG", "rgb8; png compressed bgr8")):                # the text lies
        b = io.BytesIO(); PILImage.fromarray(px).save(b, kind)
        emit("compressed " + kind, "CompressedImage", [C(header(), fmt, np.frombuffer(b.getvalue(), "u1"))], {"encoded": b.getvalue().hex(), "size": [5, 7, 3]})
    mm = rng.integers(0, 5000, (4, 6)).astype("u2")
    png = cv2.imencode(".png", mm)[1].tobytes()
    emit("depth 16UC1", "CompressedImage", [C(header(), "16UC1; compressedDepth png", np.frombuffer(bytes(12) + png, "u1"))], {"encoded": png.hex(), "size": [4, 6, 1]})
    a, b = np.float32(1000.5), np.float32(-3.25)
    with np.errstate(divide="ignore"):
        metres = np.where(mm == 0, np.float32("nan"), a / (mm.astype("f4") - b)).astype("f4")
    metres[0, 0] = np.nan; mm[0, 0] = 0
    png = cv2.imencode(".png", mm)[1].tobytes()
    head = np.array([0], "<i4").tobytes() + a.tobytes() + b.tobytes()
    emit("depth 32FC1", "CompressedImage", [C(header(), "32FC1; compressedDepth", np.frombuffer(head + png, "u1"))], {"size": [4, 6, 1], "pixels": hexed(metres)})


def clouds():
    P, F = T["PointCloud2"], T["PointField"]
    NUM = {"i1": 1, "u1": 2, "i2": 3, "u2": 4, "i4": 5, "u4": 6, "f4": 7, "f8": 8}
    cases = {
        "packed": ([("x", "f4", 1, 0), ("y", "f4", 1, 4), ("z", "f4", 1, 8), ("intensity", "f4", 1, 12)], 16, 1, 0, "<"),
        "padded, unaligned, a ring": ([("x", "f4", 1, 1), ("y", "f4", 1, 5), ("z", "f4", 1, 9), ("ring", "u2", 1, 17), ("intensity", "f4", 1, 21)], 31, 1, 0, "<"),
        "float64, organised, rows padded": ([("x", "f8", 1, 0), ("y", "f8", 1, 8), ("z", "f8", 1, 16), ("rgb", "f4", 1, 24)], 28, 3, 11, "<"),
        "big-endian": ([("x", "f4", 1, 0), ("y", "f4", 1, 4), ("z", "f4", 1, 8), ("t", "u4", 1, 12), ("n", "f4", 3, 16)], 28, 1, 0, ">"),
        "coordinates not in order": ([("z", "f4", 1, 0), ("label", "u1", 1, 4), ("x", "f4", 1, 5), ("y", "f4", 1, 9)], 13, 2, 3, "<"),
        "integers": ([("x", "i2", 1, 0), ("y", "i2", 1, 2), ("z", "i2", 1, 4)], 6, 1, 0, "<"),
    }
    for case, (fields, step, height, rowpad, order) in cases.items():
        width = 40
        dt = np.dtype({"names": [f[0] for f in fields], "formats": [(order + f[1], (f[2],)) if f[2] > 1 else order + f[1] for f in fields], "offsets": [f[3] for f in fields], "itemsize": step})
        ms, main, extra = [], [], {}
        for k in range(3):
            raw = rng.integers(0, 256, (height, width, step)).astype("u1")
            pts = raw.view(dt)[..., 0]
            for n, t, c, _ in fields:
                shape = (height, width) + ((c,) if c > 1 else ())
                pts[n] = rng.normal(size=shape) if t[0] == "f" else rng.integers(0, 100, shape)
            if fields[0][1][0] == "f":
                pts["x"][0, 3] = np.nan; pts["z"][height - 1, 7] = np.inf
            data = np.concatenate([raw.reshape(height, -1), np.zeros((height, rowpad), "u1")], axis=1)
            ms.append(P(header(k), height, width, [F(n, o, NUM[t], c) for n, t, c, o in fields], order == ">", step, data.shape[1], data.ravel(), False))
            flat = pts.ravel()
            keep = np.isfinite(flat["x"].astype("f8")) & np.isfinite(flat["y"].astype("f8")) & np.isfinite(flat["z"].astype("f8"))
            flat = flat[keep]
            t = next(f[1] for f in fields if f[0] == "x")
            cols = [flat[n] for n in "xyz"] + [flat[f[0]] for f in fields if f[0] not in "xyz" and f[1] == t]
            main.append(np.concatenate([c.reshape(len(flat), -1).astype("<" + t) for c in cols], axis=1))
            for f in fields:
                if f[1] != t:
                    extra.setdefault("." + f[0], []).append(flat[f[0]].astype("<" + f[1]))
        empty = P(header(9), 1, 0, [F(n, o, NUM[t], c) for n, t, c, o in fields], order == ">", step, 0, np.zeros(0, "u1"), True)
        ms.append(empty)
        emit("cloud " + case, "PointCloud2", ms, {"counts": [len(m) for m in main] + [0], "channels": main[0].shape[1], "": hexed(np.concatenate(main)), **{k: hexed(np.concatenate(v)) for k, v in extra.items()}})


def transforms():
    TF, TS, TR = T["TFMessage"], T["TransformStamped"], T["Transform"]
    V, Q = T["Vector3"], T["Quaternion"]
    want, ms = {}, []
    for k in range(5):
        some = []
        for parent, child in (("world", "arm/wrist"), ("world", "base"), ("base", "cam"))[: 1 + k % 3] + ((("world", "base"),) if k == 4 else ()):
            v, q = rng.normal(size=3), rng.normal(size=4)
            some.append(TS(header(k, parent), child, TR(V(*map(float, v)), Q(*map(float, q)))))
            key = "." + parent + "." + child.replace("/", ".")
            want.setdefault(key + ".translation", []).append(v); want.setdefault(key + ".rotation", []).append(q)
        ms.append(TF(some))
    emit("transforms", "TFMessage", ms, {k: hexed(np.array(v)) for k, v in want.items()}, big=True)


joints(); arrays(); images(); compressed(); clouds(); transforms()
