package verbs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
)

// StatsRequest holds the options of Stats.
type StatsRequest struct {
	// URI is the dataset.
	URI string `json:"-" arg:"URI"`
	Opening
	// HZ is a rate to which all streams are resampled first.
	HZ string `json:"hz"`
	// Out is a file to write the statistics to.
	Out string `json:"out"`
	// Write writes the statistics into the dataset.
	Write bool `json:"write"`
	// Frames is the choice of images that are counted: sampled, all or none; empty: sampled.
	Frames string `json:"frames"`
	// Keys lists the features to count; nil: all.
	Keys []string `json:"keys"`
	// SkipBad leaves out episodes that cannot be read.
	SkipBad bool `json:"skip_bad"`
	// Episodes lists the indices of the episodes to count, such as 0,3,5-9; empty: all.
	Episodes string `json:"episodes"`
	ClientStats
}

// Statistics is the result of Stats.
type Statistics struct {
	Stats    robocache.Stats
	Features []robocache.Feature // of the dataset, in its order
	Findings []robocache.Finding // about episodes that were left out
	// Files are the files of a client that counts windows; nil: Stats is lerobot's stats.json.
	Files map[string]any
}

// JSON returns the text of stats.json, or of all files of a client by name.
func (s *Statistics) JSON() ([]byte, error) {
	if s.Files != nil {
		return json.Marshal(s.Files)
	}
	return stats.Marshal(s.Stats)
}

// MarshalJSON returns the text of stats.json.
func (s *Statistics) MarshalJSON() ([]byte, error) { return s.JSON() }

// HasFindings reports whether episodes were left out.
func (s *Statistics) HasFindings() bool { return AnyWrong(s.Findings) }

// Stats computes the statistics of a dataset, and writes them to a file if r.Out or r.Write is set.
func Stats(ctx context.Context, r *StatsRequest, o Observer) (*Statistics, error) {
	frames := cmp.Or(stats.FramePolicy(r.Frames), stats.SampledFrames)
	policies := []stats.FramePolicy{stats.SampledFrames, stats.AllFrames, stats.NoFrames}
	switch name := optionName; {
	case !slices.Contains(policies, frames):
		return nil, misuse("%s: expected sampled, all or none, found %q", name("frames"), r.Frames)
	case r.Write && (r.HZ != "" || r.Split != ""):
		return nil, misuse(
			"%s puts statistics of all rows as they are into the dataset; those of %s or %s are "+
				"for %s",
			name("write"),
			name("hz"),
			name("split"),
			name("out"),
		)
	case r.Keys != nil && len(r.Keys) == 0:
		return nil, misuse("%s names no feature", name("keys"))
	case r.For != "" && r.SkipBad || r.ofWindows() &&
		(r.Keys != nil || r.Write && r.For != "gr00t"):
		return nil, misuse("%s is not for %s", name("keys")+", "+name("skip_bad")+" and "+
			name("write"), robocache.Option("for", r.For))
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	ds, err := r.Opening.Open(ctx, r.URI, r.HZ)
	if err != nil {
		return nil, err
	}
	defer ds.Close()
	s := &Statistics{Features: ds.Info().Features}
	count := o.countIn("streams")
	opt := stats.Options{
		Frames: frames, Keys: r.Keys, SkipBad: r.SkipBad,
		OnFinding: func(f robocache.Finding) { s.Findings = append(s.Findings, f) },
		Progress:  func(done, total int) { count(int64(done), int64(total)) },
	}
	if opt.Episodes, err = ds.Info().ParseEpisodes(r.Episodes); err != nil {
		return nil, err
	}
	if r.For != "" {
		return s, r.countClients(ctx, ds, s, &opt, o)
	}
	if s.Stats, err = stats.Compute(ctx, ds, opt); err != nil {
		return nil, err
	}
	if r.SkipBad { // the findings of opening about files that cannot be read
		isKept := func(f robocache.Finding) bool { return !f.Lost }
		lost := slices.DeleteFunc(slices.Clone(ds.Info().Findings), isKept)
		s.Findings = append(lost, s.Findings...)
	}
	if err := r.writeFile(ctx, ds, s, o); err != nil {
		return nil, err
	}
	o.note(FindingsText(s.Findings))
	return s, nil
}

// countClients sets the statistics of clients, and writes their files if the request names a place.
// It reads the numbers of the dataset once.
func (r *StatsRequest) countClients(
	ctx context.Context, ds robocache.Dataset, s *Statistics, opt *stats.Options, o Observer,
) (err error) {
	request, err := r.valueOptions()
	if err != nil {
		return err
	}
	held, err := stats.Hold(ctx, ds, stats.HoldOptions{
		Keys: r.heldKeys(ds.Info(), opt.Keys), Episodes: opt.Episodes, Folder: r.Partials,
		Request: request,
	})
	if err != nil {
		return err
	}
	defer func() {
		if closed := held.Close(); err == nil {
			err = closed
		}
	}()
	files, counted, err := r.compute(ctx, held, opt)
	if err != nil {
		return err
	}
	if err := held.Save(); err != nil {
		return err
	}
	if s.Stats = counted; r.ofWindows() {
		s.Files, s.Features = files, nil
		for _, key := range slices.Sorted(maps.Keys(counted)) {
			s.Features = append(s.Features, robocache.Feature{Key: key})
		}
	}
	if r.Partials != "" {
		o.note(fmt.Sprintf("read %d of %d episodes", held.New, ds.Info().Episodes))
	}
	o.note(FindingsText(s.Findings))
	switch {
	case !r.ofWindows():
		return r.writeFile(ctx, ds, s, o)
	case r.Write:
		return files.write(ctx, filepath.Join(r.URI, "meta"), o)
	case r.Out != "":
		return files.write(ctx, r.Out, o)
	}
	return nil
}

// valueOptions returns the options of opening that change values, as text.
func (r *StatsRequest) valueOptions() (string, error) {
	o := r.Opening
	if o.MemoryBudget = ""; o.Map != "" && !strings.HasPrefix(o.Map, "{") {
		text, err := os.ReadFile(o.Map)
		if err != nil {
			return "", robocache.At(err, robocache.Where{"file": o.Map})
		}
		o.Map = string(text)
	}
	text, err := json.Marshal(struct {
		Opening
		HZ string
	}{o, r.HZ})
	if err != nil {
		return "", robocache.Misuse("statistics", nil, "the options of opening").WithCause(err)
	}
	return string(text), nil
}

// writeFile writes the statistics to the file that the request names, if it names one.
func (r *StatsRequest) writeFile(
	ctx context.Context, ds robocache.Dataset, s *Statistics, o Observer,
) error {
	folder, name := filepath.Dir(r.Out), filepath.Base(r.Out)
	switch {
	case r.Write:
		f, err := robocache.FormatNamed(ds.Info().Format)
		if err != nil || f.StatsFile == "" {
			return robocache.Unsupported("stats "+optionName("write"), nil,
				"format %s has no place for statistics", ds.Info().Format).
				WithHint("use %s", robocache.Option("out", "FILE"))
		}
		folder, name = r.URI, f.StatsFile
	case r.Out == "":
		return nil
	}
	text, err := s.JSON()
	if err != nil {
		return err
	}
	if err := store.WriteFile(ctx, folder, name, append(text, '\n')); err != nil {
		return err
	}
	o.note(fmt.Sprintf("wrote %s in %s", name, folder))
	return nil
}
