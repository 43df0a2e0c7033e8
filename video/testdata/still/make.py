"""Makes the still images beside it, and <name>.raw: what PIL decodes (RGB bytes, or little-endian uint16/float32 grey). Needs Pillow and NumPy."""
import pathlib
import numpy as np
from PIL import Image

here = pathlib.Path(__file__).parent
w, h = 21, 13
y, x = np.mgrid[0:h, 0:w]
rgb = np.stack([x * 12, y * 19, (x * y * 7) % 256], -1).astype(np.uint8)
rgb[4:9, 6:14] = [250, 10, 30]
grey16 = (x * 3001 + y * 977).astype(np.uint16)
depth = (0.25 + x * 0.1 + y * 0.03).astype(np.float32)
alpha = np.dstack([rgb, (x * 11).astype(np.uint8)])


def put(name, im, raw=None, **kw):
    im.save(here / name, **kw)
    if raw is None:
        raw = np.asarray(Image.open(here / name).convert("RGB"))
    (here / (name + ".raw")).write_bytes(np.ascontiguousarray(raw).tobytes())


im = Image.fromarray(rgb)
put("rgb.png", im)
put("grey.png", im.convert("L"))
put("bits.png", im.convert("1"))
put("palette.png", im.quantize(16))
put("rgba.png", Image.fromarray(alpha))
put("greyalpha.png", Image.fromarray(alpha).convert("LA"))
put("grey16.png", Image.fromarray(grey16), grey16)
for name, sub in (("444", 0), ("422", 1), ("420", 2)):
    put(f"{name}.jpg", im, quality=90, subsampling=sub)
put("progressive.jpg", im, quality=85, subsampling=2, progressive=True)
put("grey.jpg", im.convert("L"), quality=90)
put("cmyk.jpg", im.convert("CMYK"), quality=95)
for name, comp in (("raw", None), ("deflate", "tiff_adobe_deflate"), ("lzw", "tiff_lzw")):
    kw = {"compression": comp} if comp else {}
    put(f"rgb_{name}.tif", im, **kw)
    put(f"i16_{name}.tif", Image.fromarray(grey16), grey16, **kw)
    put(f"f32_{name}.tif", Image.fromarray(depth), depth, **kw)
put("i16_strips.tif", Image.fromarray(grey16), grey16, strip_size=21 * 2 * 3, compression="tiff_adobe_deflate")
