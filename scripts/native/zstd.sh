# Part of native.sh: libzstd's decoder behind zstd.c, for internal/unzstd.
fetch libzstd
for f in common/{debug,entropy_common,error_private,fse_decompress,xxhash,zstd_common}.c decompress/{huf_decompress,zstd_ddict,zstd_decompress,zstd_decompress_block}.c decompress/huf_decompress_amd64.S; do
  compile "$(basename "$f").o" -DNDEBUG -DZSTD_LEGACY_SUPPORT=0 -DZSTD_TRACE=0 -DXXH_NAMESPACE=ZSTD_ -Ilibzstd/lib -Ilibzstd/lib/common "libzstd/lib/$f"
done
compile door.o -Wextra -Werror -Ilibzstd/lib "$root/scripts/native/zstd.c"
whole rczstd ./*.o
cp libzstd/LICENSE stage/COPYING.libzstd
