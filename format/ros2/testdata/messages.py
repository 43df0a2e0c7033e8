"""Random messages of every type that the rosbags package knows, and of types made to hold every construct of the language: serialised
and decoded again by rosbags, one JSON line each, for the decoder under test to agree with.

usage: python messages.py SEED
"""
import json, random, struct, sys
import numpy as np
from rosbags.typesys import Stores, get_typestore, get_types_from_msg
from rosbags.interfaces import Nodetype

OWN = {
    "own_msgs/msg/Inner": "uint8 a\nfloat64 b\nstring s\nint16[] c\n",
    "own_msgs/msg/Flat": "int8 x\nfloat64 y\n",
    "own_msgs/msg/Nothing": "",
    "own_msgs/msg/All": """
# every primitive
bool b 0   # a comment
byte by
char ch
int8 i8 -5
uint8 u8
int16 i16
uint16 u16
int32 i32
uint32 u32
int64 i64
uint64 u64
float32 f32 1.5
float64 f64
string s "a # default"
string<=10 bounded
int32 X=1
string NAME=some text # not a comment
bool[3] fb
float64[2] fd
string[2] fs
int8[] si8
float64[] sd
float64[<=4] bd
uint16[<=3] bu
string[] ss
string<=5[<=3] bs
uint8 odd
float64[] tail
own_msgs/Inner inner
Inner[2] inners
Inner[] many
Flat[3] flats
Flat[<=2] few
uint8 last
Nothing nothing
uint8 behind
""",
    "own_msgs/msg/Stamped": "std_msgs/Header header\nfloat32[7] q\nuint8[] blob\ngeometry_msgs/Pose[] poses\nbuiltin_interfaces/Duration[] waits\n",
    "own_msgs/msg/Deep": "All[] alls\nfloat64 end\n",
}
NP = {"bool": "?", "byte": "u1", "octet": "u1", "char": "u1", "int8": "i1", "uint8": "u1", "int16": "<i2", "uint16": "<u2", "int32": "<i4", "uint32": "<u4", "int64": "<i8", "uint64": "<u8", "float32": "<f4", "float64": "<f8"}


def main():
    rng = random.Random(int(sys.argv[1]))
    ts = get_typestore(Stores.ROS2_HUMBLE)
    for name, text in OWN.items():
        ts.register(get_types_from_msg(text, name))

    def number(t):
        if t == "bool":
            return bool(rng.getrandbits(1))
        if t in ("byte", "octet"):
            return rng.randrange(128)  # rosbags reads it as signed; it is an octet
        d = np.dtype(NP[t])
        if d.kind == "f":
            return d.type(rng.choice([0.0, -0.0, 1.5, rng.gauss(0, 1), rng.gauss(0, 1e30), float("inf")])).item()
        return int.from_bytes(rng.randbytes(d.itemsize), "little", signed=d.kind == "i")

    def text():
        return "".join(rng.choice(["a", "b", " ", "é", "日", "\"", "/"]) for _ in range(rng.randrange(9)))

    def value(t, arg):
        if t == Nodetype.NAME:
            return message(arg)
        if t == Nodetype.BASE:
            return text() if arg[0] == "string" else number(arg[0])
        (et, earg), n = arg
        if t == Nodetype.SEQUENCE:
            n = rng.randrange(min(n, 5) + 1) if n else rng.choice([0, 0, 1, 2, 5])
        if et == Nodetype.BASE and earg[0] != "string":
            return np.array([number(earg[0]) for _ in range(n)], dtype=NP[earg[0]])
        return [value(et, earg) for _ in range(n)]

    def message(name):
        return ts.types[name](**{k: value(t, a) for k, (t, a) in ts.fielddefs[name][1]})

    def flat(x, name, path, out):
        for k, (t, a) in ts.fielddefs[name][1]:
            if k == "structure_needs_at_least_one_member":
                continue
            leaf(getattr(x, k), t, a, path + k, out)

    def leaf(v, t, a, path, out):
        if t == Nodetype.NAME:
            flat(v, a, path + ".", out)
        elif t == Nodetype.BASE:
            put(v, a[0], path, out)
        else:
            et, earg = a[0]
            for e in v:
                leaf(e, et, earg, path, out)

    def put(v, t, path, out):
        if t == "string":
            out.setdefault(path, []).append(v)
        else:
            out[path] = out.get(path, "") + np.array([v]).astype(NP[t]).tobytes().hex()

    for name in sorted(ts.types):
        if name.startswith("rosbag2") or name.startswith("rmw"):
            continue
        schema, _ = ts.generate_msgdef(name, ros_version=2)
        if name in OWN:
            # the text as a person wrote it, with what rosbags makes of the types below
            schema = OWN[name] + "".join("=" * 80 + "\nMSG: " + n + "\n" + t for n, t in OWN.items() if n != name) + "".join("\n" + "=" * 80 + p for p in schema.split("=" * 80)[1:] if "MSG: own_msgs" not in p)
        for k in range(6):
            m = message(name)
            raw = bytes(ts.serialize_cdr(m, name, little_endian=k % 2 == 0))
            out = {}
            flat(ts.deserialize_cdr(raw, name), name, "", out)
            print(json.dumps({"type": name, "schema": schema if k == 0 else "", "data": raw.hex(), "leaves": out}))


main()
