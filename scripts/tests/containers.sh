#!/usr/bin/env bash
# Builds the images of the Dockerfile with buildah, without Docker or a registry. Runs them as
# docs/install.md describes, and measures their size. Needs root.
#   tests/containers.sh [target ...]    default: cli ffmpeg python cuda; builds the last commit
# Base images are replaced by userlands that debootstrap makes from Debian's packages. They have the
# names in the Dockerfile, and the certificates and pip settings of this machine:
#   golang                  bookworm with this machine's Go
#   python                  trixie, which has Python 3.13, without the files that "slim" omits
#   debian:bookworm-slim    bookworm, without the same files
#   nvidia/cuda             trixie, without CUDA's own files, which the tests do not need
set -uo pipefail
cd "$(dirname "$0")/../.."
scripts/deps.sh containers || exit 2
base=$(realpath -m .build/containers)
out=$(mktemp -d)
storage=(--storage-driver overlay --root "$base/storage" --runroot "$out/run")
trap 'rm -rf "$out"' EXIT
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(cli ffmpeg python cuda)
mkdir -p "$base"
failed=0
declare -A bar=([cli]=80 [python]=240)

# make_base_image IMAGE SUITE PACKAGES COMMANDS: makes a base image unless it exists.
# The commands run in its root.
make_base_image() {
  local root=$base/root.$$
  ! buildah "${storage[@]}" inspect --type image "$1" >/dev/null 2>&1 || return 0
  rm -rf "$root"
  debootstrap --variant=minbase --include="ca-certificates${3:+,$3}" "$2" "$root" >"$base/debootstrap.log" 2>&1 || { tail "$base/debootstrap.log"; return 1; }
  cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  [ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/"
  [ "$1" != "${1#*golang}" ] && cp -a "$(go env GOROOT)" "$root/usr/local/go"
  chroot "$root" sh -ec "$4
    apt-get clean; rm -rf /var/lib/apt/lists/* /var/cache/debconf/* /var/log/*.log"
  # Remove what Debian's slim images omit.
  [ "$1" = "${1%slim}" ] || rm -rf "$root"/usr/share/{doc,man,info,locale,lintian}/*
  {
    echo "FROM scratch
COPY . /
ENV PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
  } > "$base/Dockerfile"
  buildah "${storage[@]}" bud -q --isolation chroot -f "$base/Dockerfile" -t "$1" "$root" >/dev/null
  rm -rf "$root"
}
# The Python images let pip install into the system.
pip='rm -f /usr/lib/python3*/EXTERNALLY-MANAGED; ln -sf python3 /usr/bin/python; ln -sf pip3 /usr/bin/pip'
make_base_images() {
  make_base_image docker.io/library/golang:1.26-bookworm bookworm gcc,g++,git,make,pkg-config,libc6-dev,procps : &&
    make_base_image docker.io/library/debian:bookworm-slim bookworm "" : &&
    make_base_image docker.io/library/python:3.13-slim trixie python3,python3-pip "$pip" &&
    make_base_image docker.io/nvidia/cuda:12.8.1-base-ubuntu24.04 trixie "" :
}

# try NAME COMMAND...: runs a step and prints one line with its seconds. Prints the command's output
# only on failure.
try() {
  local name=$1 begin result=ok
  shift
  begin=$(date +%s)
  "$@" >"$out/said" 2>&1 </dev/null || { result="FAILED, exit code $?"; failed=1; }
  printf '%-66s %5d s  %s\n' "$name" "$(($(date +%s) - begin))" "$result"
  [ "$result" = ok ] || { tail -n 15 "$out/said" | sed 's/^/    /'; return 1; }
}

# in_image TARGET PROGRAM...: runs a program like 'docker run --read-only --tmpfs /tmp -v
# SET:/data:ro', with the image's user and environment and a read-only root. An empty PROGRAM is the
# image's entry point.
in_image() {
  local target=$1 program=$2 root=$out/$1 user
  shift 2
  mapfile -t environment < <(buildah "${storage[@]}" inspect --type image --format '{{range .OCIv1.Config.Env}}{{println .}}{{end}}' "robocache-$target" | grep .)
  user=$(buildah "${storage[@]}" inspect --type image --format '{{.OCIv1.Config.User}}' "robocache-$target")
  [ -n "$program" ] || program=$(buildah "${storage[@]}" inspect --type image --format '{{index .OCIv1.Config.Entrypoint 0}}' "robocache-$target")
  mkdir -p "$root/tmp" "$root/data" "$root/proc"
  unshare -m sh -ec 'root=$1 set=$2 user=$3; shift 3
    mount --bind "$root" "$root"; mount -o remount,bind,ro "$root"; mount -t tmpfs tmpfs "$root/tmp"; mount --bind "$set" "$root/data"; mount -o remount,bind,ro "$root/data"; mount -t proc proc "$root/proc"
    exec env -i "$@"' sh "$root" "$set" "$user" "${environment[@]}" "$(command -v chroot)" "--userspec=$user" "$root" "$program" "$@"
}

refused() { ! "$@"; }
as_user() { in_image "$1" /bin/sh -c 'test "$(id -u):$(id -g)" = 65532:65532 && ! touch /x 2>/dev/null && touch /tmp/x'; }
samples='import robocache; b = next(iter(robocache.Loader("/data", batch_size=8))); assert len(b["task"]) == 8; import numpy; print(numpy.__version__)'

check() {
  local t=$1
  try "$t: version" in_image "$t" "" version --json || return
  try "$t: self-test" in_image "$t" "" self-test
  try "$t: inspect a set mounted read-only" in_image "$t" "" inspect /data
  try "$t: convert into /tmp" in_image "$t" "" convert /data /tmp/converted --to lerobot
  try "$t: files outside /tmp cannot be written" refused in_image "$t" "" convert /data /converted --to lerobot
  case $t in
  ffmpeg) try "$t: synth with encoded video" in_image "$t" "" synth /tmp/made --episodes 1 --seconds 1 ;&
  python | cuda) try "$t: user 65532 and a read-only root" as_user "$t" ;;
  esac
  case $t in python | cuda) try "$t: a batch through the Loader" in_image "$t" python3 -c "$samples" ;; esac
}

