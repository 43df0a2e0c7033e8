// Package pipeline builds batches. It allocates them, queues the jobs that fill them, limits the
// batches in flight by the memory budget, and runs ahead of the consumer in the order of an epoch.
// Package plan decides what a batch contains. Package column fills its columns.
package pipeline
