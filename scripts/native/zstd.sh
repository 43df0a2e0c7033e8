# Part of native.sh: libzstd's decoder behind zstd.c, for internal/unzstd.
fetch libzstd
objects=()
for f in common/{debug,entropy_common,error_private,fse_decompress,xxhash,zstd_common}.c decompress/{huf_decompress,zstd_ddict,zstd_decompress,zstd_decompress_block}.c decompress/huf_decompress_amd64.S; do
  o=$(basename "${f%.*}").o
  gcc -O3 -DNDEBUG -fPIC -fvisibility=hidden -Wall -DZSTD_LEGACY_SUPPORT=0 -DZSTD_TRACE=0 -DXXH_NAMESPACE=ZSTD_ -Ilibzstd/lib -Ilibzstd/lib/common -c "libzstd/lib/$f" -o "$o"
  objects+=("$o")
done
gcc -O3 -fPIC -fvisibility=hidden -Wall -Wextra -Werror -Ilibzstd/lib -c "$root/scripts/native/zstd.c" -o zstd.o
whole rczstd zstd.o "${objects[@]}"
cp libzstd/LICENSE stage/COPYING.libzstd