set=$(realpath "${ROBOCACHE_TESTDATA:-testdata/shared}/g1_h264_v30")
[ -d "$set" ] || set=$(realpath testdata/shared/g1_h264_v30)
try "the base images" make_base_images || exit 1
rm -rf "$base/src" && git clone -q . "$base/src" || exit 1
# The wheel is passed as an image, because buildah does not mount a cached stage.
bud() { buildah "${storage[@]}" bud --isolation chroot --layers --target "$1" -t "robocache-$1" "${@:2}" "$base/src"; }
try "the wheel: buildah bud --target wheel" bud wheel || exit 1
for t in "${targets[@]}"; do
  try "$t: buildah bud --target $t" bud "$t" --build-context wheel=docker-image://localhost/robocache-wheel || continue
  id=$(buildah "${storage[@]}" from "robocache-$t") && root=$(buildah "${storage[@]}" mount "$id") || { failed=1; continue; }
  mb=$(du -s --apparent-size -B 1 "$root" | awk '{printf "%.0f", $1 / 1e6}')
  mkdir "$out/$t"
  mount --bind "$root" "$out/$t"
  echo "$t: $mb MB${bar[$t]:+ (bar ${bar[$t]})}"
  [ "$mb" -le "${bar[$t]:-$mb}" ] || failed=1
  check "$t"
  umount "$out/$t"
  buildah "${storage[@]}" rm "$id" >/dev/null
done
[ $failed -eq 0 ] && echo "containers: all steps passed" || { echo "containers: some steps failed" >&2; exit 1; }
