package shard

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/diagnose"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

func init() {
	jobKinds["stats"] = jobKind{
		about: "count, min, max, mean, std and quantiles, exactly, into DST/" + statsName,
		plan:  planInspection,
		run:   runStats,
		merge: mergeStats,
	}
	jobKinds["doctor"] = jobKind{
		about: "what is wrong with a dataset, into DST/" + doctorName,
		plan:  planInspection,
		run:   runDoctor,
		merge: mergeDoctor,
	}
}

const (
	statsName  = "stats.json"
	doctorName = "doctor.json"
)

// planInspection plans a job that writes no dataset.
func planInspection(_ context.Context, m *Manifest, src robocache.Dataset) (*plannedWork, error) {
	if m.Job.Convert.Align != nil {
		return nil, robocache.Misuse(
			"plan",
			nil,
			"the job %s looks at the source as it is: --hz and --align are for convert and "+
				"resample",
			m.Job.Name,
		)
	}
	w := &plannedWork{made: func(e int) (int, int) { return 1, src.Len(e) }}
	m.Job.Convert.Options = nil
	for _, f := range src.Info().Features {
		w.rowBytes += int64(f.RowBytes()) + int64(f.Width)*int64(f.Height)
	}
	m.Features = src.Info().Features
	return w, nil
}

// counted holds the statistics of a stream in a shard: numbers, or the levels of its images.
type counted struct {
	Key     string          `json:"key"`
	Numbers []stats.Part    `json:"numbers,omitempty"`
	Images  json.RawMessage `json:"images,omitempty"` // stats.Pixels
}

// sortedName is the file with a shard's numbers in ascending order.
const sortedName = "statistics"

func runStats(ctx context.Context, a *attempt, src robocache.Dataset, r *Receipt) error {
	var all []counted
	features := src.Info().Features
	look := stats.NewLook(src, a.manifest.Job.Frames, max(1, a.options.Threads))
	defer look.Close()
	_, decoder := video.ActiveBackend()
	episodes, err := a.episodePositions(src)
	if err != nil {
		return err
	}
	var out store.Writer
	sorter := &stats.Sorter{Create: func() (_ io.Writer, err error) {
		out, err = a.dst.Create(ctx, a.dir+"/"+sortedName)
		return out, err
	}}
	defer func() {
		if out != nil {
			out.Abort()
		}
	}()
	for i := range features {
		f := &features[i]
		c := counted{Key: f.Key}
		switch {
		case !a.manifest.Job.Convert.Wants(f) && !f.Default || a.manifest.Job.Convert.Keys != nil &&
			!a.manifest.Job.Convert.Wants(f):
			continue
		case f.Kind == robocache.KindNumeric || f.Kind == robocache.KindPointCloud:
			rows := stats.NewCollector(256 << 20)
			defer rows.Close()
			if err := a.eachEpisode(src, r, f.Key, func(e int) (err error) {
				var held []byte
				blocks, shape, err := stats.Values(ctx, src, f, []int{e})
				if err == nil {
					err = blocks(
						ctx,
						func(b []byte) error { held = append(held, b...); return nil },
					)
				}
				if err == nil {
					err = rows.Add(f.Key, f.DType, shape, held)
				}
				return err
			}); err != nil {
				return err
			}
			parts, err := rows.Parts(ctx, sorter)
			if err != nil {
				return err
			}
			c.Numbers = parts[f.Key]
		case (f.Kind == robocache.KindVideo || f.Kind == robocache.KindImage) &&
			a.manifest.Job.Frames != stats.NoFrames && (f.Kind == robocache.KindImage ||
			decoder == nil):
			sum := a.manifest.Job.Frames.Images(f)
			if err := a.eachEpisode(src, r, f.Key, func(e int) error {
				p, err := look.Episode(ctx, f, e)
				if err == nil {
					sum.Merge(p)
				}
				return err
			}); err != nil {
				return err
			}
			if c.Images, err = json.Marshal(sum); err != nil {
				return err
			}
		default:
			continue
		}
		all = append(all, c)
		a.recordProgress(
			robocache.Progress{Done: int64(i + 1), Total: int64(len(features)), Unit: "streams"},
		)
	}
	if out != nil {
		if err := out.Commit(); err != nil {
			return err
		}
	}
	for _, e := range episodes {
		r.Report.Frames += int64(src.Len(e))
	}
	encoded, err := json.Marshal(all)
	if err != nil {
		return err
	}
	r.Report.Episodes, r.Report.Summary = len(episodes), encoded
	return nil
}

