// Package clouds reads folders of point clouds with one file per scan as ragged streams: KITTI's
// velodyne .bin ("kitti"), nuScenes' .pcd.bin ("nuscenes") and npy arrays ("clouds").
//
// # Contract
//
//	clouds.P1  The columns are those of the format or of the option "columns": x y z intensity for
//	           KITTI, and also ring for nuScenes. Nothing is inferred from the size of a file. A
//	           size that is not a multiple of a point is Malformed, with the remainder.
//	clouds.P2  The result is the bytes of the file in little-endian order, without points whose x,
//	           y or z is NaN or infinite (the option not_finite=keep includes them). The doctor
//	           counts them. An empty file is an empty cloud.
//	clouds.P3  An episode is a folder of scans (kitti, clouds) or a log (nuscenes). Its scans are
//	           sorted by their numbers or timestamps.
//	clouds.P4  For nuscenes, timestamps are the microseconds in the file name. Otherwise they are
//	           in timestamps.txt or times.txt, next to the scans or next to their folder. Numbers
//	           in these files have the unit of the option timestamp_unit, or the unit that their
//	           magnitude suggests. Without such a file, they follow from OpenOptions.HZ, or from
//	           KITTI's 10 Hz with a Finding. For npy clouds, a request for timestamps is then
//	           ErrNoClock. A list without times, or with the same time for all scans, is in
//	           Info.UnusedClocks.
//	clouds.P5  Open lists the folder and reads the timestamps. Scans are read on request, several
//	           in parallel. The size of a request is compared with the budget before memory is
//	           allocated.
package clouds
