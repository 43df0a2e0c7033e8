// Package query finds episodes, and rows of episodes, by an expression.
//
// # Contract
//
//	query.Q1   Parse rejects texts of more than 4096 bytes and expressions nested deeper than 200.
//	           An error names the character at which the text is wrong.
//	query.Q2   A name in an expression is task, index, source, length or duration of the episode,
//	           q.NAME (a column of the quality table), KEY, KEY[channel], or a channel name that
//	           only one stream has. Text in quotes is a key wherever a signal is expected.
//	query.Q3   Binding checks all names and types against a dataset before an episode is read.
//	query.Q4   NaN compares false with every number, also by !=. A row without a value (a masked
//	           row, a stream that the episode lacks) is NaN. min, max, mean, std, first and last
//	           of values with a NaN among those that they use are NaN.
//	query.Q5   A comparison of a signal is a condition: true or false for each row. rising and
//	           falling are events: single rows. A then B is a list of ranges of rows. An occurrence
//	           is a maximal run of true rows, an event, or one of these ranges.
//	query.Q6   Durations are differences of timestamps, with a slack of 1 µs. A run of rows lasts
//	           from the timestamp of its first row to the timestamp of its last.
//	query.Q7   Without a threshold, rising and falling of a signal use the middle between the least
//	           and the greatest finite value of the channel in the dataset.
//	query.Q8   A stream with a clock of its own keeps its samples within a function. When it meets
//	           another clock, and in a result, each row takes the last sample at or before the
//	           row's timestamp. An event moves to the first row at or after it.
//	query.Q9   Results do not depend on the number of threads or on an index.
//
// The language is a table of functions (functions.go) over a small grammar (parse.go). An
// expression is bound to a dataset once and evaluated per episode, column by column.
package query
