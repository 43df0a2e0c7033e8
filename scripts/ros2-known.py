"""Writes format/ros2/known.txt: the .msg texts of the common ROS 2 types.

The texts come from the ROS 2 Humble store of the rosbags package.

usage: python scripts/ros2-known.py > format/ros2/known.txt
"""

from rosbags.typesys import Stores, get_typestore

KEEP = (
    "std_msgs",
    "geometry_msgs",
    "sensor_msgs",
    "nav_msgs",
    "tf2_msgs",
    "builtin_interfaces",
    "rcl_interfaces",
    "trajectory_msgs",
    "diagnostic_msgs",
    "rosgraph_msgs",
    "visualization_msgs",
    "unique_identifier_msgs",
    "action_msgs",
    "shape_msgs",
    "stereo_msgs",
    "statistics_msgs",
    "lifecycle_msgs",
)


def main():
    store = get_typestore(Stores.ROS2_HUMBLE)
    for name in sorted(store.types):
        if name.split("/")[0] not in KEEP:
            continue
        text, _ = store.generate_msgdef(name, ros_version=2)
        own = text.split("=" * 80)[0]
        print("=" * 80)
        print("MSG: " + name)
        print(own.strip())


main()
