package robocache

import "context"

// Origin names the recording that became an episode.
type Origin struct {
	Dataset string `json:"dataset,omitempty"` // URI of the recordings, without credentials
	Format  string `json:"format,omitempty"`
	// the recording below Dataset; empty if the format has no file for an episode
	File string `json:"file,omitempty"`
	// LastFile is the last of several files that hold the episode, numbered from File on; empty if
	// there is one.
	LastFile string `json:"last_file,omitempty"`
	Episode  int64  `json:"episode_index"` // its index in Dataset
	Checksum string `json:"checksum,omitempty"`
}

// OriginOf returns the origin of the episode at a position: the recorded one, else the dataset
// itself. Only a recorded origin has a checksum.
func OriginOf(ctx context.Context, ds Dataset, episode int) (*Origin, error) {
	var o Origin
	if origin := ds.Capabilities().Origin; origin != nil {
		known, err := origin(ctx, episode)
		if err != nil {
			return nil, err
		}
		if known != nil {
			o = *known
		}
	}
	if o.Dataset == "" {
		if recording := ds.Capabilities().Recording; recording != nil {
			o.File = recording(episode)
		}
		ep, err := ds.Episode(ctx, episode)
		if err != nil {
			return nil, err
		}
		info := ds.Info()
		o.Dataset, o.Format, o.Episode = Redact(info.URI), info.Format, ep.Index
	}
	return &o, nil
}

// originOf returns the Origin capability of a wrapper that clears Recording.
func originOf(ds Dataset) func(ctx context.Context, episode int) (*Origin, error) {
	return func(ctx context.Context, episode int) (*Origin, error) {
		return OriginOf(ctx, ds, episode)
	}
}
