// Package all registers every format and every store. Import it for its side effect.
package all

import (
	_ "github.com/goatnote-inc/robocache/format/aloha"  // ALOHA HDF5: a file an episode
	_ "github.com/goatnote-inc/robocache/format/calvin" // CALVIN: a npz file a frame
	// KITTI, nuScenes and npy point clouds: a file a scan
	_ "github.com/goatnote-inc/robocache/format/clouds"
	_ "github.com/goatnote-inc/robocache/format/delta"   // Delta Lake tables of rows
	_ "github.com/goatnote-inc/robocache/format/hdf5"    // HDF5 of no known layout
	_ "github.com/goatnote-inc/robocache/format/lerobot" // LeRobot v2.0 to v3.x
	_ "github.com/goatnote-inc/robocache/format/mcap"    // MCAP recordings: a file an episode
	// RLDS: TFDS directories, Open X-Embodiment
	_ "github.com/goatnote-inc/robocache/format/rlds"
	_ "github.com/goatnote-inc/robocache/format/robomimic" // robomimic (LIBERO) HDF5
	// ROS 2 bags: db3 and mcap files with metadata.yaml
	_ "github.com/goatnote-inc/robocache/format/rosbag2"
	// TartanAir V1 and V2: a folder a trajectory, a file a frame
	_ "github.com/goatnote-inc/robocache/format/tartanair"
	_ "github.com/goatnote-inc/robocache/format/zarr" // Zarr v2 and v3, replay buffers
	_ "github.com/goatnote-inc/robocache/store/gs"    // gs://bucket/prefix
	_ "github.com/goatnote-inc/robocache/store/hf"    // hf://datasets/owner/name
	_ "github.com/goatnote-inc/robocache/store/s3"    // s3://bucket/prefix
)
