package shard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	w := &work{length: src.Len}
	m.Job.Convert.Options = nil
	for _, f := range src.Info().Features {
		w.rowBytes += int64(f.RowBytes()) + int64(f.Width)*int64(f.Height)
	}
	m.Features = src.Info().Features
	return w
}

// counted is what a shard counted of a stream: its values, which commit counts together with those of the others, or the levels of its images.
type counted struct {
	Key    string          `json:"key"`
	DType  robocache.DType `json:"dtype"`
	Shape  []int           `json:"shape,omitempty"`
	Values string          `json:"values,omitempty"` // a file
	Images *stats.Pixels   `json:"images,omitempty"`
}

func runStats(ctx context.Context, a *attempt, src robocache.Dataset, r *Receipt) {
	var all []counted
	features := src.Info().Features
	look := stats.NewLook(src, a.m.Job.Frames, max(1, a.opt.Threads))
	defer look.Close()
	_, decoder := video.ActiveBackend()
	episodes := a.m.Shards[a.shard].Episodes
	for i := range features {
		f := &features[i]
		c := counted{Key: f.Key, DType: f.DType}
		switch {
		case !a.m.Job.Convert.Wants(f) && !f.Default || a.m.Job.Convert.Keys != nil && !a.m.Job.Convert.Wants(f):
			continue
		case f.Kind == robocache.KindNumeric || f.Kind == robocache.KindPointCloud:
			c.Values = fmt.Sprintf("values/%04d", i)
			out := guard.Must(a.dst.Create(ctx, a.dir+"/"+c.Values))
			a.each(r, f.Key, func(e int) (err error) {
				var held []byte
				blocks, shape, err := stats.Values(ctx, src, f, []int{e})
				if err == nil {
					c.Shape = shape
					err = blocks(ctx, func(b []byte) error { held = append(held, b...); return nil })
				}
				if err == nil {
					_, err = out.Write(held)
				}
				return err
			})
			guard.Check(out.Commit())
		case (f.Kind == robocache.KindVideo || f.Kind == robocache.KindImage) && a.m.Job.Frames != stats.NoFrames && (f.Kind == robocache.KindImage || decoder == nil):
			sum := a.m.Job.Frames.Images(f)
			a.each(r, f.Key, func(e int) error {
				p, err := look.Episode(ctx, f, e)
				if err == nil {
					sum.Merge(p)
				}
				return err
			})
			c.Images = sum
		default:
			continue
		}
		all = append(all, c)
		a.progress(i+1, len(features))
	}
	for _, e := range episodes {
		r.Report.Frames += int64(src.Len(e))
	}
	r.Report.Episodes, r.Report.Summary = len(episodes), guard.Must(json.Marshal(all))
}

// each does something with every episode of the shard; one that cannot be read is left out where the job allows that.
func (a *attempt) each(r *Receipt, key string, do func(e int) error) {
	for _, e := range a.m.Shards[a.shard].Episodes {
		err := robocache.At(do(e), robocache.Where{"episode": e, "stream": key})
		if err != nil && a.m.Job.SkipBad && (errors.Is(err, robocache.ErrMalformed) || errors.Is(err, robocache.ErrNotFound) || errors.Is(err, robocache.ErrUnsupported)) {
			r.Skipped = append(r.Skipped, Skipped{e, err.Error()})
			continue
		}
		guard.Check(err)
	}
}

