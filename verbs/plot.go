package verbs

import (
	"context"

	"github.com/goatnote-inc/robocache/inspect"
)

// PlotRequest holds the options of Plot.
type PlotRequest struct {
	// URI is the dataset.
	URI string `json:"-" arg:"URI"`
	Opening
	// HZ is a rate to which all streams are resampled first.
	HZ string `json:"hz"`
	// Episode is the index of the episode. The default is the first episode.
	Episode *int `json:"episode"`
	// Keys lists the streams in their order; nil: all but cameras.
	Keys []string `json:"keys"`
	// Out is the file to write; its suffix is .png, .svg or .html.
	Out string `json:"out"`
}

// Plot draws streams of an episode into a file.
func Plot(ctx context.Context, r *PlotRequest, _ Observer) (*inspect.Plotted, error) {
	if err := inspect.CheckPlot(r.Out); err != nil {
		return nil, err
	}
	ds, err := r.Opening.Open(ctx, r.URI, r.HZ)
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	position := 0
	if r.Episode != nil {
		if position, err = ds.Info().EpisodePosition(int64(*r.Episode)); err != nil {
			return nil, err
		}
	}
	return inspect.Plot(ctx, ds, position, r.Keys, r.Out)
}
