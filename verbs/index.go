package verbs

import (
	"cmp"
	"context"

	"github.com/goatnote-inc/robocache/format/recindex"
)

// IndexRequest holds the options of IndexRecordings.
type IndexRequest struct {
	// URI is the dataset: a folder of recordings.
	URI string `json:"-" arg:"URI"`
	Opening
	// Out is the index to write; empty: the file recindex.Name in the dataset.
	Out string `json:"out"`
}

// RecordingIndex is the result of IndexRecordings.
type RecordingIndex struct{ *recindex.Report }

// IndexRecordings writes the index of recordings of a dataset, or adds new and changed recordings to
// it.
func IndexRecordings(ctx context.Context, r *IndexRequest, _ Observer) (*RecordingIndex, error) {
	opt, err := r.Options()
	if err != nil {
		return nil, err
	}
	if opt.RecordingIndex != "" && r.Out != "" && opt.RecordingIndex != r.Out {
		return nil, misuse("%s and %s name two indexes", optionName("out"),
			optionName("recording_index"))
	}
	opt.RecordingIndex = cmp.Or(r.Out, opt.RecordingIndex)
	opt.Map = nil // a record does not depend on a mapping
	report, err := recindex.Update(ctx, r.URI, opt)
	if err != nil {
		return nil, err
	}
	return &RecordingIndex{report}, nil
}
