// Package clouds reads folders of point clouds, one file a scan: KITTI's velodyne .bin ("kitti"),
// nuScenes' .pcd.bin ("nuscenes") and npy arrays ("clouds"), as ragged streams.
//
// # Contract
//
//	P1  The columns are those that the format or the option "columns" declares: x y z intensity of KITTI, and ring behind them of nuScenes.
//	    Nothing is guessed from a file's size: a size that is no multiple of a point is Malformed, with the remainder.
//	P2  What is given are the file's bytes, little-endian, points whose x, y or z is NaN or infinite left out (option not_finite=keep: with
//	    them). doctor counts them. An empty file is an empty cloud.
//	P3  An episode is a folder of scans (kitti, clouds) or a log (nuscenes), its scans in the order of their numbers or timestamps.
//	P4  Timestamps: of nuscenes the microseconds of the file's name; else timestamps.txt or times.txt beside the scans or their folder, whose
//	    numbers are in the unit of the option timestamp_unit, else by their magnitude; else OpenOptions.HZ; else KITTI's 10 Hz with a Finding; of npy clouds asking for time is ErrNoClock.
//	    A list without times, or with one time for all scans, is in Info.UnusedClocks.
//	P5  Open lists the folder and reads the timestamps. Scans are read when they are asked for, several at the same time. The size of what is
//	    asked is checked against the budget before memory is taken.
package clouds