func mergeStats(ctx context.Context, m *Manifest, dst store.Writable, receipts []*Receipt) {
	type column struct {
		counted
		files []string
	}
	var keys []string
	all := map[string]*column{}
	for _, r := range receipts {
		var list []counted
		if err := json.Unmarshal(r.Report.Summary, &list); err != nil {
			guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: "commit", Where: robocache.Where{"file": receiptName(r.Shard)}, Err: err})
		}
		for _, c := range list {
			col := all[c.Key]
			if col == nil {
				col = &column{counted: c}
				all[c.Key], keys = col, append(keys, c.Key)
			} else if c.Images != nil && col.Images != nil && c.Images.Channels() == col.Images.Channels() {
				col.Images.Merge(c.Images)
			}
			if c.Values != "" && len(c.Shape) > 0 { // else no episode of the shard could be read
				if len(col.Shape) == 0 {
					col.Shape = c.Shape
				}
				if c.DType != col.DType || !slices.Equal(c.Shape, col.Shape) || c.rowBytes() > maxRow {
					guard.Fail(&robocache.Error{Class: robocache.ErrMalformed, Op: "commit", Where: robocache.Where{"file": receiptName(r.Shard), "stream": c.Key}, Want: fmt.Sprintf("rows of %v %v, as in other shards, of at most %d bytes", col.Shape, col.DType, maxRow), Got: fmt.Sprintf("%v %v", c.Shape, c.DType), Hint: anew(r.Shard)})
				}
				col.files = append(col.files, attemptDir(r.Shard, r.Attempt)+"/"+guard.Must(store.CleanName(c.Values)))
			}
		}
	}
	out := robocache.Stats{}
	for _, key := range keys {
		c := all[key]
		var fs *robocache.FeatureStats
		var err error
		if c.Images != nil {
			fs = c.Images.Stats()
		} else if len(c.Shape) > 0 {
			fs, _, err = stats.Numeric(ctx, c.DType, c.Shape, func(ctx context.Context, yield func([]byte) error) error {
				for _, name := range c.files {
					if err := eachRows(ctx, dst, name, c.rowBytes(), yield); err != nil {
						return err
					}
				}
				return nil
			}, 256<<20)
		}
		guard.Check(robocache.At(err, robocache.Where{"stream": key}))
		if fs != nil {
			out[key] = fs
		}
	}
	guard.Check(store.Put(ctx, dst, statsName, append(guard.Must(stats.Marshal(out)), '\n')))
}

// eachRows gives the values of a file in blocks of whole rows.
func eachRows(ctx context.Context, st store.Store, name string, row int, yield func([]byte) error) (err error) {
	defer guard.File("commit", name, &err)
	f := guard.Must(st.Open(ctx, name))
	defer f.Close()
	if f.Size()%int64(row) != 0 {
		return &robocache.Error{Class: robocache.ErrMalformed, Want: fmt.Sprintf("whole rows of %d bytes", row), Got: fmt.Sprintf("%d bytes", f.Size())}
	}
	buf := make([]byte, max(1, (1<<20)/row)*row)
	for off := int64(0); off < f.Size(); off += int64(len(buf)) {
		b := buf[:min(int64(len(buf)), f.Size()-off)]
		guard.Check(f.ReadAt(ctx, b, off))
		guard.Check(yield(b))
	}
	return nil
}

// maxRow bounds what a receipt may call a row: it is held in memory.
const maxRow = 64 << 20

func (c *counted) rowBytes() int {
	n := c.DType.Size()
	for _, d := range c.Shape {
		if n *= max(1, d); n > maxRow || d > maxRow {
			return maxRow + 1
		}
	}
	return max(1, n)
}

func runDoctor(ctx context.Context, a *attempt, src robocache.Dataset, r *Receipt) {
	opt := a.m.Job.Doctor
	opt.Episodes = a.m.Shards[a.shard].Episodes
	opt.Progress = func(done, total int64) { a.progress(int(done), int(total)) }
	r.Findings = guard.Must(diagnose.Run(ctx, src, opt))
	r.Report.Episodes = len(opt.Episodes)
	for _, e := range opt.Episodes {
		r.Report.Frames += int64(src.Len(e))
	}
}

func mergeDoctor(ctx context.Context, m *Manifest, dst store.Writable, receipts []*Receipt) {
	merged := []robocache.Finding{}
	said := map[string]bool{}
	for _, r := range receipts {
		for _, f := range r.Findings {
			// What is said of the whole dataset, each shard says.
			if name := f.Code + "\x00" + f.Where.String() + "\x00" + f.Message; !said[name] {
				said[name] = true
				merged = append(merged, f)
			}
		}
	}
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
