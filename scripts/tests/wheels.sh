#!/usr/bin/env bash
# Tests the wheels of dist in users' environments, installed as users install them. Prints a line
# per step with its seconds, and a line for each step that cannot run here.
#   tests/wheels.sh [part ...]
#       default: same here lerobot uninstall bad debian13 testing debian11 arm64
# The userlands are made once, in .build/wheels/roots, which needs root and Debian's packages.
# Debian 11 has Python 3.9, so a newer Python is built there. Debian testing has Python 3.14.
set -uo pipefail
cd "$(dirname "$0")/../.."
base=$(realpath -m .build/wheels)
roots=$base/roots
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(same here lerobot uninstall bad debian13 testing debian11 arm64)
x86=$(ls dist/robocache-*x86_64.whl) arm=$(ls dist/robocache-*aarch64.whl 2>/dev/null)
[ -n "$x86" ] || { echo "wheels: dist has no x86-64 wheel, or several; run 'make wheels'" >&2; exit 2; }
failed=0

# try NAME COMMAND...: runs a step and prints one line. The command's output is in $out/said.
try() {
  local name=$1 begin result=ok limit=(timeout 900)
  shift
  ! declare -F "$1" >/dev/null || limit=()
  begin=$(date +%s%N)
  "${limit[@]}" "$@" >"$out/said" 2>&1 </dev/null || { result="FAILED, exit code $?"; failed=1; }
  printf '%-58s %7.1f s  %s\n' "$name" "$((($(date +%s%N) - begin) / 1000000))e-3" "$result"
  [ "$result" = ok ] || { tail -n 12 "$out/said" | sed 's/^/    /'; return 1; }
}
skip() { printf '%-58s %9s  skipped: %s\n' "$1" "" "$2"; }
# fails_with TEXT COMMAND...: requires that the command fails and prints TEXT
fails_with() {
  local text=$1
  shift
  "$@" >"$out/words" 2>&1 && { echo "the command did not fail"; return 1; }
  cat "$out/words"
  grep -qF -- "$text" "$out/words"
}

# Prints a digest of samples, rows and H.264 images. It is equal on all machines (contract F1 of
# video/ffmpeg).
digest='import hashlib, itertools, sys, robocache
samples = hashlib.sha256()
for b in itertools.islice(robocache.Loader(sys.argv[1], batch_size=8, seed=7), 6):
    for k in sorted(b): samples.update(k.encode() + (b[k].tobytes() if hasattr(b[k], "tobytes") else repr(b[k]).encode()))
print(samples.hexdigest())'
expected=
same_samples() { # same_samples PYTHON... SET: requires the samples of the first call
  local samples
  timeout 900 "${@:1:$#-1}" -c "$digest" "${@: -1}" || return 1
  samples=$(tail -n 1 "$out/said")
  : "${expected:=$samples}"
  [ "$samples" = "$expected" ] || { echo "the samples differ; expected $expected"; return 1; }
}

# check_first_steps NAME DIR PYTHON...: runs a user's first steps. DIR is the folder of the set for
# this Python, and is writable.
check_first_steps() {
  local name=$1 dir=$2
  shift 2
  try "$name: import robocache" "$@" -c 'import robocache' || return
  try "$name: self-test" "$@" -c 'import robocache; robocache.self_test()'
  try "$name: H.264 set through a Loader" same_samples "$@" "$dir/set"
  try "$name: convert" "$@" -m robocache convert "$dir/set" "$dir/converted" --to lerobot
  try "$name: the converted set through a Loader" same_samples "$@" "$dir/converted"
  try "$name: robocache --help" "$@" -m robocache --help
}
copy_set() { rm -rf "$1/set" "$1/converted"; mkdir -p "$1"; cp -r "$set" "$1/set"; }
set=${ROBOCACHE_TESTDATA:-testdata/shared}/g1_h264_v30
[ -d "$set" ] || set=testdata/shared/g1_h264_v30

