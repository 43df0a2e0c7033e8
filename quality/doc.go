// Package quality measures the episodes of a dataset: one row of metrics per episode.
//
// # Contract
//
//	quality.Q1  A metric is a pure function of one episode and the scale of its dataset. Threads,
//	            shards and the choice of episodes do not change its value.
//	quality.Q2  The scale is computed from a fixed sample of the dataset (see Scale). Shards share
//	            the scale of the plan.
//	quality.Q3  A value that is not defined is NaN: a role that the dataset lacks, an episode that
//	            is too short, or an episode that cannot be read.
//	quality.Q4  Memory is bounded by the budget for each thread, and by the table.
//	quality.Q5  A finding compares an episode with the other episodes of its task, or with all
//	            episodes if the task has few. It depends on the table only.
//
// # Scaled values
//
// A channel is scaled by its range in the dataset: value 0 is the 1st percentile, and value 1 the
// 99th. Joints in radians, grippers in metres and poses are then comparable. The unit of a scaled
// value is called "range".
//
// Motion is the scaled state without its grippers. A dataset without a state moves as its action
// says: an absolute action is a position, and a relative one is summed.
package quality
