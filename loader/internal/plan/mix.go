package plan

import (
	"context"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/options"
)

// CheckMix checks the sources of a mixture: their names, weights and renamed keys. It sets default
// names and wraps datasets whose keys are renamed.
func CheckMix(mix []options.Mix, cfg *options.Config) error {
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
		if slices.ContainsFunc(mix[:i], func(o options.Mix) bool { return o.Name == m.Name }) {
			return options.Misuse("name of a mixture's source", "a name each", m.Name)
		}
		if m.Weight != nil {
			weighted++
			sum += *m.Weight
			if !(*m.Weight >= 0) || *m.Weight > 1e12 {
				return robocache.At(
					options.Misuse("weight", "0 or more", fmt.Sprint(*m.Weight)),
					options.PlaceOfSource(i, m),
				)
			}
		}
		if m.Dataset == nil {
			continue
		}
		if cfg.Missing == options.MissingPad {
			m.Dataset = robocache.PadLacking(m.Dataset)
		} else if cfg.Keys == nil {
			m.Dataset = robocache.WithoutUnasked(m.Dataset)
		}
		own := m.Dataset.Info()
		if len(m.Rename) > 0 {
			r, err := RenameDataset(m.Dataset, m.Rename)
			if err != nil {
				return robocache.At(err, options.PlaceOfSource(i, m))
			}
			m.Dataset = r
		}
		var err error
		if m.Stats, err = RenameStats(m.Stats, m.Rename, own, m.Dataset.Info()); err != nil {
			return robocache.At(err, options.PlaceOfSource(i, m))
		}
	}
	if weighted != 0 && (weighted != len(mix) || sum == 0) {
		return options.Misuse(
			"weights of a mixture",
			"a weight for each source, one of them above 0, or none",
			fmt.Sprintf("%d of %d, sum %v", weighted, len(mix), sum),
		)
	}
	if len(mix) == 1 {
		return nil
	}
	return options.CheckSourceNames(mix, cfg, column.GeneratedKeys())
}

// renamed wraps a dataset and gives its streams the keys of the batch.
type renamed struct {
	robocache.Dataset
	info    robocache.Info
	offered robocache.Capabilities
	oldKeys map[string]string // key of the batch → key of the dataset, for renamed keys
}

// RenameDataset returns ds with streams renamed by names (key of the dataset → key of the batch).
// It rejects unknown and repeated keys.
func RenameDataset(ds robocache.Dataset, names map[string]string) (robocache.Dataset, error) {
	r := &renamed{Dataset: ds, info: *ds.Info(), oldKeys: map[string]string{}}
	r.info.Features = slices.Clone(r.info.Features)
	var known []string
	for i := range r.info.Features {
		known = append(known, r.info.Features[i].Key)
	}
	for k, to := range names {
		if ds.Info().Feature(k) == nil {
			return nil, options.UnknownKey("rename", k, known)
		}
		if to == "" {
			return nil, options.Misuse("rename "+k, "a key", `""`)
		}
	}
	seen := map[string]string{}
	for i := range r.info.Features {
		f := &r.info.Features[i]
		if to, ok := names[f.Key]; ok {
			r.oldKeys[to] = f.Key
			f.Key = to
		}
		if other, ok := seen[f.Key]; ok {
			return nil, options.Misuse(
				"rename",
				"each key once",
				fmt.Sprintf("%s and %s are both %s", other, known[i], f.Key),
			)
		}
		seen[f.Key] = known[i]
	}
	r.setCapabilities()
	return r, nil
}

// RenameStats returns statistics under the keys of the batch. The given statistics may use either
// the keys of the dataset, which a count of the dataset returns, or those of the batch.
func RenameStats(
	stats robocache.Stats,
	names map[string]string,
	own, info *robocache.Info,
) (robocache.Stats, error) {
	if stats == nil {
		return nil, nil
	}
	out := robocache.Stats{}
	from := map[string]string{}
	for _, k := range options.Keys(stats) {
		to, is := names[k]
		switch {
		case !is && info.Feature(k) == nil:
			return nil, options.UnknownKey(
				"stats",
				k,
				append(options.FeatureKeys(info), options.FeatureKeys(own)...),
			)
		case !is:
			to = k
		case to != k && info.Feature(k) != nil:
			return nil, robocache.Misuse(
				"mixture",
				robocache.Where{"stream": k},
				"stats: with this rename %s is both a key of the dataset and another key of the "+
					"batch",
				k,
			).
				WithHint(
					"%s, which knows what is what; or leave out of %s what is not normalised",
					robocache.Option("stats", "compute"),
					robocache.Option("stats"),
				)
		}
		if from[to] != "" {
			return nil, options.Misuse(
				"stats",
				"each key once",
				fmt.Sprintf("%s and %s are both %s", from[to], k, to),
			)
		}
		out[to], from[to] = stats[k], k
	}
	return out, nil
}

