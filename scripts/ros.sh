#!/usr/bin/env bash
# Makes .build/ros: a Python environment with the ROS 2 client of PyPI (rclpy with Fast DDS) and the
# messages that PyPI lacks, for tests. It is separate from .venv, because the wheels of ROS install
# folders beside Python's. Also installs Debian's Cyclone DDS. A failure is reported, and tests skip.
set -uo pipefail
cd "$(dirname "$0")/.."
scripts/deps.sh dds || echo "ros: cannot install Cyclone DDS; the tests of live/transport/dds skip" >&2
mkdir -p .build
exec 9>.build/ros.lock
flock 9
prefix=$(readlink -f .build)/ros
python=$prefix/bin/python

# The CMake modules of the wheels name folders of the machine that built them.
repair_paths() {
  local path pattern
  for path in include purelib; do
    pattern=include/python3
    [ $path = include ] || pattern=lib/python3[.0-9]*/site-packages
    find "$prefix/share" -name '*.cmake' -exec sed -Ei \
      "s#/opt/python/[^/]*/${pattern}[.0-9]*#$("$python" -c "import sysconfig; print(sysconfig.get_path('$path'))")#g" {} + || return
  done
}

# Builds the message package $1, which depends on package $2, with message $3 of definition $4.
build_message() {
  "$python" -c "from $1.msg import $3" 2>/dev/null && return
  local source=$prefix/src/$1
  rm -rf "$source"
  mkdir -p "$source/msg"
  echo "$4" >"$source/msg/$3.msg"
  cat >"$source/package.xml" <<XML
<package format="3">
  <name>$1</name><version>0.0.0</version><description>Messages for tests</description>
  <maintainer email="none@example.com">none</maintainer><license>Apache-2.0</license>
  <depend>$2</depend><member_of_group>rosidl_interface_packages</member_of_group>
</package>
XML
  cat >"$source/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.14)
project($1)
find_package(ament_cmake REQUIRED)
find_package(rosidl_default_generators REQUIRED)
find_package($2 REQUIRED)
rosidl_generate_interfaces($1 msg/$3.msg DEPENDENCIES $2)
ament_package()
CMAKE
  (
    export PATH=$prefix/bin:$PATH
    cmake -G Ninja -S "$source" -B "$source/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_INSTALL_PREFIX="$prefix" -DPython3_EXECUTABLE="$python" &&
      ninja -C "$source/build" install
  ) </dev/null >"$source.log" 2>&1 || echo "ros: cannot build $1 ($source.log); its tests skip" >&2
}

if ! cmp -s python/requirements-ros.txt "$prefix/requirements.txt"; then
  { "$(readlink -f .venv/bin/python || echo python3)" -m venv --clear "$prefix" &&
    timeout 600 "$python" -m pip install -q --disable-pip-version-check -r python/requirements-ros.txt &&
    repair_paths && cp python/requirements-ros.txt "$prefix/requirements.txt"; } </dev/null ||
    { echo "ros: cannot install ROS 2; its tests skip" >&2; exit 0; }
fi
build_message tf2_msgs geometry_msgs TFMessage 'geometry_msgs/TransformStamped[] transforms'
build_message foxglove_msgs builtin_interfaces CompressedVideo 'builtin_interfaces/Time timestamp
string frame_id
uint8[] data
string format'