# numpy_for VERSION PLATFORM...: downloads NumPy's wheel for another Python or machine to
# $base/house.
numpy_for() {
  local tags=() p
  for p in "${@:2}"; do tags+=(--platform "$p"); done
  "$base/tools/bin/pip" download -q --no-deps --only-binary=:all: --python-version "$1" "${tags[@]}" -d "$base/house" numpy
}

# userland NAME SUITE ARCH PACKAGES: installs Debian's packages into a folder. Packages of another
# architecture are unpacked but not configured.
userland() {
  local root=$roots/$1 deb
  [ ! -f "$root/.whole" ] || return 0
  scripts/deps.sh userlands && mkdir -p "$roots" && rm -rf "$root" || return 1
  if [ "$3" = amd64 ]; then
    debootstrap --variant=minbase --include="$4" "$2" "$root" >"$root.log" 2>&1
  else
    debootstrap --foreign --arch="$3" --variant=minbase --include="$4" "$2" "$root" >"$root.log" 2>&1 &&
      for deb in "$root"/var/cache/apt/archives/*.deb; do dpkg -x "$deb" "$root" || return 1; done
  fi || { rm -rf "$root"; return 1; }
  touch "$root/.whole"
}
skip_userland() { skip "$1" "cannot make the userland, which needs root and Debian's packages; see $roots/$1.log"; }

part_same() {
  sha256sum dist/*.whl > "$out/sums"
  try "same: the same source gives the same bytes" sh -c "scripts/wheels.sh && sha256sum -c $out/sums"
}

part_here() {
  local python venv=$out/venv version
  for version in 3.10 3.11 3.12 3.13 3.14; do
    python=$(ls "${PYENV_ROOT:-$HOME/.pyenv}"/versions/$version.*/bin/python "/usr/bin/python$version" 2>/dev/null | head -n 1)
    [ -n "$python" ] || { skip "here, Python $version" "not on this machine"; continue; }
    rm -rf "$venv" && "$python" -m venv "$venv"
    try "here, Python $version: pip install" "$venv/bin/pip" install -q --disable-pip-version-check "$x86" || continue
    copy_set "$out"
    check_first_steps "here, Python $version" "$out" "$venv/bin/python"
    try "here, Python $version: the script robocache" "$venv/bin/robocache" inspect "$out/set"
  done
  "$venv/bin/python" - <<'PY'
import os, subprocess, sys, time
def best(*args):  # best of seven, in ms: wall time, and CPU time, which other programs affect little
    times = []
    for _ in range(7):
        p, t = subprocess.Popen([sys.executable, *args], stdout=subprocess.DEVNULL), time.perf_counter()
        _, status, used = os.wait4(p.pid, 0)
        assert status == 0, args
        times.append((1000 * (time.perf_counter() - t), 1000 * (used.ru_utime + used.ru_stime)))
    return [min(x) for x in zip(*times)]
bare, ours, verb = best("-c", "import numpy"), best("-c", "import robocache"), best("-m", "robocache", "--help")
print(f"here: import robocache {ours[0] - bare[0]:.0f} ms beyond Python with NumPy (CPU {ours[1] - bare[1]:.0f}; bar 150), robocache --help {verb[0]:.0f} ms (CPU {verb[1]:.0f}; bar 400)")
PY
  [ -x .venv/bin/python ] && .venv/bin/python -c 'import torch' 2>/dev/null || { skip "here, with torch" "no torch in .venv"; return; }
  .venv/bin/python -m pip install -q --no-deps --disable-pip-version-check --target "$out/site" "$x86"
  try "here, with torch: a batch of tensors" env PYTHONPATH="$out/site" .venv/bin/python -c 'import sys, torch, robocache; assert robocache.__file__.startswith(sys.argv[2])