// oldKey returns the dataset's own name of a key of the batch.
func (r *renamed) oldKey(k string) string {
	if old, ok := r.oldKeys[k]; ok {
		return old
	}
	return k
}

// Unwrap returns the wrapped dataset, which has its own keys (robocache.As).
func (r *renamed) Unwrap() robocache.Dataset { return r.Dataset }

// setCapabilities sets the capabilities of the wrapped dataset, translated to the keys of the
// batch. Recording is nil, because a recording uses the keys of the dataset.
func (r *renamed) setCapabilities() {
	own := r.Dataset.Capabilities()
	r.offered = *own
	c := &r.offered
	c.Recording = nil
	c.Origin = func(ctx context.Context, e int) (*robocache.Origin, error) {
		return robocache.OriginOf(ctx, r.Dataset, e)
	}
	if own.GatherRagged != nil {
		c.GatherRagged = func(ctx context.Context, key string, rows []robocache.Row) ([]byte, []int, error) {
			return own.GatherRagged(ctx, r.oldKey(key), rows)
		}
	}
	if own.LeaseFrames != nil {
		c.LeaseFrames = func(
			ctx context.Context, key string, rows []robocache.Row, out []robocache.FrameRef,
		) (func(), error) {
			return own.LeaseFrames(ctx, r.oldKey(key), rows, out)
		}
	}
	if own.Valid != nil {
		c.Valid = func(ctx context.Context, key string, rows []robocache.Row, valid []uint8) error {
			return own.Valid(ctx, r.oldKey(key), rows, valid)
		}
	}
	if own.Clocks != nil {
		c.Clocks = func(key string) []string { return own.Clocks(r.oldKey(key)) }
	}
	if own.TimesBy != nil {
		c.TimesBy = func(ctx context.Context, episode int, key, clock string) ([]int64, error) {
			return own.TimesBy(ctx, episode, r.oldKey(key), clock)
		}
	}
	if own.Message != nil {
		c.Message = func(key string) *robocache.MessageSource { return own.Message(r.oldKey(key)) }
	}
	if own.Rows != nil {
		c.Rows = func(ctx context.Context, episode int, key string) (int, error) {
			return own.Rows(ctx, episode, r.oldKey(key))
		}
	}
	if own.VideoStart != nil {
		c.VideoStart = func(ctx context.Context, episode int, key string) (int64, bool, error) {
			return own.VideoStart(ctx, episode, r.oldKey(key))
		}
	}
	if own.SideStreams != nil {
		c.SideStreams = r.sideStreams
	}
	if own.Lacks != nil {
		c.Lacks = func(episode int, key string) bool { return own.Lacks(episode, r.oldKey(key)) }
	}
}

// sideStreams returns the rates of the dataset's streams in recordings/, under the keys of the
// batch.
func (r *renamed) sideStreams() map[string]float64 {
	own, out := r.Dataset.Capabilities().SideStreams(), map[string]float64{}
	for i := range r.info.Features {
		key := r.info.Features[i].Key
		if hz, ok := own[r.oldKey(key)]; ok {
			out[key] = hz
		}
	}
	return out
}

// Capabilities returns the capabilities of the wrapped dataset, translated to the keys of the
// batch.
func (r *renamed) Capabilities() *robocache.Capabilities { return &r.offered }

// withoutRenaming returns the dataset inside a maskedNaN or renamed wrapper. It is used for data
// that has no keys.
func withoutRenaming(ds robocache.Dataset) robocache.Dataset {
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
	return r.Dataset.Gather(ctx, r.oldKey(key), rows, dst)
}

func (r *renamed) Text(ctx context.Context, key string, rows []robocache.Row) ([]string, error) {
	return r.Dataset.Text(ctx, r.oldKey(key), rows)
}

func (r *renamed) Frames(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) error {
	return r.Dataset.Frames(ctx, r.oldKey(key), rows, out)
}

func (r *renamed) Times(ctx context.Context, episode int, key string) ([]int64, error) {
	return r.Dataset.Times(ctx, episode, r.oldKey(key))
}

func (r *renamed) Stats(ctx context.Context) (robocache.Stats, error) {
	out := robocache.Stats{}
	own, err := r.Dataset.Stats(ctx)
	if err != nil {
		return nil, err
	}
	for i := range r.info.Features {
		k := r.info.Features[i].Key
		if s := own[r.oldKey(k)]; s != nil {
			out[k] = s
		}
	}
	return out, nil
}
