package robocache

import "context"

// Origin names the recording that became an episode.
type Origin struct {
	Dataset string `json:"dataset,omitempty"` // URI of the recordings, without credentials
	Format  string `json:"format,omitempty"`
	File    string `json:"file,omitempty"` // the recording below Dataset; empty if the format has no file for an episode
	// LastFile is the last of several files that hold the episode, numbered from File on; empty if there is one.
	LastFile string `json:"last_file,omitempty"`
	Episode  int64  `json:"episode_index"` // its index in Dataset
	Checksum string `json:"checksum,omitempty"`
}

// Sourced is a Dataset that knows from which recordings its episodes were made. Origin returns nil if it does not know.
// An Origin without Dataset names a file of the dataset itself.
// Called by OriginOf.
type Sourced interface {
	Origin(ctx context.Context, episode int) (*Origin, error)
}

// OriginOf returns the origin of the episode at a position: the recorded one, else the dataset itself. Only a recorded
// origin has a checksum.
func OriginOf(ctx context.Context, ds Dataset, episode int) (*Origin, error) {
	var o Origin
	if s, ok := ds.(Sourced); ok {
		known, err := s.Origin(ctx, episode)
		if err != nil {
			return nil, err
		}
		if known != nil {
			o = *known
		}
	}
	if o.Dataset == "" {
		if r, ok := ds.(Recorded); ok {
			o.File = r.Recording(episode)
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
