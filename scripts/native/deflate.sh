# Part of native.sh: libdeflate's decompressors behind deflate.c, for internal/inflate.
fetch libdeflate
for f in utils deflate_decompress zlib_decompress gzip_decompress adler32 crc32 x86/cpu_features arm/cpu_features; do
  compile "${f//\//-}.o" -DNDEBUG -std=c99 -D_POSIX_C_SOURCE=200809L -Ilibdeflate "libdeflate/lib/$f.c"
done
compile door.o -Wextra -Werror -Ilibdeflate "$root/scripts/native/deflate.c"
whole rcdeflate ./*.o
cp libdeflate/COPYING stage/COPYING.libdeflate
