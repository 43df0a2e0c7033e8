# Part of native.sh: dav1d, libavcodec, libswscale, libavutil, for video/ffmpeg.
# Only decoders are built: no container parser, no protocol, no network.
# dav1d's objects are merged into libavcodec.a, so that one -lavcodec serves this build and a system FFmpeg alike.
fetch dav1d
fetch ffmpeg
cat > machine.ini <<INI
[binaries]
c = '$CC'
ar = '$AR'
ranlib = '$RANLIB'
[host_machine]
system = 'linux'
cpu_family = '$ARCH'
cpu = '$ARCH'
endian = 'little'
INI
"$MESON" setup dav1d/build dav1d --cross-file machine.ini --buildtype release --default-library static -Db_staticpic=true \
  -Denable_tools=false -Denable_tests=false -Denable_examples=false \
  --prefix "$PWD/stage" --libdir lib >/dev/null
ninja -C dav1d/build -j "$jobs" install >/dev/null

# swscale takes one row of luma as it is, where rows are not scaled, on x86-64 alone: elsewhere it weighs two, and other rows of chroma with them.
[ "$ARCH" = x86_64 ] || sed -i 's/if (HAVE_MMX && cpu_flags & AV_CPU_FLAG_MMX) {/if (1) {/' ffmpeg/libswscale/utils.c
mkdir ffmpeg/out
(
  cd ffmpeg/out
  # The prefix is a text within the libraries: it says nothing of this machine.
  PKG_CONFIG_PATH="$work/video/stage/lib/pkgconfig" ../configure --prefix=/ --pkg-config=pkg-config --pkg-config-flags=--static \
    --enable-cross-compile --target-os=linux --arch="$ARCH" --cc="$CC" --ld="$CC" --ar="$AR" --ranlib="$RANLIB" --nm="$NM" --strip=true \
    --disable-everything --disable-autodetect --disable-network --disable-programs --disable-doc --disable-debug \
    --disable-avformat --disable-avdevice --disable-avfilter --disable-swresample --disable-postproc \
    --enable-pic --enable-libdav1d \
    --enable-decoder=libdav1d,h264,hevc,vp9,mpeg4,mjpeg --enable-parser=h264,hevc,vp9,mpeg4video,av1 \
    --extra-cflags="-fvisibility=hidden -w" >/dev/null
  sed -i 's/HAVE_SYSCTL 1/HAVE_SYSCTL 0/' config.h # zig links it and has no header for it; FFmpeg asks sched_getaffinity first
  make -j "$jobs" install DESTDIR="$work/video/stage" >/dev/null
)
cp ffmpeg/COPYING.LGPLv2.1 stage/COPYING.LGPLv2.1
cp dav1d/COPYING stage/COPYING.dav1d

"$AR" -M <<MRI
CREATE all.a
ADDLIB stage/lib/libavcodec.a
ADDLIB stage/lib/libdav1d.a
SAVE
END
MRI
mv all.a stage/lib/libavcodec.a
"$RANLIB" stage/lib/libavcodec.a
rm -rf stage/share stage/lib/pkgconfig
