package verbs

import (
	"context"

	"github.com/goatnote-inc/robocache/edit"
)

// EditedRequest holds the options of UndoEdit and RecoverEdit.
type EditedRequest struct {
	// Dataset is its folder.
	Dataset string `json:"-" arg:"DIR"`
}

// Restored is the result of UndoEdit and RecoverEdit.
type Restored struct {
	Dataset string `json:"dataset"`
	Done    string `json:"done"` // a sentence for people
}

// UndoEdit gives a dataset back as it was before its last edit in place.
func UndoEdit(_ context.Context, r *EditedRequest, _ Observer) (*Restored, error) {
	if err := edit.Undo(r.Dataset); err != nil {
		return nil, err
	}
	return &Restored{Dataset: r.Dataset, Done: r.Dataset + " is as it was"}, nil
}

// RecoverEdit ends an edit in place that was interrupted.
func RecoverEdit(_ context.Context, r *EditedRequest, _ Observer) (*Restored, error) {
	done, err := edit.Recover(r.Dataset)
	if err != nil {
		return nil, err
	}
	return &Restored{Dataset: r.Dataset, Done: done}, nil
}
