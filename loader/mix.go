package loader

import (
	"context"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader/internal/options"
)

// Mix is one source of a mixture, and what is special about it. What is left out is as the Config says.
type Mix struct {
	Dataset robocache.Dataset
	Name    string            // in errors, states and statistics; default: its number
	Weight  *float64          // share of the samples, whatever its size; nil in all sources: shares by size
	Rename  map[string]string // its key → the batch's
	Keys    []string          // after the renaming
	Hz      *robocache.Rate
	Align   *align.Config
	Anchor  string // the stream whose rows are its samples, by the batch's key
	MixFrames
	Episodes []int  // indices
	Split    string // as of Config; beside Episodes, none
	MixStatistics
	// Dims says where its own numbers of a key stand in the padded row (Config.Missing "pad"); without an entry they lead.
	Dims map[string][]int
}

// MixFrames states what becomes of the frames of one source. What is left out is as the Config says.
type MixFrames struct {
	ImageSize   []int
	ImageResize Resize
	Augment     *Augment
}

// MixStatistics states by what one source is normalised. What is left out is as the Config says.
type MixStatistics struct {
	Normalize    *Normalize
	Stats        robocache.Stats // in place of the dataset's own, by the batch's key or by its own
	ComputeStats bool
}

// config is the Config of one source.
func (m *Mix) config(cfg Config, several bool) (Config, error) {
	if m.Dataset == nil {
		return cfg, robocache.Misuse("mixture", nil, "a source without a dataset")
	}
	if several {
		cfg.ofSource(m)
	}
	if m.Hz != nil || m.Align != nil {
		if m.Align != nil {
			cfg.Align = m.Align
		}
		a := align.Config{}
		if cfg.Align != nil {
			a = *cfg.Align
		}
		if m.Hz != nil {
			a.HZ, cfg.Hz = *m.Hz, m.Hz
		} else if a.HZ.Zero() && cfg.Hz != nil {
			a.HZ = *cfg.Hz
		}
		cfg.Align = &a
		if err := cfg.checkAlign(); err != nil {
			return cfg, err
		}
	}
	override(&cfg.Anchor, m.Anchor)
	override(&cfg.ImageResize, m.ImageResize)
	override(&cfg.Augment, m.Augment)
	override(&cfg.Split, m.Split)
	if m.ImageSize != nil {
		cfg.ImageSize = m.ImageSize
	}
	if m.Episodes != nil {
		cfg.Episodes = m.Episodes
	}
	if m.Keys != nil {
		cfg.Keys = m.Keys
	}
	if m.Stats != nil {
		cfg.Stats = m.Stats
	}
	if m.Normalize != nil {
		cfg.Normalize = *m.Normalize
	}
	for _, err := range []error{checkSize("image_size of a mixture's source", m.ImageSize), cfg.checkResize(), cfg.needsSize(), cfg.Normalize.Check()} {
		if err != nil {
			return cfg, err
		}
	}
	cfg.ComputeStats = cfg.ComputeStats || m.ComputeStats
	return cfg, nil
}

// override takes what a source says in place of what the loader says.
func override[T comparable](to *T, own T) {
	if own != *new(T) {
		*to = own
	}
}

// placeOfSource returns the place of source i of a mixture: its position, its URI, and its name if it was given one.
func placeOfSource(i int, m *Mix) robocache.Where {
	w := robocache.Where{"source": i}
	if m.Dataset != nil {
		if uri := m.Dataset.Info().URI; uri != "" {
			w["dataset"] = robocache.Redact(uri)
		}
	}
	if m.Name != "" && m.Name != fmt.Sprint(i) {
		w["name"] = m.Name
	}
	return w
}

