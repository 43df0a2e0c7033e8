from setuptools import setup

NAME = "robocache_policy"
setup(
    name=NAME,
    version="0.1.0",
    packages=[NAME],
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        (f"share/{NAME}/launch", ["launch/policy.launch.py"]),
    ],
    install_requires=["setuptools", "robocache"],
    zip_safe=True,
    maintainer="RoboCache",
    maintainer_email="maintainers@example.com",
    description="Runs a policy on observations of RoboCache",
    license="Apache-2.0",
    entry_points={"console_scripts": [f"policy = {NAME}.node:main"]},
)
