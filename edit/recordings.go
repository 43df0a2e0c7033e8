package edit

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/store"
)

// SideStreams returns the rates in Hz of the streams whose samples in recordings/ are left out of
// the result. It returns nil if writeRecordings keeps the samples.
func (v *planDataset) SideStreams() map[string]float64 {
	if v.sideProblem == "" {
		return nil
	}
	return v.sideRates
}

// findRecordings finds the streams of the result that have samples under recordings/. It sets
// sideProblem if the samples cannot be kept.
func (v *planDataset) findRecordings() {
	v.sideRates = map[string]float64{}
	ratesOf := make([]map[string]float64, len(v.srcs)) // of each source, by key of the result
	for i, ds := range v.srcs {
		ratesOf[i] = map[string]float64{}
		streams := ds.Capabilities().SideStreams
		if streams == nil {
			continue
		}
		for _, k := range v.plan.Keys {
			if hz, ok := streams()[k.sourceKey(i)]; ok {
				ratesOf[i][k.Key], v.sideRates[k.Key] = hz, hz
			}
		}
	}
	if len(v.sideRates) == 0 {
		return
	}
	for i := range v.srcs {
		switch {
		case v.plan.Format != robocache.DefaultFormat():
			v.sideProblem = "the result is no LeRobot dataset"
		case !maps.Equal(ratesOf[i], v.sideRates):
			v.sideProblem = "not all sources have them"
		case !v.plan.Sources[i].HZ.Zero() || v.plan.FPS != v.srcs[i].Info().FPS:
			v.sideProblem = "the rows are resampled"
		}
	}
}

// sourceKey returns the key of a feature in a source, or "" if the source has none.
func (k *Key) sourceKey(source int) string {
	if k.Added != nil || source >= len(k.From) {
		return ""
	}
	return k.From[source]
}

// writeRecordings writes the samples of the result's episodes under recordings/, cut to their rows,
// and adds the streams to info.
func (v *planDataset) writeRecordings(
	ctx context.Context,
	r *write.Report,
	info map[string]json.RawMessage,
) error {
	if len(v.sideRates) == 0 || v.sideProblem != "" {
		return nil
	}
	sources, err := v.openRecordings(ctx)
	defer func() {
		for _, s := range sources {
			_ = s.Close()
		}
	}()
	if err != nil {
		return err
	}
	plan, indices, err := v.planRecordings(r, sources)
	if err != nil {
		return err
	}
	datasets := make([]robocache.Dataset, len(sources))
	for i, s := range sources {
		datasets[i] = s.Dataset
	}
	cut, err := newPlanDataset(ctx, plan, datasets)
	if err != nil {
		return err
	}
	defer cut.Close()
	cut.isRecordings = true
	cut.info.NumberEpisodes(indices)
	format, err := robocache.FormatNamed(write.RecordingsFormat)
	if err != nil {
		return err
	}
	for i, index := range indices {
		opt := robocache.WriteOptions{Threads: 1, Episodes: []int{i}, Replaces: v.replacedURI}
		name := write.RecordingName(index)
		v.writtenRecordings = append(v.writtenRecordings, name)
		if _, err := format.Write(ctx, cut, joinURI(v.resultURI, name), opt); err != nil {
			return err
		}
	}
	if info[write.StreamsKey], err = write.StreamsText(v.sideRates); err != nil {
		return err
	}
	return nil
}

// recordingsDataset is the dataset of a source's recordings.
type recordingsDataset struct {
	robocache.Dataset
	positions map[string]int // of each recording, by file name
}

// openRecordings opens the recordings of each source. The caller must close the returned datasets,
// also on an error.
func (v *planDataset) openRecordings(ctx context.Context) (out []recordingsDataset, err error) {
	for _, src := range v.srcs {
		uri := joinURI(src.Info().URI, write.RecordingsFolder)
		ds, err := robocache.Open(ctx, uri, robocache.OpenOptions{Format: write.RecordingsFormat})
		if err != nil {
			return out, err
		}
		opened := recordingsDataset{ds, map[string]int{}}
		out = append(out, opened)
		recording := ds.Capabilities().Recording
		if recording == nil {
			return out, misuse(robocache.Where{"dataset": uri}, "no dataset of recordings", "")
		}
		for e := range ds.Info().Episodes {
			opened.positions[recording(e)] = e
		}
	}
	return out, nil
}

// planRecordings returns a plan with an episode for each recording of the result, and the indices
// of the result's episodes that the recordings belong to. r is the report of the writer, and
// sources holds the recordings of each source. It returns an error if the recording of an episode
// is missing.
func (v *planDataset) planRecordings(
	r *write.Report,
	sources []recordingsDataset,
) (plan *Plan, indices []int64, err error) {
	plan = &Plan{Format: write.RecordingsFormat, Sources: v.plan.Sources, FPS: v.plan.FPS}
	for _, k := range v.plan.Keys {
		if _, ok := v.sideRates[k.Key]; ok {
			plan.Keys = append(plan.Keys, k)
		}
	}
	plan.Keys = append(
		plan.Keys,
		Key{Key: write.RowClock, From: slices.Repeat([]string{write.RowClock}, len(v.srcs))},
	)
	for i, mapping := range r.Episodes {
		if mapping.New < 0 { // the writer left the episode out
			continue
		}
		episode := v.plan.Episodes[i]
		src := v.srcs[episode.Source]
		recordings := sources[episode.Source]
		index := src.Info().EpisodeIndex(episode.Episode)
		file := write.RecordingName(index)
		position, ok := recordings.positions[path.Base(file)]
		if !ok || recordings.Len(position) != src.Len(episode.Episode) {
			return nil, nil, robocache.Malformed(
				"edit",
				robocache.Where{"dataset": src.Info().URI, "file": file, "episode": index},
				"the recording of the episode is missing, or has another number of rows",
			).WithHint("Fetch the file again, or delete the episode.")
		}
		episode.Episode = position // of the recording in the dataset of recordings
		plan.Episodes = append(plan.Episodes, episode)
		indices = append(indices, int64(mapping.New))
	}
	return plan, indices, nil
}

// removeRecordings removes the recordings of a result whose writing failed.
func (v *planDataset) removeRecordings(ctx context.Context) {
	if len(v.writtenRecordings) == 0 {
		return
	}
	st, err := store.OpenWritable(v.resultURI)
	if err != nil {
		return
	}
	defer store.Close(st)
	for _, name := range v.writtenRecordings {
		_ = st.Remove(ctx, name) // the last one may not exist
	}
	if dir, ok := store.LocalPath(v.resultURI); ok { // removes the folders if they are empty
		_ = os.Remove(filepath.Join(dir, write.RecordingsFolder))
		_ = os.Remove(dir)
	}
}

// joinURI returns the URI of a file or folder in a dataset.
func joinURI(uri, name string) string {
	base, query, hasQuery := strings.Cut(uri, "?")
	if !strings.Contains(uri, "://") {
		return filepath.Join(uri, filepath.FromSlash(name))
	}
	base = strings.TrimRight(base, "/") + "/" + name
	if hasQuery {
		base += "?" + query
	}
	return base
}