// checkMix refuses what no source can be meant by.
func checkMix(mix []Mix, cfg *Config) error {
	if len(mix) == 0 {
		return robocache.Misuse("mixture", nil, "no sources")
	}
	weighted := 0
	sum := 0.0
	for i := range mix {
		m := &mix[i]
		if m.Name == "" {
			m.Name = fmt.Sprint(i)
		}
		if slices.ContainsFunc(mix[:i], func(o Mix) bool { return o.Name == m.Name }) {
			return options.Misuse("name of a mixture's source", "a name each", m.Name)
		}
		if m.Weight != nil {
			weighted++
			sum += *m.Weight
			if !(*m.Weight >= 0) || *m.Weight > 1e12 {
				return robocache.At(options.Misuse("weight", "0 or more", fmt.Sprint(*m.Weight)), placeOfSource(i, m))
			}
		}
		if m.Dataset == nil {
			continue
		}
		if cfg.Missing == MissingPad {
			m.Dataset = robocache.PadLacking(m.Dataset)
		} else if cfg.Keys == nil {
			m.Dataset = robocache.WithoutUnasked(m.Dataset)
		}
		own := m.Dataset.Info()
		if len(m.Rename) > 0 {
			r, err := rename(m.Dataset, m.Rename)
			if err != nil {
				return robocache.At(err, placeOfSource(i, m))
			}
			m.Dataset = r
		}
		var err error
		if m.Stats, err = followed(m.Stats, m.Rename, own, m.Dataset.Info()); err != nil {
			return robocache.At(err, placeOfSource(i, m))
		}
	}
	if weighted != 0 && (weighted != len(mix) || sum == 0) {
		return options.Misuse("weights of a mixture", "a weight for each source, one of them above 0, or none", fmt.Sprintf("%d of %d, sum %v", weighted, len(mix), sum))
	}
	if len(mix) == 1 {
		return nil
	}
	return checkNamed(mix, cfg)
}

// mixed deals the samples of a batch out to their sources.
func (a *assembler) mixed(u *unit, samples []int64) (parts int64) {
	index := view[int64](u.batch.Tensors[a.schema.index].Data)
	u.parts = slices.Grow(u.parts[:0], len(a.sources))
	own := make([][]int64, len(a.sources))
	slots := make([][]int32, len(a.sources))
	for i, s := range samples {
		src, number := a.sourceOf(s)
		own[src.index] = append(own[src.index], number)
		slots[src.index] = append(slots[src.index], int32(i))
		index[i] = int64(src.index)
	}
	for _, src := range a.sources {
		if len(own[src.index]) == 0 {
			continue
		}
		u.parts = append(u.parts, part{u: &u.assembly, src: &src.dataSource, slots: slots[src.index]})
		p := &u.parts[len(u.parts)-1]
		parts += p.begin(own[src.index])
		p.clear()
	}
	return parts
}

// renamed is a dataset under other keys.
type renamed struct {
	robocache.Dataset
	info robocache.Info
	old  map[string]string // the batch's key → the dataset's
}

func rename(ds robocache.Dataset, names map[string]string) (robocache.Dataset, error) {
	r := &renamed{Dataset: ds, info: *ds.Info(), old: map[string]string{}}
	r.info.Features = slices.Clone(r.info.Features)
	var known []string
	for i := range r.info.Features {
		known = append(known, r.info.Features[i].Key)
	}
	for k, to := range names {
		if ds.Info().Feature(k) == nil {
			return nil, unknownKey("rename", k, known)
		}
		if to == "" {
			return nil, options.Misuse("rename "+k, "a key", `""`)
		}
	}
	seen := map[string]string{}
	for i := range r.info.Features {
		f := &r.info.Features[i]
		if to, ok := names[f.Key]; ok {
			r.old[to] = f.Key
			f.Key = to
		}
		if other, ok := seen[f.Key]; ok {
			return nil, options.Misuse("rename", "each key once", fmt.Sprintf("%s and %s are both %s", other, known[i], f.Key))
		}
		seen[f.Key] = known[i]
	}
	return r, nil
}