assert any(isinstance(v, torch.Tensor) for v in next(iter(robocache.Loader(sys.argv[1], batch_size=8))).values())' "$set" "$out/site"
}

# Runs our tests against lerobot's class, tools and training in the environment of `make peers`. The
# package comes from the wheel instead of the checkout.
part_lerobot() {
  local dir=$out/lerobot name tests=()
  .venv/bin/python -c 'import torch, lerobot' 2>/dev/null || { skip "lerobot: its comparison tests with the wheel" "no torch or no lerobot in .venv"; return; }
  mkdir -p "$dir" && ln -s "$PWD/testdata" "$dir/testdata"
  .venv/bin/python -m pip install -q --no-deps --no-index --disable-pip-version-check --target "$dir/python" "$x86" && cp -r python/tests "$dir/python/tests"
  for name in against_lerobot compat lerobot_meta lerobot_tools lerobot_train; do tests+=("$dir/python/tests/test_$name.py"); done
  try "lerobot: its comparison tests with the wheel" .venv/bin/python -m pytest -q -rs -p no:cacheprovider --rootdir "$dir" "${tests[@]}" && tail -n 1 "$out/said" | sed 's/^/    /'
}

part_uninstall() {
  local venv=$out/venv
  rm -rf "$venv" "$out/home" && python3 -m venv "$venv" && mkdir "$out/home" && "$venv/bin/pip" install -q --disable-pip-version-check numpy
  find "$venv" ! -name '*.pyc' ! -name __pycache__ | sort > "$out/before"
  "$venv/bin/pip" install -q --disable-pip-version-check --no-index --no-deps "$x86"
  HOME=$out/home "$venv/bin/robocache" inspect "$set" >/dev/null
  HOME=$out/home "$venv/bin/python" -c "$digest" "$set" >/dev/null
  try "uninstall: pip uninstall" "$venv/bin/pip" uninstall -q -y robocache
  find "$venv" ! -name '*.pyc' ! -name __pycache__ | sort > "$out/after"
  try "uninstall: no files are left in the environment or the home" sh -c "diff $out/before $out/after && test -z \"\$(ls -A $out/home)\""
}

part_bad() {
  local venv=$out/venv p
  rm -rf "$venv" && python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check "$x86"
  copy_set "$out"
  if scripts/deps.sh userlands; then
    try "bad: a CPU without AVX2: self-test" qemu-x86_64-static -cpu Nehalem "$venv/bin/python" -c 'import robocache; robocache.self_test()'
  else skip "bad: a CPU without AVX2" "no qemu"; fi
  # Uses the Loader in this process and in a forked child, which opens a copy of the engine.
  cat > "$out/forked.py" <<'PY'
import os, sys, robocache
assert len(next(iter(robocache.Loader(sys.argv[1], batch_size=4)))["task"]) == 4
if (child := os.fork()) == 0:
    os._exit(len(next(iter(robocache.Loader(sys.argv[1], batch_size=4)))["task"]) != 4)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
PY
  if unshare -m true 2>/dev/null; then
    mkdir -p "$out/tmp"
    try "bad: /tmp mounted noexec" unshare -m sh -c "mount -t tmpfs -o noexec tmpfs $out/tmp && TMPDIR=$out/tmp $venv/bin/python $out/forked.py $out/set"
    try "bad: a read-only home" unshare -m sh -c "mkdir -p $out/ro && mount -t tmpfs -o ro tmpfs $out/ro && HOME=$out/ro $venv/bin/python $out/forked.py $out/set"
    try "bad: no /dev/shm" unshare -m sh -c "umount /dev/shm; mount -t tmpfs -o ro,mode=000 tmpfs /dev/shm; $venv/bin/python $out/forked.py $out/set"
  else skip "bad: /tmp mounted noexec, a read-only home, no /dev/shm" "no mounts without root"; fi
  for p in musllinux_1_2_x86_64 macosx_14_0_arm64 win_amd64; do
    try "bad: pip on $p reports that there is no wheel" fails_with "No matching distribution" "$venv/bin/pip" download -q --disable-pip-version-check --no-deps --no-index --find-links dist --only-binary=:all: --platform "$p" -d "$out" robocache
  done
}

