// Package plan compiles datasets and options into what a pipeline executes: for each source its
// columns, samples, clocks, normalization and augmentation, and the schema of the batch that all
// sources share. Everything that can be rejected is rejected here, before the first batch. No frame
// is decoded except those that tell the size of a stream's images.
package plan