// followed gives statistics by the batch's keys: they may be named by the dataset's own, as counting it gives them, or by the batch's.
func followed(stats robocache.Stats, names map[string]string, own, info *robocache.Info) (robocache.Stats, error) {
	if stats == nil {
		return nil, nil
	}
	out := robocache.Stats{}
	from := map[string]string{}
	for _, k := range options.Keys(stats) {
		to, is := names[k]
		switch {
		case !is && info.Feature(k) == nil:
			return nil, unknownKey("stats", k, append(keysOf(info), keysOf(own)...))
		case !is:
			to = k
		case to != k && info.Feature(k) != nil:
			return nil, robocache.Misuse("mixture", robocache.Where{"stream": k}, "stats: with this rename %s is both a key of the dataset and another key of the batch", k).
				WithHint("%s, which knows what is what; or leave out of %s what is not normalised", robocache.Option("stats", "compute"), robocache.Option("stats"))
		}
		if from[to] != "" {
			return nil, options.Misuse("stats", "each key once", fmt.Sprintf("%s and %s are both %s", from[to], k, to))
		}
		out[to], from[to] = stats[k], k
	}
	return out, nil
}

func (r *renamed) key(k string) string {
	if old, ok := r.old[k]; ok {
		return old
	}
	return k
}

// Unwrap gives the dataset under its own keys (robocache.As).
func (r *renamed) Unwrap() robocache.Dataset { return r.Dataset }

// GatherRagged is the dataset's; newLayout has asked whether it has any.
func (r *renamed) GatherRagged(ctx context.Context, key string, rows []robocache.Row) ([]byte, []int, error) {
	return robocache.GatherRagged(ctx, r.Dataset, r.key(key), rows)
}

// Valid is the dataset's; without one all rows hold a value.
func (r *renamed) Valid(ctx context.Context, key string, rows []robocache.Row, valid []uint8) error {
	return robocache.Valid(ctx, r.Dataset, r.key(key), rows, valid)
}

// Lacks reports whether an episode lacks a stream.
func (r *renamed) Lacks(episode int, key string) bool {
	return robocache.Lacks(r.Dataset, episode, r.key(key))
}

// Clocks is the dataset's.
func (r *renamed) Clocks(key string) []string {
	if c, ok := r.Dataset.(robocache.Clocked); ok {
		return c.Clocks(r.key(key))
	}
	return nil
}

// TimesBy is the dataset's; Clocks says which there are.
func (r *renamed) TimesBy(ctx context.Context, episode int, key, clock string) ([]int64, error) {
	c, ok := r.Dataset.(robocache.Clocked)
	if !ok {
		return nil, robocache.Unsupported("loader", robocache.Where{"stream": key}, "this stream was timestamped by one clock")
	}
	return c.TimesBy(ctx, episode, r.key(key), clock)
}

// base is the dataset behind the other keys, for what has none.
func base(ds robocache.Dataset) robocache.Dataset {
	if m, ok := ds.(*maskedNaN); ok {
		ds = m.Dataset
	}
	if r, ok := ds.(*renamed); ok {
		return r.Dataset
	}
	return ds
}

func (r *renamed) Info() *robocache.Info { return &r.info }

func (r *renamed) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	return r.Dataset.Gather(ctx, r.key(key), rows, dst)
}

func (r *renamed) Text(ctx context.Context, key string, rows []robocache.Row) ([]string, error) {
	return r.Dataset.Text(ctx, r.key(key), rows)
}

func (r *renamed) Frames(ctx context.Context, key string, rows []robocache.Row, out []robocache.FrameRef) error {
	return r.Dataset.Frames(ctx, r.key(key), rows, out)
}

func (r *renamed) Times(ctx context.Context, episode int, key string) ([]int64, error) {
	return r.Dataset.Times(ctx, episode, r.key(key))
}

func (r *renamed) Stats(ctx context.Context) (robocache.Stats, error) {
	out := robocache.Stats{}
	own, err := r.Dataset.Stats(ctx)
	if err != nil {
		return nil, err
	}
	for i := range r.info.Features {
		k := r.info.Features[i].Key
		if s := own[r.key(k)]; s != nil {
			out[k] = s
		}
	}
	return out, nil
}