// eachEpisode calls do for every episode of the shard. An episode that cannot be read is skipped if
// the job allows it.
func (a *attempt) eachEpisode(
	src robocache.Dataset,
	r *Receipt,
	key string,
	do func(position int) error,
) error {
	positions, err := a.episodePositions(src)
	if err != nil {
		return err
	}
	for _, position := range positions {
		index := src.Info().EpisodeIndex(position)
		err := robocache.At(do(position), robocache.Where{"episode": index, "stream": key})
		if err != nil && a.manifest.Job.SkipBad && robocache.Bad(err) {
			// an earlier stream may have added it
			if !slices.ContainsFunc(
				r.Skipped,
				func(s Skipped) bool { return s.Episode == int(index) },
			) {
				r.Skipped = append(r.Skipped, Skipped{int(index), err.Error()})
			}
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func mergeStats(ctx context.Context, m *Manifest, dst store.Writable, receipts []*Receipt) error {
	var keys []string
	numbers, images := map[string][]stats.Part{}, map[string]*stats.Pixels{}
	for _, r := range receipts {
		decode := func(b []byte, v any) error {
			if err := json.Unmarshal(b, v); err != nil {
				return robocache.Malformed("commit", robocache.Where{
					"file": receiptName(r.Shard),
				}, "the statistics of the shard are not readable").
					WithCause(err)
			}
			return nil
		}
		var list []counted
		if err := decode(r.Report.Summary, &list); err != nil {
			return err
		}
		file := &stats.SortedFile{
			Open: func() (robocache.Ranged, error) {
				return dst.Open(ctx, attemptDir(r.Shard, r.Attempt)+"/"+sortedName)
			},
		}
		defer file.Close()
		for i := range list {
			c := &list[i]
			for k := range c.Numbers {
				c.Numbers[k].File = file
			}
			keys, numbers[c.Key] = append(keys, c.Key), append(numbers[c.Key], c.Numbers...)
			if c.Images != nil {
				if images[c.Key] == nil {
					images[c.Key] = &stats.Pixels{}
				}
				if err := decode(c.Images, images[c.Key]); err != nil {
					return err
				}
			}
		}
	}
	out := robocache.Stats{}
	for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		fs := images[key].Stats()
		var err error
		if len(numbers[key]) > 0 { // empty if no episode could be read
			fs, _, err = stats.Whole(ctx, numbers[key])
		}
		if err := robocache.At(err, robocache.Where{"stream": key}); err != nil {
			return err
		}
		if fs != nil {
			out[key] = fs
		}
	}
	encoded, err := stats.Marshal(out)
	if err != nil {
		return err
	}
	return store.Put(ctx, dst, statsName, append(encoded, '\n'))
}

func runDoctor(ctx context.Context, a *attempt, src robocache.Dataset, r *Receipt) error {
	opt := a.manifest.Job.Doctor
	var err error
	if opt.Episodes, err = a.episodePositions(src); err != nil {
		return err
	}
	opt.Progress = func(done, total int64) {
		a.recordProgress(robocache.Progress{Done: done, Total: total, Unit: "parts"})
	}
	if r.Findings, err = diagnose.Run(ctx, src, opt); err != nil {
		return err
	}
	r.Report.Episodes = len(opt.Episodes)
	for _, e := range opt.Episodes {
		r.Report.Frames += int64(src.Len(e))
	}
	return nil
}

func mergeDoctor(ctx context.Context, m *Manifest, dst store.Writable, receipts []*Receipt) error {
	merged := append([]robocache.Finding{}, m.allFindings(receipts)...)
	return writeFindings(ctx, m, dst, doctorName, merged)
}

// writeFindings writes the findings of a job as JSON.
func writeFindings(
	ctx context.Context, m *Manifest, dst store.Writable, name string, merged []robocache.Finding,
) error {
	out, err := dst.Create(ctx, name)
	if err != nil {
		return err
	}
	defer out.Abort()
	w := bufio.NewWriter(out)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(struct {
		URI      string              `json:"uri"`
		Episodes int                 `json:"num_episodes"`
		Findings []robocache.Finding `json:"findings"`
	}{robocache.Redact(m.Job.Source), m.Episodes, merged}); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return out.Commit()
}
