// Package layout defines what a batch consists of: the fields, tensors and texts of a batch, and
// the schema that states the shape, dtype and buffer of each tensor. It reads no data.
package layout
