// Package tartanair reads TartanAir V1 and V2: folders of images, depth and segmentation with one
// file per frame, poses as text, and IMU arrays.
//
// # Contract
//
//	tartanair.T1  An episode is a trajectory: the folder that has image_left (V1) or
//	              image_lcam_front (V2), depth_…, seg_… and pose_….txt. Its rows are the frame
//	              numbers in the file names of all its cameras, ascending. A camera without a file
//	              for a row has a missing frame there, and a finding counts them.
//	tartanair.T2  Streams are observation.images.CAM, observation.depth.CAM, observation.seg.CAM,
//	              observation.pose.CAM (x, y, z and a quaternion x, y, z, w in the NED frame) and
//	              observation.imu.NAME. Depth is float32 in meters: an npy array, or the bytes of a
//	              PNG of four channels. A trajectory that lacks a stream has a finding.
//	tartanair.T3  As many lines of poses, or times, as rows go in order. As many lines as there are
//	              numbers from the first row to the last go by number. Any other count is an error
//	              with both counts. A blank line keeps its place, and its row has no pose:
//	              reading it is an error.
//	tartanair.T4  Rows have the times of imu/cam_time.npy in seconds. Without this file, and if
//	              OpenOptions.HZ is set, they are on a grid, by default of 10 Hz with a finding.
//	              IMU arrays have their own clock, imu/imu_time.npy.
//	tartanair.T5  Open lists the folder and reads the first files of each stream. Poses, times and
//	              arrays are read on request, and cached within the memory budget.
//	tartanair.T6  No input causes a panic. Memory is compared with the budget before it is
//	              allocated.
package tartanair
