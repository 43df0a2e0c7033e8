package shard

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/diagnose"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/stats"
	"github.com/goatnote-inc/robocache/store"
	"github.com/goatnote-inc/robocache/video"
)

func init() {
	jobs["stats"] = kind{about: "count, min, max, mean, std and quantiles, exactly, into DST/" + statsName, plan: planLook, run: runStats, merge: mergeStats}
	jobs["doctor"] = kind{about: "what is wrong with a dataset, into DST/" + doctorName, plan: planLook, run: runDoctor, merge: mergeDoctor}
}

const (
	statsName  = "stats.json"
	doctorName = "doctor.json"
)

// planLook is the plan of a job that writes no dataset.
func planLook(_ context.Context, m *Manifest, src robocache.Dataset) *work {
	if m.Job.Convert.Align != nil {
		guard.Fail(&robocache.Error{Class: robocache.ErrMisuse, Op: "plan", Msg: "the job " + m.Job.Name + " looks at the source as it is: --hz and --align are for convert and resample"})
	}
	w := &work{made: func(e int) (int, int) { return 1, src.Len(e) }}
	m.Job.Convert.Options = nil
	for _, f := range src.Info().Features {
		w.rowBytes += int64(f.RowBytes()) + int64(f.Width)*int64(f.Height)
	}
	m.Features = src.Info().Features
	return w
}

// counted is what a shard counted of a stream: numbers, or the levels of its images.
type counted struct {
	Key     string          `json:"key"`
	Numbers []stats.Part    `json:"numbers,omitempty"`
	Images  json.RawMessage `json:"images,omitempty"` // stats.Pixels
}

// sortedName is the file of a shard's numbers in ascending order.
const sortedName = "statistics"

func runStats(ctx context.Context, a *attempt, src robocache.Dataset, r *Receipt) {
	var all []counted
	features := src.Info().Features
	look := stats.NewLook(src, a.m.Job.Frames, max(1, a.opt.Threads))
	defer look.Close()
	_, decoder := video.ActiveBackend()
	episodes := a.positions(src)
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
		case !a.m.Job.Convert.Wants(f) && !f.Default || a.m.Job.Convert.Keys != nil && !a.m.Job.Convert.Wants(f):
			continue
		case f.Kind == robocache.KindNumeric || f.Kind == robocache.KindPointCloud:
			rows := stats.NewCollector(256 << 20)
			defer rows.Close()
			a.each(src, r, f.Key, func(e int) (err error) {
				var held []byte
				blocks, shape, err := stats.Values(ctx, src, f, []int{e})
				if err == nil {
					err = blocks(ctx, func(b []byte) error { held = append(held, b...); return nil })
				}
				if err == nil {
					err = rows.Add(f.Key, f.DType, shape, held)
				}
				return err
			})
			c.Numbers = guard.Must(rows.Parts(ctx, sorter))[f.Key]
		case (f.Kind == robocache.KindVideo || f.Kind == robocache.KindImage) && a.m.Job.Frames != stats.NoFrames && (f.Kind == robocache.KindImage || decoder == nil):
			sum := a.m.Job.Frames.Images(f)
			a.each(src, r, f.Key, func(e int) error {
				p, err := look.Episode(ctx, f, e)
				if err == nil {
					sum.Merge(p)
				}
				return err
			})
			c.Images = guard.Must(json.Marshal(sum))
		default:
			continue
		}
		all = append(all, c)
		a.progress(robocache.Progress{Done: int64(i + 1), Total: int64(len(features)), Unit: "streams"})
	}
	if out != nil {
		guard.Check(out.Commit())
	}
	for _, e := range episodes {
		r.Report.Frames += int64(src.Len(e))
	}
	r.Report.Episodes, r.Report.Summary = len(episodes), guard.Must(json.Marshal(all))
}

// each does something with every episode of the shard; one that cannot be read is left out where the job allows that.
func (a *attempt) each(src robocache.Dataset, r *Receipt, key string, do func(position int) error) {
	for _, position := range a.positions(src) {
		index := src.Info().EpisodeIndex(position)
		err := robocache.At(do(position), robocache.Where{"episode": index, "stream": key})
		if err != nil && a.m.Job.SkipBad && robocache.Bad(err) {
			if !slices.ContainsFunc(r.Skipped, func(s Skipped) bool { return s.Episode == int(index) }) { // by an earlier stream
				r.Skipped = append(r.Skipped, Skipped{int(index), err.Error()})
			}
			continue
		}
		guard.Check(err)
	}
}

func mergeStats(ctx context.Context, m *Manifest, dst store.Writable, receipts []*Receipt) {
	var keys []string
	numbers, images := map[string][]stats.Part{}, map[string]*stats.Pixels{}
	for _, r := range receipts {
		decode := func(b []byte, v any) {
			if err := json.Unmarshal(b, v); err != nil {
				guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: "commit", Where: robocache.Where{"file": receiptName(r.Shard)}, Msg: "what the shard counted", Err: err})
			}
		}
		var list []counted
		decode(r.Report.Summary, &list)
		file := &stats.SortedFile{Open: func() (robocache.Ranged, error) { return dst.Open(ctx, attemptDir(r.Shard, r.Attempt)+"/"+sortedName) }}
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
				decode(c.Images, images[c.Key]) // adds, and refuses images of another kind
			}
		}
	}
	out := robocache.Stats{}
	for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		fs := images[key].Stats()
		var err error
		if len(numbers[key]) > 0 { // else no episode could be read
			fs, _, err = stats.Whole(ctx, numbers[key])
		}
		guard.Check(robocache.At(err, robocache.Where{"stream": key}))
		if fs != nil {
			out[key] = fs
		}
	}
	guard.Check(store.Put(ctx, dst, statsName, append(guard.Must(stats.Marshal(out)), '\n')))
}

func runDoctor(ctx context.Context, a *attempt, src robocache.Dataset, r *Receipt) {
	opt := a.m.Job.Doctor
	opt.Episodes = a.positions(src)
	opt.Progress = func(done, total int64) {
		a.progress(robocache.Progress{Done: done, Total: total, Unit: "parts"})
	}
	r.Findings = guard.Must(diagnose.Run(ctx, src, opt))
	r.Report.Episodes = len(opt.Episodes)
	for _, e := range opt.Episodes {
		r.Report.Frames += int64(src.Len(e))
	}
}

func mergeDoctor(ctx context.Context, m *Manifest, dst store.Writable, receipts []*Receipt) {
	merged := append([]robocache.Finding{}, m.found(receipts)...)
	out := guard.Must(dst.Create(ctx, doctorName))
	defer out.Abort()
	w := bufio.NewWriter(out)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	guard.Check(enc.Encode(struct {
		URI      string              `json:"uri"`
		Episodes int                 `json:"num_episodes"`
		Findings []robocache.Finding `json:"findings"`
	}{robocache.Redact(m.Job.Source), m.Episodes, merged}))
	guard.Check(w.Flush())
	guard.Check(out.Commit())
}
