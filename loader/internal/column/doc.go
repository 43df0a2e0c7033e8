// Package column fills the tensors of a batch under construction. A column is one key of a source;
// each kind of column has one type: numbers (TableColumn), frames (ImageColumn), text (TextColumn),
// generated numbers and ids (GeneratedColumn), and rows of varying length (CloudColumn, SpanColumn,
// TimesColumn).
//
// A DataSource is a compiled dataset. It is immutable while batches are built. A Part is what one
// source writes into one BatchBuild. A Reader holds the scratch memory of one worker.
package column
