// Package pipeline builds batches: it allocates them, queues the jobs that fill them, bounds what is in
// flight by the memory budget, and runs ahead of the consumer in the order of an epoch. What a batch
// contains is decided by package plan; how a column is filled is in package column.
package pipeline
