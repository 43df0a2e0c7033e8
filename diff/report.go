package diff

import "github.com/goatnote-inc/robocache"

// Report is the result of Compare.
type Report struct {
	A Side `json:"a"`
	B Side `json:"b"`
	// Different reports whether anything differs that the report lists.
	Different bool `json:"different"`
	// Frames is how frames were compared: packets, pixels or none.
	Frames string `json:"frames"`
	Counts Counts `json:"counts"`
	// Metadata lists the properties of the datasets that differ.
	Metadata []Property `json:"metadata"`
	Features []Feature  `json:"features"`
	// Statistics lists the stored statistics that differ.
	Statistics []Statistic `json:"statistics"`
	Added      []Episode   `json:"added"`   // episodes that only B has
	Removed    []Episode   `json:"removed"` // episodes that only A has
	// Moved lists runs of matched episodes whose numbers differ.
	Moved   []Move   `json:"moved"`
	Changed []Change `json:"changed"` // matched episodes whose contents differ
	// Notes states what could not be compared.
	Notes []string `json:"notes"`
}

// Side describes one of the two datasets.
type Side struct {
	URI      string `json:"uri"`
	Format   string `json:"format"`
	Version  string `json:"version"`
	Episodes int    `json:"num_episodes"`
	Frames   int64  `json:"num_frames"`
}

// Counts counts episodes. A changed episode with another number counts in Changed and in Moved.
type Counts struct {
	Equal   int `json:"equal"`
	Changed int `json:"changed"`
	Moved   int `json:"moved"`
	Added   int `json:"added"`
	Removed int `json:"removed"`
}

// Property is a property with two values. The value is null if there is none.
type Property struct {
	Name string `json:"name"` // fps, robot_type, tasks, splits; of a feature: dtype, shape …
	A    any    `json:"a"`
	B    any    `json:"b"`
}

// Feature is a feature that differs.
type Feature struct {
	Key string `json:"key"` // in A; in B if the feature was added
	// Change is added, removed, renamed or changed.
	Change     string     `json:"change"`
	To         string     `json:"to,omitempty"` // key in B of a renamed feature
	Properties []Property `json:"properties,omitempty"`
}

// Statistic is a stored statistic with two values.
type Statistic struct {
	Key  string `json:"key"`
	Name string `json:"name"` // min, max, mean, std, count or a quantile
	// MaxDifference is the largest difference of an element; nil if their numbers differ.
	MaxDifference *float64 `json:"max_difference"`
}

// Episode is an episode that one dataset lacks.
type Episode struct {
	Index  int64    `json:"episode_index"`
	Length int      `json:"length"`
	Tasks  []string `json:"tasks"`
}

// Move is a run of matched episodes: Count episodes from A on in the first dataset are those from B
// on in the second one.
type Move struct {
	A     int64 `json:"a"`
	B     int64 `json:"b"`
	Count int   `json:"count"`
}

// Change describes a matched episode whose contents differ.
type Change struct {
	A    int64     `json:"a"` // episode index in A
	B    int64     `json:"b"`
	Rows RowCounts `json:"rows"`
	// Tasks are the tasks of the episode, if they or those of rows differ.
	Tasks *Property `json:"tasks,omitempty"`
	// Times describes the timestamps that differ.
	Times   *TimeChange `json:"timestamps,omitempty"`
	Streams []Stream    `json:"streams"`
}

// RowCounts counts the rows of a changed episode. Removed rows are those of A that B lacks.
type RowCounts struct {
	A             int `json:"a"`
	B             int `json:"b"`
	RemovedHead   int `json:"removed_head"`
	RemovedMiddle int `json:"removed_middle"`
	RemovedTail   int `json:"removed_tail"`
	AddedHead     int `json:"added_head"`
	AddedMiddle   int `json:"added_middle"`
	AddedTail     int `json:"added_tail"`
}

// TimeChange counts the rows whose timestamps differ, over all clocks.
type TimeChange struct {
	Rows          int     `json:"rows"`
	MaxDifference float64 `json:"max_difference_s"`
}

// Stream describes a stream of a changed episode.
type Stream struct {
	Key string `json:"key"` // in A
	// What is values, text, packets, pixels, shape, or lacking if only one episode has the stream.
	What string `json:"what"`
	// Rows is the number of matched rows that differ.
	Rows     int `json:"rows"`
	FirstRow int `json:"first_row"` // first of them, in A
	// MaxDifference is the largest difference of a number; nil if none can be computed.
	MaxDifference *float64 `json:"max_difference,omitempty"`
	// PSNR compares the pixels of all matched rows.
	PSNR *PSNR `json:"psnr_db,omitempty"`
	// RemovedRows and AddedRows count the rows of a stream with its own clock.
	RemovedRows int `json:"removed_rows,omitempty"`
	AddedRows   int `json:"added_rows,omitempty"`
}

// PSNR is the ratio of peak signal to noise in dB over red, green and blue. Equal frames count as
// 100.
type PSNR struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
}

// describeSide returns the description of a dataset.
func describeSide(info *robocache.Info) Side {
	return Side{
		URI: robocache.Redact(info.URI), Format: info.Format, Version: info.Version,
		Episodes: info.Episodes, Frames: info.Frames,
	}
}
