# Part of native.sh: dav1d, libavcodec, libswscale, libavutil, for video/ffmpeg.
# Only decoders are built: no container parser, no protocol, no network.
# dav1d's objects are merged into libavcodec.a, so that one -lavcodec serves this build and a system FFmpeg alike.
fetch dav1d
fetch ffmpeg
meson setup dav1d/build dav1d --buildtype release --default-library static -Db_staticpic=true \
  -Denable_tools=false -Denable_tests=false -Denable_examples=false \
  --prefix "$PWD/stage" --libdir lib >/dev/null
ninja -C dav1d/build -j "$jobs" install >/dev/null

mkdir ffmpeg/out
(
  cd ffmpeg/out
  PKG_CONFIG_PATH="$work/video/stage/lib/pkgconfig" ../configure --prefix="$work/video/stage" --pkg-config-flags=--static \
    --disable-everything --disable-autodetect --disable-network --disable-programs --disable-doc --disable-debug \
    --disable-avformat --disable-avdevice --disable-avfilter --disable-swresample --disable-postproc \
    --enable-pic --enable-libdav1d \
    --enable-decoder=libdav1d,h264,hevc,vp9,mpeg4,mjpeg --enable-parser=h264,hevc,vp9,mpeg4video,av1 \
    --extra-cflags="-fvisibility=hidden -w" >/dev/null
  make -j "$jobs" install >/dev/null
)
cp ffmpeg/COPYING.LGPLv2.1 stage/COPYING.LGPLv2.1
cp dav1d/COPYING stage/COPYING.dav1d

ar -M <<MRI
OPEN stage/lib/libavcodec.a
ADDLIB stage/lib/libdav1d.a
SAVE
END
MRI
ranlib stage/lib/libavcodec.a
rm -rf stage/share stage/lib/pkgconfig
