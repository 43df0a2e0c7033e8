from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

TYPES = {"contract": str, "policy": str, "rate": float, "record": str, "use_sim_time": bool}
DEFAULTS = {"policy": "", "rate": "0.0", "record": "", "use_sim_time": "false"}


def generate_launch_description():
    parameters = {
        name: ParameterValue(LaunchConfiguration(name), value_type=kind)
        for name, kind in TYPES.items()
    }
    return LaunchDescription(
        [DeclareLaunchArgument(name, default_value=DEFAULTS.get(name)) for name in TYPES]
        + [
            Node(
                package="robocache_policy",
                executable="policy",
                parameters=[parameters],
                output="screen",
            )
        ]
    )
