package lerobot

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

// Origin returns the recording that an episode was made from, as recorded in meta/conversion.json.
// If none is recorded, it returns only the data file of the episode.
func (d *Dataset) Origin(ctx context.Context, episode int) (*robocache.Origin, error) {
	if episode < 0 || episode >= d.episodes.count() {
		return nil, nil
	}
	known, err := d.recordedOrigin(ctx, d.episodes.indexAt(episode))
	if known != nil || err != nil {
		return known, err
	}
	file, _ := d.tables.fileOf(episode)
	f, err := d.tables.footer(ctx, file)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	} else if errors.Is(err, robocache.ErrInternal) {
		return nil, err
	} else if err != nil {
		return nil, nil // The error is reported when the rows are read.
	}
	return &robocache.Origin{File: f.name}, nil
}

// recordedOrigin returns the recorded origin of an episode; nil if there is none.
func (d *Dataset) recordedOrigin(ctx context.Context, index int64) (*robocache.Origin, error) {
	d.originLock.Lock()
	defer d.originLock.Unlock()
	if d.origins == nil {
		origins, err := readOrigins(ctx, d.Store())
		if err != nil {
			return nil, err
		}
		d.origins = origins
	}
	return d.origins[index], nil
}

// readOrigins reads the report of a conversion. A malformed report names no origins.
func readOrigins(ctx context.Context, st store.Store) (map[int64]*robocache.Origin, error) {
	out := map[int64]*robocache.Origin{}
	b, err := store.ReadFile(ctx, st, "meta/conversion.json", 1<<30)
	if errors.Is(err, robocache.ErrNotFound) {
		return out, nil
	} else if err != nil {
		return nil, err
	}
	var report struct {
		Episodes []struct {
			New    int64             `json:"new_episode_index"`
			Source *robocache.Origin `json:"source"`
		} `json:"episodes"`
	}
	if json.Unmarshal(b, &report) != nil {
		return out, nil
	}
	for _, e := range report.Episodes {
		if e.New >= 0 && e.Source != nil {
			out[e.New] = e.Source
		}
	}
	return out, nil
}

// SideStreams returns the streams whose samples are in files under recordings/, with their nominal
// rates.
func (d *Dataset) SideStreams() map[string]float64 { return d.raw.streams }
