# Part of native.sh: libjpeg-turbo's decoder behind jpeg.c, for video/turbojpeg.
fetch libjpeg-turbo
# Debian's correction of the code (SIMD dispatch when a thread takes over); its other patches concern documentation.
tar -xf libjpeg-turbo_*.debian.tar.xz
patch -s -d libjpeg-turbo -p1 < debian/patches/0001_initialize-simd-support-before-every-use.patch
cmake -S libjpeg-turbo -B build -G Ninja -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR="$ARCH" \
  -DCMAKE_C_COMPILER="$(command -v "$CC")" -DCMAKE_AR="$(command -v "$AR")" -DCMAKE_RANLIB="$(command -v "$RANLIB")" \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_C_FLAGS="-fvisibility=hidden -w" \
  -DENABLE_SHARED=OFF -DWITH_TURBOJPEG=OFF -DWITH_JAVA=OFF -DREQUIRE_SIMD=ON >/dev/null
ninja -C build -j "$jobs" jpeg-static >/dev/null
compile door.o -Wextra -Werror -Ilibjpeg-turbo -Ibuild "$root/scripts/native/jpeg.c"
whole rcjpeg door.o --whole-archive build/libjpeg.a --no-whole-archive
cp libjpeg-turbo/LICENSE.md stage/COPYING.libjpeg-turbo
cat libjpeg-turbo/README.ijg >> stage/COPYING.libjpeg-turbo
