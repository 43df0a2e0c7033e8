# Part of native.sh: libdeflate's decompressors behind deflate.c, for internal/inflate.
fetch libdeflate
objects=()
for f in utils deflate_decompress zlib_decompress gzip_decompress adler32 crc32 x86/cpu_features arm/cpu_features; do
  o=${f//\//-}.o
  gcc -O3 -DNDEBUG -fPIC -fvisibility=hidden -Wall -std=c99 -D_POSIX_C_SOURCE=200809L -Ilibdeflate -c "libdeflate/lib/$f.c" -o "$o"
  objects+=("$o")
done
gcc -O3 -fPIC -fvisibility=hidden -Wall -Wextra -Werror -Ilibdeflate -c "$root/scripts/native/deflate.c" -o deflate.o
whole rcdeflate deflate.o "${objects[@]}"
cp libdeflate/COPYING stage/COPYING.libdeflate