part_debian13() { debian debian13 trixie; }
part_testing() { debian testing testing; }

# debian NAME SUITE: tests with the Python of the suite.
debian() {
  local root=$roots/$1 version
  userland "$1" "$2" amd64 python3,python3-venv && version=$(chroot "$root" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])') &&
    numpy_for "$version" manylinux2014_x86_64 manylinux_2_27_x86_64 manylinux_2_28_x86_64 || { skip_userland "$1"; return; }
  check_in_userland "$1" "$root" python3
}

# check_in_userland NAME ROOT PYTHON: installs the wheel and NumPy's into a new environment in the userland,
# without a network, and tests it.
check_in_userland() {
  local root=$2
  rm -rf "$root/wheels" "$root/venv" && mkdir "$root/wheels" && cp "$x86" "$base"/house/*x86_64.whl "$root/wheels"
  copy_set "$root/srv"
  chroot "$root" "$3" -m venv /venv || { skip "$1" "no environment"; return; }
  try "$1: pip install, without a network" chroot "$root" /venv/bin/pip install -q --no-index --find-links /wheels robocache || return
  check_first_steps "$1" /srv chroot "$root" /venv/bin/python
}

part_debian11() {
  local root=$roots/debian11 version
  version=$(apt-cache show python3 | sed -n 's/^Depends: python\(3\.[0-9]*\).*/\1/p' | tail -n 1)
  userland debian11 bullseye amd64 gcc,make,libc6-dev,libffi-dev,zlib1g-dev && numpy_for "$version" manylinux2014_x86_64 && python_for "$root" "$version" || { skip_userland debian11; return; }
  check_in_userland debian11 "$root" /opt/python/bin/python3
}

# python_for ROOT VERSION: builds the Python version of this machine's Debian in the userland.
python_for() (
  set -e
  [ ! -x "$1/opt/python/bin/python3" ] || exit 0
  # shellcheck source=/dev/null
  . scripts/sources.sh
  rm -rf "$1/usr/src/python" && mkdir -p "$1/usr/src/python" && cd "$1/usr/src/python"
  sources "$PWD/apt"
  fetch "python$2"
  chroot "$1" sh -c "cd /usr/src/python/python$2 && ./configure --prefix=/opt/python && make -j $(nproc) && make install" >>"$1.log" 2>&1
  rm -rf "$1/usr/src/python"
)

part_arm64() {
  local root=$roots/arm64 site python
  [ -n "$arm" ] || { skip arm64 "dist has no arm64 wheel"; return; }
  userland arm64 bookworm arm64 python3,libpython3-stdlib && numpy_for 3.11 manylinux2014_aarch64 || { skip_userland arm64; return; }
  site=$root/srv/site
  rm -rf "$site" && copy_set "$root/srv"
  # Without binfmt the program must be started through qemu, so pip runs on this machine and
  # installs for the other one.
  try "arm64: pip install for arm64" "$base/tools/bin/pip" install -q --disable-pip-version-check --no-index --find-links "$base/house" --target "$site" --only-binary=:all: --python-version 3.11 \
    --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 "$arm" || return
  python=(qemu-aarch64-static -L "$root" -E "PYTHONHOME=$root/usr" -E "PYTHONPATH=$site" "$root/usr/bin/python3.11")
  check_first_steps arm64 "$root/srv" "${python[@]}"
}

for part in "${parts[@]}"; do
  declare -F "part_$part" >/dev/null || { echo "wheels: unknown part $part" >&2; exit 2; }
  "part_$part"
done
[ $failed -eq 0 ] && echo "wheels: all steps passed" || { echo "wheels: some steps failed" >&2; exit 1; }
