// Package diff compares two datasets of any formats.
//
// # Contract
//
//	diff.D1  Episodes are matched by content, not by number: first those with equal values, then
//	         those that share most streams or rows, and last those with one number and length.
//	         Equal episodes pair by number first, then by task, then in order.
//	diff.D2  Values are compared as numbers, whatever their type is. -0 equals 0, and NaN equals
//	         NaN. The stored type is a property of the feature.
//	diff.D3  Times are compared relative to the first row of the episode, to sameTime.
//	diff.D4  Memory depends on the number of episodes and on the length of the longest one, not on
//	         the size of the dataset. Work grows linearly with the number of episodes.
//	diff.D5  The report does not depend on the number of threads.
//
// Intuitively, each dataset is read once to hash the streams of each episode. A hash join pairs
// equal episodes. Only the rest is read again.
package diff
