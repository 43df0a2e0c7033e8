#!/usr/bin/env bash
# The figures of the formats in docs/PERFORMANCE.md, each arm in turn on a machine that should be quiet: about 20 minutes on two cores.
# It needs `make lib` and the judges of `make peers`; ONLY='calvin|mcap' takes some; ROUNDS=3. The lines and tables go to OUT (bench-out/formats).
set -uo pipefail
cd "$(dirname "$0")/.."
real=$(realpath "${ROBOCACHE_TESTDATA:-../shared/data}")
out=$(realpath -m "${OUT:-bench-out/formats}")
only=${ONLY:-.}
rounds=${ROUNDS:-3}
py=.venv/bin/python
arms=bench/runners
export PYTHONPATH=python ROBOCACHE_TESTDATA=$real
mkdir -p "$out"
failed=0

part() { # part NAME COMMAND…: runs it, keeps what it prints
  local name=$1
  shift
  echo "$name" | grep -qE "$only" || return 0
  echo "== $name: $*" | tee "$out/$name.txt"
  "$@" 2>&1 | tee -a "$out/$name.txt" || { echo "bench-formats: $name failed" >&2; failed=1; }
}

# HDF5 beside robomimic and h5py.
[ -e "$out/hdf5/raw.hdf5" ] || $py $arms/formats_hdf5.py --make "$out/hdf5" >/dev/null
for round in $(seq "$rounds"); do
  for arm in ours theirs; do
    n=4000 best=
    [ $arm = theirs ] && n=800 best="--cache all --workers 0" # its best without images
    part "hdf5-raw-$arm-$round" $py $arms/formats_hdf5.py --file "$out/hdf5/raw.hdf5" --arm $arm
    part "hdf5-cached-$arm-$round" $py $arms/formats_hdf5.py --file "$out/hdf5/raw.hdf5" --arm $arm --cache all
    part "hdf5-gzip-$arm-$round" $py $arms/formats_hdf5.py --file "$out/hdf5/gzip.hdf5" --arm $arm
    part "hdf5-low16-$arm-$round" $py $arms/formats_hdf5.py --file "$out/hdf5/low.hdf5" --arm $arm $best --batches $n
    part "hdf5-low100-$arm-$round" $py $arms/formats_hdf5.py --file "$out/hdf5/low.hdf5" --arm $arm $best --batch-size 100 --batches $((n / 4))
  done
done

# CALVIN beside numpy, and the bytes alone.
[ -d "$out/calvin/training" ] || $py $arms/formats_calvin.py --make "$out/calvin"
part calvin $py $arms/formats_calvin.py "$out/calvin"

# MCAP: windows at random, messages to columns, whole recordings to columns.
part mcap $py -W ignore $arms/formats_mcap.py --repeats "$rounds"
part ros2 $py -W ignore $arms/formats_ros2.py
part recordings $py -W ignore $arms/formats_recordings.py

# Zarr chunk by chunk beside numcodecs.
go test -c -o "$out/zarr.test" ./format/zarr
part zarr $py $arms/formats_zarr.py --test "$out/zarr.test" --rounds "$rounds"

# RLDS: records with their check sums, whole steps beside tensorflow-datasets (where scripts/venv-tfds.sh made its environment).
part rlds-parse go test -run '^$' -bench 'Parse$' ./format/rlds
[ -x .venv-tfds/bin/python ] && part rlds $py $arms/formats_rlds.py "$real/bridge_rlds/bridge_dataset/1.0.0"

# Streams of several clocks onto 50 Hz.
part multirate $py $arms/formats_multirate.py "$real/mcap_robot/recording_zstd.mcap"

# Converting: the encoder's floor, and images that are kept.
part convert-rows go test ./convert -run - -bench ToRows -benchtime 3x
part convert-video go test ./convert -run - -bench ToVideo -benchtime 2x
exit $failed
